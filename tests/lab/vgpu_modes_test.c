/* SPDX-License-Identifier: MIT */
/* The lab's GPU with properties of real ones: docs/vgpu.md. Each test sets the parameters of the driver. */
#include "consumer.h"

#include <linux/udmabuf.h>

#define NOTSUPP (-524) /* the kernel's own, which user space has no name for */

/* What the last tests provoke. Printed before the plan, because output of tests is captured. */
__attribute__((constructor)) static void allow_reports(void)
{
	printf("# allow-log strait_vgpu: BUG: a foreign module dropped the last reference\n");
	printf("# allow-log BUG: DMA mapping of a page table with 4 KiB pages\n");
}

static void gpu_modes(unsigned int scatter, unsigned int static_dmabuf, unsigned int p2p_page_kib)
{
	gpu_set("scatter", scatter);
	gpu_set("static_dmabuf", static_dmabuf);
	gpu_set("p2p_page_kib", p2p_page_kib);
}

static int gpu_move(const struct gpu_mem *m)
{
	struct strait_vgpu_move move = { .size = sizeof(move), .handle = m->handle };

	return gpu_call(m->fd, STRAIT_VGPU_MOVE, &move);
}

/* The engine writes and reads at @off of memory that is mapped for it. */
static void engine_reaches(int c, uint32_t id, uint32_t flags, const struct gpu_mem *m, uint64_t off, uint64_t seed)
{
	unsigned char data[512], back[512];

	fill(data, sizeof(data), seed);
	ASSERT_EQ(consumer_dma(c, id, flags | VT_DMA_WRITE, off, data, sizeof(data)), 0);
	ASSERT_MEMEQ(m->p + off, data, sizeof(data));
	fill(m->p + off, sizeof(data), seed + 1);
	ASSERT_EQ(consumer_dma(c, id, flags, off, back, sizeof(back)), 0);
	ASSERT_TRUE(filled(back, sizeof(back), seed + 1));
}

static const struct kind {
	const char *name;
	uint32_t kind;
} kinds[] = { { "plain", PLAIN }, { "pinnable", PINNABLE } };

TEST_VARIANTS(scattered_memory_is_one_to_programs, struct kind, kinds)
{
	int fd = gpu_open();
	uint64_t before[2];
	struct gpu_mem m, rest;

	gpu_modes(3, 0, 64);
	gpu_all_free(fd, before);
	m = gpu_alloc(fd, v->kind, 24 * PAGE);
	ASSERT_GE(gpu_runs(&m), 8);
	ASSERT_TRUE(all_zero(m.p, m.len));
	fill(m.p, m.len, 5);
	ASSERT_TRUE(filled(m.p, m.len, 5));
	expect_outside(&m, 0, m.len);
	/* Of the smaller part: all that is left can be allocated, to the last page. */
	if (v->kind == PINNABLE) {
		rest = gpu_alloc(fd, v->kind, before[v->kind] - m.len);
		ASSERT_EQ(gpu_info(fd).mem_free[v->kind], 0);
		ASSERT_TRUE(filled(m.p, m.len, 5));
		ASSERT_OK(gpu_free(&rest));
	}
	ASSERT_OK(gpu_free(&m));
	gpu_expect_free(fd, before);
	close(fd);
}

TEST(scattered_memory_has_many_addresses)
{
	int fd = gpu_open(), c = consumer_open(), buf;
	struct vt_get get = { 0 };
	struct vt_buf status;
	unsigned int runs;
	struct gpu_mem m;
	uint32_t id;

	gpu_modes(2, 0, 64);
	m = gpu_alloc(fd, PLAIN, 24 * PAGE);
	runs = gpu_runs(&m);
	ASSERT_GE(runs, 12);
	get.va = (uintptr_t)m.p;
	get.len = m.len;
	ASSERT_OK(consumer_try_get(c, &get));
	ASSERT_EQ(get.entries, 24);
	ASSERT_EQ(get.runs, runs);
	ASSERT_EQ(consumer_map(c, get.id), 0);
	for (uint64_t off = 0; off < m.len; off += 5 * PAGE)
		engine_reaches(c, get.id, 0, &m, off + 4096, off);
	buf = (int)ASSERT_OK(gpu_dmabuf(&m, 4096, m.len - 8192));
	id = importer_attach(c, buf, 0);
	ASSERT_EQ(importer_map(c, id), 0);
	status = importer_status(c, id);
	ASSERT_EQ(status.entries, runs);
	m.p += 4096;
	for (uint64_t off = 0; off < m.len - PAGE; off += 7 * PAGE)
		engine_reaches(c, id, VT_DMA_BUF, &m, off, off + 77);
	m.p -= 4096;
	expect_outside(&m, 0, m.len);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(importer_status(c, id).notified, 1);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	close(buf);
	close(c);
	close(fd);
}

