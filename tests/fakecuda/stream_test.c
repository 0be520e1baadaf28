/* SPDX-License-Identifier: MIT */
/* Transfers ordered on streams, of Strait and of the application. */
#include <strait/interpose.h>

#include "fakecuda/common.h"

struct ordered {
	uint64_t ep_off, off, len;
	int64_t result;
};

static struct strait_stream_transfer transfer_of(struct ordered *o, uint32_t op, uint32_t routes,
						 struct strait_endpoint *ep, struct strait_region *r)
{
	return (struct strait_stream_transfer){ .size = sizeof(struct strait_stream_transfer),
						.op = op,
						.routes = routes,
						.endpoint = ep,
						.region = r,
						.endpoint_offset = &o->ep_off,
						.region_offset = &o->off,
						.length = &o->len,
						.result = &o->result };
}

static const struct stream_kind {
	const char *name;
	int kind; /* 0: ours; 1: the application's; 2: its default stream; 3: that of the primary context */
	uint32_t routes;
	bool waits; /* unregistering memory waits for all streams */
	unsigned int queues;
} kinds[] = {
	{ "own", 0, 0, false, 0 },
	{ "application", 1, 0, false, 0 },
	{ "application-staged", 1, ROUTE(STAGED), false, 0 },
	{ "application-staged-waits", 1, ROUTE(STAGED), true, 0 },
	{ "application-pagecache", 1, ROUTE(PAGECACHE), false, 0 },
	{ "application-pagecache-waits", 1, ROUTE(PAGECACHE), true, 0 },
	{ "default", 2, 0, false, 0 },
	{ "primary-default", 3, 0, false, 0 },
	{ "one-queue", 1, 0, false, 1 },
	{ "one-queue-staged", 1, ROUTE(STAGED), false, 1 },
	{ "one-queue-pagecache", 1, ROUTE(PAGECACHE), true, 1 },
	{ "one-queue-primary", 3, 0, true, 1 },
	{ "two-queues-own", 0, 0, false, 2 },
};

TEST_VARIANTS(orders_reads, struct stream_kind, kinds)
{
	enum { N = 6 };
	static struct ordered o[N];
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	struct strait_region *r;
	struct strait_stream *s;
	cu_stream native = NULL;
	char *seen[N], *want = pattern_new(0, MIB(40), 1);
	const char *path = make_file("data", MIB(40), 1);
	cu_context mine;
	cu_ptr ptr;

	fake_machine.unregister_waits = v->waits;
	fake_machine.queues = v->queues;
	CU(cuInit(0));
	if (v->kind == 3) {
		CU(cuDevicePrimaryCtxRetain(&mine, 0));
		CU(cuCtxPushCurrent_v2(mine));
	} else {
		CU(cuCtxCreate_v2(&mine, 0, 0));
	}
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
	for (unsigned int i = 0; i < N; i++) {
		struct strait_stream_transfer t = transfer_of(&o[i], STRAIT_READ, v->routes, ep, r);

		o[i] = (struct ordered){ MIB(3) * i + 17, 4096, i % 2 ? MIB(17) : 5000, 1 };
		CU(cuMemHostAlloc((void **)&seen[i], MIB(17), CU_HOST_PORTABLE | CU_HOST_DEVICEMAP));
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
	ASSERT_EQ(fake_depth(), 1);
	expect_clean();
	free(want);
}

TEST(orders_writes)
{
	struct ordered o = { 100, 4096, MIB(9), 1 };
	const char *path = make_file("data", MIB(16), 1);
	char *want = pattern_new(0, MIB(10), 2);
	struct strait_stream_transfer t;
	struct strait_context *ctx;
	struct strait_stream *s;
	cu_stream native;
	cu_context mine;
	cu_ptr ptr;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&mine, 0, 0));
	ctx = context_new(NULL);
	t = transfer_of(&o, STRAIT_WRITE, 0, file_new(ctx, path, O_RDWR, 0), NULL);
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
	expect_clean();
	free(want);
}

static void until(void *arg)
{
	while (!atomic_load((atomic_bool *)arg))
		sleep_ms(1);
}

static void *close_region(void *arg)
{
	strait_region_close(arg);
	return NULL;
}

