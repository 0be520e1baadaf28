/* SPDX-License-Identifier: MIT */
/* Files that another thread changes while they are read: the good bytes are a prefix, and no signal is raised. */
#include "common.h"

static const struct mode modes[] = { READ_MODES };

struct changer {
	int fd;
	uint64_t len;
	atomic_bool stop;
	void (*change)(struct changer *c, uint64_t *state);
	const unsigned char *data;
};

static void *change_main(void *arg)
{
	struct changer *c = arg;
	uint64_t state = 99;

	while (!atomic_load(&c->stop))
		c->change(c, &state);
	return NULL;
}

/* Truncates at some offset, then extends again: what was cut off reads as zeros from then on. */
static void cut_and_extend(struct changer *c, uint64_t *state)
{
	ASSERT_EQ(ftruncate(c->fd, (off_t)prng_below(state, c->len)), 0);
	if (prng_below(state, 2))
		ASSERT_EQ(ftruncate(c->fd, (off_t)c->len), 0);
}

static void shrink_and_refill(struct changer *c, uint64_t *state)
{
	uint64_t at = align_down(prng_below(state, c->len), 512);

	ASSERT_EQ(ftruncate(c->fd, (off_t)at), 0);
	for (; at < c->len; at += KIB(256))
		ASSERT_GT(pwrite(c->fd, c->data + at, min_u64(KIB(256), c->len - at), (off_t)at), 0);
}

static void append(struct changer *c, uint64_t *state)
{
	struct stat st;
	uint64_t at;

	ASSERT_EQ(fstat(c->fd, &st), 0);
	at = (uint64_t)st.st_size;
	if (at >= c->len)
		ASSERT_EQ(ftruncate(c->fd, 0), 0);
	else
		ASSERT_GT(pwrite(c->fd, c->data + at, min_u64(1 + prng_below(state, 99999), c->len - at), (off_t)at),
			  0);
}

/* At any time each byte of the file has its pattern, is zero in a hole, or does not exist. */
static void check(struct strait_region *r, const struct strait_result *res, const unsigned char *want,
		  unsigned char *buf, bool zeros)
{
	static const unsigned char zero[4096];

	ASSERT_OK(strait_region_copy_out(r, 0, buf, res->bytes));
	for (uint64_t at = 0, n; at < res->bytes; at += n) {
		n = min_u64(res->bytes - at, sizeof(zero));
		/* Most pieces are entirely pattern or entirely zero. */
		if (!memcmp(buf + at, want + at, n) || (zeros && !memcmp(buf + at, zero, n)))
			continue;
		for (uint64_t i = at; i < at + n; i++)
			if (buf[i] != want[i] && !(zeros && buf[i] == 0))
				FAIL("byte %llu of %llu is 0x%02x", (unsigned long long)i,
				     (unsigned long long)res->bytes, buf[i]);
	}
}

static void run(const struct mode *m, void (*change)(struct changer *c, uint64_t *state), bool zeros, int rounds)
{
	const uint64_t len = MIB(10) + 777;
	unsigned char *data = pattern_new(0, len, 5), *buf = malloc(len);
	const char *path = make_file("moving", len, 5);
	struct changer c = { .fd = open(path, O_RDWR | O_CLOEXEC), .len = len, .change = change, .data = data };
	/* Promises that are broken have a test of their own, below. */
	struct strait_context *ctx = context_for(m);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, m->file & ~STRAIT_FILE_IMMUTABLE);
	struct strait_region *r = region_new(device_named(ctx, m->device), len);
	uint64_t state = 17, all = 0;
	pthread_t t;

	/* One word in 256 of the pattern contains a zero byte, which does not matter here. */
	ASSERT_GE(c.fd, 0);
	thread_start(&t, change_main, &c);
	/* All reads may find the file empty if the changing thread is not scheduled. */
	for (int i = 0; i < rounds || (!all && i < 50 * rounds); i++) {
		uint64_t off = i % 4 ? prng_below(&state, len) : 0, want = len - off;
		struct strait_result res;

		if (i % 4 == 3)
			want = min_u64(want, 1 + prng_below(&state, KIB(64)));
		res = move(STRAIT_READ, m->routes, ep, off, r, 0, want);
		ASSERT_EQ(res.status, 0);
		all += res.bytes;
		check(r, &res, data + off, buf, zeros);
		if (!res.bytes)
			sleep_ms(1);
	}
	atomic_store(&c.stop, true);
	thread_join(t);
	ASSERT_GT(all, 0);
	close(c.fd);
	free(data);
	free(buf);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