static const struct importer {
	const char *name;
	uint32_t flags;
} importers[] = { { "static", VT_BUF_STATIC }, { "dynamic", 0 } };

/* A dma-buf of the static exporter is never revoked: it keeps the memory allocated. */
TEST_VARIANTS(a_static_dma_buf_keeps_the_memory, struct importer, importers)
{
	int fd = gpu_open(), c = consumer_open(), buf;
	unsigned char back[512];
	uint64_t before[2];
	struct gpu_mem m;
	uint32_t id;

	gpu_modes(0, 1, 64);
	gpu_all_free(fd, before);
	m = gpu_alloc(fd, PLAIN, 4 * PAGE);
	buf = (int)ASSERT_OK(gpu_dmabuf(&m, PAGE, 2 * PAGE));
	ASSERT_EQ(importer_try_attach(c, buf, VT_BUF_NO_PEER), NOTSUPP);
	id = importer_attach(c, buf, v->flags);
	ASSERT_EQ(importer_map(c, id), 0);
	m.p += PAGE;
	engine_reaches(c, id, VT_DMA_BUF, &m, 0, 9);
	m.p -= PAGE;
	ASSERT_EQ(gpu_move(&m), -EBUSY);
	ASSERT_OK(gpu_free(&m));
	/* The program has lost access; the importer was not notified and has not. */
	ASSERT_TRUE(all_zero(m.p, m.len));
	ASSERT_EQ(importer_status(c, id).notified, 0);
	ASSERT_EQ(consumer_dma(c, id, VT_DMA_BUF, 0, back, sizeof(back)), 0);
	ASSERT_TRUE(filled(back, sizeof(back), 10));
	importer_unmap(c, id);
	ASSERT_EQ(importer_map(c, id), 0);
	ASSERT_EQ(gpu_info(fd).mem_free[PLAIN], before[PLAIN] - m.len);
	close(buf);
	importer_detach(c, id);
	gpu_expect_free(fd, before);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	close(c);
	close(fd);
}

/* An older kernel pins what an importer has mapped: there it cannot move. */
static bool pins_what_is_mapped(int c, int buf, const struct gpu_mem *m)
{
	uint32_t id = importer_attach(c, buf, 0);
	int rc;

	ASSERT_EQ(importer_map(c, id), 0);
	rc = gpu_move(m);
	importer_detach(c, id);
	ASSERT_TRUE(!rc || rc == -EBUSY);
	return rc;
}

TEST_VARIANTS(moves_and_comes_back, struct kind, kinds)
{
	int fd = gpu_open(), c = consumer_open(), buf[2];
	uint64_t before[2], moves, bar;
	struct vt_buf old, late;
	struct gpu_mem m;
	uint32_t id[2];

	gpu_modes(0, 0, 64);
	gpu_all_free(fd, before);
	m = gpu_alloc(fd, v->kind, 6 * PAGE);
	buf[0] = (int)ASSERT_OK(gpu_dmabuf(&m, 0, m.len));
	buf[1] = (int)ASSERT_OK(gpu_dmabuf(&m, PAGE, PAGE));
	if (pins_what_is_mapped(c, buf[0], &m))
		SKIP("this kernel pins what an importer maps: refused, as it should be");
	fill(m.p, m.len, 3);
	moves = gpu_counters(fd).moves;
	for (int i = 0; i < 2; i++) {
		id[i] = importer_attach(c, buf[i], i ? VT_BUF_LATE : 0);
		ASSERT_EQ(importer_map(c, id[i]), 0);
	}
	gpu_run(&m, 0, m.len, &bar);
	for (unsigned int i = 1; i <= 4; i++) {
		uint64_t now;

		old = importer_status(c, id[0]);
		gpu_set("scatter", i & 1);
		ASSERT_OK(gpu_move(&m));
		ASSERT_EQ(gpu_counters(fd).moves - moves, i);
		/*
		 * Its contents were moved; importers were notified, and found it at the new place when they mapped it
		 * again.
		 */
		ASSERT_TRUE(filled(m.p, m.len, 3));
		expect_outside(&m, 0, m.len);
		gpu_run(&m, 0, m.len, &now);
		ASSERT_NE(now, bar);
		bar = now;
		ASSERT_EQ(importer_status(c, id[0]).notified, i);
		ASSERT_EQ(importer_status(c, id[0]).mapped, 0);
		ASSERT_EQ(importer_map(c, id[0]), 0);
		ASSERT_EQ(importer_status(c, id[0]).entries, gpu_runs(&m));
		ASSERT_TRUE(i > 1 || old.entries == 1);
		engine_reaches(c, id[0], VT_DMA_BUF, &m, 3 * PAGE, i);
		fill(m.p, m.len, 3);
	}
	/* The late importer has unmapped meanwhile, or will do so. */
	for (int i = 0; i < 1000 && (late = importer_status(c, id[1])).mapped; i++)
		sleep_ms(10);
	ASSERT_EQ(late.notified, 4);
	ASSERT_EQ(importer_map(c, id[1]), 0);
	m.p += PAGE;
	engine_reaches(c, id[1], VT_DMA_BUF, &m, 4096, 31);
	m.p -= PAGE;
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(importer_status(c, id[1]).notified, 5);
	ASSERT_EQ(importer_map(c, id[0]), -ENODEV);
	/* The pages of all its previous places are free. */
	gpu_expect_free(fd, before);
	close(buf[0]);
	close(buf[1]);
	close(c);
	close(fd);
}

