/* SPDX-License-Identifier: MIT */
/*
 * Imported dma-bufs. A memfd takes the place of what a driver would export: it is mapped and passed on by its
 * descriptor in the same way. Real ones are in tests/lab/nvme_dmabuf_test.c.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <strait/dma.h>

#include "api/dma.h"
#include "device/region.h"
#include "nvme_common.h"
#include "xdma_model.h"

#define LEN MIB(4)

struct buf {
	int fd;
	unsigned char *p;
};

static struct buf buf_new(uint64_t len)
{
	struct buf b;

	ASSERT_OK(os_memfd("exported", len, &b.fd));
	b.p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
	ASSERT_TRUE(b.p != MAP_FAILED);
	prng_fill(b.p, len, 7);
	return b;
}

/* Imports without the check of strait_region_import_dmabuf() that it is a dma-buf. */
static struct strait_region *import(struct strait_context *ctx, const struct buf *b, uint64_t off, uint64_t len,
				    uint32_t flags)
{
	struct strait_region *r;

	ASSERT_OK(region_import_dmabuf(&ctx->set, b->fd, off, len, flags, &r));
	engine_ref(ctx);
	return r;
}

static struct strait_region_info info_of(struct strait_region *r)
{
	struct strait_region_info i = { .size = sizeof(i) };

	ASSERT_OK(strait_region_info(r, &i));
	return i;
}

TEST(the_device_is_found_by_its_name_and_not_listed)
{
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_context *ctx;
	struct strait_device *dev, *other;
	struct strait_region *r;

	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_OK(strait_device_find(ctx, "dmabuf", &dev));
	ASSERT_OK(strait_device_info(dev, &info));
	ASSERT_STREQ(info.name, "dmabuf");
	ASSERT_TRUE(info.caps & STRAIT_DEVICE_IMPORT_ONLY);
	for (int i = 0; i < strait_device_count(ctx); i++) {
		ASSERT_OK(strait_device_at(ctx, (unsigned int)i, &other));
		ASSERT_NE(other, dev);
	}
	ASSERT_EQ(strait_device_at(ctx, (unsigned int)strait_device_count(ctx), &other), -ENODEV);
	ASSERT_EQ(strait_region_alloc(dev, LEN, &r), -EOPNOTSUPP);
	strait_context_close(ctx);
}

TEST(what_is_refused)
{
	struct buf b = buf_new(LEN);
	struct strait_context *ctx;
	struct strait_region *r;

	ASSERT_OK(strait_context_open(NULL, &ctx));
	/* A file that is not a dma-buf, and a bad descriptor. */
	ASSERT_EQ(strait_region_import_dmabuf(ctx, b.fd, 0, LEN, 0, &r), -EINVAL);
	ASSERT_EQ(strait_region_import_dmabuf(ctx, -1, 0, LEN, 0, &r), -EBADF);
	ASSERT_EQ(strait_region_import_dmabuf(NULL, b.fd, 0, LEN, 0, &r), -EINVAL);
	ASSERT_EQ(strait_region_import_dmabuf(ctx, b.fd, 0, LEN, 0, NULL), -EINVAL);
	ASSERT_EQ(strait_region_import_dmabuf(ctx, b.fd, 0, LEN, 2, &r), -EINVAL);
	ASSERT_EQ(strait_region_import_dmabuf(ctx, b.fd, UINT64_MAX - 4095, LEN, 0, &r), -EOVERFLOW);
	/* Ranges. */
	ASSERT_EQ(region_import_dmabuf(&ctx->set, b.fd, 1, 4096, 0, &r), -EINVAL);
	ASSERT_EQ(region_import_dmabuf(&ctx->set, b.fd, 0, 4097, 0, &r), -EINVAL);
	ASSERT_EQ(region_import_dmabuf(&ctx->set, b.fd, 0, LEN + 4096, 0, &r), -EINVAL);
	ASSERT_EQ(region_import_dmabuf(&ctx->set, b.fd, LEN, 4096, 0, &r), -EINVAL);
	ASSERT_EQ(region_import_dmabuf(&ctx->set, b.fd, LEN, 0, 0, &r), -EINVAL);
	strait_context_close(ctx);
}

