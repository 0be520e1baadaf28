/* SPDX-License-Identifier: MIT */
/*
 * Memory exported as a dma-buf by one driver, imported as a region and transferred in both directions by a drive in
 * user space, compared with the drive as the host reads it. Only devices can map a dma-buf of the GPU's driver; the CPU
 * can map one of udmabuf too.
 */
#include "nvme.h"

#define LEN MIB(4)
#define SKIPPED KIB(64) /* offset of the region in the dma-buf */

static const struct nvme_setup setup = { "strait", "strait", "vgpu:0", false, false };

static const struct source {
	const char *name;
	const char *device;
	bool cpu; /* the exporter lets the CPU map it */
	bool revokes;
	uint32_t flags;
	uint64_t seed;
} sources[] = {
	{ "vgpu", "vgpu:0", false, true, 0, 11 },
	{ "udmabuf", "emu:0", true, false, 0, 12 },
	{ "udmabuf-no-cpu", "emu:0", false, false, STRAIT_DMABUF_NO_CPU_MAP, 13 },
};

/* udmabuf maps contiguous pages as one segment, but does not set the maximum segment size for the DMA layer. */
__attribute__((constructor)) static void allow_long_segments(void)
{
	printf("# allow-log DMA-API: misc udmabuf: mapping sg segment longer than device claims to support\n");
	printf("# allow-log WARNING: kernel/dma/debug.c:[0-9]+ at debug_dma_map_sg\n");
	fflush(stdout);
}

struct rig {
	struct drive d;
	struct strait_context *exporter; /* another context, as in another process */
	struct strait_region *memory;	 /* the exported region */
	unsigned char *cpu;
	struct strait_region *r; /* the imported region */
};

static void begin(struct rig *g, const struct source *v)
{
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_device *dev;
	int fd;

	drive_open(&g->d, &setup, 0);
	ASSERT_OK(strait_context_open(NULL, &g->exporter));
	ASSERT_OK(strait_device_find(g->exporter, v->device, &dev));
	ASSERT_OK(strait_region_alloc(dev, SKIPPED + LEN, &g->memory));
	ASSERT_OK(strait_region_info(g->memory, &info));
	if (!(info.caps & STRAIT_REGION_DMABUF))
		SKIP("this kernel makes no dma-buf of memory of %s", v->device);
	g->cpu = drive_cpu(g->memory);
	ASSERT_OK(strait_region_export_dmabuf(g->memory, 0, SKIPPED + LEN, &fd));
	ASSERT_OK(strait_region_import_dmabuf(g->d.ctx, fd, SKIPPED, 0, v->flags, &g->r));
	close(fd);
	ASSERT_OK(strait_region_info(g->r, &info));
	ASSERT_EQ(info.length, LEN);
	ASSERT_EQ(!!(info.caps & STRAIT_REGION_CPU_MAP), v->cpu);
	ASSERT_EQ(!!(info.caps & STRAIT_REGION_DMA_ONLY), !v->cpu);
}

static void end(struct rig *g)
{
	strait_region_close(g->r);
	strait_region_close(g->memory);
	strait_context_close(g->exporter);
	drive_close(&g->d);
}

static struct strait_result move(struct rig *g, uint32_t op, uint64_t at, uint64_t off, uint64_t len, uint32_t routes)
{
	struct strait_transfer t = { .op = op,
				     .routes = routes,
				     .endpoint = g->d.ep,
				     .region = g->r,
				     .endpoint_offset = at,
				     .region_offset = off,
				     .length = len };
	struct strait_result res;

	strait_transfer_run(&t, 60000000000, &res);
	return res;
}