/* Pinned memory is not moved, and can still be used after a move was refused. */
TEST(what_is_pinned_does_not_move)
{
	int fd = gpu_open(), c = consumer_open(), buf;
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE), other;
	struct vt_pin pin = { .va = (uintptr_t)m.p, .len = m.len, .flags = VT_PIN_PEER };
	uint64_t before[2];
	uint32_t id;

	gpu_modes(0, 0, 64);
	gpu_all_free(fd, before);
	fill(m.p, m.len, 8);
	ASSERT_OK(gpu_move(&m));
	id = consumer_get(c, &m, 0, VT_CB_FORGET);
	ASSERT_EQ(gpu_move(&m), -EBUSY);
	ASSERT_EQ(consumer_put(c, id, 0), 0);
	ASSERT_OK(gpu_move(&m));
	id = consumer_get(c, &m, VT_GET_PERSISTENT, 0);
	ASSERT_EQ(gpu_move(&m), -EBUSY);
	ASSERT_EQ(consumer_put(c, id, VT_PUT_PERSISTENT), 0);
	ASSERT_OK(gpu_move(&m));
	buf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, PAGE));
	ASSERT_OK(gpu_move(&m));
	id = importer_attach(c, buf, VT_BUF_PIN);
	ASSERT_EQ(gpu_move(&m), -EBUSY);
	importer_detach(c, id);
	ASSERT_OK(gpu_move(&m));
	if (gpu_info(fd).caps & STRAIT_VGPU_CAP_P2PDMA) {
		ASSERT_OK(gpu_call(c, VT_PIN, &pin));
		ASSERT_EQ(pin.result, 0);
		ASSERT_EQ(gpu_move(&m), -EBUSY);
		ASSERT_OK(gpu_call(c, VT_UNPIN, &pin));
		ASSERT_OK(gpu_move(&m));
	}
	ASSERT_TRUE(filled(m.p, m.len, 8));
	/* No room, no such memory. The free memory need not be contiguous. */
	gpu_set("scatter", 64);
	other = gpu_alloc(fd, PLAIN, gpu_free_bytes(fd, PLAIN));
	ASSERT_EQ(gpu_move(&m), -ENOMEM);
	ASSERT_TRUE(filled(m.p, m.len, 8));
	ASSERT_OK(gpu_free(&other));
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(gpu_move(&m), -ENOENT);
	before[PLAIN] += m.len;
	gpu_expect_free(fd, before);
	close(buf);
	close(c);
	close(fd);
}

/* Where the contract allows it: aligned addresses of memory in contiguous pairs of pages. */
TEST(page_tables_of_128_kib)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m;
	struct vt_get get, part;
	unsigned char *at;

	gpu_modes(0, 0, 128);
	m = gpu_alloc(fd, PLAIN, 8 * PAGE);
	/* Another mapping of it, at an address that may be a multiple of 128 KiB. */
	at = mmap(NULL, m.len + 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(at != MAP_FAILED);
	at += align_up((uintptr_t)at, 2 * PAGE) - (uintptr_t)at;
	ASSERT_TRUE(mmap(at, m.len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)m.offset) == at);
	get = (struct vt_get){ .va = (uintptr_t)at, .len = m.len };
	ASSERT_OK(consumer_try_get(c, &get));
	ASSERT_EQ(get.page_size, 2);
	ASSERT_EQ(get.entries, 4);
	ASSERT_EQ(get.runs, 1);
	ASSERT_EQ(get.last, get.first + 6 * PAGE);
	ASSERT_EQ(consumer_map(c, get.id), 0);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, m.len);
	engine_reaches(c, get.id, 0, &m, 5 * PAGE + 4096, 3);
	/* Half a pair is not. */
	part = (struct vt_get){ .va = (uintptr_t)at, .len = 3 * PAGE };
	ASSERT_OK(consumer_try_get(c, &part));
	ASSERT_EQ(part.page_size, 1);
	ASSERT_EQ(part.entries, 3);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	close(c);
	close(fd);
}

