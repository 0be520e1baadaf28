/* SPDX-License-Identifier: MIT */
/* The lab's GPU: its memory as dma-bufs, with an importer in the kernel. */
#include "consumer.h"

TEST(an_importer_reaches_the_memory)
{
	int fd = gpu_open(), c = consumer_open(), buf;
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE);
	unsigned char data[512], back[512];
	uint32_t id;

	buf = (int)ASSERT_OK(gpu_dmabuf(&m, PAGE + 4096, PAGE));
	ASSERT_EQ(lseek(buf, 0, SEEK_END), PAGE);
	id = importer_attach(c, buf, 0);
	ASSERT_EQ(importer_map(c, id), 0);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, PAGE);
	fill(data, sizeof(data), 51);
	ASSERT_EQ(consumer_dma(c, id, VT_DMA_BUF | VT_DMA_WRITE, 8192, data, sizeof(data)), 0);
	ASSERT_MEMEQ(m.p + PAGE + 4096 + 8192, data, sizeof(data));
	fill(m.p + PAGE + 4096, sizeof(data), 52);
	ASSERT_EQ(consumer_dma(c, id, VT_DMA_BUF, 0, back, sizeof(back)), 0);
	ASSERT_TRUE(filled(back, sizeof(back), 52));
	expect_outside(&m, 0, m.len);
	importer_unmap(c, id);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	ASSERT_EQ(importer_map(c, id), 0);
	importer_detach(c, id);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	close(buf);
	close(c);
	close(fd);
}

TEST(importers_that_cannot_follow_are_refused)
{
	int fd = gpu_open(), c = consumer_open(), buf;
	struct gpu_mem m = gpu_alloc(fd, PLAIN, PAGE);
	uint32_t id;

	buf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, PAGE));
	ASSERT_EQ(importer_try_attach(c, buf, VT_BUF_NO_PEER), -EOPNOTSUPP);
	ASSERT_EQ(importer_try_attach(c, buf, VT_BUF_STATIC), -EOPNOTSUPP);
	id = importer_attach(c, buf, 0);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(importer_status(c, id).notified, 1);
	ASSERT_EQ(importer_map(c, id), -ENODEV);
	ASSERT_EQ(importer_try_attach(c, buf, 0), -ENODEV);
	close(c);
	close(buf);
	close(fd);
}

TEST(wrong_ranges_are_refused)
{
	int fd = gpu_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	struct strait_vgpu_dmabuf good = { .size = sizeof(good), .handle = m.handle, .length = PAGE }, d;
	struct strait_vgpu_dmabuf_at at = {
		.size = sizeof(at), .address = (uintptr_t)m.p, .length = PAGE, .identity = m.id
	};

#define REFUSED(err, ...)                                                                                              \
	do {                                                                                                           \
		d = good;                                                                                              \
		__VA_ARGS__;                                                                                           \
		ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_DMABUF, &d), err);                                                  \
	} while (0)
	REFUSED(-EINVAL, d.flags = 1);
	REFUSED(-EINVAL, d.reserved = 1);
	REFUSED(-EINVAL, d.fd_flags = O_NONBLOCK);
	REFUSED(-EINVAL, d.length = 0);
	REFUSED(-EINVAL, d.length = 100);
	REFUSED(-EINVAL, d.offset = 100);
	REFUSED(-EINVAL, d.length = 3 * PAGE);
	REFUSED(-EINVAL, d.offset = 2 * PAGE);
	REFUSED(-EINVAL, d.offset = ~0ull & ~4095ull);
	REFUSED(-EINVAL, d.length = ~0ull & ~4095ull);
	REFUSED(-ENOENT, d.handle = 0);
	REFUSED(-ENOENT, d.handle = m.handle + 1);
#undef REFUSED
	ASSERT_OK(gpu_call(fd, STRAIT_VGPU_DMABUF_AT, &at));
	close(at.fd);
	at.identity++;
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_DMABUF_AT, &at), -ESTALE);
	at.identity--;
	at.address += 2 * PAGE;
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_DMABUF_AT, &at), -ENOENT);
	at.address = (uintptr_t)m.p;
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_DMABUF_AT, &at), -ENODEV);
	close(fd);
}

/* The free waits for a slow importer. */
TEST(a_free_waits_for_importers)
{
	int fd = gpu_open(), c = consumer_open(), buf[3];
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE);
	uint64_t before = gpu_counters(fd).invalidations, begin;
	uint32_t id[3];

	for (int i = 0; i < 3; i++) {
		buf[i] = (int)ASSERT_OK(gpu_dmabuf(&m, (uint64_t)i * PAGE, PAGE));
		id[i] = importer_attach(c, buf[i], i == 1 ? VT_BUF_LATE : 0);
		ASSERT_EQ(importer_map(c, id[i]), 0);
	}
	close(buf[2]); /* the attachment holds a reference on it */
	begin = now_ms();
	ASSERT_OK(gpu_free(&m));
	ASSERT_GE(now_ms() - begin, 290);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	ASSERT_EQ(gpu_counters(fd).invalidations - before, 3);
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(importer_status(c, id[i]).notified, 1);
		ASSERT_EQ(importer_status(c, id[i]).mapped, 0);
	}
	close(c);
	close(fd);
}

/* Exported, and the file closed: the memory is freed with the file, and the dma-buf is revoked. */
TEST(a_dma_buf_does_not_keep_the_file)
{
	int watch = gpu_open(), fd = gpu_open(), c = consumer_open(), buf;
	uint64_t before[2];
	struct gpu_mem m;
	uint32_t id;

	gpu_all_free(watch, before);
	m = gpu_alloc(fd, PLAIN, PAGE);
	buf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, PAGE));
	id = importer_attach(c, buf, 0);
	ASSERT_EQ(importer_map(c, id), 0);
	gpu_unmap(&m);
	close(fd);
	gpu_expect_free(watch, before);
	ASSERT_EQ(importer_status(c, id).notified, 1);
	ASSERT_EQ(importer_map(c, id), -ENODEV);
	close(buf);
	close(c);
	close(watch);
}

TEST(memory_of_another_file_by_address)
{
	int fd = gpu_open(), other = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE);
	struct strait_vgpu_dmabuf_at at = { .size = sizeof(at),
					    .address = (uintptr_t)m.p + PAGE,
					    .length = 2 * PAGE,
					    .identity = m.id,
					    .fd_flags = O_CLOEXEC };
	unsigned char back[64];
	uint32_t id;

	fill(m.p + PAGE, PAGE, 61);
	ASSERT_OK(gpu_call(other, STRAIT_VGPU_DMABUF_AT, &at));
	id = importer_attach(c, at.fd, 0);
	ASSERT_EQ(importer_map(c, id), 0);
	ASSERT_EQ(consumer_dma(c, id, VT_DMA_BUF, 0, back, sizeof(back)), 0);
	ASSERT_TRUE(filled(back, sizeof(back), 61));
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(importer_status(c, id).notified, 1);
	close(c);
	close(at.fd);
	close(other);
	close(fd);
}
