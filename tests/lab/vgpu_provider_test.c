/* SPDX-License-Identifier: MIT */
/* The lab's GPU as a device of the library: vgpu:0. */
#include "consumer.h"

#include <liburing.h>
#include <stdatomic.h>

#include <strait/strait.h>

#include "base/crc32c.h"

static struct strait_context *ctx;

static struct strait_device *open_device(void)
{
	struct strait_device *dev;

	close(gpu_open());
	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_OK(strait_device_find(ctx, "vgpu:0", &dev));
	return dev;
}

static struct strait_region *region(struct strait_device *dev, size_t len)
{
	struct strait_region *r;

	ASSERT_OK(strait_region_alloc(dev, len, &r));
	return r;
}

static struct strait_region_info region_info(struct strait_region *r)
{
	struct strait_region_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_region_info(r, &info));
	return info;
}

TEST(is_listed_with_what_it_can)
{
	struct strait_device *dev = open_device(), *first;
	struct strait_device_info info = { .size = sizeof(info) };
	int fd = gpu_open();
	struct strait_vgpu_info gpu = gpu_info(fd);

	ASSERT_OK(strait_device_info(dev, &info));
	ASSERT_STREQ(info.provider, "vgpu");
	ASSERT_STREQ(info.pci, gpu.pci);
	ASSERT_EQ(info.page_size, PAGE);
	ASSERT_EQ(info.mem_total, gpu.mem_total[PLAIN]);
	ASSERT_LE(info.mem_free, info.mem_total);
	ASSERT_TRUE(info.caps & STRAIT_DEVICE_DMABUF);
	ASSERT_TRUE(info.caps & STRAIT_DEVICE_CPU_MAP);
	ASSERT_TRUE(info.caps & STRAIT_DEVICE_STREAMS);
	ASSERT_FALSE(info.caps & STRAIT_DEVICE_EMULATED);
	/* It comes before an emulated device. */
	ASSERT_OK(strait_device_at(ctx, 0, &first));
	ASSERT_EQ(first, dev);
	strait_context_close(ctx);
	close(fd);
}

TEST(the_command_lists_it)
{
	char line[512];
	bool found = false;
	FILE *f;

	close(gpu_open());
	f = popen("strait info", "r");
	ASSERT_TRUE(f);
	while (fgets(line, sizeof(line), f))
		found = found || (strstr(line, "vgpu:0") && strstr(line, "Strait lab GPU"));
	ASSERT_EQ(pclose(f), 0);
	ASSERT_TRUE(found);
}

/* Memory for long-term pins, here registered buffers: it is not reused until they are unregistered. */
TEST(pinnable_regions)
{
	const uint32_t caps = STRAIT_REGION_PINNABLE | STRAIT_REGION_DMABUF | STRAIT_REGION_CPU_MAP;
	struct strait_device *dev = open_device();
	struct strait_region *plain = region(dev, 2 * PAGE), *r;
	int fd = gpu_open(), rc;
	uint64_t before = gpu_free_bytes(fd, PINNABLE);
	unsigned char *p, seen[4096];
	struct io_uring ring;
	struct iovec iov;
	uint32_t crc = 0;

	ASSERT_FALSE(region_info(plain).caps & STRAIT_REGION_PINNABLE);
	ASSERT_EQ(strait_region_alloc_caps(dev, 1ull << 50, caps, &r), -ENOMEM);
	ASSERT_OK(strait_region_alloc_caps(dev, 2 * PAGE, caps, &r));
	ASSERT_EQ(region_info(r).caps & caps, caps);
	ASSERT_EQ(before - gpu_free_bytes(fd, PINNABLE), 2 * PAGE);
	ASSERT_OK(strait_region_map(plain, (void **)&p));
	iov = (struct iovec){ p, 2 * PAGE };
	ASSERT_OK(io_uring_queue_init(4, &ring, 0));
	ASSERT_LT(io_uring_register_buffers(&ring, &iov, 1), 0);

	ASSERT_OK(strait_region_map(r, (void **)&p));
	iov.iov_base = p;
	rc = io_uring_register_buffers(&ring, &iov, 1);
	if (rc == -EOPNOTSUPP)
		SKIP("this kernel registers no pages of a file");
	ASSERT_OK(rc);
	/* Otherwise it is ordinary device memory. */
	fill(p, 2 * PAGE, 9);
	ASSERT_OK(strait_region_copy_out(r, PAGE, seen, sizeof(seen)));
	ASSERT_MEMEQ(seen, p + PAGE, sizeof(seen));
	ASSERT_OK(strait_region_crc32c(r, 0, 2 * PAGE, &crc));
	ASSERT_EQ(crc, crc32c_update(0, p, 2 * PAGE));
	strait_region_close(r);
	ASSERT_EQ(gpu_counters(fd).draining_bytes, 2 * PAGE);
	ASSERT_OK(io_uring_unregister_buffers(&ring));
	io_uring_queue_exit(&ring);
	ASSERT_EQ(gpu_free_bytes(fd, PINNABLE), before);
	strait_region_close(plain);
	strait_context_close(ctx);
	close(fd);
}

