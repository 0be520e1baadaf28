/* SPDX-License-Identifier: MIT */
/* GDRCopy's kernel module, unmodified, on the lab's GPU: docs/vgpu.md says how to load it. */
#include <linux/ioctl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "vgpu.h"

#define NODE "/tmp/gdrdrv"

/* Its calls: all but the pinning ones are numbered by the size of a pointer. */
struct pin {
	uint64_t addr, len, token;
	uint32_t va_space;
	uint64_t handle;
};

struct flag {
	uint64_t handle;
	uint32_t called;
};

struct about {
	uint64_t handle, va, len;
	uint32_t page_size, tsc_khz;
	uint64_t cycles;
	uint32_t mapped, write_combined;
};

#define GDR_PIN _IOWR(0xda, 1, struct pin)
#define GDR_UNPIN _IOWR(0xda, 2, void *)
#define GDR_CALLED _IOWR(0xda, 3, void *)
#define GDR_ABOUT _IOWR(0xda, 4, void *)

/* The module has two ways to pin, selected when it is loaded. */
static int gdr_open(bool persistent)
{
	char line[128], name[64];
	unsigned int number, major = 0;
	FILE *devices;
	int fd;

	ASSERT_EQ(system("rmmod gdrdrv"), 0);
	snprintf(line, sizeof(line), "modprobe gdrdrv use_persistent_mapping=%d", persistent);
	ASSERT_EQ(system(line), 0);
	devices = fopen("/proc/devices", "re");
	ASSERT_TRUE(devices);
	while (fgets(line, sizeof(line), devices))
		if (sscanf(line, "%u %63s", &number, name) == 2 && !strcmp(name, "gdrdrv"))
			major = number;
	fclose(devices);
	ASSERT_GT(major, 0);
	unlink(NODE);
	ASSERT_EQ(mknod(NODE, S_IFCHR | 0600, makedev(major, 0)), 0);
	fd = open(NODE, O_RDWR | O_CLOEXEC);
	ASSERT_GE(fd, 0);
	return fd;
}

static int gdr_pin(int g, const void *p, uint64_t len, uint64_t *handle)
{
	struct pin pin = { .addr = (uintptr_t)p, .len = len };
	int rc = gpu_call(g, GDR_PIN, &pin);

	*handle = pin.handle;
	return rc;
}

static unsigned char *gdr_map(int g, uint64_t handle, uint64_t len)
{
	unsigned char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, g, (off_t)(handle * 4096));

	ASSERT_TRUE(p != MAP_FAILED);
	return p;
}

/* Can it be read? Asked of the kernel, which returns an error instead of raising a signal. */
static bool readable(const void *p)
{
	int ends[2];
	bool yes;

	ASSERT_EQ(pipe(ends), 0);
	yes = write(ends[1], p, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return yes;
}

static void same_bytes(bool persistent)
{
	int fd = gpu_open(), g = gdr_open(persistent);
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 3 * PAGE);
	uint64_t free[STRAIT_VGPU_MEM_KINDS], pinned = gpu_counters(fd).p2p_pinned_bytes;
	struct about about = { 0 };
	unsigned char *seen;

	gpu_all_free(fd, free);
	free[PLAIN] += m.len;
	ASSERT_OK(gdr_pin(g, m.p, m.len, &about.handle));
	ASSERT_EQ(gpu_counters(fd).p2p_pinned_bytes - pinned, m.len);
	seen = gdr_map(g, about.handle, m.len);
	ASSERT_OK(gpu_call(g, GDR_ABOUT, &about));
	ASSERT_EQ(about.va, (uintptr_t)m.p);
	ASSERT_EQ(about.len, m.len);
	ASSERT_EQ(about.page_size, PAGE);
	ASSERT_EQ(about.mapped, 1);

	fill(seen, m.len, 1);
	ASSERT_TRUE(filled(m.p, m.len, 1));
	expect_outside(&m, 0, m.len);
	fill(m.p, m.len, 2);
	ASSERT_TRUE(filled(seen, m.len, 2));
	ASSERT_TRUE(readable(seen));
	/* Its mapping is removed with the pin; ours and the memory stay. */
	ASSERT_OK(gpu_call(g, GDR_UNPIN, &about.handle));
	ASSERT_FALSE(readable(seen));
	ASSERT_TRUE(filled(m.p, m.len, 2));
	ASSERT_EQ(munmap(seen, m.len), 0);
	ASSERT_OK(gpu_free(&m));
	close(g);
	gpu_expect_free(fd, free);
	close(fd);
}

TEST(both_see_the_same_bytes)
{
	same_bytes(true);
}

TEST(both_see_the_same_bytes_with_a_callback)
{
	same_bytes(false);
}

