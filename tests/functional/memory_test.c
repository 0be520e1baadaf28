/* SPDX-License-Identifier: MIT */
/* Every allocation fails once, at every place where it is made: a clean error or a fallback, and no leak. */
#include "common.h"

/* The C library's functions behind the names that this program overrides. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static atomic_bool armed;
static atomic_uint count;
static unsigned int fail_at, fail_more;

static bool fails(void)
{
	unsigned int n;

	if (!atomic_load_explicit(&armed, memory_order_relaxed))
		return false;
	n = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1;
	if (n < fail_at || n - fail_at > fail_more)
		return false;
	errno = ENOMEM;
	return true;
}

__attribute__((visibility("default"))) void *malloc(size_t n)
{
	return fails() ? NULL : __libc_malloc(n);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
	return fails() ? NULL : __libc_realloc(p, n);
}

static void arm(unsigned int nth, unsigned int more)
{
	fail_at = nth;
	fail_more = more;
	atomic_store(&count, 0);
	atomic_store(&armed, true);
}

/* True if the allocation in question was reached. */
static bool disarm(void)
{
	atomic_store(&armed, false);
	return atomic_load(&count) >= fail_at;
}

#define LEN (MIB(1) + 99)

static int open_and_close(const char *path)
{
	struct strait_context *ctx = NULL;
	struct strait_device *dev;
	struct strait_region *r = NULL, *over = NULL;
	struct strait_endpoint *ep = NULL;
	struct strait_queue *q = NULL;
	struct strait_stream *s = NULL;
	struct strait_topo *topo = NULL;
	void *mem = NULL;
	int failed = 0;

#define TRY(call)                                                                                                      \
	do {                                                                                                           \
		int rc_ = (call);                                                                                      \
		if (rc_) {                                                                                             \
			ASSERT_EQ(rc_, -ENOMEM);                                                                       \
			failed++;                                                                                      \
		}                                                                                                      \
	} while (0)
	TRY(strait_topo_open(&topo));
	strait_topo_close(topo);
	TRY(strait_context_open(NULL, &ctx));
	if (!ctx)
		return failed;
	dev = device_named(ctx, "emu");
	TRY(strait_region_alloc(dev, LEN, &r));
	TRY(strait_emu_malloc(dev, LEN, &mem));
	if (mem)
		TRY(strait_region_import(ctx, NULL, mem, LEN, &over));
	TRY(strait_file_open(ctx, path, O_RDWR, 0, 0, &ep));
	TRY(strait_queue_open(ctx, NULL, &q));
	TRY(strait_stream_open(dev, &s));
	strait_stream_close(s);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	strait_region_close(over);
	if (mem)
		ASSERT_OK(strait_emu_free(dev, mem));
	strait_region_close(r);
	strait_context_close(ctx);
	return failed;
}

TEST_WHERE(opening, where_emulated)

TEST(opening)
{
	const char *path = make_file("file", LEN, 1);
	unsigned int descriptors, nth = 0, failed = 0;

	ASSERT_EQ(open_and_close(path), 0);
	descriptors = descriptors_now();
	do {
		arm(++nth, 0);
		failed += open_and_close(path) != 0;
		atomic_store(&armed, false);
		ASSERT_EQ(descriptors_now(), descriptors);
	} while (disarm());
	ASSERT_GT(failed, 8);
	ASSERT_EQ(open_and_close(path), 0);
}

struct rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *r;
	struct strait_endpoint *ep;
	struct strait_queue *q;
	struct strait_stream *s;
};

static void rig_open(struct rig *g, const struct mode *m)
{
	struct strait_context_opts opts = {
		.size = sizeof(opts), .chunk_bytes = KIB(64), .pool_bytes = KIB(256), .threads = 2, .flags = m->context
	};

	g->ctx = context_new(&opts);
	g->dev = device_named(g->ctx, m->device);
	g->r = region_new(g->dev, LEN);
	g->ep = file_new(g->ctx, test_path("file"), O_RDWR, m->file);
	g->q = queue_new(g->ctx, 8);
	ASSERT_OK(strait_stream_open(g->dev, &g->s));
}

static void rig_close(struct rig *g)
{
	strait_stream_close(g->s);
	strait_queue_close(g->q);
	strait_endpoint_close(g->ep);
	strait_region_close(g->r);
	strait_context_close(g->ctx);
}

