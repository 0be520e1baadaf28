/* SPDX-License-Identifier: MIT */
/* The application's memory and contexts: used, and found to be gone. */
#include <strait/prepare.h>

#include "device/cuda/cuda.h"
#include "fakecuda/common.h"

static void make_current(cu_context *ctx)
{
	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(ctx, 0));
	CU(cuCtxSetCurrent(*ctx));
}

/* Reads into the memory, compares, computes a checksum, writes: all in the context that owns it. */
static void use_memory(struct strait_context *ctx, struct strait_device *dev, cu_ptr ptr, uint64_t len,
		       const char *device)
{
	struct strait_device_info dev_info = { .size = sizeof(dev_info) };
	struct strait_region_info info = { .size = sizeof(info) };
	const char *path = make_file("use", len, 11);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDWR, 0);
	char *want = pattern_new(0, len, 11);
	unsigned int depth = fake_depth();
	cu_context before = NULL, after = NULL;
	struct strait_region *r;
	struct strait_device *found;
	uint32_t crc = 0;
	uint64_t where;

	CU(cuCtxGetCurrent(&before));
	/* Host memory must be named as such; other memory is looked up, with its extent. */
	if (!strcmp(device, "host")) {
		ASSERT_EQ(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, len, &r), -ENOENT);
		ASSERT_EQ(strait_region_extent(ctx, (void *)(uintptr_t)ptr, NULL, &where), -ENOENT);
		dev = device_named(ctx, "host");
	} else if (!dev) {
		ASSERT_OK(strait_region_extent(ctx, (void *)(uintptr_t)ptr, &found, &where));
		ASSERT_EQ(found, device_named(ctx, device));
		ASSERT_GE(where, len);
	}
	ASSERT_OK(strait_region_import(ctx, dev, (void *)(uintptr_t)ptr, len, &r));
	ASSERT_OK(strait_region_info(r, &info));
	ASSERT_OK(strait_device_info(info.device, &dev_info));
	ASSERT_STREQ(dev_info.name, device);
	ASSERT_EQ(move(STRAIT_READ, 0, ep, 0, r, 0, len).bytes, len);
	region_expect(r, 0, want, len);
	ASSERT_EQ(move(STRAIT_READ, 0, ep, 100, r, 3, 4000).bytes, 4000);
	memmove(want + 3, want + 100, 4000);
	region_expect(r, 0, want, len);
	ASSERT_OK(strait_region_crc32c(r, 1, len - 1, &crc));
	ASSERT_EQ(crc, crc32c_update(0, want + 1, len - 1));
	ASSERT_OK(strait_region_compare(r, 0, r, 0, len, &where));
	ASSERT_EQ(where, len);
	ASSERT_EQ(move(STRAIT_WRITE, 0, ep, 0, r, 0, len).bytes, len);
	file_expect(path, 0, want, len);
	ASSERT_OK(strait_region_check(r));
	strait_region_close(r);
	strait_endpoint_close(ep);
	free(want);
	CU(cuCtxGetCurrent(&after));
	ASSERT_EQ(before, after);
	ASSERT_EQ(fake_depth(), depth);
	expect_clean();
}

TEST(uses_allocated_memory)
{
	struct strait_context *ctx;
	cu_context mine;
	cu_ptr ptr;

	make_current(&mine);
	ctx = context_new(NULL);
	CU(cuMemAlloc_v2(&ptr, MIB(12)));
	use_memory(ctx, NULL, ptr, MIB(12), "cuda:0");
	use_memory(ctx, NULL, ptr + 12345, MIB(3) + 1, "cuda:0");
	CU(cuCtxSetCurrent(NULL));
	use_memory(ctx, NULL, ptr, MIB(12), "cuda:0");
	CU(cuCtxSetCurrent(mine));
	CU(cuMemFree_v2(ptr));
	strait_context_close(ctx);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	expect_usage(&(struct fake_usage){ 0 });
}

