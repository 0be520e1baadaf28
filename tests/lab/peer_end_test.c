/* SPDX-License-Identifier: MIT */
/*
 * Peer memory clients: the end of contexts, clients, devices and modules. In each race one side is delayed at the critical
 * place by a window (kernel/window.h), and the module counts that the other side passed meanwhile.
 */
#include "peer_rig.h"

#include "nvme.h"

#include <signal.h>
#include <sys/syscall.h>

#define LEN PEER_LEN
#define SEED 43
#define COMMANDS 32
#define WIDE 300 /* milliseconds, longer than a transfer of the engine */

/* Devices that write to revoked addresses. */
__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

static const struct peer_kind kinds[] = { PEER_EXTENDED, PEER_CLASSIC };
static const struct peer_kind revoking[] = { PEER_REVOKING };

/* The client's callback accesses its context after the invalidation: release waits until the task has left it. */
TEST_VARIANTS_TIMEOUT(release_after_callback, struct peer_kind, revoking, 120)
{
	pthread_t freer, master;
	struct peer_rig g;
	int rc;

	peer_begin(&g, v);
	peer_map(&g);
	window_open("strait_vgpu_peer:callback", 2 * WIDE);
	freer = peer_run(peer_free_thread, &g);
	window_await("strait_vgpu_peer:callback");
	ASSERT_FALSE(raw_master(g.e.name));
	/* The driver has not unmapped the memory: the device cannot be started yet. */
	master = peer_run(peer_master_thread, &g);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_OK(ko_release(g.e.ko, g.region));
	ASSERT_EQ(peer_contexts(), 1);
	if (window_inside("strait_vgpu_peer:callback")) {
		ASSERT_FALSE(peer_try_result(master, &rc));
		ASSERT_FALSE(raw_master(g.e.name));
	}
	ASSERT_OK(peer_result(freer));
	ASSERT_OK(peer_result(master));
	ASSERT_TRUE(raw_master(g.e.name));
	ASSERT_EQ(window_entered("strait_vgpu_peer:callback"), 1);
	ASSERT_EQ(window_met("strait_vgpu_peer:callback"), 0);
	window_close("strait_vgpu_peer:callback");
	peer_end(&g);
}

/* The callback with numbers of contexts that are released, were never used, or are released just now. */
TEST_VARIANTS_TIMEOUT(stale_numbers, struct peer_kind, kinds, 120)
{
	static const char path[] = "/sys/kernel/debug/strait_vgpu_peer/invalidate";
	pthread_t unmapper;
	struct peer_rig g;
	char text[24];

	peer_begin(&g, v);
	peer_map(&g);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	for (uint64_t i = 0; i < 8; i++) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)(i < 4 ? i : UINT32_MAX - 2 + i));
		ASSERT_OK(write_text(path, text));
	}
	ASSERT_EQ(peer_invalidations(), 0);
	/* The second context of this client, in release. */
	peer_map(&g);
	window_open("strait_peer:release", WIDE);
	unmapper = peer_run(peer_unmap_thread, &g);
	window_await("strait_peer:release");
	ASSERT_OK(write_text(path, "2"));
	ASSERT_EQ(window_met("strait_peer:release"), 1);
	ASSERT_OK(peer_result(unmapper));
	window_close("strait_peer:release");
	ASSERT_EQ(peer_invalidations(), 0);
	/* A context that is mapped: the device is stopped, though the memory is there. */
	peer_map(&g);
	ASSERT_OK(write_text(path, "3"));
	ASSERT_OK(write_text(path, "3"));
	ASSERT_FALSE(raw_master(g.e.name));
	ASSERT_EQ(raw_mapping(g.e.ko, STRAIT_IOC_MAPPED, g.map.handle), -ENODEV);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_EQ(peer_invalidations(), 1);
	ASSERT_OK(gpu_free(&g.m));
	peer_end(&g);
}

