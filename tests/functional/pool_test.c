/* SPDX-License-Identifier: MIT */
/* Staging memory is bounded, any number of transfers share it, and both sides of a transfer work at the same time. */
#include "common.h"

#define LEN MIB(4)

struct share {
	struct strait_context *ctx;
	const char *path;
	const unsigned char *want;
	uint64_t pool;
	atomic_uint number;
};

static void *all_kinds(void *arg)
{
	static const uint32_t masks[] = { 0, ROUTE(STAGED), ROUTE(PAGECACHE), ROUTE(STAGED) | ROUTE(PAGECACHE) };
	struct share *s = arg;
	unsigned int me = atomic_fetch_add(&s->number, 1);
	struct strait_region *r = region_new(device_named(s->ctx, "emu"), LEN);
	struct strait_endpoint *in, *out;
	uint64_t state = me;
	char name[32];

	snprintf(name, sizeof(name), "out%u", me);
	out = file_new(s->ctx, test_path(name), O_RDWR | O_CREAT, me % 3 ? 0 : STRAIT_FILE_DIRECT);
	in = file_new(s->ctx, s->path, O_RDONLY, me % 4 == 1 ? STRAIT_FILE_DIRECT : 0);
	for (unsigned int i = 0; i < (test_slow() > 4 ? 5 : 12); i++) {
		uint64_t off = prng_below(&state, LEN),
			 n = min_u64(1 + prng_below(&state, i % 3 ? 9999 : LEN), LEN - off);
		uint32_t mask = masks[prng_below(&state, 4)];

		ASSERT_EQ(move(STRAIT_READ, mask, in, off, r, off, n).bytes, n);
		region_expect(r, off, s->want + off, n);
		ASSERT_EQ(move(STRAIT_WRITE, 0, out, off, r, off, n).bytes, n);
		file_expect(test_path(name), off, s->want + off, n);
		ASSERT_LE(stats_of(s->ctx).pool_bytes, s->pool);
	}
	unlink(test_path(name));
	strait_region_close(r);
	strait_endpoint_close(in);
	strait_endpoint_close(out);
	return NULL;
}

static const struct size {
	const char *name;
	uint64_t pool, chunk;
	uint32_t flags;
} pools[] = {
	{ "one-chunk", 1, KIB(64), 0 },
	{ "one-chunk-threads", KIB(64), KIB(64), STRAIT_CONTEXT_NO_URING },
	{ "three-chunks", KIB(192), KIB(64), 0 },
	{ "defaults", 0, 0, 0 },
};

/* A pool of a single chunk is enough for any number of transfers of any kind. */
TEST_VARIANTS_TIMEOUT(many_transfers_share_a_pool, struct size, pools, 120)
{
	const int threads = test_slow() > 4 ? 24 : 64;
	struct strait_context_opts opts = {
		.size = sizeof(opts), .pool_bytes = v->pool, .chunk_bytes = v->chunk, .flags = v->flags, .threads = 4
	};
	struct share s = { .ctx = context_new(&opts), .pool = v->pool ? max_u64(v->pool, v->chunk) : GIB(1) };
	pthread_t t[64];

	s.path = strdup(make_file("in", LEN, 1));
	s.want = pattern_new(0, LEN, 1);
	evict(s.path, 0, LEN / 2);
	for (int i = 0; i < threads; i++)
		thread_start(&t[i], all_kinds, &s);
	for (int i = 0; i < threads; i++)
		thread_join(t[i]);
	ASSERT_GT(stats_of(s.ctx).pool_bytes, 0);
	if (v->chunk)
		ASSERT_GT(stats_of(s.ctx).pool_waits, 0);
	ASSERT_EQ(stats_of(s.ctx).errors, 0);
	free((char *)s.path);
	free((void *)s.want);
	strait_context_close(s.ctx);
	ASSERT_EQ(stats_of(NULL).pool_bytes, 0);
}

static const struct size few_chunks[] = {
	{ "ring", MIB(1), KIB(256), 0 },
	{ "threads", MIB(1), KIB(256), STRAIT_CONTEXT_NO_URING },
};

/* A file much longer than the pool takes no more memory than the pool. */
TEST_VARIANTS(memory_is_bounded, struct size, few_chunks)
{
	const uint64_t len = MIB(256);
	struct strait_context_opts opts = {
		.size = sizeof(opts), .pool_bytes = v->pool, .chunk_bytes = v->chunk, .flags = v->flags
	};
	struct strait_context *ctx = context_new(&opts);
	struct strait_region *r = region_new(device_named(ctx, "emu"), MIB(8));
	const char *path = test_path("sparse");
	struct strait_endpoint *ep;
	uint64_t before;

	/* A sparse file: time is not tested here. */
	write_at(path, "", 0, 0);
	ASSERT_EQ(truncate(path, (off_t)len), 0);
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_DIRECT);
	ASSERT_EQ(move(STRAIT_READ, 0, ep, 0, r, 0, MIB(8)).bytes, MIB(8));
	before = status_bytes("VmRSS");
	for (uint64_t off = 0; off < len; off += MIB(8))
		ASSERT_EQ(move(STRAIT_READ, ROUTE(STAGED), ep, off, r, 0, MIB(8)).bytes, MIB(8));
	ASSERT_EQ(stats_of(ctx).pool_bytes, MIB(1));
	ASSERT_LE(status_bytes("VmRSS"), before + MIB(24));
	ASSERT_LE(status_bytes("VmLck"), MIB(1));
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
}