/* Preparing a device creates no context; in one that is there it opens as many streams as a transfer has lanes. */
TEST(prepares_where_a_context_is)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 5 };
	struct strait_context *ctx = context_new(&opts);
	struct strait_device *dev = device_named(ctx, "cuda:0");
	struct fake_usage now;
	cu_context mine;

	for (int i = 0; i < 20; i++) {
		ASSERT_OK(strait_device_prepare(dev));
		usleep(2000);
	}
	expect_usage(&(struct fake_usage){ 0 });
	make_current(&mine);
	for (int i = 0; i < 5000 && fake_usage().streams < 5; i++) {
		ASSERT_OK(strait_device_prepare(dev)); /* the worker of the last call may not have ended before */
		usleep(1000);
	}
	now = fake_usage();
	ASSERT_EQ(now.streams, 5);
	ASSERT_GE(now.registered_bytes, MIB(32));
	ASSERT_EQ(now.device_bytes, 0);
	ASSERT_EQ(now.contexts, 0);
	strait_context_close(ctx);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	expect_usage(&(struct fake_usage){ 0 });
	expect_clean();
}

/* Host memory belongs to the host device also before a GPU was used. */
TEST(leaves_host_memory_to_the_host)
{
	struct strait_context *ctx = context_new(NULL);
	void *p = calloc(1, MIB(1));

	ASSERT_TRUE(p);
	use_memory(ctx, NULL, (cu_ptr)(uintptr_t)p, MIB(1), "host");
	strait_context_close(ctx);
	free(p);
	expect_usage(&(struct fake_usage){ 0 });
}

TEST(uses_memory_of_other_contexts)
{
	struct strait_context *ctx;
	cu_context a, b, gone;
	cu_ptr pa, pb;

	fake_machine.devices = 2;
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&a, 0, 0));
	CU(cuMemAlloc_v2(&pa, MIB(12)));
	CU(cuCtxCreate_v2(&b, 0, 1));
	CU(cuMemAlloc_v2(&pb, MIB(12)));
	ctx = context_new(NULL);
	use_memory(ctx, NULL, pa, MIB(12), "cuda:0");
	use_memory(ctx, NULL, pb, MIB(12), "cuda:1");
	CU(cuCtxPopCurrent_v2(&gone));
	use_memory(ctx, NULL, pa, MIB(12), "cuda:0");
	use_memory(ctx, NULL, pb, MIB(12), "cuda:1");
	CU(cuCtxPopCurrent_v2(&gone));
	use_memory(ctx, device_named(ctx, "cuda:1"), pb, MIB(12), "cuda:1");
	strait_context_close(ctx);
	CU(cuCtxDestroy_v2(a));
	CU(cuCtxDestroy_v2(b));
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

TEST(uses_memory_of_all_kinds)
{
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *r;
	cu_context mine;
	void *host, *cpu;
	cu_ptr ptr;

	make_current(&mine);
	ctx = context_new(NULL);
	dev = device_named(ctx, "cuda:0");
	CU(cuMemAllocAsync(&ptr, MIB(5), NULL));
	use_memory(ctx, NULL, ptr, MIB(5), "cuda:0");
	CU(cuMemFreeAsync(ptr, NULL));
	CU(cuMemAllocManaged(&ptr, MIB(5), 1));
	use_memory(ctx, NULL, ptr, MIB(5), "cuda:0");
	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, MIB(5), &r));
	ASSERT_OK(strait_region_map(r, &cpu));
	ASSERT_EQ(cpu, (void *)(uintptr_t)ptr);
	strait_region_close(r);
	CU(cuMemFree_v2(ptr));
	/* Host memory belongs to the host device unless the GPU is named. */
	CU(cuMemHostAlloc(&host, MIB(5), CU_HOST_PORTABLE | CU_HOST_DEVICEMAP));
	use_memory(ctx, NULL, (cu_ptr)(uintptr_t)host, MIB(5), "host");
	use_memory(ctx, dev, (cu_ptr)(uintptr_t)host, MIB(5), "cuda:0");
	CU(cuMemFreeHost(host));
	ASSERT_OK(os_map_anon(MIB(1), -1, &host));
	CU(cuMemHostRegister_v2(host, MIB(1), CU_HOST_PORTABLE | CU_HOST_DEVICEMAP));
	use_memory(ctx, NULL, (cu_ptr)(uintptr_t)host, MIB(1), "host");
	use_memory(ctx, dev, (cu_ptr)(uintptr_t)host + 4096, MIB(1) - 4096, "cuda:0");
	ASSERT_OK(strait_region_import(ctx, dev, host, MIB(1), &r));
	ASSERT_OK(strait_region_map(r, &cpu));
	ASSERT_EQ(cpu, host);
	strait_region_close(r);
	CU(cuMemHostUnregister(host));
	ASSERT_EQ(strait_region_import(ctx, dev, host, MIB(1), &r), -EFAULT);
	os_unmap(host, MIB(1));
	strait_context_close(ctx);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

