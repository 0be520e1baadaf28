/* SPDX-License-Identifier: MIT */
/*
 * The kernel module of GPUDirect Storage, unmodified, on the lab's GPU: docs/vgpu.md says how to load it. Only its pins
 * and its callback: its reads into a GPU need patched drivers of drives.
 */
#include <linux/ioctl.h>
#include <signal.h>

#include "vgpu.h"

/* All requests have the size of the largest; this one pins. */
struct map {
	int64_t len;
	uint64_t pci, shadow, gpu, fence;
	uint32_t shadow_blocks;
	uint16_t bounce;
	uint8_t pad[2];
	uint8_t room[256];
};

#define NVFS_MAP _IOW('t', 3, int)

struct pinned {
	int fs;
	unsigned char *shadow, *fence;
};

static int nvfs_open(void)
{
	int fs = open("/dev/nvidia-fs0", O_RDWR | O_CLOEXEC);

	ASSERT_GE(fs, 0);
	return fs;
}

/* Returns 0, or the module's error. */
static int nvfs_pin(struct pinned *p, const void *gpu, uint64_t len)
{
	struct map map = { .len = (int64_t)len, .gpu = (uintptr_t)gpu };

	p->shadow = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, p->fs, 0);
	ASSERT_TRUE(p->shadow != MAP_FAILED);
	p->fence = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(p->fence != MAP_FAILED);
	map.shadow = (uintptr_t)p->shadow;
	map.fence = (uintptr_t)p->fence;
	map.shadow_blocks = (uint32_t)(len / 4096);
	return gpu_call(p->fs, NVFS_MAP, &map);
}

TEST(its_pins_come_and_go)
{
	int fd = gpu_open();
	struct pinned p = { .fs = nvfs_open() };
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE);
	uint64_t free[STRAIT_VGPU_MEM_KINDS], before = gpu_counters(fd).p2p_pinned_bytes;

	gpu_all_free(fd, free);
	free[PLAIN] += m.len;
	ASSERT_OK(nvfs_pin(&p, m.p, m.len));
	ASSERT_EQ(gpu_counters(fd).p2p_pinned_bytes - before, m.len);
	/* The pin is dropped with the mapping of its shadow buffer. */
	ASSERT_EQ(munmap(p.shadow, m.len), 0);
	ASSERT_OK(gpu_free(&m));
	close(p.fs);
	gpu_expect_free(fd, free);
	close(fd);
}

TEST(its_callback_gives_the_memory_back)
{
	int fd = gpu_open();
	struct pinned p = { .fs = nvfs_open() };
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint64_t free[STRAIT_VGPU_MEM_KINDS], calls = gpu_counters(fd).callbacks;

	gpu_all_free(fd, free);
	free[PLAIN] += m.len;
	ASSERT_OK(nvfs_pin(&p, m.p, m.len));
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(gpu_counters(fd).callbacks - calls, 1);
	gpu_expect_free(fd, free);
	ASSERT_EQ(munmap(p.shadow, m.len), 0);
	close(p.fs);
	close(fd);
}

TEST(what_is_no_memory_of_the_gpu_is_refused)
{
	int fd = gpu_open();
	struct pinned p = { .fs = nvfs_open() };
	void *host = gpu_mmap(-1, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);

	ASSERT_LT(nvfs_pin(&p, host, PAGE), 0);
	ASSERT_EQ(munmap(p.shadow, PAGE), 0);
	close(p.fs);
	close(fd);
}

static int pins_and_dies(void *arg)
{
	int fd = gpu_open();
	struct pinned p = { .fs = nvfs_open() };
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE);

	if (nvfs_pin(&p, m.p, m.len))
		return 1;
	raise(SIGKILL);
	return 1;
}

TEST(nothing_stays_of_a_process_that_is_killed)
{
	int fd = gpu_open(), status;
	uint64_t free[STRAIT_VGPU_MEM_KINDS];

	gpu_all_free(fd, free);
	ASSERT_TRUE(waitpid(start(pins_and_dies, NULL), &status, 0) > 0 && WIFSIGNALED(status));
	gpu_expect_free(fd, free);
	close(fd);
}
