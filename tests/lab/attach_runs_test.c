/* SPDX-License-Identifier: MIT */
/* Scattered GPU memory mapped for an attached device: its runs, by every kind of import. */
#include "raw.h"

#define PAGES 8u
#define LEN (PAGES * PAGE)
#define SEED 61

static const struct setup {
	const char *name;
	uint32_t kind;
	unsigned int scatter, page_kib, static_dmabuf;
} setups[] = {
	{ "nvp2p", STRAIT_IMPORT_NVP2P, 2, 64, 0 },	     { "nvp2p-4k", STRAIT_IMPORT_NVP2P, 2, 4, 0 },
	{ "nvp2p-128k", STRAIT_IMPORT_NVP2P, 0, 128, 0 },    { "dmabuf", STRAIT_IMPORT_DMABUF, 2, 64, 0 },
	{ "dmabuf-static", STRAIT_IMPORT_DMABUF, 2, 64, 1 }, { "p2p", STRAIT_IMPORT_P2P, 2, 64, 0 },
};

/* The runs cover all of it, and the engine finds each piece at its run. */
static void check_runs(struct raw *e, const struct gpu_mem *m, const struct strait_ioc_map *map, bool merged,
		       uint64_t off, uint64_t len)
{
	struct strait_run run[LEN / 4096] = { 0 };
	struct strait_ioc_runs runs = { .size = sizeof(runs), .handle = map->handle, .count = ARRAY_SIZE(run) };
	uint64_t at = 0;

	runs.runs = (uintptr_t)run;
	ASSERT_OK(ko_call(e->ko, STRAIT_IOC_RUNS, &runs));
	ASSERT_EQ(runs.count, map->runs);
	ASSERT_EQ(run[0].bus, map->bus);
	for (uint32_t i = 0; i < runs.count; i++) {
		/* Adjacent entries of a scatterlist are one run. */
		if (i && merged)
			ASSERT_NE(run[i].bus, run[i - 1].bus + run[i - 1].length);
		raw_load(e, SEED + i);
		raw_start(e, run[i].bus + run[i].length - EDU_MOST, EDU_MOST, true);
		raw_wait(e);
		at += run[i].length;
		ASSERT_LE(at, len);
		ASSERT_TRUE(filled(m->p + off + at - EDU_MOST, EDU_MOST, SEED + i));
	}
	ASSERT_EQ(at, len);
}

TEST_VARIANTS_TIMEOUT(runs, struct setup, setups, 60)
{
	struct raw e = raw_open();
	struct strait_ioc_map map;
	struct gpu_mem m;
	uint32_t region;

	gpu_set("scatter", v->scatter);
	gpu_set("p2p_page_kib", v->page_kib);
	gpu_set("static_dmabuf", v->static_dmabuf);
	m = gpu_alloc(gpu_open(), PLAIN, LEN);
	if (v->scatter)
		ASSERT_GE(gpu_runs(&m), PAGES / 2);
	region = raw_import(e.ko, v->kind, &m);
	ASSERT_OK(raw_map(e.ko, region, 0, LEN, &map));
	ASSERT_LE(map.runs, gpu_runs(&m));
	printf("# %u pieces of memory, %u runs\n", gpu_runs(&m), map.runs);
	check_runs(&e, &m, &map, v->kind == STRAIT_IMPORT_DMABUF, 0, LEN);
	expect_outside(&m, 0, LEN);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, map.handle));
	/* A part that begins and ends inside a run. */
	ASSERT_OK(raw_map(e.ko, region, PAGE + 4096, 3 * PAGE, &map));
	check_runs(&e, &m, &map, v->kind == STRAIT_IMPORT_DMABUF, PAGE + 4096, 3 * PAGE);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, map.handle));
	ASSERT_OK(ko_release(e.ko, region));
	raw_close(&e);
	close(m.fd);
	gpu_unmap(&m);
	ko_expect_counter("device_bytes", 0);
	ko_expect_counter("maps", 0);
}
