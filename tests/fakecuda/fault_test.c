/* SPDX-License-Identifier: MIT */
/*
 * Every call of the driver fails once, in every scenario: with or without an error, nothing leaks, nothing is misused,
 * and the thread's current context is unchanged.
 */
#include "device/cuda/cuda.h"
#include "engine/engine.h"
#include "fakecuda/common.h"

#define LONG KIB(300) /* more than is moved as one piece */

struct rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct strait_region *r;
	cu_ptr ptr; /* of the application's */
	const char *path;
	char *want;
	bool failed; /* an error was reported */
	bool hit;    /* the selected call failed */
};

static void note(struct rig *g, long long rc)
{
	if (rc >= 0)
		return;
	g->failed = true;
	/* Only documented errors. */
	switch (rc) {
	case -ENOMEM:
	case -EIO:
	case -ENODEV:
	case -ESTALE:
	case -EFAULT:
	case -EINVAL:
	case -EOPNOTSUPP:
	case -EAGAIN:
	case -ENOENT: /* the driver reported that the memory is not its own */
		return;
	default:
		FAIL("%lld is no error that was expected", rc);
	}
}

/* The bytes are right, or an error was reported. */
static void check(struct rig *g, struct strait_region *r, uint64_t at, uint64_t off, uint64_t len)
{
	char *buf = malloc(len);

	g->hit |= fake_failed();
	fake_fail(NULL, 0, 0);
	ASSERT_OK(strait_region_copy_out(r, at, buf, len));
	ASSERT_MEMEQ(buf, g->want + off, len);
	free(buf);
}

static void read_one(struct rig *g, uint32_t routes, uint64_t len)
{
	struct strait_result res = move(STRAIT_READ, routes, g->ep, 5, g->r, 3, len);

	note(g, res.status);
	if (!res.status)
		check(g, g->r, 3, 5, res.bytes);
}

static void do_staged(struct rig *g)
{
	read_one(g, ROUTE(STAGED), LONG);
}

static void do_pagecache(struct rig *g)
{
	read_one(g, ROUTE(PAGECACHE), LONG);
}

static void do_any(struct rig *g)
{
	read_one(g, 0, LONG);
}

static void do_small(struct rig *g)
{
	read_one(g, 0, 5000);
}

static void do_write(struct rig *g)
{
	struct strait_result res;

	res = move(STRAIT_WRITE, 0, g->ep, 5, g->r, 0, LONG);
	note(g, res.status);
	res = move(STRAIT_WRITE, 0, g->ep, 5, g->r, 0, 900);
	note(g, res.status);
}

static void do_region(struct rig *g)
{
	uint32_t crc = 0;
	uint64_t where;

	note(g, strait_region_fill(g->r, 0, 0, KIB(128)));
	note(g, strait_region_copy_in(g->r, 0, g->want, LONG));
	note(g, strait_region_crc32c(g->r, 1, LONG, &crc));
	note(g, strait_region_compare(g->r, 0, g->r, KIB(128), KIB(128), &where));
}

static void do_queue(struct rig *g)
{
	enum { N = 40 };
	struct strait_transfer t[N];
	struct strait_result res[N];
	struct strait_queue *q;
	int done = 0, n;

	ASSERT_OK(strait_queue_open(g->ctx, NULL, &q));
	for (unsigned int i = 0; i < N; i++)
		t[i] = (struct strait_transfer){ .op = STRAIT_READ,
						 .endpoint = g->ep,
						 .region = g->r,
						 .user_data = i,
						 .endpoint_offset = i * 9000,
						 .region_offset = i * 8192,
						 .length = 7000 };
	n = strait_queue_submit(q, t, N);
	note(g, n);
	while (!n && done < N) {
		int got = strait_queue_wait(q, 1, N, STRAIT_FOREVER, res);

		ASSERT_GT(got, 0);
		for (int i = 0; i < got; i++) {
			note(g, res[i].status);
			if (!res[i].status && !fake_failed())
				ASSERT_EQ(res[i].bytes, 7000);
		}
		done += got;
	}
	strait_queue_close(q);
}

static void do_import(struct rig *g)
{
	struct strait_region *r;
	struct strait_result res;
	int rc;

	rc = strait_region_import(g->ctx, NULL, (void *)(uintptr_t)g->ptr, LONG, &r);
	note(g, rc);
	if (rc)
		return;
	res = move(STRAIT_READ, 0, g->ep, 0, r, 0, LONG);
	note(g, res.status);
	if (!res.status)
		check(g, r, 0, 0, LONG);
	strait_region_close(r);
}

static void do_stream(struct rig *g)
{
	static const uint64_t off = 7, at = 9, len = LONG;
	int64_t result = 1;
	struct strait_stream_transfer t = { .size = sizeof(t),
					    .op = STRAIT_READ,
					    .endpoint = g->ep,
					    .region = g->r,
					    .endpoint_offset = &off,
					    .region_offset = &at,
					    .length = &len,
					    .result = &result };
	struct strait_stream *s;
	int rc;

	rc = strait_stream_open(g->dev, &s);
	note(g, rc);
	if (rc)
		return;
	rc = strait_stream_transfer(s, &t);
	note(g, rc);
	note(g, strait_stream_wait(s, STRAIT_FOREVER));
	strait_stream_close(s);
	/* Whether or not the wait behind it could be enqueued, it has ended now. */
	if (!rc)
		note(g, result);
}