/* A part of it, whose descriptor is closed at once: copies and files reach it through the CPU. */
TEST(reached_by_the_cpu)
{
	struct buf b = buf_new(LEN);
	unsigned char *want = malloc(LEN), *have = malloc(LEN);
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_region *r, *found;
	uint64_t off;
	void *cpu;
	int fd;

	ASSERT_TRUE(want && have);
	ASSERT_OK(strait_context_open(NULL, &ctx));
	r = import(ctx, &b, MIB(1), 0, 0);
	close(b.fd);
	ASSERT_EQ(info_of(r).length, MIB(3));
	ASSERT_TRUE(info_of(r).caps & STRAIT_REGION_CPU_MAP);
	ASSERT_FALSE(info_of(r).caps & (STRAIT_REGION_DMA_ONLY | STRAIT_REGION_OWNED));
	ASSERT_OK(strait_region_map(r, &cpu));
	ASSERT_MEMEQ(cpu, b.p + MIB(1), MIB(3));
	ASSERT_OK(strait_region_lookup(ctx, (char *)cpu + 77, &off, &found));
	ASSERT_EQ(off, 77);
	strait_region_close(found);
	ASSERT_OK(strait_region_copy_out(r, 100, have, 5000));
	ASSERT_MEMEQ(have, b.p + MIB(1) + 100, 5000);
	ASSERT_OK(strait_region_fill(r, 4096, 0x5a, 100));
	ASSERT_EQ(b.p[MIB(1) + 4096], 0x5a);
	/* Into a file, and from one. */
	fd = open(test_path("f"), O_RDWR | O_CREAT, 0600);
	ASSERT_GE(fd, 0);
	ASSERT_OK(strait_file_import(ctx, fd, 0, &ep));
	memcpy(want, b.p + MIB(1), MIB(3));
	ASSERT_EQ(strait_write(ep, 0, r, 0, MIB(3)), (ssize_t)MIB(3));
	ASSERT_EQ(pread(fd, have, MIB(3), 0), (ssize_t)MIB(3));
	ASSERT_MEMEQ(have, want, MIB(3));
	memset(b.p, 0, LEN);
	ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(3)), (ssize_t)MIB(3));
	ASSERT_MEMEQ(b.p + MIB(1), want, MIB(3));
	ASSERT_TRUE(b.p[MIB(1) - 1] == 0);
	/* Can be exported only as a whole. */
	ASSERT_EQ(strait_region_export_dmabuf(r, 0, MIB(3), &fd), -EOPNOTSUPP);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
	free(have);
}

TEST(exported_again_as_a_whole)
{
	struct buf b = buf_new(LEN);
	struct strait_context *ctx;
	struct strait_region *r;
	struct stat one, two;
	int fd;

	ASSERT_OK(strait_context_open(NULL, &ctx));
	r = import(ctx, &b, 0, 0, STRAIT_DMABUF_NO_CPU_MAP);
	ASSERT_EQ(strait_region_export_dmabuf(r, 0, MIB(1), &fd), -EOPNOTSUPP);
	ASSERT_OK(strait_region_export_dmabuf(r, 0, LEN, &fd));
	ASSERT_EQ(fstat(fd, &one), 0);
	ASSERT_EQ(fstat(b.fd, &two), 0);
	ASSERT_EQ(one.st_ino, two.st_ino);
	close(fd);
	strait_region_close(r);
	strait_context_close(ctx);
}