/* ---- overlap ---- */

static atomic_int reading, most_reading;

static bool slow_read(enum os_call call, int64_t *ret)
{
	int n, most;

	(void)ret;
	if (call != OS_PREAD)
		return false;
	n = atomic_fetch_add(&reading, 1) + 1;
	most = atomic_load(&most_reading);
	while (n > most && !atomic_compare_exchange_weak(&most_reading, &most, n))
		;
	sleep_ms(1);
	atomic_fetch_sub(&reading, 1);
	return false;
}

/* Counts the reads that begin while the copy engine is busy. */
struct engine_watch {
	struct soft_engine *eng;
	atomic_uint reads, overlapped;
};

static struct engine_watch watch;

static bool count_overlap(enum os_call call, int64_t *ret)
{
	(void)ret;
	if (call != OS_PREAD)
		return false;
	atomic_fetch_add(&watch.reads, 1);
	pthread_mutex_lock(&watch.eng->in.lock);
	/* Its one thread is not idle: a copy is in flight, or queued. */
	if (watch.eng->in.n_threads && (!watch.eng->in.n_idle || watch.eng->in.n_ready))
		atomic_fetch_add(&watch.overlapped, 1);
	pthread_mutex_unlock(&watch.eng->in.lock);
	return false;
}

TEST_WHERE(reading_goes_on_while_the_device_copies, where_emulated)

/* With a slow copy engine, most reads begin while a copy runs. */
TEST(reading_goes_on_while_the_device_copies)
{
	struct strait_emu_model slow = { .size = sizeof(slow), .bytes_per_second = MIB(200) };
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 1 };
	struct strait_context *ctx = context_new(&opts);
	struct strait_device *dev = device_named(ctx, "emu");
	const uint64_t len = MIB(24);
	struct strait_region *r = region_new(dev, len);
	struct strait_endpoint *ep = file_new(ctx, make_file("file", len, 1), O_RDONLY, STRAIT_FILE_BUFFERED);

	ASSERT_OK(strait_emu_set_model(dev, &slow));
	watch.eng = soft_engine(dev);
	os_inject = count_overlap;
	ASSERT_EQ(move(STRAIT_READ, ROUTE(STAGED), ep, 0, r, 0, len).bytes, len);
	os_inject = NULL;
	ASSERT_GE(watch.reads, len / KIB(512));
	/* All but the first few, on one thread. */
	ASSERT_GE(watch.overlapped, watch.reads * 3 / 4);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
}

static bool count_writes(enum os_call call, int64_t *ret)
{
	(void)ret;
	if (call != OS_PWRITE)
		return false;
	atomic_fetch_add(&watch.reads, 1);
	pthread_mutex_lock(&watch.eng->out.lock);
	if (watch.eng->out.n_threads && (!watch.eng->out.n_idle || watch.eng->out.n_ready))
		atomic_fetch_add(&watch.overlapped, 1);
	pthread_mutex_unlock(&watch.eng->out.lock);
	return false;
}

TEST_WHERE(writing_goes_on_while_the_device_copies, where_emulated)

TEST(writing_goes_on_while_the_device_copies)
{
	struct strait_emu_model slow = { .size = sizeof(slow), .bytes_per_second = MIB(200) };
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "emu");
	const uint64_t len = MIB(24);
	struct strait_region *r = region_new(dev, len);
	struct strait_endpoint *ep = file_new(ctx, make_file("file", len, 1), O_RDWR, STRAIT_FILE_BUFFERED);

	ASSERT_OK(strait_emu_set_model(dev, &slow));
	watch.eng = soft_engine(dev);
	os_inject = count_writes;
	ASSERT_EQ(move(STRAIT_WRITE, 0, ep, 0, r, 0, len).bytes, len);
	os_inject = NULL;
	ASSERT_GE(watch.reads, len / KIB(512));
	ASSERT_GE(watch.overlapped, watch.reads * 3 / 4);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
}