TEST(page_tables_of_4_kib)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m;
	struct vt_get get;

	gpu_modes(1, 0, 4);
	m = gpu_alloc(fd, PLAIN, 3 * PAGE);
	get = (struct vt_get){ .va = (uintptr_t)m.p, .len = m.len };
	ASSERT_OK(consumer_try_get(c, &get));
	ASSERT_EQ(get.page_size, 0);
	ASSERT_EQ(get.entries, 3 * PAGE / 4096);
	ASSERT_EQ(get.runs, 3);
	/* NVIDIA's driver has no DMA mappings of those. */
	ASSERT_EQ(consumer_map(c, get.id), -EINVAL);
	get.len = 4096;
	ASSERT_EQ(consumer_try_get(c, &get), -EINVAL);
	ASSERT_OK(gpu_free(&m));
	close(c);
	close(fd);
}

/* Host memory as a dma-buf, by the kernel's own static exporter. */
static int udmabuf(unsigned char **p, size_t len)
{
	int mem = memfd_create("udmabuf", MFD_ALLOW_SEALING | MFD_CLOEXEC), dev, buf;
	struct udmabuf_create create = { .memfd = (uint32_t)mem, .flags = UDMABUF_FLAGS_CLOEXEC, .size = len };

	ASSERT_GE(mem, 0);
	ASSERT_EQ(ftruncate(mem, (off_t)len), 0);
	ASSERT_EQ(fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	if (dev < 0 && errno == ENOENT)
		SKIP("this kernel has no udmabuf");
	ASSERT_GE(dev, 0);
	buf = ioctl(dev, UDMABUF_CREATE, &create);
	ASSERT_GE(buf, 0);
	*p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
	ASSERT_TRUE(*p != MAP_FAILED);
	close(dev);
	close(mem);
	return buf;
}

TEST_VARIANTS(another_static_exporter, struct importer, importers)
{
	int c = consumer_open(), buf;
	struct gpu_mem m = { .len = 4 * PAGE };
	uint32_t id;

	buf = udmabuf(&m.p, m.len);
	id = importer_attach(c, buf, v->flags);
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(importer_map(c, id), 0);
		engine_reaches(c, id, VT_DMA_BUF, &m, 3 * PAGE + 512, (uint64_t)i);
		importer_unmap(c, id);
	}
	ASSERT_EQ(importer_map(c, id), 0);
	close(buf);
	engine_reaches(c, id, VT_DMA_BUF, &m, PAGE, 7);
	importer_detach(c, id);
	close(c);
}

/* A module drops a page reference that it never took: NVIDIA's driver would crash. */
TEST(a_foreign_last_put_is_found_out)
{
	int fd = gpu_open(), c = consumer_open();
	struct strait_vgpu_counters now = gpu_counters(fd);
	uint64_t before[2], puts = now.foreign_puts;
	struct gpu_mem m;
	struct vt_op op;

	if (!(gpu_info(fd).caps & STRAIT_VGPU_CAP_P2PDMA))
		SKIP("plain memory has no pages on this kernel");
	gpu_modes(0, 0, 64);
	gpu_all_free(fd, before);
	m = gpu_alloc(fd, PLAIN, PAGE);
	op = (struct vt_op){ .id = consumer_get(c, &m, 0, VT_CB_FORGET) };
	ASSERT_OK(gpu_call(c, VT_FOREIGN_PUT, &op));
	ASSERT_EQ(op.result, 0);
	ASSERT_EQ(gpu_counters(fd).foreign_puts, puts + 1);
	/* It was repaired: the memory can be used and freed. */
	fill(m.p, m.len, 2);
	ASSERT_TRUE(filled(m.p, m.len, 2));
	ASSERT_OK(gpu_free(&m));
	gpu_expect_free(fd, before);
	close(c);
	close(fd);
}