TEST(regions_hold_what_is_copied)
{
	struct strait_device *dev = open_device();
	int fd = gpu_open();
	uint64_t before = gpu_free_bytes(fd, PLAIN), off, where;
	struct strait_region *r = region(dev, MIB(3) + 100), *again;
	struct strait_region_info info = region_info(r);
	unsigned char *data = malloc(MIB(3)), *back = malloc(MIB(3));
	uint32_t crc = 0, want;
	void *cpu;

	ASSERT_TRUE(data && back);
	ASSERT_EQ(info.addr % PAGE, 0);
	ASSERT_EQ(info.page_size, PAGE);
	ASSERT_NE(info.identity, 0);
	ASSERT_EQ(before - gpu_free_bytes(fd, PLAIN), align_up(MIB(3) + 100, PAGE));
	fill(data, MIB(3), 5);
	ASSERT_OK(strait_region_copy_in(r, 100, data, MIB(3)));
	ASSERT_OK(strait_region_copy_out(r, 100, back, MIB(3)));
	ASSERT_MEMEQ(back, data, MIB(3));
	ASSERT_OK(strait_region_map(r, &cpu));
	ASSERT_MEMEQ((char *)cpu + 100, data, MIB(3));
	ASSERT_OK(strait_region_crc32c(r, 100, MIB(1), &crc));
	want = crc;
	crc = 0;
	ASSERT_OK(strait_region_fill(r, 0, 0, 100));
	ASSERT_OK(strait_region_crc32c(r, 100, MIB(1), &crc));
	ASSERT_EQ(crc, want);
	ASSERT_OK(strait_region_compare(r, 0, r, 100, 100, &where));
	ASSERT_EQ(where, 0);
	ASSERT_OK(strait_region_lookup(ctx, (char *)cpu + 1000, &off, &again));
	ASSERT_EQ(again, r);
	ASSERT_EQ(off, 1000);
	strait_region_close(again);
	strait_region_close(r);
	ASSERT_EQ(gpu_free_bytes(fd, PLAIN), before);
	strait_context_close(ctx);
	free(data);
	free(back);
	close(fd);
}

