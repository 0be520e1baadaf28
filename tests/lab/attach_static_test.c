/* SPDX-License-Identifier: MIT */
/*
 * A dma-buf of an exporter that neither pins nor revokes, as udmabuf and NVIDIA's driver: what a device reaches of it
 * after it was unmapped. Some kernels map such a dma-buf when it is attached and unmap it when it is detached.
 */
#include "raw.h"

#include <fcntl.h>
#include <signal.h>

#include "os/os.h"

#define LEN KIB(64)
#define SEED 31

__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

static const struct exporter {
	const char *name;
	bool gpu;
} exporters[] = { { "udmabuf", false }, { "gpu", true } };

/* Memory that this process has mapped and that is also a dma-buf. */
struct buf {
	int memfd, dmabuf; /* @memfd: -1 for the GPU's */
	unsigned char *p;
	struct gpu_mem mem;
};

static struct buf buf_new_gpu(void)
{
	struct buf b = { .memfd = -1 };

	gpu_set("static_dmabuf", 1);
	gpu_set("scatter", 0);
	b.mem = gpu_alloc(gpu_open(), PLAIN, LEN);
	b.dmabuf = (int)ASSERT_OK(gpu_dmabuf(&b.mem, 0, LEN));
	b.p = b.mem.p;
	return b;
}

static struct buf buf_new(const struct exporter *exporter)
{
	struct buf b;

	if (exporter->gpu)
		return buf_new_gpu();
	if (access("/dev/udmabuf", F_OK))
		SKIP("there is no /dev/udmabuf");
	b.memfd = memfd_create("static", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ASSERT_GE(b.memfd, 0);
	ASSERT_EQ(ftruncate(b.memfd, LEN), 0);
	ASSERT_EQ(fcntl(b.memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	ASSERT_OK(os_udmabuf(b.memfd, 0, LEN, &b.dmabuf));
	b.p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, b.memfd, 0);
	ASSERT_TRUE(b.p != MAP_FAILED);
	memset(b.p, 0, LEN);
	return b;
}

static void buf_free(struct buf *b)
{
	close(b->dmabuf);
	if (b->memfd < 0) {
		ASSERT_OK(gpu_free(&b->mem));
		gpu_unmap(&b->mem);
		close(b->mem.fd);
		return;
	}
	munmap(b->p, LEN);
	close(b->memfd);
}

static uint32_t buf_import(const struct buf *b, int ko)
{
	struct strait_ioc_import imp = {
		.size = sizeof(imp), .kind = STRAIT_IMPORT_DMABUF, .fd = b->dmabuf, .length = LEN
	};

	raw_need_kind(ko, STRAIT_IMPORT_DMABUF);
	ASSERT_OK(ko_call(ko, STRAIT_IOC_IMPORT, &imp));
	return imp.handle;
}

/* The engine writes to @bus until it is done: nothing may arrive in @b. */
static void expect_lost(struct raw *e, const struct buf *b, uint64_t bus)
{
	uint64_t faults = raw_faults();

	ASSERT_OK(raw_control(e->ko, STRAIT_CONTROL_BUS_MASTER, 1));
	raw_load(e, SEED + 1);
	memset(b->p, 0, LEN);
	raw_start(e, bus, EDU_MOST, true);
	raw_wait(e);
	raw_expect_fault(faults);
	ASSERT_TRUE(all_zero(b->p, LEN));
}

/* Creates a mapping and uses it, so that the IOMMU caches its translation. */
static uint64_t map_and_use(struct raw *e, const struct buf *b, uint32_t region, uint32_t *handle)
{
	struct strait_ioc_map map;

	ASSERT_OK(raw_map(e->ko, region, 0, LEN, &map));
	raw_load(e, SEED);
	raw_start(e, map.bus, EDU_MOST, true);
	raw_wait(e);
	ASSERT_TRUE(filled(b->p, EDU_MOST, SEED));
	*handle = map.handle;
	return map.bus;
}

TEST_VARIANTS(unmapped, struct exporter, exporters)
{
	struct raw e = raw_open();
	struct buf b = buf_new(v);
	uint32_t region = buf_import(&b, e.ko), handle;
	uint64_t bus = map_and_use(&e, &b, region, &handle);

	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, handle));
	expect_lost(&e, &b, bus);
	ASSERT_OK(ko_release(e.ko, region));
	raw_close(&e);
	buf_free(&b);
	ko_expect_counter("device_bytes", 0);
}

