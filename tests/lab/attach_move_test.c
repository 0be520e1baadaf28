/* SPDX-License-Identifier: MIT */
/*
 * GPU memory that moves, as when a driver evicts and restores it, while an attached device has it mapped by a dma-buf.
 */
#include "raw.h"

#define LEN KIB(256)
#define SEED 51

__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

static int gpu_move(const struct gpu_mem *m)
{
	struct strait_vgpu_move move = { .size = sizeof(move), .handle = m->handle };

	return gpu_call(m->fd, STRAIT_VGPU_MOVE, &move);
}

static uint32_t import(int ko, int dmabuf)
{
	struct strait_ioc_import imp = {
		.size = sizeof(imp), .kind = STRAIT_IMPORT_DMABUF, .fd = dmabuf, .length = LEN
	};

	raw_need_kind(ko, STRAIT_IMPORT_DMABUF);
	ASSERT_OK(ko_call(ko, STRAIT_IOC_IMPORT, &imp));
	return imp.handle;
}

static void engine_writes(struct raw *e, const struct gpu_mem *m, uint64_t bus, uint64_t seed)
{
	raw_load(e, seed);
	raw_start(e, bus, EDU_MOST, true);
	raw_wait(e);
	ASSERT_TRUE(filled(m->p, EDU_MOST, seed));
}

/* The module pins what it maps: the exporter does not move it. */
TEST(pinned_memory_stays)
{
	struct raw e = raw_open();
	struct gpu_mem m = gpu_alloc(gpu_open(), PLAIN, LEN);
	int dmabuf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, LEN));
	uint32_t region = import(e.ko, dmabuf);
	struct strait_ioc_map map;

	ASSERT_OK(gpu_move(&m));
	ASSERT_OK(raw_map(e.ko, region, 0, LEN, &map));
	engine_writes(&e, &m, map.bus, SEED);
	ASSERT_EQ(gpu_move(&m), -EBUSY);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_MAPPED, map.handle));
	engine_writes(&e, &m, map.bus, SEED + 1);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, map.handle));
	/* Unpinned with the mapping. */
	ASSERT_OK(gpu_move(&m));
	ASSERT_TRUE(filled(m.p, EDU_MOST, SEED + 1));
	ASSERT_OK(ko_release(e.ko, region));
	raw_close(&e);
	close(dmabuf);
	close(m.fd);
	ko_expect_counter("device_bytes", 0);
}

/* Memory that cannot be pinned is revoked when it moves, and can be mapped again at its new place. */
TEST(a_move_revokes_what_cannot_be_pinned)
{
	struct raw e = raw_open();
	struct gpu_mem m = gpu_alloc(gpu_open(), PLAIN, LEN), next;
	int dmabuf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, LEN));
	uint32_t region = import(e.ko, dmabuf);
	uint64_t faults, from, to;
	struct strait_ioc_map map;
	int rc;

	gpu_set("dmabuf_pin", 0);
	rc = raw_map(e.ko, region, 0, LEN, &map);
	if (rc == -EOPNOTSUPP && strcmp(getenv("LAB_KERNEL") ? getenv("LAB_KERNEL") : "", "6.12") == 0)
		SKIP("this kernel itself pins what is mapped");
	ASSERT_OK(rc);
	for (unsigned int i = 0; i < 3; i++) {
		fill(m.p, LEN, SEED + i);
		engine_writes(&e, &m, map.bus, SEED + i);
		gpu_run(&m, 0, LEN, &from);
		gpu_set("scatter", i);
		ASSERT_OK(gpu_move(&m));
		gpu_run(&m, 0, LEN, &to);
		ASSERT_NE(from, to);
		ASSERT_FALSE(raw_master(e.name));
		ASSERT_EQ(raw_mapping(e.ko, STRAIT_IOC_MAPPED, map.handle), -ENODEV);
		/* The engine continues at the old address, and reaches neither place. */
		gpu_set("scatter", 0);
		next = gpu_alloc(m.fd, PLAIN, LEN);
		faults = raw_faults();
		ASSERT_OK(raw_control(e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
		raw_load(&e, SEED + 9);
		raw_start(&e, map.bus, EDU_MOST, true);
		raw_wait(&e);
		ASSERT_TRUE(filled(m.p, LEN, SEED + i));
		ASSERT_TRUE(all_zero(next.p, LEN));
		raw_expect_fault(faults);
		ASSERT_OK(gpu_free(&next));
		gpu_unmap(&next);
		ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, map.handle));
		ASSERT_OK(raw_map(e.ko, region, 0, LEN, &map));
	}
	engine_writes(&e, &m, map.bus, SEED + 4);
	ASSERT_OK(ko_release(e.ko, region));
	raw_close(&e);
	close(dmabuf);
	close(m.fd);
	ko_expect_counter("device_bytes", 0);
}