static void do_native_stream(struct rig *g)
{
	struct strait_stream *s;
	int rc;

	rc = strait_stream_import(g->dev, NULL, &s);
	note(g, rc);
	if (rc)
		return;
	note(g, strait_stream_wait(s, STRAIT_FOREVER));
	strait_stream_close(s);
}

static const struct scenario {
	const char *name;
	void (*run)(struct rig *g);
} scenarios[] = {
	{ "staged", do_staged }, { "pagecache", do_pagecache },
	{ "any", do_any },	 { "small", do_small },
	{ "write", do_write },	 { "region", do_region },
	{ "queue", do_queue },	 { "import", do_import },
	{ "stream", do_stream }, { "native-stream", do_native_stream },
};

static const struct result_kind {
	cu_result r;
} results[] = { { CU_OUT_OF_MEMORY }, { CU_ILLEGAL_ADDRESS }, { CU_INVALID_VALUE }, { CU_CONTEXT_IS_DESTROYED } };

/* The whole life of a context with the @nth call failing. False if there are fewer calls. */
static bool one_life(struct rig *g, const struct scenario *v, unsigned int nth, cu_result r, bool from_start)
{
	struct strait_context_opts opts = {
		.size = sizeof(opts), .chunk_bytes = KIB(64), .pool_bytes = KIB(256), .threads = 2
	};

	g->failed = g->hit = false;
	g->r = NULL;
	g->ep = NULL;
	if (from_start)
		fake_fail(NULL, nth, r);
	ASSERT_OK(strait_context_open(&opts, &g->ctx));
	g->ep = file_new(g->ctx, g->path, O_RDWR, 0);
	if (strait_device_find(g->ctx, "cuda:0", &g->dev)) {
		g->failed = true;
	} else {
		int rc = strait_region_alloc(g->dev, KIB(512), &g->r);

		note(g, rc);
		if (!rc) {
			if (!from_start)
				fake_fail(NULL, nth, r);
			v->run(g);
		}
	}
	strait_region_close(g->r);
	strait_endpoint_close(g->ep);
	strait_context_close(g->ctx);
	g->hit |= fake_failed();
	fake_fail(NULL, 0, 0);
	return g->hit;
}

static void fail_all(const struct scenario *v, bool from_start)
{
	struct fake_usage before;
	struct rig g = { .path = make_file("data", KIB(512), 1), .want = pattern_new(0, KIB(512), 1) };
	/* Where time is short, each call gets one of the errors in turn. */
	unsigned int hits = 0, step = test_slow() > 1 ? 4 : getenv("STRAIT_TEST_LONG") ? 1 : 2;
	cu_context mine, now;

	cuda_suspect_ns = 0;
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&mine, 0, 0));
	CU(cuMemAlloc_v2(&g.ptr, LONG));
	before = fake_usage();
	for (size_t k = 0; k < ARRAY_SIZE(results); k++) {
		/* The number of calls varies with polling: stop when several in a row are not reached. */
		unsigned int missed = 0;

		for (unsigned int nth = 1 + (unsigned int)k % step; missed < 5 && nth < 400; nth += step) {
			bool hit = one_life(&g, v, nth, results[k].r, from_start);

			hits += hit;
			missed = hit ? 0 : missed + 1;
			now = NULL;
			CU(cuCtxGetCurrent(&now));
			ASSERT_EQ(now, mine);
			ASSERT_EQ(fake_depth(), 1);
			expect_clean();
			expect_usage(&before);
		}
	}
	ASSERT_GT(hits * step, 10);
	free(g.want);
}

TEST_VARIANTS_TIMEOUT(every_call_fails_once, struct scenario, scenarios, 240)
{
	fail_all(v, false);
}

TEST_TIMEOUT(every_call_of_a_life_fails_once, 240)
{
	fail_all(&scenarios[0], true);
}

/* A stream on which a copy list failed is closed, not cached. */
TEST(failed_streams_are_closed)
{
	enum { N = 8 };
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "cuda:0");
	struct strait_region *r = region_new(dev, MIB(1));
	struct strait_endpoint *ep = file_new(ctx, make_file("file", MIB(1), 1), O_RDWR, 0);
	struct strait_transfer t[N];
	struct strait_result res[N];
	struct strait_queue *q;
	unsigned int failed = 0;

	ASSERT_OK(strait_queue_open(ctx, NULL, &q));
	for (uint64_t i = 0; i < N; i++)
		t[i] = (struct strait_transfer){ .op = STRAIT_WRITE,
						 .endpoint = ep,
						 .region = r,
						 .endpoint_offset = i * 8000,
						 .region_offset = i * 9000,
						 .length = 4000 };
	fake_fail("cuLaunchKernel", 1, CU_LAUNCH_OUT_OF_RESOURCES);
	ASSERT_OK(strait_queue_submit(q, t, N));
	ASSERT_EQ(strait_queue_wait(q, N, N, STRAIT_FOREVER, res), N);
	ASSERT_TRUE(fake_failed());
	for (int i = 0; i < N; i++)
		failed += res[i].status != 0;
	ASSERT_GT(failed, 0);
	list_for_each(it, &device_engine(dev)->streams)
		ASSERT_EQ(list_entry(it, struct lane_stream, node)->stream->status, 0);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	expect_clean();
}
