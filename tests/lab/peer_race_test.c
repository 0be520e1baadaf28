/* SPDX-License-Identifier: MIT */
/*
 * Peer memory clients: races. In each test one side is delayed at the critical place by a window (kernel/window.h), and
 * the module counts that the other side passed meanwhile.
 */
#include "peer.h"

#include "nvme.h"

#include <signal.h>

#define LEN KIB(256)
#define SEED 41
#define WIDE 300 /* milliseconds, longer than a transfer of the engine */

/* Devices that write to revoked addresses. */
__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

static const struct peer_kind kinds[] = { { "extended", true, true }, { "classic", false, true } };

/* The engine, and memory of the client mapped for it. */
struct rig {
	int gpu;
	struct raw e;
	struct gpu_mem m;
	uint32_t region;
	struct strait_ioc_map map;
	int rc; /* of a call in a thread */
};

static void begin(struct rig *g, const struct peer_kind *kind)
{
	peer_load(kind);
	g->gpu = gpu_open();
	g->e = raw_open();
	g->m = gpu_alloc(g->gpu, PLAIN, LEN);
	g->region = peer_import(g->e.ko, g->m.p, LEN);
}

static void map(struct rig *g)
{
	ASSERT_OK(raw_map(g->e.ko, g->region, 0, LEN, &g->map));
}

