/* SPDX-License-Identifier: MIT */
/* On a GPU: transfers ordered on streams, and no effect on the application's other work. */
#include "gpu/gpu.h"

struct ordered {
	uint64_t ep_off, off, len;
	int64_t result;
};

static const struct stream_kind {
	const char *name;
	int kind; /* 0: ours; 1: the application's; 2: its default stream */
	uint32_t routes;
} kinds[] = {
	{ "own", 0, 0 },
	{ "own-staged", 0, ROUTE(STAGED) },
	{ "own-pagecache", 0, ROUTE(PAGECACHE) },
	{ "application", 1, 0 },
	{ "application-staged", 1, ROUTE(STAGED) },
	{ "application-pagecache", 1, ROUTE(PAGECACHE) },
	{ "default", 2, 0 },
};

/* Work after a read on the stream sees the bytes, without synchronization by the host. */
TEST_VARIANTS(orders_reads, struct stream_kind, kinds)
{
	enum { N = 6 };
	static struct ordered o[N];
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	struct strait_region *r;
	struct strait_stream *s;
	cu_stream native = NULL;
	char *seen[N], *want;
	const char *path;
	cu_ptr ptr;

	need_gpu();
	use_primary();
	path = make_file("data", MIB(40), 1);
	want = pattern_new(0, MIB(40), 1);
	ctx = context_new(NULL);
	ep = file_new(ctx, path, O_RDONLY, 0);
	CU(cuMemAlloc_v2(&ptr, MIB(20)));
	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, MIB(20), &r));
	if (v->kind == 1)
		CU(cuStreamCreate(&native, 0));
	if (v->kind)
		ASSERT_OK(strait_stream_import(device_named(ctx, "cuda:0"), native, &s));
	else
		ASSERT_OK(strait_stream_open(device_named(ctx, "cuda:0"), &s));
	for (int i = 0; i < N; i++) {
		struct strait_stream_transfer t = { .size = sizeof(t),
						    .op = STRAIT_READ,
						    .routes = v->routes,
						    .endpoint = ep,
						    .region = r,
						    .endpoint_offset = &o[i].ep_off,
						    .region_offset = &o[i].off,
						    .length = &o[i].len,
						    .result = &o[i].result };

		o[i] = (struct ordered){ MIB(3) * (unsigned int)i + 17, 4096, i % 2 ? MIB(17) : 5000, 1 };
		CU(cuMemHostAlloc((void **)&seen[i], MIB(17), 1));
		ASSERT_OK(strait_stream_transfer(s, &t));
		if (v->kind)
			CU(cuMemcpyDtoHAsync_v2(seen[i], ptr + 4096, o[i].len, native));
	}
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	for (int i = 0; i < N; i++) {
		ASSERT_EQ(o[i].result, o[i].len);
		if (v->kind)
			ASSERT_MEMEQ(seen[i], want + o[i].ep_off, o[i].len);
		CU(cuMemFreeHost(seen[i]));
	}
	region_expect(r, 4096, want + o[N - 1].ep_off, o[N - 1].len);
	strait_stream_close(s);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	CU(cuMemFree_v2(ptr));
	free(want);
}

/* A write ordered behind work of the application stores what that work wrote. */
TEST(orders_writes)
{
	struct ordered o = { 100, 4096, MIB(9), 1 };
	struct strait_stream_transfer t = { .size = sizeof(t),
					    .op = STRAIT_WRITE,
					    .endpoint_offset = &o.ep_off,
					    .region_offset = &o.off,
					    .length = &o.len,
					    .result = &o.result };
	struct strait_context *ctx;
	struct strait_stream *s;
	cu_stream native;
	const char *path;
	char *want;
	cu_ptr ptr;

	need_gpu();
	use_primary();
	path = make_file("data", MIB(16), 1);
	want = pattern_new(0, MIB(10), 2);
	ctx = context_new(NULL);
	t.endpoint = file_new(ctx, path, O_RDWR, 0);
	CU(cuMemAlloc_v2(&ptr, MIB(10)));
	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, MIB(10), &t.region));
	CU(cuStreamCreate(&native, 1));
	ASSERT_OK(strait_stream_import(device_named(ctx, "cuda:0"), native, &s));
	CU(cuMemcpyHtoDAsync_v2(ptr, want, MIB(10), native));
	ASSERT_OK(strait_stream_transfer(s, &t));
	CU(cuMemsetD8Async(ptr, 0, MIB(10), native));
	CU(cuStreamSynchronize(native));
	ASSERT_EQ(o.result, MIB(9));
	file_expect(path, 100, want + 4096, MIB(9));
	strait_stream_close(s);
	strait_region_close(t.region);
	strait_endpoint_close(t.endpoint);
	strait_context_close(ctx);
	CU(cuStreamDestroy_v2(native));
	CU(cuMemFree_v2(ptr));
	free(want);
}