/* It maps write-combined. Pinnable pages are cached by the kernel, and x86 allows one memory type at a time. */
TEST(pinnable_memory_is_pinned_but_not_mapped)
{
	int fd = gpu_open(), g = gdr_open(true);
	struct gpu_mem m = gpu_alloc(fd, PINNABLE, PAGE);
	uint64_t free[STRAIT_VGPU_MEM_KINDS], handle;

	gpu_all_free(fd, free);
	free[PINNABLE] += m.len;
	ASSERT_OK(gdr_pin(g, m.p, m.len, &handle));
	ASSERT_TRUE(mmap(NULL, m.len, PROT_READ, MAP_SHARED, g, (off_t)(handle * 4096)) == MAP_FAILED);
	ASSERT_EQ(errno, EAGAIN);
	ASSERT_OK(gpu_call(g, GDR_UNPIN, &handle));
	ASSERT_OK(gpu_free(&m));
	close(g);
	gpu_expect_free(fd, free);
	close(fd);
}

TEST(what_is_no_memory_of_the_gpu_is_refused)
{
	int fd = gpu_open(), g = gdr_open(true);
	struct gpu_mem m = gpu_alloc(fd, PLAIN, PAGE);
	void *p = gpu_mmap(-1, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
	uint64_t handle;

	ASSERT_EQ(gdr_pin(g, p, PAGE, &handle), -EINVAL);
	ASSERT_EQ(gdr_pin(g, m.p, 2 * PAGE, &handle), -EINVAL);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(gdr_pin(g, m.p, PAGE, &handle), -EINVAL);
	close(g);
	close(fd);
}

TEST(freeing_takes_its_mapping_away)
{
	int fd = gpu_open(), g = gdr_open(false);
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint64_t free[STRAIT_VGPU_MEM_KINDS];
	struct flag flag = { 0 };
	struct about about = { 0 };
	unsigned char *seen;

	gpu_all_free(fd, free);
	free[PLAIN] += m.len;
	ASSERT_OK(gdr_pin(g, m.p, m.len, &flag.handle));
	seen = gdr_map(g, flag.handle, m.len);
	fill(seen, m.len, 3);
	ASSERT_OK(gpu_call(g, GDR_CALLED, &flag));
	ASSERT_EQ(flag.called, 0);
	ASSERT_OK(gpu_free(&m));
	ASSERT_OK(gpu_call(g, GDR_CALLED, &flag));
	ASSERT_EQ(flag.called, 1);
	about.handle = flag.handle;
	ASSERT_OK(gpu_call(g, GDR_ABOUT, &about));
	ASSERT_EQ(about.mapped, 0);
	ASSERT_FALSE(readable(seen));
	/* Nothing is pinned any more, although it has not unpinned. */
	gpu_expect_free(fd, free);
	ASSERT_TRUE(all_zero(m.p, m.len));
	ASSERT_OK(gpu_call(g, GDR_UNPIN, &flag.handle));
	ASSERT_EQ(munmap(seen, m.len), 0);
	close(g);
	close(fd);
}

TEST(a_persistent_pin_outlives_the_free)
{
	int fd = gpu_open(), g = gdr_open(true);
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint64_t free[STRAIT_VGPU_MEM_KINDS], handle;
	unsigned char *seen;

	gpu_all_free(fd, free);
	ASSERT_OK(gdr_pin(g, m.p, m.len, &handle));
	seen = gdr_map(g, handle, m.len);
	fill(seen, m.len, 4);
	ASSERT_OK(gpu_free(&m));
	ASSERT_TRUE(all_zero(m.p, m.len));
	ASSERT_TRUE(filled(seen, m.len, 4));
	ASSERT_EQ(gpu_info(fd).mem_free[PLAIN], free[PLAIN]);
	free[PLAIN] += m.len;
	ASSERT_EQ(munmap(seen, m.len), 0);
	close(g);
	gpu_expect_free(fd, free);
	close(fd);
}

static int pins_and_dies(void *arg)
{
	int fd = gpu_open(), g = open(NODE, O_RDWR | O_CLOEXEC);
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE);
	uint64_t handle;

	if (g < 0 || gdr_pin(g, m.p, m.len, &handle))
		return 1;
	fill(gdr_map(g, handle, m.len), m.len, 5);
	raise(SIGKILL);
	return 1;
}

TEST(nothing_stays_of_a_process_that_is_killed)
{
	for (int persistent = 0; persistent < 2; persistent++) {
		int fd = gpu_open(), g = gdr_open(persistent), status;
		uint64_t free[STRAIT_VGPU_MEM_KINDS];

		gpu_all_free(fd, free);
		ASSERT_TRUE(waitpid(start(pins_and_dies, NULL), &status, 0) > 0 && WIFSIGNALED(status));
		gpu_expect_free(fd, free);
		close(g);
		close(fd);
	}
}