/* If reads are slow, several threads read at the same time. */
TEST(slow_reads_happen_at_the_same_time)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 4 };
	const uint64_t len = MIB(32);

	for (int host = 0; host < 2; host++) {
		struct strait_context *ctx = context_new(&opts);
		struct strait_region *r = region_new(device_named(ctx, host ? "host" : "emu"), len);
		struct strait_endpoint *ep = file_new(ctx, make_file("file", len, 1), O_RDONLY, STRAIT_FILE_BUFFERED);

		atomic_store(&most_reading, 0);
		os_inject = slow_read;
		ASSERT_EQ(move(STRAIT_READ, host ? 0 : ROUTE(STAGED), ep, 0, r, 0, len).bytes, len);
		os_inject = NULL;
		ASSERT_GE(atomic_load(&most_reading), 2);
		/* At most as many as there are threads, including the caller. */
		ASSERT_LE(atomic_load(&most_reading), 4 + 1);
		strait_endpoint_close(ep);
		strait_region_close(r);
		strait_context_close(ctx);
	}
}

static __thread enum { OF_THE_CONTEXT, HELD, FREE } reader;
static atomic_int held, by_others;
static atomic_bool go_on;

static bool hold_read(enum os_call call, int64_t *ret)
{
	(void)ret;
	if (call != OS_PREAD)
		return false;
	atomic_fetch_add(&held, reader == HELD);
	while (reader == HELD && !atomic_load(&go_on))
		sleep_ms(1);
	atomic_fetch_add(&by_others, reader == OF_THE_CONTEXT);
	/* Give helpers time to join; where they must, the test waits for them. */
	if (reader == FREE)
		sleep_ms(5);
	for (int i = 0; i < 10000 && reader == FREE && atomic_load(&go_on) && !atomic_load(&by_others); i++)
		sleep_ms(1);
	return false;
}

struct caller {
	struct strait_endpoint *ep;
	struct strait_region *r;
	uint64_t off;
};

#define HELD_BYTES KIB(512) /* too short for helpers */

static void *read_held(void *arg)
{
	struct caller *c = arg;

	reader = HELD;
	ASSERT_EQ(move(STRAIT_READ, ROUTE(STAGED), c->ep, 0, c->r, c->off, HELD_BYTES).bytes, HELD_BYTES);
	return NULL;
}

/* If more threads than the context has are transferring already, none of its workers joins; otherwise some do. */
TEST(no_helpers_beside_many_callers)
{
	enum { CALLERS = 3 };
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = CALLERS - 1 };
	const uint64_t len = MIB(8);
	struct strait_context *ctx = context_new(&opts);
	struct strait_endpoint *ep = file_new(ctx, make_file("file", len, 1), O_RDONLY, STRAIT_FILE_BUFFERED);
	struct strait_region *r = region_new(device_named(ctx, "emu"), len);
	struct strait_region *theirs = region_new(device_named(ctx, "emu"), CALLERS * HELD_BYTES);
	struct caller c[CALLERS];
	pthread_t t[CALLERS];

	reader = FREE;
	os_inject = hold_read;
	for (int i = 0; i < CALLERS; i++) {
		c[i] = (struct caller){ ep, theirs, i * HELD_BYTES };
		thread_start(&t[i], read_held, &c[i]);
	}
	while (atomic_load(&held) < CALLERS)
		sleep_ms(1);
	ASSERT_EQ(move(STRAIT_READ, ROUTE(STAGED), ep, 0, r, 0, len).bytes, len);
	ASSERT_EQ(atomic_load(&by_others), 0);
	atomic_store(&go_on, true);
	for (int i = 0; i < CALLERS; i++)
		thread_join(t[i]);
	ASSERT_EQ(atomic_load(&by_others), 0);
	ASSERT_EQ(move(STRAIT_READ, ROUTE(STAGED), ep, 0, r, 0, len).bytes, len);
	ASSERT_GT(atomic_load(&by_others), 0);
	os_inject = NULL;
	strait_region_close(theirs);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

/* Direct I/O: many requests in flight from one thread. */
TEST(requests_in_flight_on_a_ring)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 1, .queue_depth = 8 };
	const uint64_t len = MIB(16);
	struct strait_context *ctx = context_new(&opts);
	struct strait_region *r = region_new(device_named(ctx, "emu"), len);
	struct strait_endpoint *ep = file_new(ctx, make_file("file", len, 1), O_RDONLY, STRAIT_FILE_DIRECT);
	unsigned int reads;

	if (!(file_info(ep).caps & STRAIT_FILE_CAN_DIRECT))
		SKIP("%s", strait_reason_text(file_info(ep).direct_reason));
	inject(OS_PREAD, 0, 0, 0);
	ASSERT_EQ(move(STRAIT_READ, 0, ep, 0, r, 0, len).bytes, len);
	reads = inject_calls();
	inject_off();
	/* No blocking reads; all I/O is direct. */
	ASSERT_EQ(stats_of(ctx).direct_bytes, len);
	if (reads)
		SKIP("no io_uring here");
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
}