/* Other transfers continue while a stream of the application waits. */
TEST(works_beside_a_stream_that_waits)
{
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	struct strait_region *r;
	uint32_t *word, crc = 0;
	cu_ptr word_addr;
	cu_stream s;

	need_gpu();
	use_primary();
	ctx = context_new(NULL);
	ep = file_new(ctx, make_file("data", MIB(40), 1), O_RDONLY, 0);
	r = region_new(device_named(ctx, "cuda:0"), MIB(40));
	CU(cuMemHostAlloc((void **)&word, 4096, 1 | 2));
	*word = 0;
	CU(cuMemHostGetDevicePointer_v2(&word_addr, word, 0));
	CU(cuStreamCreate(&s, 1));
	CU(cuStreamWaitValue32_v2(s, word_addr, 1, 0));
	printf("# staged\n");
	ASSERT_EQ(move(STRAIT_READ, ROUTE(STAGED), ep, 0, r, 0, MIB(40)).bytes, MIB(40));
	printf("# page cache, registered and unregistered\n");
	ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), ep, 0, r, 0, MIB(40)).bytes, MIB(40));
	printf("# a kernel\n");
	ASSERT_OK(strait_region_crc32c(r, 0, MIB(40), &crc));
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	CU(cuStreamSynchronize(s));
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

static atomic_bool held;

static void hold(void *arg)
{
	while (atomic_load(&held))
		sleep_ms(1);
}

/*
 * The driver calls functions of all streams from one thread: a function that waits for a transfer must not block that
 * transfer.
 */
TEST(a_function_waits_for_a_transfer)
{
	struct ordered o = { 0, 0, MIB(4), 1 };
	struct strait_stream *stuck, *s;
	struct strait_context *ctx;
	struct strait_region *r;
	struct strait_endpoint *ep;
	struct strait_stream_transfer t;

	need_gpu();
	ctx = context_new(NULL);
	ep = file_new(ctx, make_file("data", MIB(4), 1), O_RDONLY, 0);
	r = region_new(device_named(ctx, "cuda:0"), MIB(4));
	ASSERT_OK(strait_stream_open(device_named(ctx, "cuda:0"), &stuck));
	ASSERT_OK(strait_stream_open(device_named(ctx, "cuda:0"), &s));
	t = (struct strait_stream_transfer){ .size = sizeof(t),
					     .endpoint = ep,
					     .region = r,
					     .endpoint_offset = &o.ep_off,
					     .region_offset = &o.off,
					     .length = &o.len,
					     .result = &o.result };
	atomic_store(&held, true);
	ASSERT_OK(strait_stream_call(stuck, hold, NULL));
	for (int i = 0; i < 20; i++) {
		o.result = 1;
		ASSERT_OK(strait_stream_transfer(s, &t));
		ASSERT_OK(strait_stream_wait(s, 10000000000));
		ASSERT_EQ(o.result, (int64_t)MIB(4));
	}
	atomic_store(&held, false);
	strait_stream_close(stuck);
	strait_stream_close(s);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

/* A capture of the application is not broken, and does not break transfers. */
TEST(leaves_a_capture_alone)
{
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	struct strait_region *r;
	struct strait_stream *ours;
	void *graph = NULL;
	uint32_t crc = 0;
	cu_stream s;
	cu_ptr ptr;

	need_gpu();
	if (!app.cuStreamBeginCapture_v2)
		SKIP("the driver has no captures");
	use_primary();
	ctx = context_new(NULL);
	ep = file_new(ctx, make_file("data", MIB(40), 1), O_RDONLY, 0);
	CU(cuMemAlloc_v2(&ptr, MIB(40)));
	CU(cuStreamCreate(&s, 1));
	CU(cuStreamBeginCapture_v2(s, 0));
	CU(cuMemsetD8Async(ptr, 1, 4096, s));
	r = region_new(device_named(ctx, "cuda:0"), MIB(40));
	ASSERT_EQ(move(STRAIT_READ, 0, ep, 0, r, 0, MIB(40)).bytes, MIB(40));
	ASSERT_EQ(move(STRAIT_READ, 0, ep, 0, r, 0, 4096).bytes, 4096);
	ASSERT_OK(strait_region_crc32c(r, 0, MIB(40), &crc));
	/* Transfers that a graph would run again are refused. */
	ASSERT_OK(strait_stream_import(device_named(ctx, "cuda:0"), s, &ours));
	ASSERT_EQ(strait_stream_wait(ours, 0), -EOPNOTSUPP);
	strait_stream_close(ours);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	CU(cuStreamEndCapture(s, &graph));
	ASSERT_TRUE(graph);
	CU(cuGraphDestroy(graph));
}

static uint64_t gpu_used(void)
{
	size_t free_bytes, total;

	CU(cuMemGetInfo_v2(&free_bytes, &total));
	return total - free_bytes;
}

static void one_cycle(const char *path, bool pages)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .pool_bytes = MIB(4) };
	struct strait_context *ctx = context_new(&opts);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_region *r = region_new(device_named(ctx, "cuda:0"), MIB(1));
	uint32_t crc = 0;

	ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(1)), MIB(1));
	ASSERT_EQ(strait_read(ep, 5, r, 0, 4096), 4096);
	ASSERT_OK(strait_region_crc32c(r, 0, MIB(1), &crc));
	/* Creating the context for page cache windows takes 0.1 s: do it once. */
	if (pages)
		ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), ep, 0, r, 0, MIB(1)).bytes, MIB(1));
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