/* Memory that the application allocated with the driver's own calls, found by its address. */
TEST(imports_what_the_application_has)
{
	struct strait_device *dev = open_device(), *found;
	int fd = gpu_open(), c = consumer_open(), buf;
	struct gpu_mem m = gpu_alloc(fd, PINNABLE, 4 * PAGE);
	unsigned char data[1000], back[1000];
	struct strait_region *r, *part;
	uint64_t extent;
	uint32_t id;

	ASSERT_EQ(strait_region_import(ctx, NULL, m.p + PAGE, 4 * PAGE, &r), -EFAULT);
	ASSERT_EQ(strait_region_import(ctx, dev, data, sizeof(data), &r), -EFAULT);
	ASSERT_OK(strait_region_extent(ctx, m.p + PAGE + 10, &found, &extent));
	ASSERT_EQ(found, dev);
	ASSERT_EQ(extent, 3 * PAGE - 10);
	ASSERT_EQ(strait_region_extent(ctx, data, NULL, &extent), -ENOENT);
	ASSERT_OK(strait_region_import(ctx, NULL, m.p, m.len, &r));
	ASSERT_EQ(region_info(r).device, dev);
	ASSERT_EQ(region_info(r).identity, m.id);
	/* A change of protection splits the mapping: both pieces can still be used. */
	ASSERT_EQ(mprotect(m.p + PAGE, PAGE, PROT_READ), 0);
	ASSERT_OK(strait_region_import(ctx, NULL, m.p + PAGE, PAGE, &part));
	ASSERT_EQ(mprotect(m.p + PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
	fill(data, sizeof(data), 8);
	ASSERT_OK(strait_region_copy_in(r, PAGE - 500, data, sizeof(data)));
	ASSERT_MEMEQ(m.p + PAGE - 500, data, sizeof(data));
	ASSERT_OK(strait_region_copy_out(part, 0, back, 500));
	ASSERT_MEMEQ(back, data + 500, 500);
	ASSERT_OK(strait_region_check(r));
	buf = -1;
	ASSERT_OK(strait_region_export_dmabuf(part, 0, PAGE, &buf));
	id = importer_attach(c, buf, 0);
	ASSERT_EQ(importer_map(c, id), 0);
	ASSERT_EQ(consumer_dma(c, id, VT_DMA_BUF, 0, back, 500), 0);
	ASSERT_MEMEQ(back, data + 500, 500);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(strait_region_check(r), -ESTALE);
	ASSERT_EQ(strait_region_check(part), -ESTALE);
	ASSERT_EQ(strait_region_copy_in(r, 0, data, 10), -ESTALE);
	ASSERT_EQ(strait_region_export_dmabuf(r, 0, PAGE, &buf), -ESTALE);
	ASSERT_EQ(importer_status(c, id).notified, 1);
	strait_region_close(part);
	strait_region_close(r);
	strait_context_close(ctx);
	close(c);
	close(fd);
}

/* New memory at the same address is not taken for the old. */
TEST(notices_memory_in_another_ones_place)
{
	int fd;
	struct strait_device *dev = open_device();
	struct strait_region *old, *new;
	struct gpu_mem a, b;
	unsigned char byte = 7;

	(void)dev;
	fd = gpu_open();
	a = gpu_alloc(fd, PLAIN, 2 * PAGE);
	ASSERT_OK(strait_region_import(ctx, NULL, a.p, a.len, &old));
	ASSERT_OK(gpu_try_alloc(fd, PLAIN, 2 * PAGE, &b));
	ASSERT_TRUE(mmap(a.p, b.len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)b.offset) == a.p);
	ASSERT_EQ(strait_region_check(old), -ESTALE);
	ASSERT_OK(strait_region_import(ctx, NULL, a.p, a.len, &new));
	ASSERT_OK(strait_region_copy_in(new, 5, &byte, 1));
	ASSERT_EQ(a.p[5], 7);
	ASSERT_EQ(strait_region_copy_in(old, 5, &byte, 1), -ESTALE);
	strait_region_close(old);
	ASSERT_OK(strait_region_copy_in(new, 6, &byte, 1));
	strait_region_close(new);
	strait_context_close(ctx);
	close(fd);
}

TEST(its_dma_bufs_reach_a_peer)
{
	struct strait_device *dev = open_device();
	int c = consumer_open(), buf;
	struct strait_region *r = region(dev, 4 * PAGE);
	unsigned char data[256], back[256];
	uint32_t id;

	buf = -1;
	ASSERT_EQ(strait_region_export_dmabuf(r, 100, PAGE, &buf), -EINVAL);
	ASSERT_EQ(strait_region_export_dmabuf(r, 0, 5 * PAGE, &buf), -EINVAL);
	ASSERT_OK(strait_region_export_dmabuf(r, PAGE, 2 * PAGE, &buf));
	id = importer_attach(c, buf, 0);
	ASSERT_EQ(importer_map(c, id), 0);
	fill(data, sizeof(data), 9);
	ASSERT_EQ(consumer_dma(c, id, VT_DMA_BUF | VT_DMA_WRITE, PAGE, data, sizeof(data)), 0);
	ASSERT_OK(strait_region_copy_out(r, 2 * PAGE, back, sizeof(back)));
	ASSERT_MEMEQ(back, data, sizeof(data));
	/* Closing the region frees the memory, and calls the notice. */
	strait_region_close(r);
	ASSERT_EQ(importer_status(c, id).notified, 1);
	ASSERT_EQ(importer_map(c, id), -ENODEV);
	strait_context_close(ctx);
	close(buf);
	close(c);
}

static void kernel_fn(void *arg)
{
	unsigned char *p = *(void **)arg;

	for (size_t i = 0; i < 1000; i++)
		p[i] ^= 0xff;
}

/* A host function acts as a kernel: it works on the memory, in stream order. */
TEST(functions_run_in_stream_order)
{
	struct strait_device *dev = open_device();
	struct strait_region *r = region(dev, PAGE);
	unsigned char data[1000], back[1000];
	struct strait_stream *s;
	void *cpu;

	ASSERT_OK(strait_region_map(r, &cpu));
	ASSERT_OK(strait_stream_open(dev, &s));
	fill(data, sizeof(data), 3);
	ASSERT_OK(strait_region_copy_in(r, 0, data, sizeof(data)));
	ASSERT_OK(strait_stream_call(s, kernel_fn, &cpu));
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_OK(strait_region_copy_out(r, 0, back, sizeof(back)));
	for (size_t i = 0; i < sizeof(back); i++)
		ASSERT_EQ(back[i], data[i] ^ 0xff);
	strait_stream_close(s);
	strait_region_close(r);
	strait_context_close(ctx);
}

static void notice(void *arg, struct strait_region *r)
{
	(void)r;
	atomic_fetch_add((atomic_int *)arg, 1);
}

/* The device is removed under the library. */
TEST(a_device_that_is_gone)
{
	struct strait_device *dev = open_device();
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_region *r = region(dev, 2 * PAGE), *more;
	atomic_int notices = 0;
	unsigned char byte = 1;
	char path[64];

	gpu_sysfs(path, sizeof(path));
	ASSERT_OK(strait_region_on_revoke(r, notice, &notices));
	ASSERT_OK(strait_region_copy_in(r, 0, &byte, 1));
	ASSERT_OK(write_text("/sys/bus/pci/drivers/strait_vgpu/unbind", strrchr(path, '/') + 1));
	for (int i = 0; i < 500 && !atomic_load(&notices); i++)
		sleep_ms(10);
	ASSERT_EQ(atomic_load(&notices), 1);
	ASSERT_EQ(strait_region_check(r), -ENODEV);
	ASSERT_EQ(strait_region_copy_in(r, 0, &byte, 1), -ENODEV);
	ASSERT_EQ(strait_region_alloc(dev, 1, &more), -ENODEV);
	ASSERT_EQ(strait_device_info(dev, &info), -ENODEV);
	strait_region_close(r);
	strait_context_close(ctx);
	ASSERT_OK(write_text("/sys/bus/pci/drivers/strait_vgpu/bind", strrchr(path, '/') + 1));
}