/* The driver frees memory when all streams are idle, one of which waits for a transfer that needs the driver. */
TEST(memory_is_freed_while_a_stream_waits)
{
	struct ordered o = { 100, 4096, MIB(9), 1 };
	char *want = pattern_new(0, MIB(16), 1);
	struct strait_stream_transfer t;
	struct strait_region *other;
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_stream *s;
	static atomic_bool go;
	pthread_t thread;

	CU(cuInit(0));
	fake_machine.unregister_waits = true;
	ctx = context_new(NULL);
	dev = device_named(ctx, "cuda:0");
	other = region_new(dev, MIB(1));
	t = transfer_of(&o, STRAIT_READ, 0, file_new(ctx, make_file("data", MIB(16), 1), O_RDONLY, 0),
			region_new(dev, MIB(16)));
	ASSERT_OK(strait_stream_open(dev, &s));
	ASSERT_OK(strait_stream_call(s, until, &go));
	ASSERT_OK(strait_stream_transfer(s, &t));
	thread_start(&thread, close_region, other);
	sleep_ms(50);
	atomic_store(&go, true);
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	thread_join(thread);
	ASSERT_EQ(o.result, MIB(9));
	region_expect(t.region, 4096, want + 100, MIB(9));
	strait_stream_close(s);
	strait_region_close(t.region);
	strait_endpoint_close(t.endpoint);
	strait_context_close(ctx);
	expect_clean();
	free(want);
}

/* Data of a file that does not change is copied to the device ahead of stream order, but not to its destination. */
TEST(reads_ahead)
{
	struct ordered o = { MIB(1), 4096, MIB(1), 1 };
	char *want = pattern_new(0, MIB(4), 1);
	struct strait_stream_transfer t;
	struct strait_context *ctx;
	struct strait_stream *s;
	static atomic_bool go;

	CU(cuInit(0));
	ctx = context_new(NULL);
	t = transfer_of(&o, STRAIT_READ, 0,
			file_new(ctx, make_file("data", MIB(4), 1), O_RDONLY, STRAIT_FILE_IMMUTABLE),
			region_new(device_named(ctx, "cuda:0"), MIB(2)));
	/* Its window is registered. */
	ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), t.endpoint, 0, t.region, 0, 4096).bytes, 4096);
	ASSERT_OK(strait_region_fill(t.region, 0, 0x77, MIB(2)));
	ASSERT_OK(strait_stream_open(device_named(ctx, "cuda:0"), &s));
	ASSERT_OK(strait_stream_call(s, until, &go));
	fake_fail("cuMemcpyHtoDAsync", 0, 0);
	ASSERT_OK(strait_stream_transfer(s, &t));
	ASSERT_EQ(fake_calls(), 1);
	region_expect_byte(t.region, 4096, 0x77, MIB(1));
	fake_fail("cuMemcpyHtoDAsync", 0, 0);
	atomic_store(&go, true);
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(fake_calls(), 0);
	ASSERT_EQ(o.result, MIB(1));
	region_expect(t.region, 4096, want + MIB(1), MIB(1));
	strait_stream_close(s);
	strait_region_close(t.region);
	strait_endpoint_close(t.endpoint);
	strait_context_close(ctx);
	expect_clean();
	free(want);
}

/* The stream waits for the transfer that finds its readahead failed, and memory is freed when no stream waits. */
TEST(a_failed_readahead_frees_no_memory_meanwhile)
{
	struct ordered o = { MIB(1), 4096, MIB(1), 1 };
	char *want = pattern_new(0, MIB(4), 1);
	struct strait_stream_transfer t;
	struct strait_context *ctx;
	struct strait_stream *s;
	static atomic_bool go;

	CU(cuInit(0));
	fake_machine.unregister_waits = true;
	ctx = context_new(NULL);
	t = transfer_of(&o, STRAIT_READ, 0,
			file_new(ctx, make_file("data", MIB(4), 1), O_RDONLY, STRAIT_FILE_IMMUTABLE),
			region_new(device_named(ctx, "cuda:0"), MIB(2)));
	ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), t.endpoint, 0, t.region, 0, 4096).bytes, 4096);
	ASSERT_OK(strait_stream_open(device_named(ctx, "cuda:0"), &s));
	for (int i = 0; i < 10; i++) {
		o.result = 1;
		atomic_store(&go, false);
		ASSERT_OK(strait_region_fill(t.region, 0, 0x77, MIB(2)));
		ASSERT_OK(strait_stream_call(s, until, &go));
		ASSERT_OK(strait_stream_transfer(s, &t));
		fake_fail("cuMemcpyAsync", 1, CU_INVALID_VALUE);
		atomic_store(&go, true);
		ASSERT_OK(strait_stream_wait(s, 20000000000));
		/* At some time no other buffer is available. */
		if (!i)
			ASSERT_TRUE(fake_failed());
		fake_fail(NULL, 0, 0);
		ASSERT_EQ(o.result, MIB(1));
		region_expect(t.region, 4096, want + MIB(1), MIB(1));
	}
	strait_stream_close(s);
	strait_region_close(t.region);
	strait_endpoint_close(t.endpoint);
	strait_context_close(ctx);
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
	free(want);
}