TEST_VARIANTS_TIMEOUT(there_and_back, struct source, sources, 300)
{
	unsigned char *want = malloc(LEN);
	struct strait_result res;
	struct rig g;

	ASSERT_TRUE(want);
	begin(&g, v);
	/* The exporter's bytes reach the drive. */
	file_pattern(want, 0, LEN, v->seed);
	memcpy(g.cpu + SKIPPED, want, LEN);
	res = move(&g, STRAIT_WRITE, 0, 0, LEN, STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P));
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_P2P], LEN);
	ASSERT_OK(strait_endpoint_sync(g.d.ep));
	/* And back, in pieces at other offsets, with nothing else changed. */
	memset(g.cpu, 0xee, SKIPPED + LEN);
	for (uint64_t at = 0; at < LEN; at += KIB(512)) {
		res = move(&g, STRAIT_READ, at, LEN - KIB(512) - at, KIB(512), STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P));
		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_P2P], KIB(512));
	}
	for (uint64_t at = 0; at < LEN; at += KIB(512))
		ASSERT_MEMEQ(g.cpu + SKIPPED + LEN - KIB(512) - at, want + at, KIB(512));
	for (uint64_t i = 0; i < SKIPPED; i++)
		ASSERT_EQ(g.cpu[i], 0xee);
	/* Unless required, p2p is used only where there is no other route: it cannot be verified that bytes arrive. */
	res = move(&g, STRAIT_READ, 0, 0, LEN, 0);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_P2P], v->cpu ? 0 : LEN);
	ASSERT_MEMEQ(g.cpu + SKIPPED, want, LEN);
	end(&g);
	free(want);
	drive_expect(0, LEN, v->seed);
}

/* A file reaches the memory through the CPU, or not at all. */
TEST_VARIANTS(files, struct source, sources)
{
	unsigned char *want = malloc(LEN), *have = malloc(LEN);
	struct strait_endpoint *ep;
	struct rig g;
	int fd;

	ASSERT_TRUE(want && have);
	begin(&g, v);
	file_pattern(want, 0, LEN, v->seed);
	memcpy(g.cpu + SKIPPED, want, LEN);
	fd = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	ASSERT_GE(fd, 0);
	ASSERT_OK(strait_file_import(g.d.ctx, fd, 0, &ep));
	if (v->cpu) {
		ASSERT_EQ(strait_write(ep, 0, g.r, 0, LEN), (ssize_t)LEN);
		ASSERT_EQ(pread(fd, have, LEN, 0), (ssize_t)LEN);
		ASSERT_MEMEQ(have, want, LEN);
		memset(g.cpu, 0, SKIPPED + LEN);
		ASSERT_EQ(strait_read(ep, 0, g.r, 0, LEN), (ssize_t)LEN);
		ASSERT_MEMEQ(g.cpu + SKIPPED, want, LEN);
	} else {
		struct strait_route_report rep = { .size = sizeof(rep) };
		struct strait_transfer t = { .op = STRAIT_WRITE, .endpoint = ep, .region = g.r, .length = LEN };

		ASSERT_EQ(strait_write(ep, 0, g.r, 0, LEN), -EOPNOTSUPP);
		ASSERT_OK(strait_route_query(&t, &rep));
		ASSERT_EQ(rep.verdict[STRAIT_ROUTE_STAGED].reason, STRAIT_WHY_DMA_ONLY);
	}
	strait_endpoint_close(ep);
	close(fd);
	end(&g);
}

/* The exporter frees its memory: either it is revoked from the drive first, or the dma-buf keeps it. */
TEST_VARIANTS_TIMEOUT(freed_by_the_exporter, struct source, sources, 300)
{
	struct strait_result res;
	struct rig g;

	begin(&g, v);
	ASSERT_EQ(move(&g, STRAIT_READ, 0, 0, MIB(1), STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P)).status, 0);
	strait_region_close(g.memory);
	g.memory = NULL;
	res = move(&g, STRAIT_READ, 0, 0, MIB(1), STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P));
	if (v->revokes)
		ASSERT_LT(res.status, 0);
	else
		ASSERT_EQ(res.status, 0);
	end(&g);
}

/* What the kernel's driver reads afterwards. */
TEST(given_back)
{
	drive_give_back();
}