TEST(leaves_memory_of_ordered_users_as_it_is)
{
	struct strait_context *ctx;
	struct strait_region *r;
	cu_context mine;
	cu_ptr ptr;

	make_current(&mine);
	ctx = context_new(NULL);
	CU(cuMemAlloc_v2(&ptr, MIB(1)));
	ASSERT_EQ(strait_region_import_flags(ctx, NULL, (void *)(uintptr_t)ptr, MIB(1), 2, &r), -EINVAL);
	ASSERT_OK(strait_region_import_flags(ctx, NULL, (void *)(uintptr_t)ptr, MIB(1), STRAIT_REGION_IMPORT_ORDERED,
					     &r));
	ASSERT_EQ(fake_sync_memops(ptr), 0);
	strait_region_close(r);
	ASSERT_OK(strait_region_import_flags(ctx, NULL, (void *)(uintptr_t)ptr, MIB(1), 0, &r));
	ASSERT_EQ(fake_sync_memops(ptr), 1);
	strait_region_close(r);
	CU(cuMemFree_v2(ptr));
	strait_context_close(ctx);
	CU(cuDevicePrimaryCtxRelease_v2(0));
}

static cu_ptr map_some(unsigned int n, cu_mem_handle *handle)
{
	struct cu_mem_prop prop = { .type = 1, .location = { 1, 0 } };
	cu_ptr ptr;

	CU(cuMemAddressReserve(&ptr, (n + 2) * MIB(2), 0, 0, 0));
	for (unsigned int i = 0; i < n; i++) {
		CU(cuMemCreate(&handle[i], MIB(2), &prop, 0));
		CU(cuMemMap(ptr + i * MIB(2), MIB(2), 0, handle[i], 0));
	}
	return ptr;
}

static const struct driver_kind {
	const char *name;
	bool old;
} drivers[] = { { "new", false }, { "old", true } };

TEST_VARIANTS(uses_mapped_memory, struct driver_kind, drivers)
{
	enum { N = 5 };
	struct strait_region_info info = { .size = sizeof(info) };
	cu_mem_handle handle[N];
	struct strait_transfer t[2];
	struct strait_result res[2];
	struct strait_endpoint *ep;
	struct strait_queue *q;
	struct strait_context *ctx;
	struct strait_region *r;
	cu_context mine;
	uint64_t extent;
	cu_ptr ptr;

	fake_machine.no_mapping_attributes = v->old;
	make_current(&mine);
	ctx = context_new(NULL);
	ptr = map_some(N, handle);
	use_memory(ctx, NULL, ptr, MIB(2), "cuda:0");
	use_memory(ctx, NULL, ptr + 4096, N * MIB(2) - 4096, "cuda:0");
	/* The extent reaches to the end of the last adjacent mapping, from any address. */
	for (uint64_t at = 0; at < N * MIB(2); at += KIB(1020)) {
		ASSERT_OK(strait_region_extent(ctx, (void *)(uintptr_t)(ptr + at), NULL, &extent));
		ASSERT_EQ(extent, N * MIB(2) - at);
	}
	ASSERT_EQ(strait_region_extent(ctx, (void *)(uintptr_t)(ptr + N * MIB(2)), NULL, &extent), -ENOENT);
	ASSERT_EQ(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, N * MIB(2) + 1, &r), -EFAULT);
	/* Reserved, but not mapped. */
	ASSERT_EQ(strait_region_import(ctx, device_named(ctx, "cuda:0"), (void *)(uintptr_t)(ptr + N * MIB(2)), 10, &r),
		  -EFAULT);
	/* One of the mappings is removed: the range is no longer complete. */
	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, N * MIB(2), &r));
	ASSERT_OK(strait_region_info(r, &info));
	ASSERT_TRUE(info.caps & STRAIT_REGION_REMAPPABLE);
	CU(cuMemUnmap(ptr + MIB(4), MIB(2)));
	ASSERT_EQ(strait_region_check(r), -ESTALE);
	/* Another one is mapped in its place. */
	CU(cuMemMap(ptr + MIB(4), MIB(2), 0, handle[2], 0));
	ASSERT_EQ(strait_region_check(r), -ESTALE);
	/* A transfer fails if it uses that mapping, and only then. */
	ep = file_new(ctx, make_file("mapped", MIB(2), 1), O_RDONLY, 0);
	for (unsigned int i = 0; i < N; i++) {
		ASSERT_EQ(strait_read(ep, 0, r, i * MIB(2), MIB(2)), i == 2 ? -ESTALE : (int64_t)MIB(2));
		if (i + 1 < N)
			ASSERT_EQ(strait_read(ep, 0, r, i * MIB(2) + MIB(1), MIB(2)),
				  i == 1 || i == 2 ? -ESTALE : (int64_t)MIB(2));
	}
	/* So does a batch, for any of its transfers. */
	q = queue_new(ctx, 2);
	t[0] = t[1] = (struct strait_transfer){ .op = STRAIT_READ, .endpoint = ep, .region = r, .length = 4096 };
	t[1].region_offset = MIB(4);
	ASSERT_EQ(strait_queue_submit(q, t, 2), -ESTALE);
	t[1].region_offset = MIB(2);
	ASSERT_OK(strait_queue_submit(q, t, 2));
	ASSERT_EQ(strait_queue_wait(q, 2, 2, STRAIT_FOREVER, res), 2);
	ASSERT_OK(res[0].status);
	ASSERT_OK(res[1].status);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	strait_region_close(r);
	CU(cuMemUnmap(ptr, N * MIB(2)));
	for (int i = 0; i < N; i++)
		CU(cuMemRelease(handle[i]));
	CU(cuMemAddressFree(ptr, (N + 2) * MIB(2)));
	strait_context_close(ctx);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

