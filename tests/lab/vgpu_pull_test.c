/* SPDX-License-Identifier: MIT */
/* Surprise removal of the lab's GPU while its memory is in use. */
#include "consumer.h"
#include "outside.h"

#include <poll.h>

#define NODE "/dev/strait_vgpu0"

/* As in p2p_unplug_test: pciehp's own lockdep report. Printed before the plan, because output of tests is captured. */
__attribute__((constructor)) static void allow_report(void)
{
	if (getenv("LAB_KERNEL") && !strcmp(getenv("LAB_KERNEL"), "debug"))
		printf("# allow-log WARNING: possible circular locking dependency detected\n");
}

static char sysfs[64];

static void pull(void)
{
	char cmd[96];

	if (getenv("LAB_TOPOLOGY") && !strcmp(getenv("LAB_TOPOLOGY"), "flat"))
		SKIP("a device in the root complex is in no slot");
	gpu_sysfs(sysfs, sizeof(sysfs));
	snprintf(cmd, sizeof(cmd), "/lab/bin/pull %s", strrchr(sysfs, '/') + 1);
	ASSERT_EQ(system(cmd), 0);
}

static void wait_path(const char *path, bool there)
{
	for (int i = 0; i < 6000 && !access(path, F_OK) != there; i++)
		sleep_ms(10);
	ASSERT_EQ(!access(path, F_OK), there);
}

/* All files of the program are closed: a device that is plugged in has the old number, and works. */
static void put_back(void)
{
	char answer[64];
	struct gpu_mem m;
	int fd;

	outside_ask(answer, sizeof(answer), "plug gpu");
	wait_path(NODE, true);
	fd = gpu_open();
	m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	ASSERT_TRUE(all_zero(m.p, m.len));
	fill(m.p, m.len, 4);
	expect_outside(&m, 0, m.len);
	close(fd);
	gpu_unmap(&m);
}

static void wait_revoked(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	ASSERT_EQ(poll(&p, 1, 60000), 1);
	ASSERT_TRUE(p.revents & POLLHUP);
}

TEST_TIMEOUT(everything_is_revoked, 120)
{
	int fd = gpu_open(), c = consumer_open(), buf;
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE), pinnable = gpu_alloc(fd, PINNABLE, PAGE), n;
	struct strait_vgpu_info info = { .size = sizeof(info) };
	struct strait_vgpu_move move = { .size = sizeof(move), .handle = m.handle };
	unsigned char data[512];
	uint32_t id, import;

	gpu_set("static_dmabuf", 0);
	fill(m.p, m.len, 1);
	fill(pinnable.p, pinnable.len, 1);
	fill(data, sizeof(data), 2);
	id = consumer_get(c, &m, 0, VT_CB_QUIESCE | VT_CB_UNMAP | VT_CB_FORGET);
	ASSERT_EQ(consumer_map(c, id), 0);
	buf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, PAGE));
	import = importer_attach(c, buf, 0);
	ASSERT_EQ(importer_map(c, import), 0);
	/* The engine is running, and finds no memory at its address. */
	ASSERT_EQ(consumer_dma(c, id, VT_DMA_WRITE | VT_DMA_START, PAGE, data, sizeof(data)), 0);
	pull();
	wait_revoked(fd);
	ASSERT_EQ(consumer_status(c, id).called, 1);
	ASSERT_EQ(importer_status(c, import).notified, 1);
	ASSERT_EQ(importer_status(c, import).mapped, 0);
	ASSERT_EQ(importer_map(c, import), -ENODEV);
	ASSERT_TRUE(all_zero(m.p, m.len));
	ASSERT_TRUE(all_zero(pinnable.p, pinnable.len));
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_INFO, &info), -ENODEV);
	ASSERT_EQ(gpu_try_alloc(fd, PLAIN, PAGE, &n), -ENODEV);
	ASSERT_EQ(gpu_free(&m), -ENODEV);
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_MOVE, &move), -ENODEV);
	ASSERT_EQ(gpu_dmabuf(&m, 0, PAGE), -ENODEV);
	wait_path(sysfs, false);
	ASSERT_EQ(access(NODE, F_OK), -1);
	close(buf);
	close(c);
	close(fd);
	gpu_unmap(&m);
	gpu_unmap(&pinnable);
	put_back();
}

/* Consumers that cannot be notified keep the driver bound until they release the memory, but nothing else waits. */
TEST_TIMEOUT(persistent_pins_and_static_dma_bufs_are_waited_for, 120)
{
	int fd = gpu_open(), c = consumer_open(), buf;
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE), n = gpu_alloc(fd, PLAIN, PAGE);
	uint32_t id = consumer_get(c, &m, VT_GET_PERSISTENT, 0), import;

	gpu_set("static_dmabuf", 1);
	ASSERT_EQ(consumer_map(c, id), 0);
	buf = (int)ASSERT_OK(gpu_dmabuf(&n, 0, PAGE));
	gpu_set("static_dmabuf", 0);
	import = importer_attach(c, buf, VT_BUF_STATIC);
	ASSERT_EQ(importer_map(c, import), 0);
	pull();
	wait_revoked(fd);
	ASSERT_TRUE(all_zero(m.p, m.len));
	ASSERT_EQ(access(sysfs, F_OK), 0);
	ASSERT_EQ(consumer_put(c, id, VT_PUT_PERSISTENT), 0);
	sleep_ms(100);
	ASSERT_EQ(access(sysfs, F_OK), 0);
	importer_detach(c, import);
	close(buf);
	wait_path(sysfs, false);
	close(c);
	close(fd);
	gpu_unmap(&m);
	gpu_unmap(&n);
	put_back();
}
