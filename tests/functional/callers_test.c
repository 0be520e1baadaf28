/* SPDX-License-Identifier: MIT */
/* Transfers of at most a chunk by many threads at once: each gets its own bytes, and its own error. */
#include "common.h"

#define CALLERS 12
#define FILE_BYTES (MIB(6) + 123)
#define MOST MIB(4)

struct caller {
	struct strait_endpoint *ep;
	struct strait_region *r;
	const unsigned char *want;
	const char *path;
	uint32_t routes;
	uint64_t seed;
	unsigned int n;
	uint64_t moved;
	unsigned int failed;
};

static const uint64_t lengths[] = { 1, 4096, KIB(20), KIB(64), KIB(100), KIB(256), KIB(700), MIB(1), MIB(3), MOST };

static uint64_t some_length(uint64_t *seed)
{
	uint64_t most = lengths[prng_below(seed, ARRAY_SIZE(lengths))];

	return prng_below(seed, 2) ? most : 1 + prng_below(seed, most);
}

/* Reads, also past the end of the file, and looks at the bytes behind as well. */
static void *read_some(void *arg)
{
	struct caller *c = arg;

	for (unsigned int i = 0; i < c->n; i++) {
		uint64_t len = some_length(&c->seed), off = prng_below(&c->seed, FILE_BYTES + KIB(64));
		uint64_t have = off < FILE_BYTES ? min_u64(len, FILE_BYTES - off) : 0;
		struct strait_result res = move(STRAIT_READ, c->routes, c->ep, off, c->r, 0, len);

		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, have);
		if (have)
			region_expect(c->r, 0, c->want + off, have);
		c->moved += have;
	}
	return NULL;
}

static const struct mode reading[] = {
	{ "emu", "emu:0", 0, 0, 0 },
	{ "emu-staged", "emu:0", ROUTE(STAGED), 0, 0 },
	{ "emu-buffered", "emu:0", ROUTE(STAGED), STRAIT_FILE_BUFFERED, 0 },
	{ "emu-direct", "emu:0", 0, STRAIT_FILE_DIRECT, 0 },
	{ "emu-immutable", "emu:0", 0, STRAIT_FILE_IMMUTABLE, 0 },
};

TEST_VARIANTS(reads_of_many, struct mode, reading)
{
	struct strait_context *ctx = context_for(v);
	const char *path = make_file("file", FILE_BYTES, 1);
	unsigned char *want = pattern_new(0, FILE_BYTES, 1);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, v->file);
	struct caller c[CALLERS];
	pthread_t t[CALLERS];
	uint64_t moved = 0;

	for (unsigned int i = 0; i < CALLERS; i++) {
		c[i] = (struct caller){ .ep = ep,
					.r = region_new(device_named(ctx, v->device), MOST),
					.want = want,
					.routes = v->routes,
					.seed = 10 + i,
					.n = 24 };
		thread_start(&t[i], read_some, &c[i]);
	}
	for (unsigned int i = 0; i < CALLERS; i++) {
		thread_join(t[i]);
		moved += c[i].moved;
		strait_region_close(c[i].r);
	}
	ASSERT_EQ(stats_of(ctx).route[STRAIT_ROUTE_STAGED].read_bytes +
			  stats_of(ctx).route[STRAIT_ROUTE_PAGECACHE].read_bytes,
		  moved);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(want);
}

/* Each thread writes its part of one file. */
static void *write_some(void *arg)
{
	struct caller *c = arg;
	unsigned char *bytes = pattern_new(0, MOST, c->seed);

	region_put_bytes(c->r, 0, bytes, MOST);
	for (unsigned int i = 0; i < c->n; i++) {
		uint64_t len = some_length(&c->seed), off = prng_below(&c->seed, MOST - len + 1);
		struct strait_result res;

		res = move(STRAIT_WRITE, c->routes, c->ep, c->moved + off, c->r, off, len);
		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, len);
		file_expect(c->path, c->moved + off, bytes + off, len);
	}
	free(bytes);
	return NULL;
}

static const struct mode writing[] = {
	{ "emu", "emu:0", 0, 0, 0 },
	{ "emu-direct", "emu:0", ROUTE(STAGED), STRAIT_FILE_DIRECT, 0 },
};

TEST_VARIANTS(writes_of_many, struct mode, writing)
{
	struct strait_context *ctx = context_for(v);
	const char *path = make_file("file", CALLERS * MOST, 1);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDWR, v->file);
	struct caller c[CALLERS];
	pthread_t t[CALLERS];

	for (unsigned int i = 0; i < CALLERS; i++) {
		c[i] = (struct caller){ .ep = ep,
					.r = region_new(device_named(ctx, v->device), MOST),
					.path = path,
					.routes = v->routes,
					.seed = 50 + i,
					.n = 8,
					.moved = i * MOST };
		thread_start(&t[i], write_some, &c[i]);
	}
	for (unsigned int i = 0; i < CALLERS; i++) {
		thread_join(t[i]);
		strait_region_close(c[i].r);
	}
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