TEST(refuses_what_is_not_one_allocation)
{
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *r;
	cu_context mine;
	char host[64];
	uint64_t extent;
	cu_ptr ptr;

	fake_machine.devices = 2;
	make_current(&mine);
	ctx = context_new(NULL);
	dev = device_named(ctx, "cuda:0");
	CU(cuMemAlloc_v2(&ptr, MIB(4)));
	ASSERT_OK(strait_region_extent(ctx, (void *)(uintptr_t)(ptr + MIB(1)), NULL, &extent));
	ASSERT_EQ(extent, MIB(3));
	ASSERT_EQ(strait_region_import(ctx, dev, (void *)(uintptr_t)ptr, MIB(4) + 1, &r), -EFAULT);
	ASSERT_EQ(strait_region_import(ctx, NULL, (void *)(uintptr_t)(ptr + MIB(2)), MIB(3), &r), -EFAULT);
	ASSERT_EQ(strait_region_import(ctx, dev, host, sizeof(host), &r), -EFAULT);
	ASSERT_EQ(strait_region_import(ctx, device_named(ctx, "cuda:1"), (void *)(uintptr_t)ptr, 10, &r), -EFAULT);
	CU(cuMemFree_v2(ptr));
	ASSERT_EQ(strait_region_import(ctx, dev, (void *)(uintptr_t)ptr, MIB(4), &r), -EFAULT);
	strait_context_close(ctx);
	expect_clean();
}

TEST(notices_freed_memory)
{
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	struct strait_region *r;
	cu_ptr ptr, again;
	cu_context mine;

	make_current(&mine);
	ctx = context_new(NULL);
	ep = file_new(ctx, make_file("data", MIB(4), 1), O_RDONLY, 0);
	CU(cuMemAlloc_v2(&ptr, MIB(4)));
	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, MIB(4), &r));
	ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(4)), MIB(4));
	CU(cuMemFree_v2(ptr));
	ASSERT_EQ(strait_region_check(r), -ESTALE);
	ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(4)), -ESTALE);
	CU(cuMemAlloc_v2(&again, MIB(4)));
	/* Only if the kernel returns the same address again is there something to test. */
	ASSERT_EQ(again, ptr);
	ASSERT_EQ(strait_region_check(r), -ESTALE);
	ASSERT_EQ(strait_read(ep, 0, r, 0, 100), -ESTALE);
	ASSERT_EQ(strait_region_fill(r, 0, 1, 100), -ESTALE);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	expect_clean();
}

static bool is_gone(long long rc)
{
	return rc == -ESTALE || rc == -ENODEV;
}