/* Only devices reach it: what would need the CPU is refused with the reason. */
TEST(reached_by_devices_only)
{
	struct strait_route_report rep = { .size = sizeof(rep) };
	struct buf b = buf_new(LEN);
	struct strait_transfer t = { .length = 4096 };
	struct strait_context *ctx;
	struct strait_region *r;
	struct strait_result res;
	unsigned char have[100];
	uint32_t crc = 0;
	uint64_t where;
	void *cpu;
	int fd;

	ASSERT_OK(strait_context_open(NULL, &ctx));
	r = import(ctx, &b, 0, LEN, STRAIT_DMABUF_NO_CPU_MAP);
	ASSERT_TRUE(info_of(r).caps & STRAIT_REGION_DMA_ONLY);
	ASSERT_FALSE(info_of(r).caps & STRAIT_REGION_CPU_MAP);
	ASSERT_EQ(strait_region_map(r, &cpu), -EOPNOTSUPP);
	ASSERT_EQ(strait_region_copy_out(r, 0, have, 100), -EOPNOTSUPP);
	ASSERT_EQ(strait_region_copy_in(r, 0, have, 100), -EOPNOTSUPP);
	ASSERT_EQ(strait_region_fill(r, 0, 1, LEN), -EOPNOTSUPP);
	ASSERT_EQ(strait_region_crc32c(r, 0, LEN, &crc), -EOPNOTSUPP);
	ASSERT_EQ(strait_region_compare(r, 0, r, 4096, 4096, &where), -EOPNOTSUPP);
	fd = open(test_path("f"), O_RDWR | O_CREAT, 0600);
	ASSERT_EQ(ftruncate(fd, LEN), 0);
	ASSERT_OK(strait_file_import(ctx, fd, 0, &t.endpoint));
	t.region = r;
	for (t.op = STRAIT_READ; t.op <= STRAIT_WRITE; t.op++) {
		for (t.length = 16; t.length <= LEN; t.length *= 16) {
			ASSERT_EQ(strait_transfer_run(&t, STRAIT_FOREVER, &res), -EOPNOTSUPP);
			ASSERT_EQ(res.bytes, 0);
			ASSERT_OK(strait_route_query(&t, &rep));
			ASSERT_EQ(rep.route, -1);
			ASSERT_EQ(rep.verdict[STRAIT_ROUTE_STAGED].reason, STRAIT_WHY_DMA_ONLY);
			ASSERT_EQ(rep.verdict[STRAIT_ROUTE_PAGECACHE].reason, STRAIT_WHY_DMA_ONLY);
			ASSERT_EQ(rep.verdict[STRAIT_ROUTE_STAGED].code, -EOPNOTSUPP);
		}
	}
	strait_endpoint_close(t.endpoint);
	strait_region_close(r);
	strait_context_close(ctx);
}

static const struct kind {
	const char *name;
	uint32_t flags;
} kinds[] = { { "by-the-cpu-too", 0 }, { "by-devices-only", STRAIT_DMABUF_NO_CPU_MAP } };