TEST_TIMEOUT(a_thousand_cycles_leave_nothing, 300)
{
	uint64_t rss, gpu, pinned;
	unsigned int fds, threads;
	const char *path;

	need_gpu();
	use_primary();
	path = make_file("data", MIB(1), 1);
	for (int i = 0; i < 50; i++)
		one_cycle(path, i % 10 == 0);
	rss = status_bytes("VmRSS");
	pinned = status_bytes("VmPin");
	gpu = gpu_used();
	fds = descriptors_now();
	threads = threads_now();
	for (int i = 0; i < 1000; i++)
		one_cycle(path, i % 10 == 0);
	ASSERT_LE(status_bytes("VmRSS"), rss + MIB(8));
	ASSERT_LE(status_bytes("VmPin"), pinned);
	ASSERT_LE(gpu_used(), gpu);
	ASSERT_EQ(descriptors_now(), fds);
	ASSERT_EQ(threads_now(), threads);
}

struct worker {
	struct strait_context *ctx;
	const char *path;
	const char *content;
	unsigned int number;
	cu_context mine;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct strait_device *dev = device_named(w->ctx, "cuda:0");
	struct strait_endpoint *ep = file_new(w->ctx, w->path, O_RDONLY, w->number % 2 ? STRAIT_FILE_DIRECT : 0);
	uint64_t state = w->number;
	cu_context now = NULL;

	if (w->mine)
		CU(cuCtxSetCurrent(w->mine));
	for (int i = 0; i < 60; i++) {
		uint64_t len = 1 + prng_below(&state, i % 3 ? KIB(200) : MIB(20)),
			 off = prng_below(&state, MIB(64) - len);
		struct strait_region *r = region_new(dev, len);
		uint32_t crc = 0;

		ASSERT_EQ(strait_read(ep, off, r, 0, len), len);
		ASSERT_OK(strait_region_crc32c(r, 0, len, &crc));
		ASSERT_EQ(crc, crc32c_update(0, w->content + off, len));
		strait_region_close(r);
	}
	CU(cuCtxGetCurrent(&now));
	ASSERT_EQ(now, w->mine);
	strait_endpoint_close(ep);
	return NULL;
}

TEST_TIMEOUT(many_threads, 120)
{
	enum { N = 12 };
	struct worker w[N];
	pthread_t t[N];
	cu_context mine;

	need_gpu();
	CU(cuCtxCreate_v2(&mine, 0, 0));
	w[0] = (struct worker){ .ctx = context_new(NULL),
				.path = strdup(make_file("data", MIB(64), 1)),
				.content = pattern_new(0, MIB(64), 1) };
	for (unsigned int i = 0; i < N; i++) {
		w[i] = w[0];
		w[i].number = i;
		w[i].mine = i % 3 ? NULL : mine;
	}
	for (unsigned int i = 0; i < N; i++)
		thread_start(&t[i], work, &w[i]);
	for (unsigned int i = 0; i < N; i++)
		thread_join(t[i]);
	strait_context_close(w[0].ctx);
	CU(cuCtxDestroy_v2(mine));
}