/* All contexts are released, the GPU's memory is mapped for no device, and the engine still works. */
static void end(struct rig *g)
{
	struct gpu_mem m = gpu_alloc(g->gpu, PLAIN, LEN);
	uint32_t region = peer_import(g->e.ko, m.p, LEN);
	struct strait_ioc_map again;

	peer_expect_released();
	ASSERT_OK(raw_control(g->e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
	ASSERT_OK(raw_map(g->e.ko, region, 0, LEN, &again));
	raw_load(&g->e, SEED + 9);
	raw_start(&g->e, again.bus, EDU_MOST, true);
	raw_wait(&g->e);
	ASSERT_TRUE(filled(m.p, EDU_MOST, SEED + 9));
	expect_outside(&m, 0, LEN);
	raw_close(&g->e);
	peer_expect_released();
	ko_expect_counter("device_bytes", 0);
	ASSERT_OK(gpu_free(&m));
	close(g->gpu);
}

static void *free_thread(void *arg)
{
	struct rig *g = arg;

	return (void *)(intptr_t)gpu_free(&g->m);
}

static void *unmap_thread(void *arg)
{
	struct rig *g = arg;

	return (void *)(intptr_t)raw_mapping(g->e.ko, STRAIT_IOC_UNMAP, g->map.handle);
}

static void *map_thread(void *arg)
{
	struct rig *g = arg;

	return (void *)(intptr_t)raw_map(g->e.ko, g->region, 0, LEN, &g->map);
}

static void *master_thread(void *arg)
{
	struct rig *g = arg;

	return (void *)(intptr_t)raw_control(g->e.ko, STRAIT_CONTROL_BUS_MASTER, 1);
}

static void *unload_thread(void *arg)
{
	return (void *)(intptr_t)peer_unload();
}

static pthread_t run(void *(*fn)(void *), struct rig *g)
{
	pthread_t t;

	ASSERT_EQ(pthread_create(&t, NULL, fn, g), 0);
	return t;
}

static int result(pthread_t t)
{
	void *ret;

	ASSERT_EQ(pthread_join(t, &ret), 0);
	return (int)(intptr_t)ret;
}

static void await(const char *window)
{
	for (int i = 0; i < 20000 && !window_inside(window); i++)
		sleep_ms(1);
	ASSERT_TRUE(window_inside(window));
}

static bool try_result(pthread_t t, int *rc)
{
	void *ret;

	if (pthread_tryjoin_np(t, &ret))
		return false;
	*rc = (int)(intptr_t)ret;
	return true;
}

/*
 * The memory is freed while the engine is about to write to it: the next owner's data stays intact, also if the device
 * continues: then the IOMMU reports a fault. Repeated until the engine was still busy when the memory had a new owner.
 */
static void freed_in_the_middle(struct rig *g, bool again)
{
	uint64_t faults = raw_faults();
	struct gpu_mem next;
	bool in_time = false;

	for (int tries = 0; !in_time; tries++) {
		ASSERT_LT(tries, 20);
		map(g);
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
	struct rig g;

	begin(&g, v);
	freed_in_the_middle(&g, false);
	end(&g);
}

TEST_VARIANTS_TIMEOUT(device_continues, struct peer_kind, kinds, 120)
{
	struct rig g;

	begin(&g, v);
	freed_in_the_middle(&g, true);
	end(&g);
}

/* The persistent interface: the memory stays until it is unmapped, though its owner freed it. */
TEST_TIMEOUT(persistent_memory_stays, 120)
{
	static const struct peer_kind persistent = { "persistent", false, false };
	uint64_t before;
	struct rig g;

	begin(&g, &persistent);
	before = gpu_free_bytes(g.gpu, PLAIN);
	map(&g);
	raw_load(&g.e, SEED);
	raw_start(&g.e, g.map.bus, EDU_MOST, true);
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_TRUE(raw_master(g.e.name));
	raw_wait(&g.e);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_MAPPED, g.map.handle));
	ASSERT_EQ(gpu_free_bytes(g.gpu, PLAIN), before);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_EQ(gpu_free_bytes(g.gpu, PLAIN), before + LEN);
	end(&g);
}

/*
 * Lock inversion: the freeing thread holds the driver's lock, for which the unmapper waits inside the client. The
 * invalidation must not wait for the unmapper.
 */
TEST_VARIANTS_TIMEOUT(drivers_lock, struct peer_kind, kinds, 120)
{
	pthread_t freer, unmapper;
	struct rig g;

	begin(&g, v);
	map(&g);
	window_open("callback", WIDE);
	freer = run(free_thread, &g);
	await("callback");
	unmapper = run(unmap_thread, &g);
	ASSERT_OK(result(freer));
	ASSERT_OK(result(unmapper));
	ASSERT_GE(window_met("callback"), 1);
	window_close("callback");
	ASSERT_EQ(peer_invalidations(), 1);
	end(&g);
}

/* The same for the mapper, which waits for the driver's lock in get_pages or dma_map of a second context. */
TEST_VARIANTS_TIMEOUT(drivers_lock_and_mapper, struct peer_kind, kinds, 120)
{
	pthread_t freer, mapper;
	struct rig g;
	int rc;

	begin(&g, v);
	map(&g);
	window_open("callback", WIDE);
	freer = run(free_thread, &g);
	await("callback");
	mapper = run(map_thread, &g);
	ASSERT_OK(result(freer));
	rc = result(mapper);
	ASSERT_TRUE(rc == -EFAULT || rc == -ENODEV);
	window_close("callback");
	ASSERT_EQ(peer_invalidations(), 1);
	end(&g);
}

/* Concurrent teardown: an unmapper that has not unmapped yet, while the engine is about to write. */
static const struct place_of_unmapper {
	const char *name;
	struct peer_kind kind;
	const char *window;
} unmappers[] = {
	{ "extended-before-unmap", { "extended", true, true }, "strait_peer:unmap" },
	{ "classic-before-unmap", { "classic", false, true }, "strait_peer:unmap" },
	{ "extended-before-put", { "extended", true, true }, "strait_peer:put" },
	{ "classic-before-put", { "classic", false, true }, "strait_peer:put" },
};

TEST_VARIANTS_TIMEOUT(freed_during_unmap, struct place_of_unmapper, unmappers, 120)
{
	pthread_t unmapper;
	struct gpu_mem next;
	struct rig g;

	begin(&g, &v->kind);
	map(&g);
	raw_load(&g.e, SEED);
	window_open(v->window, WIDE);
	raw_start(&g.e, g.map.bus, EDU_MOST, true);
	unmapper = run(unmap_thread, &g);
	await(v->window);
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_EQ(window_met(v->window), 1);
	ASSERT_FALSE(raw_master(g.e.name));
	gpu_free_bytes(g.gpu, PLAIN);
	next = gpu_alloc(g.gpu, PLAIN, LEN);
	fill(next.p, LEN, SEED + 1);
	ASSERT_OK(result(unmapper));
	raw_wait(&g.e);
	sleep_ms(20);
	ASSERT_TRUE(filled(next.p, LEN, SEED + 1));
	expect_outside(&next, 0, LEN);
	ASSERT_OK(gpu_free(&next));
	window_close(v->window);
	ASSERT_EQ(peer_invalidations(), 1);
	end(&g);
}

/* The memory is freed while it is being mapped: in get_pages, before and after dma_map, before the call returns. */
static const struct place_of_mapper {
	const char *name;
	struct peer_kind kind;
	const char *window;
	bool stops; /* the device could have the addresses */
} mappers[] = {
	{ "extended-get-pages", { "extended", true, true }, "strait_vgpu_peer:get", false },
	{ "classic-get-pages", { "classic", false, true }, "strait_vgpu_peer:get", false },
	{ "extended-pinned", { "extended", true, true }, "strait_peer:pinned", false },
	{ "classic-pinned", { "classic", false, true }, "strait_peer:pinned", false },
	{ "extended-mapped", { "extended", true, true }, "strait_peer:mapped", false },
	{ "classic-mapped", { "classic", false, true }, "strait_peer:mapped", false },
	{ "extended-publish", { "extended", true, true }, "strait:map", true },
	{ "classic-publish", { "classic", false, true }, "strait:map", true },
};

TEST_VARIANTS_TIMEOUT(freed_during_map, struct place_of_mapper, mappers, 120)
{
	pthread_t mapper;
	struct rig g;

	begin(&g, &v->kind);
	window_open(v->window, WIDE);
	mapper = run(map_thread, &g);
	await(v->window);
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_EQ(result(mapper), -ENODEV);
	ASSERT_EQ(window_met(v->window), 1);
	window_close(v->window);
	ASSERT_EQ(raw_master(g.e.name), !v->stops);
	ASSERT_EQ(peer_invalidations(), 1);
	end(&g);
}

/* The client's callback accesses its context after the invalidation: release waits until the task has left it. */
TEST_VARIANTS_TIMEOUT(release_after_callback, struct peer_kind, kinds, 120)
{
	pthread_t freer, master;
	struct rig g;
	int rc;

	begin(&g, v);
	map(&g);
	window_open("strait_vgpu_peer:callback", 2 * WIDE);
	freer = run(free_thread, &g);
	await("strait_vgpu_peer:callback");
	ASSERT_FALSE(raw_master(g.e.name));
	/* The driver has not unmapped the memory: the device cannot be started yet. */
	master = run(master_thread, &g);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_OK(ko_release(g.e.ko, g.region));
	ASSERT_EQ(peer_contexts(), 1);
	if (window_inside("strait_vgpu_peer:callback")) {
		ASSERT_FALSE(try_result(master, &rc));
		ASSERT_FALSE(raw_master(g.e.name));
	}
	ASSERT_OK(result(freer));
	ASSERT_OK(result(master));
	ASSERT_TRUE(raw_master(g.e.name));
	ASSERT_EQ(window_entered("strait_vgpu_peer:callback"), 1);
	ASSERT_EQ(window_met("strait_vgpu_peer:callback"), 0);
	window_close("strait_vgpu_peer:callback");
	end(&g);
}

/* The callback with numbers of contexts that are released, were never used, or are released just now. */
TEST_VARIANTS_TIMEOUT(stale_numbers, struct peer_kind, kinds, 120)
{
	static const char path[] = "/sys/kernel/debug/strait_vgpu_peer/invalidate";
	pthread_t unmapper;
	struct rig g;
	char text[24];

	begin(&g, v);
	map(&g);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	for (uint64_t i = 0; i < 8; i++) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)(i < 4 ? i : UINT32_MAX - 2 + i));
		ASSERT_OK(write_text(path, text));
	}
	ASSERT_EQ(peer_invalidations(), 0);
	/* The second context of this client, in release. */
	map(&g);
	window_open("strait_peer:release", WIDE);
	unmapper = run(unmap_thread, &g);
	await("strait_peer:release");
	ASSERT_OK(write_text(path, "2"));
	ASSERT_EQ(window_met("strait_peer:release"), 1);
	ASSERT_OK(result(unmapper));
	window_close("strait_peer:release");
	ASSERT_EQ(peer_invalidations(), 0);
	/* A context that is mapped: the device is stopped, though the memory is there. */
	map(&g);
	ASSERT_OK(write_text(path, "3"));
	ASSERT_OK(write_text(path, "3"));
	ASSERT_FALSE(raw_master(g.e.name));
	ASSERT_EQ(raw_mapping(g.e.ko, STRAIT_IOC_MAPPED, g.map.handle), -ENODEV);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_EQ(peer_invalidations(), 1);
	ASSERT_OK(gpu_free(&g.m));
	end(&g);
}