TEST_VARIANTS(cut_while_read, struct mode, modes)
{
	run(v, cut_and_extend, true, 90);
}

TEST_VARIANTS(rewritten_while_read, struct mode, modes)
{
	run(v, shrink_and_refill, true, 30);
}

TEST_VARIANTS(growing_while_read, struct mode, modes)
{
	run(v, append, true, 60);
}

/* With a broken promise the bytes are undefined, but nothing else may happen. */
static const struct mode promised[] = {
	{ "any", "emu:0", 0, STRAIT_FILE_IMMUTABLE, 0 },
	{ "pagecache", "emu:0", ROUTE(PAGECACHE), STRAIT_FILE_IMMUTABLE, 0 },
	{ "staged", "emu:0", ROUTE(STAGED), STRAIT_FILE_IMMUTABLE, 0 },
};

TEST_VARIANTS(cut_in_spite_of_a_promise, struct mode, promised)
{
	const uint64_t len = MIB(10);
	unsigned char *data = pattern_new(0, len, 5);
	const char *path = make_file("promised", len, 5);
	struct changer c = { .fd = open(path, O_RDWR | O_CLOEXEC), .len = len, .change = cut_and_extend, .data = data };
	struct strait_context *ctx = context_for(v);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, v->file);
	struct strait_region *r = region_new(device_named(ctx, v->device), len);
	pthread_t t;

	thread_start(&t, change_main, &c);
	for (int i = 0; i < 150; i++) {
		struct strait_result res = move(STRAIT_READ, v->routes, ep, 0, r, 0, len);

		if (res.status)
			ASSERT_EQ(res.status, -EFAULT);
	}
	atomic_store(&c.stop, true);
	thread_join(t);
	close(c.fd);
	free(data);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

/* A transfer from registered pages ends, with the exact length, where the file was truncated before it. */
TEST(pages_past_the_end_are_not_delivered)
{
	const uint64_t len = MIB(8);
	const char *path = make_file("cut", len, 5);
	struct strait_context *ctx = context_new(NULL);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_region *r = region_new(device_named(ctx, "emu"), len);

	for (uint64_t cut = len; cut > 5000; cut = cut * 2 / 3 + 1) {
		struct strait_result res;

		ASSERT_EQ(truncate(path, (off_t)cut), 0);
		ASSERT_OK(strait_region_fill(r, 0, 0x77, len));
		res = move(STRAIT_READ, ROUTE(PAGECACHE), ep, 0, r, 0, len);
		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, cut);
		region_expect_byte(r, cut, 0x77, len - cut);
	}
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

static char cut_path[4200];
static uint64_t cut_to;
static atomic_bool cut_armed;

static bool cut_before_copy(enum os_call call, int64_t *ret)
{
	(void)ret;
	if (call == OS_VM_READ && atomic_exchange(&cut_armed, false))
		ASSERT_EQ(truncate(cut_path, (off_t)cut_to), 0);
	return false;
}

/* Truncated between registration and copy, by less than a page or by many: lost bytes are not delivered. */
TEST_WHERE(cut_at_the_last_moment, where_not_cuda) /* the pages are not copied by a call that can be injected */
TEST(cut_at_the_last_moment)
{
	static const uint64_t lens[] = { 5000, MIB(1), MIB(9) + 7 };
	struct strait_context *ctx = context_new(NULL);
	struct strait_region *r = region_new(device_named(ctx, "emu"), MIB(16));
	unsigned char *want = pattern_new(0, MIB(16), 5);

	os_inject = cut_before_copy;
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		const uint64_t cuts[] = { lens[i] - 1, lens[i] - 100, lens[i] / 2, 4097, 1, 0 };

		for (size_t k = 0; k < ARRAY_SIZE(cuts); k++) {
			const char *path = make_file("cut", lens[i], 5);
			struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
			struct strait_result res;

			snprintf(cut_path, sizeof(cut_path), "%s", path);
			cut_to = cuts[k];
			atomic_store(&cut_armed, true);
			res = move(STRAIT_READ, ROUTE(PAGECACHE), ep, 0, r, 0, lens[i]);
			ASSERT_FALSE(atomic_load(&cut_armed));
			ASSERT_EQ(res.status, 0);
			ASSERT_EQ(res.bytes, cuts[k]);
			ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_PAGECACHE], cuts[k]);
			region_expect(r, 0, want, res.bytes);
			strait_endpoint_close(ep);
		}
	}
	os_inject = NULL;
	free(want);
	strait_region_close(r);
	strait_context_close(ctx);
}
