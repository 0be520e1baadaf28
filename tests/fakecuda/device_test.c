/* SPDX-License-Identifier: MIT */
/* Devices, or why there are none, and their reported capabilities. */
#include "device/provider.h"
#include "fakecuda/common.h"

static void expect_why(const char *part)
{
	struct strait_provider_info info = { .size = sizeof(info) };
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev;
	char why[256];

	ASSERT_EQ(strait_device_find(ctx, "cuda:0", &dev), -ENODEV);
	ASSERT_OK(strait_device_missing_reason(ctx, "cuda:0", why, sizeof(why)));
	if (!strstr(why, part))
		FAIL("\"%s\" does not say \"%s\"", why, part);
	/* The best provider is the first. */
	ASSERT_OK(strait_provider_info(ctx, 0, &info));
	ASSERT_STREQ(info.name, "cuda");
	ASSERT_EQ(info.devices, 0);
	ASSERT_LT(info.status, 0);
	strait_context_close(ctx);
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

TEST(says_that_there_is_no_driver)
{
	inject(OS_DLOPEN, 1, 100, -ENOENT);
	expect_why("libcuda.so.1 cannot be loaded");
	expect_why("install the NVIDIA driver");
	inject_off();
	/* Once it exists it is found. */
	strait_context_close(context_new(NULL));
	device_named(context_new(NULL), "cuda:0");
}

TEST(says_that_there_is_no_gpu)
{
	fake_machine.devices = 0;
	expect_why("it sees no GPU");
	expect_why("CUDA_ERROR_NO_DEVICE");
}

TEST(says_what_the_driver_minds)
{
	fake_fail("cuInit", 1, CU_SYSTEM_DRIVER_MISMATCH);
	expect_why("reboot");
	fake_fail("cuInit", 1, CU_NOT_INITIALIZED);
	expect_why("child of a process");
	fake_fail("cuInit", 1, 999);
	expect_why("nvidia-smi");
	fake_fail("cuDeviceGetCount", 1, CU_OUT_OF_MEMORY);
	expect_why("CUDA_ERROR_OUT_OF_MEMORY");
	fake_fail("cuDeviceGet", 1, 999);
	expect_why("GPU 0");
}

TEST(says_that_the_driver_is_too_old)
{
	fake_machine.driver_version = 10000;
	expect_why("update it");
}

TEST(names_the_devices)
{
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_context *ctx;
	struct strait_device *dev;

	fake_machine.devices = 3;
	ctx = context_new(NULL);
	for (unsigned int i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "cuda:%u", i);
		ASSERT_OK(strait_device_at(ctx, i, &dev));
		ASSERT_EQ(dev, device_named(ctx, name));
		ASSERT_OK(strait_device_info(dev, &info));
		ASSERT_STREQ(info.name, name);
		ASSERT_EQ(info.index, i);
	}
	ASSERT_STREQ(info.provider, "cuda");
	ASSERT_STREQ(info.model, "Fake GPU 2");
	ASSERT_STREQ(info.pci, "0000:1c:00.0");
	ASSERT_EQ(info.page_size, KIB(64));
	ASSERT_EQ(info.mem_total, MIB(256));
	ASSERT_EQ(strait_device_find(ctx, "cuda:3", &dev), -ENODEV);
	strait_context_close(ctx);
	/* The query creates no context on any of them. */
	expect_usage(&(struct fake_usage){ 0 });
	expect_clean();
}

TEST(knows_what_is_free)
{
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "cuda:0");
	struct strait_region *r = region_new(dev, MIB(100));

	ASSERT_OK(strait_device_info(dev, &info));
	ASSERT_EQ(info.mem_free, MIB(156));
	strait_region_close(r);
	ASSERT_OK(strait_device_info(dev, &info));
	ASSERT_EQ(info.mem_free, MIB(256));
	strait_context_close(ctx);
}

static uint32_t caps_now(void)
{
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_context *ctx = context_new(NULL);

	ASSERT_OK(strait_device_info(device_named(ctx, "cuda:0"), &info));
	strait_context_close(ctx);
	return info.caps;
}