TEST(survives_a_destroyed_context)
{
	struct strait_region *r, *own;
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	cu_context mine;
	cu_ptr ptr;

	CU(cuInit(0));
	for (int i = 0; i < 3; i++) {
		CU(cuCtxCreate_v2(&mine, 0, 0));
		ctx = context_new(NULL);
		ep = file_new(ctx, make_file("data", MIB(4), 1), O_RDONLY, 0);
		own = region_new(device_named(ctx, "cuda:0"), MIB(4));
		CU(cuMemAlloc_v2(&ptr, MIB(4)));
		ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, MIB(4), &r));
		ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(4)), MIB(4));
		ASSERT_EQ(strait_read(ep, 0, r, 0, 4000), 4000);
		CU(cuCtxDestroy_v2(mine));
		ASSERT_TRUE(is_gone(strait_region_check(r)));
		ASSERT_TRUE(is_gone(strait_read(ep, 0, r, 0, MIB(4))));
		/* Objects in other contexts still work. */
		ASSERT_EQ(strait_read(ep, 0, own, 0, MIB(4)), MIB(4));
		strait_region_close(r);
		CU(cuCtxCreate_v2(&mine, 0, 0));
		CU(cuMemAlloc_v2(&ptr, MIB(4)));
		use_memory(ctx, NULL, ptr, MIB(4), "cuda:0");
		strait_region_close(own);
		strait_endpoint_close(ep);
		/* Once before and once after the context it used. */
		if (i == 1)
			CU(cuCtxDestroy_v2(mine));
		strait_context_close(ctx);
		if (i != 1)
			CU(cuCtxDestroy_v2(mine));
		expect_clean();
		expect_usage(&(struct fake_usage){ 0 });
	}
}

TEST(survives_a_reset)
{
	struct strait_region *r, *own, *more;
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	struct strait_stream *s;
	cu_context mine;
	cu_ptr ptr;

	make_current(&mine);
	ctx = context_new(NULL);
	ep = file_new(ctx, make_file("data", MIB(12), 1), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	own = region_new(device_named(ctx, "cuda:0"), MIB(12));
	CU(cuMemAlloc_v2(&ptr, MIB(4)));
	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, MIB(4), &r));
	ASSERT_OK(strait_stream_open(device_named(ctx, "cuda:0"), &s));
	ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(4)), MIB(4));
	ASSERT_EQ(strait_read(ep, 0, own, 0, MIB(12)), MIB(12));
	CU(cuDevicePrimaryCtxReset_v2(0));
	ASSERT_TRUE(is_gone(strait_region_check(r)));
	ASSERT_TRUE(is_gone(strait_read(ep, 0, r, 0, MIB(4))));
	ASSERT_TRUE(is_gone(strait_read(ep, 0, own, 0, MIB(12))));
	ASSERT_TRUE(is_gone(strait_read(ep, 0, own, 0, 100)));
	ASSERT_TRUE(is_gone(strait_stream_wait(s, STRAIT_FOREVER)));
	ASSERT_EQ(strait_region_alloc(device_named(ctx, "cuda:0"), MIB(1), &more), -ENODEV);
	ASSERT_EQ(strait_device_info(device_named(ctx, "cuda:0"), &info), -ENODEV);
	strait_stream_close(s);
	strait_region_close(r);
	strait_region_close(own);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	expect_clean();
	/* A new Strait context can use the device again. */
	CU(cuDevicePrimaryCtxRelease_v2(0));
	make_current(&mine);
	ctx = context_new(NULL);
	CU(cuMemAlloc_v2(&ptr, MIB(4)));
	use_memory(ctx, NULL, ptr, MIB(4), "cuda:0");
	CU(cuMemFree_v2(ptr));
	strait_context_close(ctx);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

/* Memory without a context is accessed in the primary one, which may be reset. */
TEST(survives_a_reset_under_mapped_memory)
{
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	struct strait_region *r;
	cu_mem_handle handle[2];
	cu_ptr ptr;

	CU(cuInit(0));
	ctx = context_new(NULL);
	ep = file_new(ctx, make_file("data", MIB(4), 1), O_RDONLY, 0);
	ptr = map_some(2, handle);
	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, MIB(4), &r));
	ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(4)), MIB(4));
	CU(cuDevicePrimaryCtxReset_v2(0));
	ASSERT_EQ(strait_read(ep, 0, r, 0, 1000), -ENODEV);
	ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(4)), -ENODEV);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	expect_clean();
}