/* A kernel thread invalidates: it never returns to user space, and the context is released some time later. */
TEST_VARIANTS_TIMEOUT(invalidated_by_thread, struct peer_kind, kinds, 120)
{
	struct rig g;

	begin(&g, v);
	map(&g);
	ASSERT_OK(write_text("/sys/kernel/debug/strait_vgpu_peer/invalidate_thread", "1"));
	ASSERT_FALSE(raw_master(g.e.name));
	ASSERT_EQ(raw_mapping(g.e.ko, STRAIT_IOC_MAPPED, g.map.handle), -ENODEV);
	ASSERT_EQ(peer_contexts(), 1);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_OK(raw_control(g.e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
	ASSERT_EQ(peer_contexts(), 0);
	ASSERT_OK(gpu_free(&g.m));
	end(&g);
}

/* The client unregisters while its memory is mapped, and the engine is about to write. */
TEST_VARIANTS_TIMEOUT(unregistered_in_use, struct peer_kind, kinds, 120)
{
	struct rig g;

	begin(&g, v);
	map(&g);
	raw_load(&g.e, SEED);
	raw_start(&g.e, g.map.bus, EDU_MOST, true);
	ASSERT_OK(peer_unload());
	ASSERT_FALSE(raw_master(g.e.name));
	ASSERT_EQ(raw_mapping(g.e.ko, STRAIT_IOC_MAPPED, g.map.handle), -ENODEV);
	ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	raw_wait(&g.e);
	sleep_ms(20);
	ASSERT_TRUE(all_zero(g.m.p, LEN));
	ASSERT_EQ(raw_map(g.e.ko, g.region, 0, LEN, &g.map), -ENODEV);
	ASSERT_OK(gpu_free(&g.m));
	peer_load(v);
	end(&g);
}

/* The client unregisters while its memory is being mapped, unmapped or invalidated. */
static const struct place_of_user {
	const char *name, *window;
	void *(*fn)(void *);
	bool mapped;
	int rc;
} users[] = {
	{ "pinned", "strait_peer:pinned", map_thread, false, -ENODEV },
	{ "mapped", "strait_peer:mapped", map_thread, false, -ENODEV },
	{ "unmap", "strait_peer:unmap", unmap_thread, true, 0 },
	{ "invalidate", "strait_peer:invalidate", free_thread, true, 0 },
};

TEST_VARIANTS_TIMEOUT(unregistered_meanwhile, struct place_of_user, users, 120)
{
	pthread_t user, unloader;
	struct rig g;

	begin(&g, &kinds[1]);
	if (v->mapped)
		map(&g);
	window_open(v->window, WIDE);
	user = run(v->fn, &g);
	await(v->window);
	unloader = run(unload_thread, &g);
	ASSERT_EQ(result(user), v->rc);
	ASSERT_OK(result(unloader));
	ASSERT_GE(window_met(v->window), 1);
	window_close(v->window);
	ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	if (v->fn != free_thread)
		ASSERT_OK(gpu_free(&g.m));
	peer_load(&kinds[1]);
	end(&g);
}

/* Two devices have the same memory mapped: each has a context of its own, and both are stopped. */
TEST_VARIANTS_TIMEOUT(two_devices, struct peer_kind, kinds, 180)
{
	struct strait_ioc_attach attach;
	struct strait_ioc_map other;
	char name[PCI_NAME];
	pthread_t freer;
	struct rig g;
	int ko;

	begin(&g, v);
	map(&g);
	drive_bind("strait", name);
	ko = (int)ASSERT_OK(raw_node(name));
	ASSERT_OK(raw_attach(ko, &attach));
	ASSERT_OK(raw_map(ko, peer_import(ko, g.m.p, LEN), 0, LEN, &other));
	ASSERT_OK(raw_control(ko, STRAIT_CONTROL_BUS_MASTER, 1));
	ASSERT_EQ(peer_contexts(), 2);
	/* Between the invalidations of the two contexts one device is stopped, and its mapping is unmapped. */
	window_open("strait_peer:invalidate", WIDE);
	freer = run(free_thread, &g);
	await("strait_peer:invalidate");
	ASSERT_NE(raw_master(g.e.name), raw_master(name));
	if (raw_master(name))
		ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	else
		ASSERT_OK(raw_mapping(ko, STRAIT_IOC_UNMAP, other.handle));
	ASSERT_OK(result(freer));
	ASSERT_EQ(window_entered("strait_peer:invalidate"), 2);
	window_close("strait_peer:invalidate");
	ASSERT_EQ(peer_invalidations(), 2);
	ASSERT_FALSE(raw_master(g.e.name));
	ASSERT_FALSE(raw_master(name));
	ASSERT_NE(raw_mapping(g.e.ko, STRAIT_IOC_MAPPED, g.map.handle), 0);
	ASSERT_NE(raw_mapping(ko, STRAIT_IOC_MAPPED, other.handle), 0);
	ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	close(ko);
	drive_give_back();
	end(&g);
}

static int mapping_child(void *arg)
{
	const struct peer_kind *kind = arg;
	struct rig g;

	begin(&g, kind);
	map(&g);
	raw_load(&g.e, SEED);
	raw_start(&g.e, g.map.bus, EDU_MOST, true);
	raise(SIGKILL);
	return 0;
}

/* The process is killed: its files are closed in some order, by the exiting task. */
TEST_VARIANTS_TIMEOUT(killed, struct peer_kind, kinds, 120)
{
	int gpu = gpu_open(), status;
	uint64_t free[STRAIT_VGPU_MEM_KINDS];
	struct rig g;

	gpu_all_free(gpu, free);
	status = wait_for(start(mapping_child, (void *)(uintptr_t)v));
	ASSERT_TRUE(WIFSIGNALED(status));
	peer_expect_released();
	gpu_expect_free(gpu, free);
	begin(&g, v);
	ASSERT_OK(gpu_free(&g.m));
	end(&g);
}