TEST(can_what_the_machine_can)
{
	uint32_t all = STRAIT_DEVICE_REGISTER | STRAIT_DEVICE_REGISTER_FILE | STRAIT_DEVICE_DMABUF |
		       STRAIT_DEVICE_STREAMS | STRAIT_DEVICE_MMIO;

	ASSERT_EQ(caps_now(), all);
	fake_machine.no_dmabuf = true;
	ASSERT_EQ(caps_now(), all & ~STRAIT_DEVICE_DMABUF);
	fake_machine.no_read_only = true;
	ASSERT_EQ(caps_now(), all & ~STRAIT_DEVICE_DMABUF & ~STRAIT_DEVICE_REGISTER_FILE);
}

TEST(works_without_newer_calls)
{
	struct strait_context *ctx;
	struct strait_stream *s;
	struct strait_region *r;

	fake_machine.driver_version = 11030;
	ASSERT_EQ(caps_now() & (STRAIT_DEVICE_STREAMS | STRAIT_DEVICE_DMABUF), 0);
	ctx = context_new(NULL);
	ASSERT_EQ(strait_stream_open(device_named(ctx, "cuda:0"), &s), -EOPNOTSUPP);
	r = region_new(device_named(ctx, "cuda:0"), 100);
	ASSERT_OK(strait_region_fill(r, 0, 3, 100));
	region_expect_byte(r, 0, 3, 100);
	strait_region_close(r);
	strait_context_close(ctx);
	expect_clean();
}

TEST(says_when_memory_is_out)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "cuda:0");
	struct strait_region *r, *big;

	ASSERT_EQ(strait_region_alloc(dev, MIB(257), &r), -ENOMEM);
	ASSERT_EQ(strait_region_alloc(dev, INT64_MAX, &r), -ENOMEM);
	big = region_new(dev, MIB(256));
	ASSERT_EQ(strait_region_alloc(dev, 1, &r), -ENOMEM);
	/* The memory can be used. */
	ASSERT_OK(strait_region_fill(big, MIB(255), 9, MIB(1)));
	region_expect_byte(big, MIB(255), 9, MIB(1));
	strait_region_close(big);
	r = region_new(dev, 1);
	strait_region_close(r);
	strait_context_close(ctx);
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

/* ---- what only the layers above ask for ---- */

struct rig {
	struct device_set set;
	struct strait_device *dev;
	const struct provider_ops *ops;
	struct provider_mem m;
};

static const struct log_sink no_log;

static void rig_open(struct rig *g, uint64_t len)
{
	ASSERT_OK(device_set_open(&g->set, &no_log, NULL));
	ASSERT_OK(device_set_find(&g->set, "cuda:0", &g->dev));
	g->ops = g->dev->ops;
	ASSERT_OK(g->ops->mem_alloc(g->dev, len, &g->m));
}

static void rig_close(struct rig *g)
{
	g->ops->mem_free(g->dev, &g->m);
	device_set_close(&g->set);
	expect_clean();
	ASSERT_EQ(fake_depth(), 0);
	expect_usage(&(struct fake_usage){ 0 });
}

TEST(registers_host_memory)
{
	struct host_reg reg, other;
	struct rig g;
	void *p;

	rig_open(&g, MIB(1));
	ASSERT_OK(os_map_anon(MIB(1), -1, &p));
	ASSERT_OK(g.ops->host_register(g.dev, p, MIB(1), 0, &reg));
	ASSERT_EQ(fake_registered(p), CU_HOST_PORTABLE | CU_HOST_DEVICEMAP);
	ASSERT_EQ(reg.ptr, p);
	ASSERT_EQ(reg.len, MIB(1));
	/* The fake GPU has another address for it than the CPU. */
	ASSERT_NE(reg.dev_addr, (uint64_t)(uintptr_t)p);
	ASSERT_EQ(g.ops->host_register(g.dev, p, MIB(1), 0, &other), -EEXIST);
	ASSERT_EQ(g.ops->host_register(g.dev, (char *)p + 4096, 4096, 0, &other), -EEXIST);
	ASSERT_EQ(g.ops->host_register(g.dev, p, MIB(1), 1u << 7, &other), -EINVAL);
	g.ops->host_unregister(g.dev, &reg);
	ASSERT_EQ(fake_registered(p), -1);
	ASSERT_OK(g.ops->host_register(g.dev, p, MIB(1), HOST_REG_READ_ONLY, &reg));
	ASSERT_EQ(fake_registered(p), CU_HOST_PORTABLE | CU_HOST_DEVICEMAP | CU_HOST_READ_ONLY);
	g.ops->host_unregister(g.dev, &reg);
	os_unmap(p, MIB(1));
	rig_close(&g);
}