static struct fake_usage one_cycle(const char *path, cu_ptr ptr)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .pool_bytes = MIB(4) };
	struct strait_context *ctx = context_new(&opts);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_region *r = region_new(device_named(ctx, "cuda:0"), MIB(1)), *theirs;
	struct strait_stream *s;
	uint32_t crc = 0;

	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, MIB(1), &theirs));
	ASSERT_OK(strait_stream_open(device_named(ctx, "cuda:0"), &s));
	ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(1)), MIB(1));
	ASSERT_EQ(strait_read(ep, 0, theirs, 0, MIB(1)), MIB(1));
	ASSERT_OK(strait_region_crc32c(theirs, 0, MIB(1), &crc));
	strait_stream_close(s);
	strait_region_close(r);
	strait_region_close(theirs);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	return fake_usage();
}

TEST_TIMEOUT(many_cycles_leave_nothing, 120)
{
	unsigned int cycles = test_slow() > 1 ? 50 : getenv("STRAIT_TEST_LONG") ? 1000 : 300;
	struct fake_usage before;
	const char *path = make_file("data", MIB(1), 1);
	unsigned int fds, threads;
	cu_context mine;
	uint64_t rss;
	cu_ptr ptr;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&mine, 0, 0));
	CU(cuMemAlloc_v2(&ptr, MIB(1)));
	for (int i = 0; i < 20; i++)
		before = one_cycle(path, ptr);
	fds = descriptors_now();
	threads = threads_now();
	rss = status_bytes("VmRSS");
	for (unsigned int i = 0; i < cycles; i++)
		one_cycle(path, ptr);
	expect_usage(&before);
	ASSERT_EQ(before.primary_refs, 0);
	ASSERT_EQ(before.registrations, 0);
	ASSERT_EQ(descriptors_now(), fds);
	ASSERT_EQ(threads_now(), threads);
	if (test_slow() == 1)
		ASSERT_LE(status_bytes("VmRSS"), rss + cycles * KIB(3) + MIB(1));
	expect_clean();
}

TEST(keeps_the_capture_mode)
{
	struct strait_context *ctx;
	struct strait_region *r;
	cu_context mine;
	int mode = 1;
	cu_ptr ptr;

	make_current(&mine);
	CU(cuMemAlloc_v2(&ptr, MIB(4)));
	ctx = context_new(NULL);
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	ASSERT_OK(strait_region_import(ctx, NULL, (void *)(uintptr_t)ptr, MIB(4), &r));
	ASSERT_OK(strait_region_fill(r, 0, 4, MIB(4)));
	ASSERT_EQ(fake_capture_mode(), 1);
	strait_region_close(r);
	ASSERT_EQ(fake_capture_mode(), 1);
	strait_context_close(ctx);
	ASSERT_EQ(fake_capture_mode(), 1);
	ASSERT_EQ(fake_violations(), 0);
}

static unsigned int spaces_of(struct strait_device *dev)
{
	unsigned int n = 0;

	list_for_each(it, &cuda_device(dev)->contexts)
		n++;
	return n;
}

/* Objects in contexts that the application has destroyed do not accumulate. */
TEST(contexts_come_and_go)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "cuda:0");
	struct strait_endpoint *ep = file_new(ctx, make_file("file", MIB(1), 1), O_RDWR, 0);

	CU(cuInit(0));
	for (int i = 0; i < 50; i++) {
		struct strait_region *r;
		cu_context app;
		cu_ptr ptr;

		CU(cuCtxCreate_v2(&app, 0, 0));
		CU(cuMemAlloc_v2(&ptr, MIB(1)));
		ASSERT_OK(strait_region_import(ctx, dev, (void *)(uintptr_t)ptr, MIB(1), &r));
		ASSERT_EQ(strait_read(ep, 0, r, 0, 4000), 4000);
		ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(1)), MIB(1));
		ASSERT_EQ(strait_write(ep, 0, r, 0, 4000), 4000);
		if (i % 2)
			strait_region_close(r);
		CU(cuCtxDestroy_v2(app));
		/* A stream that fails without an error of the driver is not used again either. */
		if (i % 2 == 0) {
			ASSERT_LT(strait_read(ep, 0, r, 0, 4000), 0);
			strait_region_close(r);
		}
	}
	ASSERT_LE(spaces_of(dev), 4);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	expect_clean();
}