/* A kernel thread invalidates: it never returns to user space, and the context is released some time later. */
TEST_VARIANTS_TIMEOUT(invalidated_by_thread, struct peer_kind, kinds, 120)
{
	struct peer_rig g;

	peer_begin(&g, v);
	peer_map(&g);
	ASSERT_OK(write_text("/sys/kernel/debug/strait_vgpu_peer/invalidate_thread", "1"));
	ASSERT_FALSE(raw_master(g.e.name));
	ASSERT_EQ(raw_mapping(g.e.ko, STRAIT_IOC_MAPPED, g.map.handle), -ENODEV);
	ASSERT_EQ(peer_contexts(), 1);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_OK(raw_control(g.e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
	peer_expect_released();
	ASSERT_OK(gpu_free(&g.m));
	peer_end(&g);
}

/*
 * The client unregisters while its memory is mapped, and the engine is about to write: it was stopped before, though the
 * memory is still mapped. Repeated until the engine was still busy then.
 */
TEST_VARIANTS_TIMEOUT(unregistered_in_use, struct peer_kind, revoking, 120)
{
	bool busy = false;
	pthread_t unloader;
	struct peer_rig g;

	peer_begin(&g, v);
	for (int tries = 0; !busy; tries++) {
		ASSERT_LT(tries, 20);
		peer_map(&g);
		raw_load(&g.e, SEED);
		window_open("strait_peer:unmap", WIDE);
		raw_start(&g.e, g.map.bus, EDU_MOST, true);
		unloader = peer_run(peer_unload_thread, &g);
		window_await("strait_peer:unmap");
		busy = raw_busy(&g.e);
		ASSERT_FALSE(raw_master(g.e.name));
		ASSERT_EQ(raw_mapping(g.e.ko, STRAIT_IOC_MAPPED, g.map.handle), -ENODEV);
		ASSERT_OK(peer_result(unloader));
		window_close("strait_peer:unmap");
		ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
		raw_wait(&g.e);
		sleep_ms(20);
		ASSERT_TRUE(all_zero(g.m.p, LEN));
		expect_outside(&g.m, 0, LEN);
		ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
		ASSERT_EQ(raw_map(g.e.ko, g.region, 0, LEN, &g.map), -ENODEV);
		peer_load(v);
		ASSERT_OK(raw_control(g.e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
		g.region = peer_import(g.e.ko, g.m.p, LEN);
	}
	ASSERT_OK(gpu_free(&g.m));
	peer_end(&g);
}

/* The client unregisters while its memory is being mapped, unmapped or invalidated. */
static const struct place_of_user {
	const char *name;
	struct peer_kind kind;
	const char *window;
	void *(*fn)(void *);
	bool mapped;
	int rc;
} users[] = {
	{ "classic-pinned", PEER_CLASSIC, "strait_peer:pinned", peer_map_thread, false, -ENODEV },
	{ "classic-mapped", PEER_CLASSIC, "strait_peer:mapped", peer_map_thread, false, -ENODEV },
	{ "classic-unmap", PEER_CLASSIC, "strait_peer:unmap", peer_unmap_thread, true, 0 },
	{ "classic-invalidate", PEER_CLASSIC, "strait_peer:invalidate", peer_free_thread, true, 0 },
	{ "extended-pinned", PEER_EXTENDED, "strait_peer:pinned", peer_map_thread, false, -ENODEV },
	{ "extended-mapped", PEER_EXTENDED, "strait_peer:mapped", peer_map_thread, false, -ENODEV },
	{ "extended-unmap", PEER_EXTENDED, "strait_peer:unmap", peer_unmap_thread, true, 0 },
	{ "extended-invalidate", PEER_EXTENDED, "strait_peer:invalidate", peer_free_thread, true, 0 },
};

TEST_VARIANTS_TIMEOUT(unregistered_meanwhile, struct place_of_user, users, 120)
{
	pthread_t user, unloader;
	struct peer_rig g;

	peer_begin(&g, &v->kind);
	if (v->mapped)
		peer_map(&g);
	window_open(v->window, WIDE);
	user = peer_run(v->fn, &g);
	window_await(v->window);
	unloader = peer_run(peer_unload_thread, &g);
	ASSERT_EQ(peer_result(user), v->rc);
	ASSERT_OK(peer_result(unloader));
	ASSERT_GE(window_met(v->window), 1);
	window_close(v->window);
	ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	if (v->fn != peer_free_thread)
		ASSERT_OK(gpu_free(&g.m));
	peer_load(&v->kind);
	peer_end(&g);
}

/* Two devices have the same memory mapped: each has a context of its own, and both are stopped. */
TEST_VARIANTS_TIMEOUT(two_devices, struct peer_kind, kinds, 180)
{
	struct strait_ioc_attach attach;
	struct strait_ioc_map other;
	char name[PCI_NAME];
	pthread_t freer;
	struct peer_rig g;
	int ko;

	peer_begin(&g, v);
	peer_map(&g);
	drive_bind("strait", name);
	ko = (int)ASSERT_OK(raw_node(name));
	ASSERT_OK(raw_attach(ko, &attach));
	ASSERT_OK(raw_map(ko, peer_import(ko, g.m.p, LEN), 0, LEN, &other));
	ASSERT_OK(raw_control(ko, STRAIT_CONTROL_BUS_MASTER, 1));
	ASSERT_EQ(peer_contexts(), 2);
	/* Between the invalidations of the two contexts one device is stopped, and its mapping is unmapped. */
	window_open("strait_peer:invalidate", WIDE);
	freer = peer_run(peer_free_thread, &g);
	window_await("strait_peer:invalidate");
	ASSERT_NE(raw_master(g.e.name), raw_master(name));
	if (raw_master(name))
		ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	else
		ASSERT_OK(raw_mapping(ko, STRAIT_IOC_UNMAP, other.handle));
	ASSERT_OK(peer_result(freer));
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
	peer_end(&g);
}

/* The engine and the drive have transfers in flight into the memory. Returns whether both still had when it was freed. */
static bool free_in_flight(struct peer_rig *g, struct drive *d, struct strait_nvme_queue *q)
{
	struct strait_nvme_command cmd[COMMANDS];
	struct strait_nvme_result res[COMMANDS];
	struct strait_nvme_map *to;
	struct strait_region *r;
	struct gpu_mem next;
	unsigned int failed = 0;
	bool busy;

	ASSERT_OK(strait_region_import(d->ctx, d->dev, g->m.p, LEN, &r));
	ASSERT_OK(strait_nvme_map(d->nvme, r, 0, LEN, &to));
	peer_map(g);
	ASSERT_EQ(peer_contexts(), 2);
	for (unsigned int i = 0; i < COMMANDS; i++)
		cmd[i] = (struct strait_nvme_command){ .opcode = 2,
						       .nsid = 1,
						       .cdw10 = { i * 16, 0, 15 },
						       .map = to,
						       .offset = i * KIB(8),
						       .length = KIB(8) };
	raw_load(&g->e, SEED);
	raw_start(&g->e, g->map.bus, EDU_MOST, true);
	ASSERT_EQ(strait_nvme_queue_submit(q, cmd, COMMANDS), COMMANDS);
	ASSERT_OK(gpu_free(&g->m));
	busy = raw_busy(&g->e);
	ASSERT_FALSE(raw_master(g->e.name));
	ASSERT_FALSE(raw_master(d->name));
	gpu_free_bytes(g->gpu, PLAIN);
	next = gpu_alloc(g->gpu, PLAIN, LEN);
	ASSERT_EQ(next.bar, g->m.bar);
	fill(next.p, LEN, SEED + 1);
	raw_wait(&g->e);
	ASSERT_EQ(strait_nvme_queue_wait(q, COMMANDS, COMMANDS, STRAIT_FOREVER, res), COMMANDS);
	for (unsigned int i = 0; i < COMMANDS; i++)
		failed += res[i].status != 0;
	sleep_ms(20);
	ASSERT_TRUE(filled(next.p, LEN, SEED + 1));
	expect_outside(&next, 0, LEN);
	printf("# the engine was %sbusy, %u commands of the drive failed\n", busy ? "" : "not ", failed);
	strait_nvme_unmap(to);
	strait_region_close(r);
	ASSERT_OK(raw_mapping(g->e.ko, STRAIT_IOC_UNMAP, g->map.handle));
	ASSERT_OK(raw_control(g->e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
	g->m = next;
	g->region = peer_import(g->e.ko, g->m.p, LEN);
	return busy && failed;
}

TEST_VARIANTS_TIMEOUT(two_devices_in_flight, struct peer_kind, kinds, 240)
{
	static const struct nvme_setup setup = { "strait", "strait", "host", false, false };
	struct strait_nvme_queue *q;
	struct peer_rig g;
	struct drive d;

	peer_begin(&g, v);
	drive_open(&d, &setup, 1000000000u);
	ASSERT_OK(strait_nvme_queue_open(d.nvme, NULL, &q));
	for (int tries = 1; !free_in_flight(&g, &d, q); tries++)
		ASSERT_LT(tries, 20);
	strait_nvme_queue_close(q);
	drive_close(&d);
	drive_give_back();
	ASSERT_OK(gpu_free(&g.m));
	peer_end(&g);
}

static int mapping_child(void *arg)
{
	const struct peer_kind *kind = arg;
	struct peer_rig g;

	peer_begin(&g, kind);
	peer_map(&g);
	raw_load(&g.e, SEED);
	raw_start(&g.e, g.map.bus, EDU_MOST, true);
	raise(SIGKILL);
	return 0;
}

/* The process is killed: its files are closed in some order, by the exiting task. */
TEST_VARIANTS_TIMEOUT(killed, struct peer_kind, kinds, 120)
{
	int gpu = gpu_open(), status;
	uint64_t free[STRAIT_VGPU_MEM_KINDS], t;
	struct peer_rig g;

	gpu_all_free(gpu, free);
	t = now_ms();
	status = wait_for(start(mapping_child, (void *)(uintptr_t)v));
	ASSERT_TRUE(WIFSIGNALED(status));
	/* The task that frees is the one that detaches the device, and does not wait for itself. */
	ASSERT_LT(now_ms() - t, 9000 * (uint64_t)test_slow());
	peer_expect_released();
	gpu_expect_free(gpu, free);
	peer_begin(&g, v);
	ASSERT_OK(gpu_free(&g.m));
	peer_end(&g);
}

/*
 * Switching bus mastering on waits for a revocation without a lock: a call that changes the state of the device, such as
 * its removal by the task that revokes, goes on meanwhile.
 */
TEST_VARIANTS_TIMEOUT(bus_master_waits_unlocked, struct peer_kind, kinds, 120)
{
	static const char window[] = "strait_vgpu_peer:callback";
	struct strait_ioc_attach attach;
	pthread_t freer, master;
	struct peer_rig g;
	int rc, other;

	peer_begin(&g, v);
	peer_map(&g);
	window_open(window, 5 * WIDE);
	freer = peer_run(peer_free_thread, &g);
	window_await(window);
	master = peer_run(peer_master_thread, &g);
	sleep_ms(WIDE);
	ASSERT_FALSE(peer_try_result(master, &rc));
	other = (int)ASSERT_OK(raw_node(g.e.name));
	ASSERT_EQ(raw_attach(other, &attach), -EBUSY);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_TRUE(window_inside(window));
	close(other);
	ASSERT_OK(peer_result(freer));
	ASSERT_OK(peer_result(master));
	window_close(window);
	peer_end(&g);
}

/*
 * The device is removed while its memory is being revoked: before the client is called, or before its driver unmaps.
 * Afterwards no driver may unmap memory for the device.
 */
static const struct place_of_removal {
	const char *name;
	struct peer_kind kind;
	const char *window;
	bool master; /* a thread waits for bus mastering, and loses the device */
} removals[] = {
	{ "extended-teardown", PEER_EXTENDED, "teardown", false },
	{ "classic-teardown", PEER_CLASSIC, "teardown", false },
	{ "classic-undo", PEER_CLASSIC, "strait_peer:undo", false },
	{ "extended-stale-teardown", PEER_EXTENDED_STALE, "teardown", true },
	{ "classic-stale-undo", PEER_CLASSIC_STALE, "strait_peer:undo", true },
};

TEST_VARIANTS_TIMEOUT(removed_meanwhile, struct place_of_removal, removals, 120)
{
	pthread_t freer, master = 0;
	char path[96];
	struct peer_rig g;
	int rc;

	peer_begin(&g, &v->kind);
	peer_map(&g);
	window_open(v->window, 3 * WIDE);
	freer = peer_run(peer_free_thread, &g);
	window_await(v->window);
	if (v->master) {
		master = peer_run(peer_master_thread, &g);
		sleep_ms(WIDE / 3);
	}
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/remove", g.e.name);
	ASSERT_OK(write_text(path, "1"));
	ASSERT_FALSE(window_inside(v->window));
	ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	ASSERT_OK(peer_result(freer));
	if (v->master) {
		rc = peer_result(master);
		ASSERT_TRUE(!rc || rc == -ENODEV);
	}
	ASSERT_EQ(window_entered(v->window), 1);
	window_close(v->window);
	raw_close(&g.e);
	peer_expect_released();
	ASSERT_OK(write_text("/sys/bus/pci/rescan", "1"));
	g.e = raw_open();
	peer_end(&g);
}

/* The owner unmaps while an invalidation is about to call the client: when it returns these calls are over. */
TEST_TIMEOUT(unmap_waits_for_undo, 120)
{
	pthread_t freer;
	struct peer_rig g;

	peer_begin(&g, &kinds[1]);
	peer_map(&g);
	window_open("strait_peer:undo", 2 * WIDE);
	freer = peer_run(peer_free_thread, &g);
	window_await("strait_peer:undo");
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_FALSE(window_inside("strait_peer:undo"));
	ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	ASSERT_EQ(window_met("strait_peer:undo"), 1);
	ASSERT_OK(peer_result(freer));
	window_close("strait_peer:undo");
	peer_end(&g);
}

/* strait_peer is unloaded while a task that has left the callback is still in its code. */
TEST_VARIANTS_TIMEOUT(module_unloads, struct peer_kind, kinds, 120)
{
	pthread_t freer;
	struct peer_rig g;
	uint64_t t;

	peer_begin(&g, v);
	peer_map(&g);
	window_open("strait_peer:left", 10 * WIDE);
	freer = peer_run(peer_free_thread, &g);
	window_await("strait_peer:left");
	t = now_ms();
	raw_close(&g.e);
	ASSERT_EQ(peer_contexts(), 0);
	ASSERT_OK(peer_unload());
	ASSERT_TRUE(window_inside("strait_peer:left"));
	ASSERT_EQ(syscall(SYS_delete_module, "strait_peer", O_NONBLOCK), 0);
	ASSERT_GE(now_ms() - t, 5 * WIDE);
	ASSERT_OK(peer_result(freer));
	load_module("strait_vgpu_peer");
	g.e = raw_open();
	peer_end(&g);
}

/* A mapping that was revoked keeps the module until it is unmapped. */
TEST_TIMEOUT(revoked_mapping_keeps_module, 120)
{
	struct peer_rig g;

	peer_begin(&g, &kinds[0]);
	peer_map(&g);
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_OK(ko_release(g.e.ko, g.region));
	ASSERT_OK(peer_unload());
	ASSERT_EQ(syscall(SYS_delete_module, "strait_peer", O_NONBLOCK), -1);
	ASSERT_EQ(errno, EAGAIN);
	ASSERT_OK(raw_mapping(g.e.ko, STRAIT_IOC_UNMAP, g.map.handle));
	ASSERT_EQ(syscall(SYS_delete_module, "strait_peer", O_NONBLOCK), 0);
	load_module("strait_vgpu_peer");
	peer_end(&g);
}