TEST(registers_files)
{
	const char *path = make_file("data", MIB(1) + 5, 1);
	struct host_reg reg;
	struct rig g;
	void *p;
	int fd;

	rig_open(&g, MIB(1));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_OK(os_map_file(fd, 0, MIB(2), &p));
	ASSERT_OK(g.ops->host_register(g.dev, p, MIB(1) + 4096, HOST_REG_READ_ONLY | HOST_REG_FILE, &reg));
	ASSERT_EQ(fake_registered(p), CU_HOST_PORTABLE | CU_HOST_DEVICEMAP | CU_HOST_READ_ONLY);
	g.ops->host_unregister(g.dev, &reg);
	/* Past the end of the file there are no pages. */
	ASSERT_EQ(g.ops->host_register(g.dev, p, MIB(2), HOST_REG_READ_ONLY | HOST_REG_FILE, &reg), -EFAULT);
	/* A kernel that cannot populate leaves it to the driver. */
	inject(OS_MADVISE, 1, 0, -EOPNOTSUPP);
	ASSERT_OK(g.ops->host_register(g.dev, p, MIB(1), HOST_REG_READ_ONLY | HOST_REG_FILE, &reg));
	inject_off();
	g.ops->host_unregister(g.dev, &reg);
	os_unmap(p, MIB(2));
	close(fd);
	rig_close(&g);
}

TEST(refuses_files_where_it_cannot_read_only)
{
	struct host_reg reg;
	struct rig g;
	void *p;

	fake_machine.no_read_only = true;
	rig_open(&g, MIB(1));
	ASSERT_OK(os_map_anon(MIB(1), -1, &p));
	ASSERT_EQ(g.ops->host_register(g.dev, p, MIB(1), HOST_REG_READ_ONLY | HOST_REG_FILE, &reg), -EOPNOTSUPP);
	/* Memory that is writable anyway is registered as such. */
	ASSERT_OK(g.ops->host_register(g.dev, p, MIB(1), HOST_REG_READ_ONLY, &reg));
	g.ops->host_unregister(g.dev, &reg);
	os_unmap(p, MIB(1));
	rig_close(&g);
}

TEST(maps_mmio)
{
	struct host_reg reg;
	struct rig g;
	void *p;

	rig_open(&g, MIB(1));
	ASSERT_OK(os_map_anon(4096, -1, &p));
	ASSERT_OK(g.ops->mmio_map(g.dev, p, 4096, &reg));
	ASSERT_EQ(fake_registered(p), CU_HOST_PORTABLE | CU_HOST_DEVICEMAP | CU_HOST_IOMEMORY);
	g.ops->mmio_unmap(g.dev, &reg);
	ASSERT_EQ(fake_registered(p), -1);
	ASSERT_EQ(g.ops->mmio_map(g.dev, NULL, 4096, &reg), -EINVAL);
	os_unmap(p, 4096);
	rig_close(&g);
}

TEST(keeps_peers_in_order)
{
	struct rig g;

	rig_open(&g, MIB(1));
	ASSERT_EQ(fake_sync_memops(g.m.addr), 0);
	ASSERT_OK(g.ops->mem_sync_memops(g.dev, &g.m, true));
	ASSERT_EQ(fake_sync_memops(g.m.addr), 1);
	ASSERT_OK(g.ops->mem_sync_memops(g.dev, &g.m, false));
	ASSERT_EQ(fake_sync_memops(g.m.addr), 0);
	ASSERT_OK(g.ops->flush_peer_writes(g.dev));
	ASSERT_EQ(fake_flushes(), 1);
	rig_close(&g);
}