/* A drive in user space moves bytes to and from it, at an offset in the dma-buf. */
TEST_VARIANTS(a_drive_reaches_it, struct kind, kinds)
{
	struct strait_route_report rep = { .size = sizeof(rep) };
	struct buf b = buf_new(LEN);
	unsigned char *want = malloc(LEN);
	struct strait_transfer t = { .op = STRAIT_WRITE, .length = MIB(1), .region_offset = 8192 };
	bool only = v->flags & STRAIT_DMABUF_NO_CPU_MAP;
	struct strait_transfer many[16];
	struct strait_result res, results[16];
	struct strait_queue *q;
	struct rig r;

	ASSERT_TRUE(want);
	rig_open(&r, &(struct model_config){ 0 }, NULL);
	ASSERT_OK(strait_nvme_endpoint(r.nvme, 1, 0, &t.endpoint));
	t.region = import(r.ctx, &b, MIB(1), MIB(2), v->flags);
	memcpy(want, b.p, LEN);
	/* It cannot be verified that bytes arrive: p2p is used if it is the only route, or the required one. */
	ASSERT_OK(strait_route_query(&t, &rep));
	ASSERT_TRUE(rep.verdict[STRAIT_ROUTE_P2P].usable);
	ASSERT_EQ(rep.verdict[STRAIT_ROUTE_P2P].code, 0);
	ASSERT_EQ(rep.verdict[STRAIT_ROUTE_P2P].reason,
		  only ? STRAIT_WHY_DRIVE_DMA_UNVERIFIED : STRAIT_WHY_CANNOT_VERIFY);
	ASSERT_EQ(rep.route, only ? STRAIT_ROUTE_P2P : STRAIT_ROUTE_STAGED);
	for (int asked = 0; asked < 2; asked++) {
		bool p2p = only || asked;

		t.routes = asked ? STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P) : STRAIT_ROUTE_ANY;
		t.op = STRAIT_WRITE;
		ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
		ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_P2P], p2p ? MIB(1) : 0);
		memset(b.p, 0xee, LEN);
		t.op = STRAIT_READ;
		ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
		ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_P2P], p2p ? MIB(1) : 0);
		ASSERT_MEMEQ(b.p + MIB(1) + 8192, want + MIB(1) + 8192, MIB(1));
		ASSERT_EQ(b.p[MIB(1) + 8191], 0xee);
		ASSERT_EQ(b.p[MIB(2) + 8192], 0xee);
		memcpy(b.p, want, LEN);
	}
	/* Many at once, on a queue. */
	ASSERT_OK(strait_queue_open(r.ctx, NULL, &q));
	for (int i = 0; i < 16; i++) {
		many[i] = t;
		many[i].op = STRAIT_READ;
		many[i].routes = STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P);
		many[i].endpoint_offset = (uint64_t)i * 4096;
		many[i].region_offset = 8192 + (uint64_t)i * 4096;
		many[i].length = 4096;
	}
	memset(b.p, 0xee, LEN);
	ASSERT_OK(strait_queue_submit(q, many, 16));
	ASSERT_EQ(strait_queue_wait(q, 16, 16, STRAIT_FOREVER, results), 16);
	for (int i = 0; i < 16; i++)
		ASSERT_EQ(results[i].route_bytes[STRAIT_ROUTE_P2P], 4096);
	ASSERT_MEMEQ(b.p + MIB(1) + 8192, want + MIB(1) + 8192, KIB(64));
	strait_queue_close(q);
	/* Ends that are not whole blocks need the CPU. */
	t.routes = STRAIT_ROUTE_ANY;
	t.length = MIB(1) - 100;
	ASSERT_EQ(strait_transfer_run(&t, STRAIT_FOREVER, &res), only ? -EOPNOTSUPP : 0);
	strait_endpoint_close(t.endpoint);
	strait_region_close(t.region);
	rig_close(&r);
	free(want);
}

/* And so does a DMA engine on a card. */
TEST_VARIANTS(a_card_reaches_it, struct kind, kinds)
{
	struct xdma_model *m = xdma_new(&(struct xdma_config){ 0 });
	struct buf b = buf_new(LEN);
	struct strait_transfer t = { .op = STRAIT_WRITE,
				     .routes = STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P),
				     .length = KIB(32) };
	struct strait_context *ctx;
	struct strait_dma *dma;
	struct strait_result res;

	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_OK(dma_adopt(ctx, &m->pci, NULL, &dma));
	ASSERT_OK(strait_dma_endpoint(dma, &t.endpoint));
	t.region = import(ctx, &b, MIB(1), 0, v->flags);
	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_P2P], KIB(32));
	ASSERT_MEMEQ(m->card, b.p + MIB(1), KIB(32));
	t.op = STRAIT_READ;
	t.region_offset = MIB(2);
	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	ASSERT_MEMEQ(b.p + MIB(3), b.p + MIB(1), KIB(32));
	strait_region_close(t.region);
	strait_endpoint_close(t.endpoint);
	strait_dma_close(dma);
	strait_context_close(ctx);
	xdma_free(m);
}