TEST(refuses_streams_of_other_devices)
{
	struct strait_context *ctx;
	struct strait_stream *s;
	cu_stream native;
	cu_context mine;

	fake_machine.devices = 2;
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&mine, 0, 1));
	CU(cuStreamCreate(&native, 0));
	ctx = context_new(NULL);
	ASSERT_EQ(strait_stream_import(device_named(ctx, "cuda:0"), native, &s), -EINVAL);
	ASSERT_OK(strait_stream_import(device_named(ctx, "cuda:1"), native, &s));
	strait_stream_close(s);
	/* The current context belongs to another device: the default stream is that of the device's primary context. */
	ASSERT_OK(strait_stream_import(device_named(ctx, "cuda:0"), NULL, &s));
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	strait_stream_close(s);
	strait_context_close(ctx);
	CU(cuStreamDestroy_v2(native));
	CU(cuCtxDestroy_v2(mine));
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

TEST(refuses_captured_streams)
{
	struct ordered o = { 0, 0, 100, 77 };
	struct strait_stream_transfer t;
	struct strait_context *ctx;
	struct strait_stream *s;
	cu_stream native;
	cu_context mine;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&mine, 0, 0));
	CU(cuStreamCreate(&native, 0));
	ctx = context_new(NULL);
	t = transfer_of(&o, STRAIT_READ, 0, file_new(ctx, make_file("data", 100, 1), O_RDONLY, 0),
			region_new(device_named(ctx, "cuda:0"), 100));
	ASSERT_OK(strait_stream_import(device_named(ctx, "cuda:0"), native, &s));
	fake_set_capturing(native, true);
	ASSERT_EQ(strait_stream_transfer(s, &t), -EOPNOTSUPP);
	ASSERT_EQ(strait_stream_wait(s, STRAIT_FOREVER), -EOPNOTSUPP);
	fake_set_capturing(native, false);
	ASSERT_OK(strait_stream_transfer(s, &t));
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(o.result, 100);
	strait_stream_close(s);
	strait_region_close(t.region);
	strait_endpoint_close(t.endpoint);
	strait_context_close(ctx);
	expect_clean();
}

static void count(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
}

static void stall(void *arg)
{
	(void)arg;
	sleep_ms(300);
}

/* A function behind failed work is called nevertheless, and a transfer there ends with the error. */
TEST(ends_what_a_failed_stream_did_not_start)
{
	struct ordered o = { 0, 0, 100, 77 };
	struct strait_stream_transfer t;
	struct strait_context *ctx;
	struct strait_region *r, *theirs;
	struct strait_stream *s;
	cu_stream native;
	cu_context mine;
	static atomic_bool freed;
	int calls = 0;
	cu_ptr ptr;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&mine, 0, 0));
	CU(cuMemAlloc_v2(&ptr, MIB(1)));
	CU(cuStreamCreate(&native, 0));
	ctx = context_new(NULL);
	r = region_new(device_named(ctx, "cuda:0"), 100);
	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, 4096, &theirs));
	t = transfer_of(&o, STRAIT_READ, 0, file_new(ctx, make_file("data", 100, 1), O_RDONLY, 0), theirs);
	ASSERT_OK(strait_stream_import(device_named(ctx, "cuda:0"), native, &s));
	/* The application frees memory too early: its copy fails, and the context with it. */
	CU(cuLaunchHostFunc(native, until, &freed));
	CU(cuMemcpyAsync(ptr + 8192, ptr, 4096, native));
	ASSERT_OK(strait_stream_call(s, count, &calls));
	ASSERT_OK(strait_stream_transfer(s, &t));
	ASSERT_OK(strait_stream_call(s, count, &calls));
	CU(cuMemFree_v2(ptr));
	atomic_store(&freed, true);
	ASSERT_EQ(strait_stream_wait(s, STRAIT_FOREVER), -EIO);
	ASSERT_EQ(calls, 2);
	strait_stream_close(s);
	ASSERT_LT(o.result, 0);
	/* Other contexts are not affected. */
	ASSERT_OK(strait_region_fill(r, 0, 1, 100));
	strait_region_close(r);
	strait_region_close(theirs);
	strait_endpoint_close(t.endpoint);
	strait_context_close(ctx);
	CU(cuCtxDestroy_v2(mine));
	/* Only the violation that the test itself made. */
	ASSERT_EQ(fake_violations(), 1);
	expect_usage(&(struct fake_usage){ 0 });
}