TEST(exports_dmabufs)
{
	struct rig g;
	int fd = -1;

	rig_open(&g, MIB(1));
	ASSERT_OK(g.ops->mem_dmabuf(g.dev, &g.m, 0, MIB(1), &fd));
	ASSERT_GE(fd, 0);
	close(fd);
	ASSERT_EQ(g.ops->mem_dmabuf(g.dev, &g.m, 100, 4096, &fd), -EINVAL);
	ASSERT_EQ(g.ops->mem_dmabuf(g.dev, &g.m, 4096, MIB(1), &fd), -EINVAL);
	ASSERT_EQ(g.ops->mem_dmabuf(g.dev, &g.m, 0, 0, &fd), -EINVAL);
	/* The driver may refuse for other reasons. */
	fake_fail("cuMemGetHandleForAddressRange", 1, CU_INVALID_VALUE);
	ASSERT_EQ(g.ops->mem_dmabuf(g.dev, &g.m, 0, 4096, &fd), -EOPNOTSUPP);
	fake_fail("cuMemGetHandleForAddressRange", 1, CU_NOT_SUPPORTED);
	ASSERT_EQ(g.ops->mem_dmabuf(g.dev, &g.m, 0, 4096, &fd), -EOPNOTSUPP);
	rig_close(&g);
}

TEST(events_tell_when)
{
	struct dev_event *early, *late;
	struct dev_stream *s;
	struct host_reg reg;
	struct rig g;
	uint64_t start;
	void *p;

	fake_machine.copy_us = 30000;
	rig_open(&g, MIB(1));
	ASSERT_OK(os_map_anon(MIB(1), -1, &p));
	ASSERT_OK(g.ops->host_register(g.dev, p, MIB(1), 0, &reg));
	ASSERT_OK(g.ops->stream_open(g.dev, &g.m, &s));
	ASSERT_OK(g.ops->event_open(s, &early));
	ASSERT_OK(g.ops->event_open(s, &late));
	ASSERT_OK(g.ops->event_record(early, s));
	ASSERT_OK(g.ops->event_wait(early, 0));
	ASSERT_OK(g.ops->copy_in(s, g.m.addr, p, MIB(1)));
	ASSERT_OK(g.ops->event_record(early, s));
	ASSERT_OK(g.ops->copy_out(s, p, g.m.addr, MIB(1)));
	ASSERT_OK(g.ops->event_record(late, s));
	ASSERT_EQ(g.ops->event_wait(late, 0), -ETIMEDOUT);
	ASSERT_EQ(g.ops->stream_wait(s, 0), -ETIMEDOUT);
	start = os_now_ns();
	ASSERT_EQ(g.ops->event_wait(late, 2000000), -ETIMEDOUT);
	ASSERT_GE(os_now_ns() - start, 2000000);
	ASSERT_EQ(g.ops->stream_wait(s, 1000000), -ETIMEDOUT);
	ASSERT_OK(g.ops->event_wait(early, STRAIT_FOREVER));
	ASSERT_EQ(g.ops->event_wait(late, 0), -ETIMEDOUT);
	ASSERT_OK(g.ops->event_wait(late, 10000000000));
	ASSERT_OK(g.ops->stream_wait(s, STRAIT_FOREVER));
	/* Long enough for the thread to sleep. */
	ASSERT_OK(g.ops->copy_in(s, g.m.addr, p, MIB(1)));
	ASSERT_OK(g.ops->stream_wait(s, STRAIT_FOREVER));
	g.ops->event_close(early);
	g.ops->event_close(late);
	g.ops->stream_close(s);
	g.ops->host_unregister(g.dev, &reg);
	os_unmap(p, MIB(1));
	rig_close(&g);
}

static void no_more_cuda(void *arg)
{
	struct strait_region *r = arg;

	fake_fail(NULL, 0, 0);
	ASSERT_EQ(strait_region_fill(r, 0, 1, 10), -EOWNERDEAD);
	ASSERT_EQ(strait_region_check(r), -EOWNERDEAD);
	strait_region_close(r);
	ASSERT_EQ(fake_calls(), 0);
}

TEST(leaves_the_driver_alone_in_a_child)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_region *r = region_new(device_named(ctx, "cuda:0"), MIB(1));

	ASSERT_OK(strait_region_fill(r, 0, 1, 10));
	in_child(no_more_cuda, r);
	ASSERT_OK(strait_region_fill(r, 0, 1, 10));
	strait_region_close(r);
	strait_context_close(ctx);
	expect_usage(&(struct fake_usage){ 0 });
}