static struct strait_result attempt(struct rig *g, uint32_t op, uint32_t routes, int how, uint64_t len)
{
	struct strait_transfer t = { .op = op, .routes = routes, .endpoint = g->ep, .region = g->r, .length = len };
	struct strait_stream_transfer st = { .size = sizeof(st),
					     .op = op,
					     .routes = routes,
					     .endpoint = g->ep,
					     .region = g->r,
					     .endpoint_offset = &t.endpoint_offset,
					     .region_offset = &t.region_offset,
					     .length = &len };
	struct strait_result res = { 0 };
	int64_t result = 0;
	int rc;

	switch (how) {
	case 0:
		strait_transfer_run(&t, STRAIT_FOREVER, &res);
		break;
	case 1:
		rc = strait_queue_submit(g->q, &t, 1);
		if (rc)
			res.status = rc;
		else
			ASSERT_EQ(strait_queue_wait(g->q, 1, 1, STRAIT_FOREVER, &res), 1);
		break;
	default:
		st.result = &result;
		rc = strait_stream_transfer(g->s, &st);
		if (!rc)
			ASSERT_OK(strait_stream_wait(g->s, STRAIT_FOREVER));
		res.status = rc ? rc : result < 0 ? (int)result : 0;
		res.bytes = result > 0 ? (uint64_t)result : 0;
	}
	return res;
}

static const struct mode modes[] = {
	{ "any", "emu:0", 0, 0, 0 },
	{ "pagecache", "emu:0", ROUTE(PAGECACHE), 0, 0 },
	{ "immutable", "emu:0", 0, STRAIT_FILE_IMMUTABLE, 0 },
	{ "direct", "emu:0", ROUTE(STAGED), STRAIT_FILE_DIRECT, 0 },
	{ "threads", "emu:0", ROUTE(STAGED), STRAIT_FILE_DIRECT, STRAIT_CONTEXT_NO_URING },
	{ "host", "host", 0, 0, 0 },
};

TEST_WHERE(moving, where_emulated)

TEST_VARIANTS(moving, struct mode, modes)
{
	struct strait_emu_model models[] = { { sizeof(models[0]), 0, 0 }, { sizeof(models[0]), GIB(4), 1 } };
	unsigned char *want = pattern_new(0, LEN, 1);
	unsigned int failed = 0;
	struct rig g;

	make_file("file", LEN, 1);
	for (int kind = 0; kind < 24; kind++) {
		uint32_t op = kind % 2 ? STRAIT_WRITE : STRAIT_READ, routes = op == STRAIT_READ ? v->routes : 0;
		uint64_t len = kind / 2 % 2 ? 5000 : LEN;
		int how = kind / 4 % 3;
		unsigned int nth = 0;
		bool reached;

		do {
			struct strait_result res;

			rig_open(&g, v);
			if (!strcmp(v->device, "emu:0"))
				ASSERT_OK(strait_emu_set_model(g.dev, &models[kind / 12]));
			if (op == STRAIT_WRITE)
				region_put_bytes(g.r, 0, want, LEN);
			arm(++nth, 0);
			res = attempt(&g, op, routes, how, len);
			reached = disarm();
			if (res.status) {
				failed++;
				/* A thread that cannot be created is reported with the system's error. */
				ASSERT_TRUE(res.status == -ENOMEM || res.status == -EAGAIN);
			} else {
				ASSERT_EQ(res.bytes, len);
			}
			if (op == STRAIT_READ)
				region_expect(g.r, 0, want, res.bytes);
			res = attempt(&g, op, routes, how, len);
			ASSERT_EQ(res.status, 0);
			ASSERT_EQ(res.bytes, len);
			if (op == STRAIT_READ)
				region_expect(g.r, 0, want, len);
			file_expect(test_path("file"), 0, want, LEN);
			rig_close(&g);
		} while (reached);
	}
	ASSERT_GT(failed, 0);
	free(want);
}

/* All allocations fail for a while. */
TEST_VARIANTS(no_memory_at_all, struct mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct rig g;

	make_file("file", LEN, 1);
	for (int how = 0; how < 3; how++) {
		for (uint32_t op = STRAIT_READ; op <= STRAIT_WRITE; op++) {
			uint32_t routes = op == STRAIT_READ ? v->routes : 0;
			struct strait_result res;

			rig_open(&g, v);
			region_put_bytes(g.r, 0, want, LEN);
			arm(1, UINT32_MAX);
			res = attempt(&g, op, routes, how, LEN);
			disarm();
			ASSERT_LT(res.status, 0);
			res = attempt(&g, op, routes, how, LEN);
			ASSERT_EQ(res.status, 0);
			region_expect(g.r, 0, want, LEN);
			rig_close(&g);
		}
	}
	free(want);
}