TEST(ends_what_a_reset_stream_did_not_start)
{
	struct ordered o = { 0, 0, 100, 77 };
	struct strait_stream_transfer t;
	struct strait_context *ctx;
	struct strait_stream *s;
	int calls = 0;

	CU(cuInit(0));
	ctx = context_new(NULL);
	t = transfer_of(&o, STRAIT_READ, 0, file_new(ctx, make_file("data", 100, 1), O_RDONLY, 0),
			region_new(device_named(ctx, "cuda:0"), 100));
	ASSERT_OK(strait_stream_open(device_named(ctx, "cuda:0"), &s));
	ASSERT_OK(strait_stream_call(s, stall, NULL));
	ASSERT_OK(strait_stream_transfer(s, &t));
	ASSERT_OK(strait_stream_call(s, count, &calls));
	CU(cuDevicePrimaryCtxReset_v2(0));
	strait_stream_close(s);
	ASSERT_EQ(calls, 1);
	ASSERT_LT(o.result, 0);
	strait_region_close(t.region);
	strait_endpoint_close(t.endpoint);
	strait_context_close(ctx);
	expect_clean();
}

/* An error of the GPU has its own number beside the errno. */
TEST(tells_the_code_of_the_gpu)
{
	static atomic_bool freed;
	struct strait_result res;
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	struct strait_region *r;
	cu_stream native;
	cu_context mine;
	cu_ptr ptr, other;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&mine, 0, 0));
	CU(cuMemAlloc_v2(&ptr, MIB(4)));
	CU(cuMemAlloc_v2(&other, MIB(1)));
	CU(cuStreamCreate(&native, 0));
	ctx = context_new(NULL);
	ep = file_new(ctx, make_file("data", MIB(4), 1), O_RDONLY, 0);
	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, MIB(4), &r));
	ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(4)), MIB(4));
	CU(cuLaunchHostFunc(native, until, &freed));
	CU(cuMemcpyAsync(other + 8192, other, 4096, native));
	CU(cuMemFree_v2(other));
	atomic_store(&freed, true);
	ASSERT_EQ(cuStreamSynchronize(native), CU_ILLEGAL_ADDRESS);
	for (int i = 0; i < 2; i++) {
		res = move(STRAIT_READ, 0, ep, 0, r, 0, MIB(4));
		ASSERT_EQ(res.status, -EIO);
		ASSERT_EQ(res.bytes, 0);
		/* The second time there may not even be a stream. */
		if (!i)
			ASSERT_EQ(res.device_status, CU_ILLEGAL_ADDRESS);
	}
	ASSERT_EQ(strait_region_fill(r, 0, 1, 10), -EIO);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	CU(cuCtxDestroy_v2(mine));
	expect_usage(&(struct fake_usage){ 0 });
}

/* The application has destroyed its stream, with transfers on it, without telling the library. */
TEST(detached_streams)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "cuda:0");
	struct strait_region *r = region_new(dev, MIB(1));
	struct strait_endpoint *ep = file_new(ctx, make_file("file", MIB(1), 1), O_RDONLY, 0);
	char *want = pattern_new(0, MIB(1), 1);
	uint64_t off = 0, len = MIB(1);
	int64_t result[8];
	cu_context app;

	CU(cuDevicePrimaryCtxRetain(&app, 0));
	CU(cuCtxSetCurrent(app));
	for (int i = 0; i < 8; i++) {
		struct strait_stream_transfer t = { .size = sizeof(t),
						    .endpoint = ep,
						    .region = r,
						    .endpoint_offset = &off,
						    .region_offset = &off,
						    .length = &len,
						    .result = &result[i] };
		struct strait_stream *s;
		cu_stream native;

		result[i] = 99;
		CU(cuStreamCreate(&native, 1));
		ASSERT_OK(strait_stream_import(dev, native, &s));
		ASSERT_OK(strait_stream_transfer(s, &t));
		if (i % 2)
			CU(cuStreamSynchronize(native));
		CU(cuStreamDestroy_v2(native));
		strait_stream_detach(s);
		ASSERT_EQ(result[i], MIB(1));
	}
	region_expect(r, 0, want, MIB(1));
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	expect_clean();
	free(want);
}