/* Reads whose copies may fail: a result is all of the bytes or the error. */
static void *read_or_fail(void *arg)
{
	struct caller *c = arg;

	for (unsigned int i = 0; i < c->n; i++) {
		uint64_t len = KIB(64) << prng_below(&c->seed, 5), off = prng_below(&c->seed, FILE_BYTES - len);
		struct strait_result res = move(STRAIT_READ, ROUTE(STAGED), c->ep, off, c->r, 0, len);

		if (res.status) {
			ASSERT_EQ(res.status, -EIO);
			ASSERT_LT(res.bytes, len);
			c->failed++;
			continue;
		}
		ASSERT_EQ(res.bytes, len);
		c->moved += len;
	}
	return NULL;
}

TEST_WHERE(an_error_of_a_copy, where_emulated)

TEST(an_error_of_a_copy)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "emu:0");
	const char *path = make_file("file", FILE_BYTES, 1);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	unsigned char *want = pattern_new(0, FILE_BYTES, 1);
	struct caller c[CALLERS];
	pthread_t t[CALLERS];

	for (unsigned int round = 0; round < 10; round++) {
		unsigned int failed = 0;

		emu_inject_copy_error(dev, 1 + round, -EIO);
		for (unsigned int i = 0; i < CALLERS; i++) {
			c[i] = (struct caller){
				.ep = ep, .r = region_new(dev, MIB(1)), .seed = round * 100 + i, .n = 20
			};
			thread_start(&t[i], read_or_fail, &c[i]);
		}
		for (unsigned int i = 0; i < CALLERS; i++) {
			thread_join(t[i]);
			failed += c[i].failed;
			strait_region_close(c[i].r);
		}
		/* One copy failed. It may have carried the bytes of several callers, or of none whose error it was. */
		ASSERT_GE(failed, 1);
		ASSERT_LE(failed, CALLERS);
		/* And nothing is broken by it. */
		c[0] = (struct caller){ .ep = ep, .r = region_new(dev, MOST), .want = want, .seed = 1, .n = 3 };
		read_some(&c[0]);
		strait_region_close(c[0].r);
	}
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(want);
}

/* The kernel may zero what is truncated while it is being read: the bytes of the file, then maybe zeros. */
static void expect_bytes_or_zeros(struct strait_region *r, const unsigned char *want, uint64_t len)
{
	unsigned char *got = malloc(len);
	uint64_t i = 0;

	ASSERT_OK(strait_region_copy_out(r, 0, got, len));
	while (i < len && got[i] == want[i])
		i++;
	for (; i < len; i++)
		ASSERT_TRUE(!got[i] || got[i] == want[i]);
	free(got);
}

/* While a file is being truncated, what a read returns is what the file had, and not a byte more is touched. */
static void *read_shrinking(void *arg)
{
	struct caller *c = arg;
	unsigned char *fill = malloc(MIB(1));

	memset(fill, 0xa5, MIB(1));
	for (unsigned int i = 0; i < c->n; i++) {
		uint64_t off = prng_below(&c->seed, FILE_BYTES), len = 1 + prng_below(&c->seed, MIB(1));
		struct strait_result res;

		region_put_bytes(c->r, 0, fill, MIB(1));
		res = move(STRAIT_READ, ROUTE(STAGED), c->ep, off, c->r, 0, len);
		ASSERT_EQ(res.status, 0);
		if (res.bytes)
			expect_bytes_or_zeros(c->r, c->want + off, res.bytes);
		if (res.bytes < len)
			region_expect_byte(c->r, res.bytes, 0xa5, len - res.bytes);
	}
	free(fill);
	return NULL;
}

TEST(reads_of_a_shrinking_file)
{
	struct strait_context *ctx = context_new(NULL);
	const char *path = make_file("file", FILE_BYTES, 1);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	unsigned char *want = pattern_new(0, FILE_BYTES, 1);
	struct caller c[CALLERS];
	pthread_t t[CALLERS];

	for (unsigned int i = 0; i < CALLERS; i++) {
		c[i] = (struct caller){ .ep = ep,
					.r = region_new(device_named(ctx, "emu:0"), MIB(1)),
					.want = want,
					.seed = 70 + i,
					.n = 30 };
		thread_start(&t[i], read_shrinking, &c[i]);
	}
	for (uint64_t len = FILE_BYTES; len > KIB(40); len -= KIB(37)) {
		ASSERT_OK(truncate(path, (off_t)len));
		usleep(300);
	}
	for (unsigned int i = 0; i < CALLERS; i++) {
		thread_join(t[i]);
		strait_region_close(c[i].r);
	}
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(want);
}
