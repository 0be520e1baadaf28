/* SPDX-License-Identifier: MIT */
/*
 * Peer memory clients: races. In each test one side is delayed at the critical place by a window (kernel/window.h), and
 * the module counts that the other side passed meanwhile.
 */
#include "peer_rig.h"

#define LEN PEER_LEN
#define SEED 41
#define WIDE 300 /* milliseconds, longer than a transfer of the engine */

/* Devices that write to revoked addresses. */
__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

static const struct peer_kind kinds[] = { PEER_EXTENDED, PEER_CLASSIC };
static const struct peer_kind revoking[] = { PEER_REVOKING };

/*
 * The memory is freed while the engine is about to write to it: the next owner's data stays intact, also if the device
 * continues: then the IOMMU reports a fault. Repeated until the engine was still busy when the memory had a new owner.
 */
static void freed_in_the_middle(struct peer_rig *g, bool again)
{
	uint64_t faults = raw_faults();
	struct gpu_mem next;
	bool in_time = false;

	for (int tries = 0; !in_time; tries++) {
		ASSERT_LT(tries, 20);
		peer_map(g);
		raw_load(&g->e, SEED);
		raw_start(&g->e, g->map.bus, EDU_MOST, true);
		ASSERT_OK(gpu_free(&g->m));
		ASSERT_FALSE(raw_master(g->e.name));
		gpu_unmap(&g->m);
		if (again)
			ASSERT_OK(raw_control(g->e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
		gpu_free_bytes(g->gpu, PLAIN);
		next = gpu_alloc(g->gpu, PLAIN, LEN);
		ASSERT_EQ(next.bar, g->m.bar);
		fill(next.p, KIB(4), SEED + 1);
		in_time = raw_busy(&g->e);
		raw_wait(&g->e);
		sleep_ms(20);
		ASSERT_TRUE(filled(next.p, KIB(4), SEED + 1));
		ASSERT_TRUE(all_zero(next.p + KIB(4), LEN - KIB(4)));
		expect_outside(&next, 0, LEN);
		ASSERT_EQ(raw_mapping(g->e.ko, STRAIT_IOC_MAPPED, g->map.handle), -ENODEV);
		ASSERT_OK(raw_mapping(g->e.ko, STRAIT_IOC_UNMAP, g->map.handle));
		ASSERT_OK(raw_control(g->e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
		g->m = next;
		ASSERT_OK(ko_release(g->e.ko, g->region));
		g->region = peer_import(g->e.ko, g->m.p, LEN);
	}
	if (again)
		raw_expect_fault(faults);
	ASSERT_OK(gpu_free(&g->m));
}

TEST_VARIANTS_TIMEOUT(device_stops, struct peer_kind, kinds, 120)
{
	struct peer_rig g;

	peer_begin(&g, v);
	freed_in_the_middle(&g, false);
	peer_end(&g);
}

TEST_VARIANTS_TIMEOUT(device_continues, struct peer_kind, kinds, 120)
{
	struct peer_rig g;

	peer_begin(&g, v);
	freed_in_the_middle(&g, true);
	peer_end(&g);
}

/* The persistent interface: the memory stays until it is unmapped, though its owner freed it. */
TEST_TIMEOUT(persistent_memory_stays, 120)
{
	static const struct peer_kind persistent = PEER_PERSISTENT;
	uint64_t before;
	struct peer_rig g;

	peer_begin(&g, &persistent);
	before = gpu_free_bytes(g.gpu, PLAIN);
	peer_map(&g);
	raw_load(&g.e, SEED);
	raw_start(&g.e, g.map.bus, EDU_MOST, true);
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_TRUE(raw_master(g.e.name));
	raw_wait(&g.e);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_MAPPED, g.map.handle));
	ASSERT_EQ(gpu_free_bytes(g.gpu, PLAIN), before);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_EQ(gpu_free_bytes(g.gpu, PLAIN), before + LEN);
	peer_end(&g);
}

/*
 * Lock inversion: the freeing thread holds the driver's lock, for which the unmapper waits inside the client. The
 * invalidation must not wait for the unmapper.
 */
TEST_VARIANTS_TIMEOUT(drivers_lock, struct peer_kind, revoking, 120)
{
	pthread_t freer, unmapper;
	struct peer_rig g;

	peer_begin(&g, v);
	peer_map(&g);
	window_open("callback", WIDE);
	freer = peer_run(peer_free_thread, &g);
	window_await("callback");
	unmapper = peer_run(peer_unmap_thread, &g);
	ASSERT_OK(peer_result(freer));
	ASSERT_OK(peer_result(unmapper));
	ASSERT_GE(window_met("callback"), 1);
	window_close("callback");
	ASSERT_EQ(peer_invalidations(), 1);
	peer_end(&g);
}

/*
 * The same for the mapper of a second context. It is inside dma_map when the freeing thread takes the driver's lock, and
 * then waits for that lock.
 */
TEST_VARIANTS_TIMEOUT(drivers_lock_and_mapper, struct peer_kind, revoking, 120)
{
	pthread_t freer, mapper;
	struct peer_rig g;

	peer_begin(&g, v);
	peer_map(&g);
	window_open("strait_vgpu_peer:map", WIDE);
	window_open("callback", 4 * WIDE);
	mapper = peer_run(peer_map_thread, &g);
	window_await("strait_vgpu_peer:map");
	freer = peer_run(peer_free_thread, &g);
	ASSERT_OK(peer_result(freer));
	ASSERT_EQ(peer_result(mapper), -ENODEV);
	/* The mapper came to the driver's lock while the freeing thread had it, before the callbacks. */
	ASSERT_EQ(window_met("callback"), 1);
	ASSERT_EQ(window_met("strait_vgpu_peer:map"), 0);
	window_close("callback");
	window_close("strait_vgpu_peer:map");
	ASSERT_EQ(peer_invalidations(), 2);
	peer_end(&g);
}

/* Concurrent teardown: an unmapper that has not unmapped yet, while the engine is about to write. */
static const struct place_of_unmapper {
	const char *name;
	struct peer_kind kind;
	const char *window;
} unmappers[] = {
	{ "extended-before-unmap", PEER_EXTENDED, "strait_peer:unmap" },
	{ "classic-before-unmap", PEER_CLASSIC, "strait_peer:unmap" },
	{ "extended-stale-before-unmap", PEER_EXTENDED_STALE, "strait_peer:unmap" },
	{ "classic-stale-before-unmap", PEER_CLASSIC_STALE, "strait_peer:unmap" },
	{ "extended-before-put", PEER_EXTENDED, "strait_peer:put" },
	{ "classic-before-put", PEER_CLASSIC, "strait_peer:put" },
	{ "extended-stale-before-put", PEER_EXTENDED_STALE, "strait_peer:put" },
	{ "classic-stale-before-put", PEER_CLASSIC_STALE, "strait_peer:put" },
};

/* The memory has a new owner, whose data the engine must not change. */
static void expect_intact(struct peer_rig *g)
{
	struct gpu_mem next;

	gpu_free_bytes(g->gpu, PLAIN);
	next = gpu_alloc(g->gpu, PLAIN, LEN);
	ASSERT_EQ(next.bar, g->m.bar);
	fill(next.p, LEN, SEED + 1);
	raw_wait(&g->e);
	sleep_ms(20);
	ASSERT_TRUE(filled(next.p, LEN, SEED + 1));
	expect_outside(&next, 0, LEN);
	ASSERT_OK(gpu_free(&next));
}

/* Returns whether the engine was busy when the memory was freed. */
static bool freed_in_unmap(struct peer_rig *g, const char *window)
{
	pthread_t unmapper;
	bool busy;

	peer_map(g);
	raw_load(&g->e, SEED);
	window_open(window, WIDE);
	raw_start(&g->e, g->map.bus, EDU_MOST, true);
	unmapper = peer_run(peer_unmap_thread, g);
	window_await(window);
	ASSERT_OK(gpu_free(&g->m));
	busy = raw_busy(&g->e);
	ASSERT_EQ(window_met(window), 1);
	ASSERT_FALSE(raw_master(g->e.name));
	expect_intact(g);
	ASSERT_OK(peer_result(unmapper));
	window_close(window);
	return busy;
}

TEST_VARIANTS_TIMEOUT(freed_during_unmap, struct place_of_unmapper, unmappers, 120)
{
	struct peer_rig g;

	peer_begin(&g, &v->kind);
	for (int tries = 1; !freed_in_unmap(&g, v->window); tries++) {
		ASSERT_LT(tries, 20);
		ASSERT_EQ(peer_invalidations(), tries);
		ASSERT_OK(raw_control(g.e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
		gpu_unmap(&g.m);
		g.m = gpu_alloc(g.gpu, PLAIN, LEN);
		g.region = peer_import(g.e.ko, g.m.p, LEN);
	}
	peer_end(&g);
}

/*
 * The memory is freed while it is being mapped: in get_pages, in dma_map before and after the driver has mapped, between
 * the calls, before the call returns. "map" and "fill" of a client that keeps pointers are left out: it uses them then.
 */
static const struct place_of_mapper {
	const char *name;
	struct peer_kind kind;
	const char *window;
	bool stops; /* the device could have the addresses */
} mappers[] = {
	{ "extended-get-pages", PEER_EXTENDED, "strait_vgpu_peer:get", false },
	{ "classic-get-pages", PEER_CLASSIC, "strait_vgpu_peer:get", false },
	{ "extended-stale-get-pages", PEER_EXTENDED_STALE, "strait_vgpu_peer:get", false },
	{ "classic-stale-get-pages", PEER_CLASSIC_STALE, "strait_vgpu_peer:get", false },
	{ "extended-pinned", PEER_EXTENDED, "strait_peer:pinned", false },
	{ "classic-pinned", PEER_CLASSIC, "strait_peer:pinned", false },
	{ "extended-stale-pinned", PEER_EXTENDED_STALE, "strait_peer:pinned", false },
	{ "classic-stale-pinned", PEER_CLASSIC_STALE, "strait_peer:pinned", false },
	{ "extended-dma-map", PEER_EXTENDED, "strait_vgpu_peer:map", false },
	{ "classic-dma-map", PEER_CLASSIC, "strait_vgpu_peer:map", false },
	{ "extended-dma-mapped", PEER_EXTENDED, "strait_vgpu_peer:fill", false },
	{ "classic-dma-mapped", PEER_CLASSIC, "strait_vgpu_peer:fill", false },
	{ "extended-mapped", PEER_EXTENDED, "strait_peer:mapped", false },
	{ "classic-mapped", PEER_CLASSIC, "strait_peer:mapped", false },
	{ "extended-stale-mapped", PEER_EXTENDED_STALE, "strait_peer:mapped", false },
	{ "classic-stale-mapped", PEER_CLASSIC_STALE, "strait_peer:mapped", false },
	{ "extended-publish", PEER_EXTENDED, "strait:map", true },
	{ "classic-publish", PEER_CLASSIC, "strait:map", true },
};

TEST_VARIANTS_TIMEOUT(freed_during_map, struct place_of_mapper, mappers, 120)
{
	pthread_t mapper;
	struct peer_rig g;

	peer_begin(&g, &v->kind);
	window_open(v->window, WIDE);
	mapper = peer_run(peer_map_thread, &g);
	window_await(v->window);
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_EQ(window_met(v->window), 1);
	ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	expect_intact(&g);
	ASSERT_EQ(peer_result(mapper), -ENODEV);
	window_close(v->window);
	ASSERT_EQ(raw_master(g.e.name), !v->stops);
	ASSERT_EQ(peer_invalidations(), 1);
	peer_end(&g);
}