TEST_VARIANTS(released, struct exporter, exporters)
{
	struct raw e = raw_open();
	struct buf b = buf_new(v);
	uint32_t region = buf_import(&b, e.ko), handle;
	uint64_t bus = map_and_use(&e, &b, region, &handle);

	ASSERT_OK(ko_release(e.ko, region));
	ASSERT_FALSE(raw_master(e.name));
	ASSERT_EQ(raw_mapping(e.ko, STRAIT_IOC_MAPPED, handle), -ENODEV);
	expect_lost(&e, &b, bus);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, handle));
	raw_close(&e);
	buf_free(&b);
	ko_expect_counter("device_bytes", 0);
}

static const struct leaving {
	const char *name;
	bool remove;
	const struct exporter *exporter;
} leavings[] = { { "unbound", false, &exporters[0] },
		 { "unbound_gpu", false, &exporters[1] },
		 { "removed", true, &exporters[0] },
		 { "removed_gpu", true, &exporters[1] } };

/*
 * The device is removed while the dma-buf is mapped: the next process that attaches it does not reach the memory, and
 * closing is safe.
 */
TEST_VARIANTS(the_device_goes, struct leaving, leavings)
{
	struct raw e = raw_open(), next;
	struct buf b = buf_new(v->exporter);
	uint32_t region = buf_import(&b, e.ko), handle;
	uint64_t bus = map_and_use(&e, &b, region, &handle);
	char path[128];

	snprintf(path, sizeof(path),
		 v->remove ? "/sys/bus/pci/devices/%s/remove" : "/sys/bus/pci/devices/%s/driver/unbind", e.name);
	ASSERT_OK(write_text(path, v->remove ? "1" : e.name));
	ASSERT_EQ(raw_mapping(e.ko, STRAIT_IOC_MAPPED, handle), -ENODEV);
	ASSERT_EQ(ko_counter("maps"), 0);
	if (v->remove)
		ASSERT_OK(write_text("/sys/bus/pci/rescan", "1"));
	next = raw_open();
	expect_lost(&next, &b, bus);
	/* Its owner does not unmap it: closing does. */
	munmap((void *)e.bar, MIB(1));
	munmap(e.host, KIB(4));
	close(e.ko);
	ko_expect_counter("device_bytes", 0);
	expect_lost(&next, &b, bus);
	raw_close(&next);
	buf_free(&b);
}

/* Several mappings of one region, some unmapped by their handles and the rest by closing. */
TEST(closed_with_mappings)
{
	struct raw e = raw_open(), next;
	struct buf b = buf_new(&exporters[0]);
	uint32_t region = buf_import(&b, e.ko), handle[4];
	uint64_t bus[4];

	for (int i = 0; i < 4; i++)
		bus[i] = map_and_use(&e, &b, region, &handle[i]);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, handle[2]));
	expect_lost(&e, &b, bus[2]);
	raw_close(&e);
	ASSERT_EQ(ko_counter("maps"), 0);
	ko_expect_counter("device_bytes", 0);
	next = raw_open();
	for (int i = 0; i < 4; i++)
		expect_lost(&next, &b, bus[i]);
	raw_close(&next);
	buf_free(&b);
}

/* Requested for reading only: the device cannot write, or the result says that it can. */
TEST_VARIANTS(read_only, struct exporter, exporters)
{
	struct raw e = raw_open();
	struct buf b = buf_new(v);
	struct strait_ioc_map map = {
		.size = sizeof(map), .flags = STRAIT_MAP_READ, .region = buf_import(&b, e.ko), .length = LEN
	};

	ASSERT_OK(ko_call(e.ko, STRAIT_IOC_MAP, &map));
	ASSERT_EQ(map.where, v->gpu ? STRAIT_WHERE_DEVICE : STRAIT_WHERE_HOST);
	printf("# the device can %s\n", map.access & STRAIT_MAP_WRITE ? "read and write" : "read");
	ASSERT_TRUE(map.access & STRAIT_MAP_READ);
	if (map.access & STRAIT_MAP_WRITE) {
		raw_load(&e, SEED);
		raw_start(&e, map.bus, EDU_MOST, true);
		raw_wait(&e);
		ASSERT_TRUE(filled(b.p, EDU_MOST, SEED));
	} else {
		expect_lost(&e, &b, map.bus);
	}
	raw_close(&e);
	buf_free(&b);
}

