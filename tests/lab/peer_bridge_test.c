/* SPDX-License-Identifier: MIT */
/*
 * The switch above the GPU and a card is removed while the card has memory of the GPU's peer client mapped: one task frees
 * the memory, which revokes it from the card, and then removes the card. Runs where both are below one switch.
 */
#include "nvme.h"
#include "peer.h"

#include <limits.h>

#define LEN KIB(256)
#define WIDE 600 /* milliseconds */

static const struct peer_kind kinds[] = { PEER_EXTENDED, PEER_CLASSIC };

/* The port above all ports of the switch, whose folder in sysfs is part of both devices' paths. */
static void find_switch(const char *drive, char *path, size_t len)
{
	char device[64], gpu[PATH_MAX], card[PATH_MAX];
	size_t same = 0, end = 0;

	gpu_sysfs(device, sizeof(device));
	ASSERT_TRUE(realpath(device, gpu));
	snprintf(device, sizeof(device), "/sys/bus/pci/devices/%s", drive);
	ASSERT_TRUE(realpath(device, card));
	for (; gpu[same] && gpu[same] == card[same]; same++)
		if (gpu[same] == '/')
			end = same;
	if (end <= strlen("/sys/devices/pci0000:00"))
		SKIP("GPU and drive are not below one switch");
	snprintf(path, len, "%.*s/remove", (int)end, gpu);
}

static void *master_thread(void *arg)
{
	return (void *)(intptr_t)raw_control(*(int *)arg, STRAIT_CONTROL_BUS_MASTER, 1);
}

struct removal {
	char path[PATH_MAX + 16];
	uint64_t ms;
};

static void *remove_thread(void *arg)
{
	struct removal *r = arg;
	uint64_t t = now_ms();
	int rc = write_text(r->path, "1");

	r->ms = now_ms() - t;
	return (void *)(intptr_t)rc;
}

TEST_VARIANTS_TIMEOUT(both_removed, struct peer_kind, kinds, 120)
{
	struct strait_ioc_attach attach;
	struct strait_ioc_map map;
	pthread_t remover, master;
	char name[PCI_NAME];
	struct removal r;
	struct gpu_mem m;
	void *rc;
	int gpu, ko;

	peer_load(v);
	gpu = gpu_open();
	pci_find(DRIVE_ID, name);
	find_switch(name, r.path, sizeof(r.path));
	drive_bind("strait", name);
	ko = (int)ASSERT_OK(raw_node(name));
	ASSERT_OK(raw_attach(ko, &attach));
	m = gpu_alloc(gpu, PLAIN, LEN);
	ASSERT_OK(raw_map(ko, peer_import(ko, m.p, LEN), 0, LEN, &map));
	window_open("strait_vgpu_peer:callback", WIDE);
	ASSERT_EQ(pthread_create(&remover, NULL, remove_thread, &r), 0);
	window_await("strait_vgpu_peer:callback");
	/* The revocation ends when the remover returns to user space: until then this waits. */
	ASSERT_EQ(pthread_create(&master, NULL, master_thread, &ko), 0);
	ASSERT_EQ(pthread_join(remover, &rc), 0);
	ASSERT_EQ((intptr_t)rc, 0);
	ASSERT_LT(r.ms, 9000 * (uint64_t)test_slow());
	ASSERT_EQ(pthread_join(master, &rc), 0);
	ASSERT_EQ((intptr_t)rc, -ENODEV);
	ASSERT_EQ(window_entered("strait_vgpu_peer:callback"), 1);
	window_close("strait_vgpu_peer:callback");
	close(ko);
	gpu_unmap(&m);
	close(gpu);
	peer_expect_released();
	ASSERT_OK(write_text("/sys/bus/pci/rescan", "1"));
	for (int i = 0; i < 3000 && access("/dev/strait_vgpu0", F_OK); i++)
		sleep_ms(10);
	close(gpu_open());
	drive_give_back();
}
