/* SPDX-License-Identifier: MIT */
/* The lab's GPU: unbinding and unloading its driver. */
#include "consumer.h"

#include <pthread.h>
#include <sys/syscall.h>

static int unload(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

static void unload_consumer(void)
{
	if (!access("/sys/module/strait_vgpu_test", F_OK))
		ASSERT_OK(unload("strait_vgpu_test"));
	if (!access("/sys/module/strait_nvp2p", F_OK))
		ASSERT_OK(unload("strait_nvp2p"));
	if (!access("/sys/module/strait_vgpu_peer", F_OK))
		ASSERT_OK(unload("strait_vgpu_peer"));
}

TEST(refused_while_in_use)
{
	int fd = gpu_open(), c = -1, buf;
	struct gpu_mem m = gpu_alloc(fd, PLAIN, PAGE);

	unload_consumer();
	/* By an open file, by a mapping alone, by a dma-buf alone, by a consumer that is loaded. */
	ASSERT_EQ(unload("strait_vgpu"), -EAGAIN);
	buf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, PAGE));
	close(fd);
	ASSERT_EQ(unload("strait_vgpu"), -EAGAIN);
	gpu_unmap(&m);
	ASSERT_EQ(unload("strait_vgpu"), -EAGAIN);
	c = consumer_open();
	close(buf);
	close(c);
	ASSERT_EQ(unload("strait_vgpu"), -EAGAIN);
	unload_consumer();
	ASSERT_OK(unload("strait_vgpu"));
	load_module("strait_vgpu");
	load_module("strait_nvp2p");
	load_module("strait_vgpu_peer");
	fd = gpu_open();
	m = gpu_alloc(fd, PLAIN, PAGE);
	ASSERT_TRUE(all_zero(m.p, m.len));
	close(fd);
}

static char unbind_path[256], bind_path[256];
static char device[32];

static void find_device(void)
{
	int fd = gpu_open();
	struct strait_vgpu_info info = gpu_info(fd);

	snprintf(device, sizeof(device), "%.16s", info.pci);
	snprintf(unbind_path, sizeof(unbind_path), "/sys/bus/pci/drivers/strait_vgpu/unbind");
	snprintf(bind_path, sizeof(bind_path), "/sys/bus/pci/drivers/strait_vgpu/bind");
	close(fd);
}

static void *unbind_thread(void *arg)
{
	return (void *)(intptr_t)write_text(unbind_path, device);
}

/* The device is unbound from its driver with everything in use. */
TEST(removed_in_mid_use)
{
	int fd = gpu_open(), c = consumer_open(), buf;
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE), pinnable = gpu_alloc(fd, PINNABLE, PAGE), n;
	struct strait_vgpu_info info = { .size = sizeof(info) };
	struct strait_vgpu_query q;
	uint32_t id, import;

	find_device();
	fill(m.p, m.len, 1);
	fill(pinnable.p, pinnable.len, 1);
	id = consumer_get(c, &m, 0, VT_CB_FORGET);
	ASSERT_EQ(consumer_map(c, id), 0);
	buf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, PAGE));
	import = importer_attach(c, buf, 0);
	ASSERT_EQ(importer_map(c, import), 0);
	ASSERT_OK(write_text(unbind_path, device));
	/* All users were notified; the program continues with zeros. */
	ASSERT_EQ(consumer_status(c, id).called, 1);
	ASSERT_EQ(importer_status(c, import).notified, 1);
	ASSERT_TRUE(all_zero(m.p, m.len));
	ASSERT_TRUE(all_zero(pinnable.p, pinnable.len));
	fill(m.p, m.len, 2);
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_INFO, &info), -ENODEV);
	ASSERT_EQ(gpu_try_alloc(fd, PLAIN, PAGE, &n), -ENODEV);
	ASSERT_EQ(gpu_free(&m), -ENODEV);
	ASSERT_EQ(gpu_query(fd, m.p, &q), -ENODEV);
	ASSERT_EQ(gpu_dmabuf(&m, 0, PAGE), -ENODEV);
	ASSERT_EQ(importer_map(c, import), -ENODEV);
	ASSERT_EQ(open("/dev/strait_vgpu0", O_RDWR), -1);
	/* Bound again: a new device; old files stay dead. */
	ASSERT_OK(write_text(bind_path, device));
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_INFO, &info), -ENODEV);
	close(buf);
	close(c);
	close(fd);
	gpu_unmap(&m);
	gpu_unmap(&pinnable);
	/* The number is reused when it has no references any more. */
	ASSERT_OK(write_text(unbind_path, device));
	ASSERT_OK(write_text(bind_path, device));
	fd = gpu_open();
	n = gpu_alloc(fd, PLAIN, PAGE);
	ASSERT_TRUE(all_zero(n.p, n.len));
	close(fd);
}

/* A pinned page keeps the device bound until it is unpinned. */
TEST(removal_waits_for_pins)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PINNABLE, 2 * PAGE);
	struct vt_pin pin = { .va = (uintptr_t)m.p, .len = m.len, .flags = VT_PIN_LONGTERM };
	pthread_t t;
	void *ret;

	find_device();
	ASSERT_OK(gpu_call(c, VT_PIN, &pin));
	if (pin.result == -EOPNOTSUPP)
		SKIP("this kernel pins no such pages");
	ASSERT_EQ(pin.result, 0);
	ASSERT_EQ(pthread_create(&t, NULL, unbind_thread, NULL), 0);
	sleep_ms(500);
	/* Revoked already, and waited for: the driver is still bound. */
	ASSERT_TRUE(all_zero(m.p, m.len));
	ASSERT_EQ(pthread_tryjoin_np(t, &ret), EBUSY);
	ASSERT_OK(gpu_call(c, VT_UNPIN, &pin));
	ASSERT_EQ(pthread_join(t, &ret), 0);
	ASSERT_EQ((intptr_t)ret, 0);
	close(c);
	close(fd);
	gpu_unmap(&m);
	ASSERT_OK(write_text(bind_path, device));
}

/* So does a persistent pin. */
TEST(removal_waits_for_persistent_pins)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint32_t id = consumer_get(c, &m, VT_GET_PERSISTENT, 0);
	pthread_t t;
	void *ret;

	find_device();
	ASSERT_EQ(pthread_create(&t, NULL, unbind_thread, NULL), 0);
	sleep_ms(300);
	ASSERT_EQ(pthread_tryjoin_np(t, &ret), EBUSY);
	ASSERT_EQ(consumer_put(c, id, VT_PUT_PERSISTENT), 0);
	ASSERT_EQ(pthread_join(t, &ret), 0);
	ASSERT_EQ((intptr_t)ret, 0);
	close(c);
	close(fd);
	gpu_unmap(&m);
	ASSERT_OK(write_text(bind_path, device));
}