/* The GPU's memory is freed while it is mapped: it gets a new owner only after the device has lost access. */
TEST(freed_and_then_released)
{
	struct raw e = raw_open();
	uint64_t before[2], bus, bar;
	int gpu = gpu_open();
	struct gpu_mem next;
	uint32_t region, handle;
	struct buf b;

	gpu_all_free(gpu, before);
	b = buf_new(&exporters[1]);
	bar = b.mem.bar;
	region = buf_import(&b, e.ko);
	bus = map_and_use(&e, &b, region, &handle);
	ASSERT_OK(gpu_free(&b.mem));
	gpu_unmap(&b.mem);
	close(b.dmabuf);
	/* Nothing was revoked: the dma-buf keeps the memory. */
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_MAPPED, handle));
	ASSERT_OK(ko_release(e.ko, region));
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, handle));
	gpu_expect_free(gpu, before);
	next = gpu_alloc(gpu, PLAIN, LEN);
	ASSERT_EQ(next.bar, bar);
	b.p = next.p;
	expect_lost(&e, &b, bus);
	raw_close(&e);
	ASSERT_OK(gpu_free(&next));
	ko_expect_counter("device_bytes", 0);
}

static const struct pieces {
	const char *name;
	uint32_t kind;
} pieces[] = { { "dmabuf", STRAIT_IMPORT_DMABUF }, { "nvp2p", STRAIT_IMPORT_NVP2P } };

/* Memory in several pieces: all runs are reported, in order, and the device reaches each. */
TEST_VARIANTS(scattered, struct pieces, pieces)
{
	struct raw e = raw_open();
	struct strait_ioc_import imp = { .size = sizeof(imp), .kind = v->kind, .fd = -1, .length = 8 * PAGE };
	struct strait_ioc_runs req = { .size = sizeof(req), .count = 8 };
	struct strait_run runs[8];
	struct strait_ioc_map map;
	struct gpu_mem m;
	uint64_t at = 0;

	raw_need_kind(e.ko, v->kind);
	gpu_set("static_dmabuf", 0);
	gpu_set("scatter", 3);
	m = gpu_alloc(gpu_open(), PLAIN, 8 * PAGE);
	if (v->kind == STRAIT_IMPORT_DMABUF)
		imp.fd = (int)ASSERT_OK(gpu_dmabuf(&m, 0, m.len));
	else
		imp.address = (uintptr_t)m.p;
	ASSERT_OK(ko_call(e.ko, STRAIT_IOC_IMPORT, &imp));
	/* Not from the start, and not to the end. */
	ASSERT_OK(raw_map(e.ko, imp.handle, KIB(4), m.len - KIB(8), &map));
	printf("# %u runs\n", map.runs);
	ASSERT_LE(map.runs, 8);
	req.handle = map.handle;
	req.runs = (uintptr_t)runs;
	ASSERT_OK(ko_call(e.ko, STRAIT_IOC_RUNS, &req));
	ASSERT_GE(map.runs, 3);
	ASSERT_EQ(req.count, map.runs);
	ASSERT_EQ(runs[0].bus, map.bus);
	for (unsigned int i = 0; i < map.runs; i++) {
		raw_load(&e, SEED + i);
		raw_start(&e, runs[i].bus, EDU_MOST, true);
		raw_wait(&e);
		ASSERT_TRUE(filled(m.p + KIB(4) + at, EDU_MOST, SEED + i));
		at += runs[i].length;
	}
	ASSERT_EQ(at, m.len - KIB(8));
	raw_close(&e);
	if (imp.fd >= 0)
		close(imp.fd);
	ASSERT_OK(gpu_free(&m));
}

/* An exporter does not move memory that is mapped for a device that cannot follow. */
TEST(mapped_memory_does_not_move)
{
	struct raw e = raw_open();
	struct buf b = { .memfd = -1 };
	struct strait_vgpu_move move = { .size = sizeof(move) };
	uint32_t region, handle;

	gpu_set("static_dmabuf", 0);
	gpu_set("scatter", 0);
	b.mem = gpu_alloc(gpu_open(), PLAIN, LEN);
	b.dmabuf = (int)ASSERT_OK(gpu_dmabuf(&b.mem, 0, LEN));
	b.p = b.mem.p;
	region = buf_import(&b, e.ko);
	map_and_use(&e, &b, region, &handle);
	move.handle = b.mem.handle;
	ASSERT_EQ(gpu_call(b.mem.fd, STRAIT_VGPU_MOVE, &move), -EBUSY);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_MAPPED, handle));
	ASSERT_TRUE(raw_master(e.name));
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, handle));
	ASSERT_OK(gpu_call(b.mem.fd, STRAIT_VGPU_MOVE, &move));
	map_and_use(&e, &b, region, &handle);
	raw_close(&e);
	buf_free(&b);
}
