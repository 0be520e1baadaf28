/* SPDX-License-Identifier: MIT */
/* strait_nvp2p: memory that strait.ko gets from a driver that implements nvidia_p2p, here that of the lab's GPU. */
#include "p2p.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

#define SEED 21
#define LEN MIB(1)

static const struct place places[] = PLACES;

static int open_bridge(void)
{
	int ko = ko_open_p2p();

	if (!(ko_info(ko).features & STRAIT_FEATURE_IMPORT_NVP2P))
		SKIP("the bridge is not loaded");
	return ko;
}

TEST_VARIANTS(reads_and_writes, struct place, places)
{
	int ko = open_bridge(), gpu = gpu_open(), file = place_file(v, LEN, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	unsigned char *want = malloc(LEN), *have = malloc(LEN);
	uint64_t pinned = gpu_counters(gpu).p2p_pinned_bytes;
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_NVP2P, m.p, m.len);

	ASSERT_TRUE(want && have);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, 0, 0, LEN, NULL), LEN);
	ASSERT_EQ(gpu_counters(gpu).p2p_pinned_bytes - pinned, LEN);
	file_pattern(want, 0, LEN, SEED);
	ASSERT_MEMEQ(m.p, want, LEN);
	fill(m.p, LEN, 8);
	fill(want, LEN, 8);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_WRITE, handle, file, 0, 0, LEN, NULL), LEN);
	ASSERT_EQ(pread(file, have, LEN, 0), LEN);
	ASSERT_MEMEQ(have, want, LEN);
	/* The address only names the memory: the mapping may be removed. */
	gpu_unmap(&m);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, 0, 0, LEN, NULL), LEN);
	ASSERT_OK(ko_release(ko, handle));
	ko_expect_counter("device_bytes", 0);
	close(file);
	place_unmount();
}

TEST(refuses)
{
	int ko = open_bridge(), gpu = gpu_open();
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN), pin = gpu_alloc(gpu, PINNABLE, LEN);
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct strait_ioc_import imp;
	uint64_t calls = gpu_counters(gpu).callbacks;

	p += PAGE - (uintptr_t)p % PAGE;
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_NVP2P, m.p + 4096, KIB(64), &imp), -EINVAL);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_NVP2P, m.p, KIB(4), &imp), -EINVAL);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_NVP2P, p, KIB(64), &imp), -EFAULT);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_NVP2P, pin.p, KIB(64), &imp), -EOPNOTSUPP);
	ASSERT_EQ(gpu_counters(gpu).callbacks, calls);
}

/* The driver's callback waits for I/O in flight; when it has returned the memory has a new owner. */
TEST(freed_in_the_middle_of_io)
{
	struct ko_reader s = { .ko = open_bridge(), .len = LEN };
	unsigned int met = 0;
	int gpu = gpu_open();
	uint64_t before[2];

	s.file = place_file(&places[0], LEN, SEED, 0);
	gpu_all_free(gpu, before);
	for (int i = 0; i < 5; i++) {
		struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
		uint64_t calls = gpu_counters(gpu).callbacks;
		pthread_t thread[2];
		void *ret;

		s.handle = ko_import(s.ko, STRAIT_IMPORT_NVP2P, m.p, m.len);
		for (int t = 0; t < 2; t++)
			ASSERT_EQ(pthread_create(&thread[t], NULL, ko_read_until_error, &s), 0);
		ASSERT_EQ(syscall(SYS_delete_module, "strait_nvp2p", O_NONBLOCK), -1);
		window_open("strait:kill", 50);
		while (!ko_counter("in_flight"))
			sched_yield();
		ASSERT_OK(gpu_free(&m));
		/* Nothing is in flight when it returns; something was when it was called. */
		ASSERT_EQ(ko_counter("in_flight"), 0);
		met += window_met("strait:kill");
		window_close("strait:kill");
		ASSERT_EQ(gpu_counters(gpu).callbacks, calls + 1);
		for (int t = 0; t < 2; t++) {
			ASSERT_EQ(pthread_join(thread[t], &ret), 0);
			ASSERT_EQ((intptr_t)ret, -ENODEV);
		}
		ASSERT_OK(ko_release(s.ko, s.handle));
		gpu_unmap(&m);
		gpu_expect_free(gpu, before);
		ko_expect_counter("device_bytes", 0);
	}
	ASSERT_GT(met, 0);
}

static void *free_memory(void *arg)
{
	struct gpu_mem *m = arg;

	ASSERT_OK(gpu_free(m));
	return NULL;
}

/*
 * The region is released while the driver's callback, which has marked its memory as gone, is still running: the
 * objects it uses stay until it returns.
 */
TEST(released_while_the_callback_ends)
{
	int ko = open_bridge(), gpu = gpu_open();
	bool over = false;

	for (int i = 0; i < 20 && !over; i++) {
		struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
		uint32_t handle = ko_import(ko, STRAIT_IMPORT_NVP2P, m.p, m.len);
		pthread_t thread;

		window_open("strait_nvp2p:callback", 300);
		ASSERT_EQ(pthread_create(&thread, NULL, free_memory, &m), 0);
		while (!window_entered("strait_nvp2p:callback"))
			sleep_ms(1);
		ASSERT_OK(ko_release(ko, handle));
		/* While the callback is inside, nothing of the import is released. */
		while (window_inside("strait_nvp2p:callback") && ko_counter("device_bytes"))
			sleep_ms(1);
		if (!ko_counter("device_bytes"))
			ASSERT_EQ(window_inside("strait_nvp2p:callback"), 0);
		over = window_met("strait_nvp2p:callback");
		window_close("strait_nvp2p:callback");
		ASSERT_EQ(pthread_join(thread, NULL), 0);
		ko_expect_counter("device_bytes", 0);
		gpu_unmap(&m);
	}
	ASSERT_TRUE(over);
}

/* The GPU's driver is unbound while a region of it exists: the module holds no reference on its pages. */
TEST(unbound_with_a_region_left)
{
	int ko = open_bridge(), gpu = gpu_open(), file = place_file(&places[0], LEN, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_NVP2P, m.p, m.len);
	char path[64];

	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, 0, 0, LEN, NULL), LEN);
	gpu_sysfs(path, sizeof(path));
	gpu_unmap(&m);
	ASSERT_OK(write_text("/sys/bus/pci/drivers/strait_vgpu/unbind", strrchr(path, '/') + 1));
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, 0, 0, LEN, NULL), -ENODEV);
	ASSERT_OK(ko_release(ko, handle));
	ko_expect_counter("device_bytes", 0);
	close(gpu);
	ASSERT_OK(write_text("/sys/bus/pci/drivers/strait_vgpu/bind", strrchr(path, '/') + 1));
}

/* Every allocation of an import fails once. */
TEST(each_allocation_fails)
{
	int ko = open_bridge(), gpu = gpu_open();
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	struct strait_ioc_import imp;
	unsigned int n;
	bool left;
	int rc;

	for (n = 1; n < 20; n++) {
		ko_fail_nth(n);
		rc = ko_try_import(ko, STRAIT_IMPORT_NVP2P, m.p, m.len, &imp);
		left = ko_fail_left();
		ko_fail_nth(0);
		if (left)
			break;
		ASSERT_EQ(rc, -ENOMEM);
		ko_expect_counter("device_bytes", 0);
	}
	ASSERT_OK(rc);
	ASSERT_GE(n, 6);
	ASSERT_OK(ko_release(ko, imp.handle));
}
