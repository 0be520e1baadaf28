/* SPDX-License-Identifier: MIT */
/* /dev/strait: memory that goes away, limits, wrong calls, failing allocations. */
#include "p2p.h"

#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define SEED 5
#define LEN MIB(1)

static const struct place raw = { "raw", NULL };
static const struct place ext4 = PLACE_EXT4;
static const struct place systems[] = { PLACE_EXT4, PLACE_XFS };

static int64_t read_some(int ko, uint32_t handle, int file)
{
	return ko_io(ko, STRAIT_OP_READ, handle, file, 0, 0, KIB(64), NULL);
}

/* Freed by its owner: the region is revoked and the memory is free again, although the handle still exists. */
TEST(device_memory_is_freed)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(&raw, LEN, SEED, 0);
	struct gpu_mem m;
	uint64_t before[2];
	uint32_t handle;

	gpu_all_free(gpu, before);
	m = gpu_alloc(gpu, PLAIN, LEN);
	handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	ASSERT_EQ(read_some(ko, handle, file), KIB(64));
	ASSERT_EQ(ko_counter("device_bytes"), LEN);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(read_some(ko, handle, file), -ENODEV);
	gpu_expect_free(gpu, before);
	ko_expect_counter("device_bytes", 0);
	ASSERT_OK(ko_release(ko, handle));
	ASSERT_EQ(read_some(ko, handle, file), -ENOENT);
	ASSERT_EQ(ko_release(ko, handle), -ENOENT);
}

static const struct hole {
	const char *name;
	uint64_t off, len;
} holes[] = { { "first", 0, KIB(4) },
	      { "middle", KIB(512), KIB(4) },
	      { "last", LEN - KIB(4), KIB(4) },
	      { "all", 0, LEN } };

/* Unmapping any part of the memory revokes the region. */
TEST_VARIANTS(a_part_is_unmapped, struct hole, holes)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(&raw, LEN, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t device = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len),
		 host = ko_import(ko, STRAIT_IMPORT_USER, p, LEN);

	ASSERT_EQ(read_some(ko, device, file), KIB(64));
	ASSERT_EQ(read_some(ko, host, file), KIB(64));
	/* Protection does not matter. */
	ASSERT_EQ(mprotect(m.p, LEN, PROT_READ), 0);
	ASSERT_EQ(mprotect(p, LEN, PROT_READ), 0);
	ASSERT_EQ(read_some(ko, device, file), KIB(64));
	ASSERT_EQ(read_some(ko, host, file), KIB(64));
	ASSERT_EQ(mprotect(p, LEN, PROT_READ | PROT_WRITE), 0);
	ASSERT_EQ(munmap(m.p + v->off, v->len), 0);
	ASSERT_EQ(munmap(p + v->off, v->len), 0);
	ASSERT_EQ(read_some(ko, device, file), -ENODEV);
	ASSERT_EQ(read_some(ko, host, file), -ENODEV);
	ko_expect_counter("pinned_bytes", 0);
	ko_expect_counter("device_bytes", 0);
}

/* Replaced pages are noticed before they are used; neighbouring pages do not matter. */
TEST(host_pages_are_replaced)
{
	int ko = ko_open(), file = place_file(&raw, LEN, SEED, 0);
	unsigned char *p = mmap(NULL, 3 * LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_USER, p + LEN, LEN);

	ASSERT_EQ(munmap(p, LEN), 0);
	ASSERT_EQ(madvise(p + 2 * LEN, LEN, MADV_DONTNEED), 0);
	ASSERT_EQ(read_some(ko, handle, file), KIB(64));
	ASSERT_EQ(madvise(p + LEN + KIB(128), KIB(4), MADV_DONTNEED), 0);
	ASSERT_EQ(read_some(ko, handle, file), -ENODEV);
	ko_expect_counter("pinned_bytes", 0);
}

struct shared {
	int ko, file, go[2];
	uint32_t handle;
};

static int owner(void *arg)
{
	struct shared *s = arg;
	struct gpu_mem m = gpu_alloc(gpu_open(), PLAIN, LEN);
	uint32_t handle = ko_import(s->ko, STRAIT_IMPORT_P2P, m.p, m.len);

	ASSERT_EQ(write(s->go[1], &handle, sizeof(handle)), sizeof(handle));
	for (;;)
		ko_io(s->ko, STRAIT_OP_READ, handle, s->file, 0, 0, LEN, NULL);
	return 0;
}

/* Two processes use one region; its owner is killed meanwhile. */
TEST(the_owner_is_killed)
{
	struct shared s = { .ko = ko_open_p2p() };
	uint64_t before[2];
	int gpu = gpu_open();
	pid_t pid;
	int64_t n;

	s.file = place_file(&raw, LEN, SEED, 0);
	gpu_all_free(gpu, before);
	ASSERT_EQ(pipe(s.go), 0);
	pid = start(owner, &s);
	ASSERT_EQ(read(s.go[0], &s.handle, sizeof(s.handle)), sizeof(s.handle));
	for (int i = 0; i < 5; i++)
		ASSERT_EQ(ko_io(s.ko, STRAIT_OP_WRITE, s.handle, s.file, 0, 0, LEN, NULL), LEN);
	ASSERT_EQ(kill(pid, SIGKILL), 0);
	do
		n = read_some(s.ko, s.handle, s.file);
	while (n == KIB(64));
	ASSERT_EQ(n, -ENODEV);
	wait_for(pid);
	gpu_expect_free(gpu, before);
	ko_expect_counter("in_flight", 0);
}

/* Freed, or the device unbound, with I/O in flight all the time; the module cannot be unloaded while it is in use. */
static void take_away(bool unbind)
{
	struct ko_reader s = { .ko = ko_open_p2p(), .len = LEN };
	int gpu = gpu_open();
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	pthread_t thread;
	char path[64];
	uint64_t reads;
	void *ret;

	s.file = place_file(&raw, LEN, SEED, 0);
	s.handle = ko_import(s.ko, STRAIT_IMPORT_P2P, m.p, m.len);
	reads = ko_counter("reads");
	ASSERT_EQ(pthread_create(&thread, NULL, ko_read_until_error, &s), 0);
	ASSERT_EQ(syscall(SYS_delete_module, "strait", O_NONBLOCK), -1);
	ASSERT_EQ(errno, EAGAIN);
	gpu_sysfs(path, sizeof(path));
	/* The thread has read, and is reading. */
	while (ko_counter("reads") < reads + 2 || !ko_counter("in_flight"))
		sched_yield();
	if (unbind)
		ASSERT_OK(write_text("/sys/bus/pci/drivers/strait_vgpu/unbind", strrchr(path, '/') + 1));
	else
		ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(pthread_join(thread, &ret), 0);
	ASSERT_EQ((intptr_t)ret, -ENODEV);
	ASSERT_EQ(ko_counter("in_flight"), 0);
	ASSERT_OK(ko_release(s.ko, s.handle));
	ko_expect_counter("device_bytes", 0);
	/* No reference is left that would keep its number in use. */
	gpu_unmap(&m);
	close(gpu);
	if (unbind)
		ASSERT_OK(write_text("/sys/bus/pci/drivers/strait_vgpu/bind", strrchr(path, '/') + 1));
}

TEST(freed_in_the_middle_of_io)
{
	for (int i = 0; i < 3; i++)
		take_away(false);
}

TEST(unbound_in_the_middle_of_io)
{
	take_away(true);
}

static void *cut_file(void *arg)
{
	int file = *(int *)arg;

	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(ftruncate(file, i % 2 ? LEN : KIB(64) * (i % 16)), 0);
		ASSERT_EQ(fallocate(file, 3 /* keep the size, punch a hole */, KIB(8), KIB(64)), 0);
	}
	return NULL;
}

/* Each block was in the file, was written meanwhile, or is a hole. */
static void expect_blocks(const unsigned char *p, uint64_t n, const unsigned char *old, const unsigned char *new)
{
	for (uint64_t at = 0; at < n; at += 4096) {
		uint64_t len = min_u64(n - at, 4096);

		if (memcmp(p + at, old + at, len) && memcmp(p + at, new + at, len) && !all_zero(p + at, len))
			FAIL("the block at %llu is of nothing that was ever there", (unsigned long long)at);
	}
}

/* Truncated, extended, and with holes punched, while the drive transfers its contents. */
TEST_VARIANTS_TIMEOUT(the_file_is_cut, struct place, systems, 120)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(v, LEN, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	unsigned char *old = malloc(LEN), *new = malloc(LEN);
	pthread_t thread;

	ASSERT_TRUE(old && new);
	file_pattern(old, 0, LEN, SEED);
	file_pattern(new, 0, LEN, SEED + 1);
	ASSERT_EQ(pthread_create(&thread, NULL, cut_file, &file), 0);
	for (int i = 0; i < 100; i++) {
		bool read = i % 4;
		int64_t n;

		if (read)
			memset(m.p, 0xee, LEN);
		else
			memcpy(m.p, new, LEN);
		n = ko_io(ko, read ? STRAIT_OP_READ : STRAIT_OP_WRITE, handle, file, 0, 0, LEN, NULL);
		ASSERT_GE(n, 0);
		ASSERT_LE(n, LEN);
		if (read)
			expect_blocks(m.p, (uint64_t)n, old, new);
		else
			ASSERT_EQ(n, LEN);
	}
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	free(old);
	free(new);
	close(file);
	place_unmount();
}

TEST(limits)
{
	int ko = ko_open(), more = ko_open();
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rlimit limit = { KIB(512), KIB(512) };
	struct strait_ioc_import imp;
	int n = 0;

	while (!ko_try_import(ko, STRAIT_IMPORT_USER, p, KIB(4), &imp))
		n++;
	ASSERT_EQ(n, STRAIT_REGIONS_MAX);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, p, KIB(4), &imp), -ENOSPC);
	/* Another file has its own. */
	ASSERT_OK(ko_try_import(more, STRAIT_IMPORT_USER, p, KIB(4), &imp));
	close(ko);
	close(more);
	ko_expect_counter("pinned_bytes", 0);
	ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	ASSERT_EQ(syscall(SYS_setresgid, 1, 1, 1), 0);
	ASSERT_EQ(syscall(SYS_setresuid, 1, 1, 1), 0);
	ASSERT_EQ(open("/dev/strait", O_RDWR), -1);
	ASSERT_EQ(errno, EACCES);
}

/* Pages of a mapping that are present. */
static unsigned int pages_of(void *p, size_t len)
{
	static unsigned char vec[GIB(1) / 4096];
	unsigned int n = 0;

	ASSERT_EQ(mincore(p, len, vec), 0);
	for (size_t i = 0; i < len / 4096; i++)
		n += vec[i] & 1;
	return n;
}

static int unprivileged(void *arg)
{
	int ko = *(int *)arg;
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *large;
	struct rlimit limit = { KIB(512), KIB(512) };
	struct strait_ioc_import imp;

	ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	ASSERT_EQ(syscall(SYS_setresuid, 1, 1, 1), 0);
	/* Memory past the limit is not even faulted in, let alone pinned: the machine has less than that. */
	large = mmap(NULL, GIB(64), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ASSERT_TRUE(large != MAP_FAILED);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, large, MIB(64), &imp), -ENOMEM);
	ASSERT_EQ(pages_of(large, MIB(64)), 0);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, large, GIB(64), &imp), -ENOMEM);
	ASSERT_EQ(pages_of(large, GIB(1)), 0);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, p, LEN, &imp), -ENOMEM);
	ASSERT_OK(ko_try_import(ko, STRAIT_IMPORT_USER, p, KIB(256), &imp));
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, p, KIB(512), &imp), -ENOMEM);
	ASSERT_OK(ko_release(ko, imp.handle ? imp.handle : 1));
	return 0;
}

TEST(locked_memory_is_limited)
{
	int ko = ko_open();

	ASSERT_EQ(wait_for(start(unprivileged, &ko)), 0);
}

/* The same for device memory: the GPU's driver is not asked for memory past the module's limit. */
TEST(device_memory_is_limited)
{
	int ko = ko_open_p2p(), gpu = gpu_open();
	bool bridge = ko_info(ko).features & STRAIT_FEATURE_IMPORT_NVP2P;
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, MIB(2));
	struct strait_ioc_import imp;
	uint64_t pinned;

	close(ko);
	ASSERT_EQ(system(KO_UNLOAD " && modprobe strait device_mib_max=1"), 0);
	if (bridge)
		ASSERT_EQ(system("modprobe strait_nvp2p"), 0);
	ko = ko_open();
	pinned = gpu_counters(gpu).p2p_pinned_bytes;
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_P2P, m.p, MIB(2), &imp), -ENOSPC);
	if (bridge)
		ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_NVP2P, m.p, MIB(2), &imp), -ENOSPC);
	ASSERT_EQ(gpu_counters(gpu).p2p_pinned_bytes, pinned);
	ASSERT_EQ(ko_counter("device_bytes"), 0);
	/* An import that fails gives its charge back at once. */
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_P2P, (char *)m.p + MIB(2), MIB(1), &imp), -EFAULT);
	ASSERT_OK(ko_try_import(ko, STRAIT_IMPORT_P2P, m.p, MIB(1), &imp));
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_P2P, m.p, KIB(64), &imp), -ENOSPC);
	close(ko);
	ko_expect_counter("device_bytes", 0);
	ASSERT_EQ(system(KO_UNLOAD " && " KO_LOAD), 0);
}

/* Invalid calls are refused before anything is done. */
TEST(wrong_calls)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(&ext4, LEN, SEED, 0), fd, other[2];
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN), pin = gpu_alloc(gpu, PINNABLE, LEN);
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len), reason;
	struct strait_ioc_import imp;
	struct strait_ioc_info info = { .size = sizeof(info), .flags = 1 };

	ASSERT_EQ(ko_call(ko, STRAIT_IOC_INFO, &info), -EINVAL);
	info = (struct strait_ioc_info){ .size = STRAIT_INFO_SIZE_MIN - 1 };
	ASSERT_EQ(ko_call(ko, STRAIT_IOC_INFO, &info), -EINVAL);
	info = (struct strait_ioc_info){ .size = sizeof(info), .flags = 2 };
	ASSERT_EQ(ko_call(ko, STRAIT_IOC_INFO, &info), -EINVAL);
	ASSERT_EQ(ko_call(ko, _IO(STRAIT_IOC, 99), &info), -ENOTTY);
	ASSERT_EQ(ko_call(ko, STRAIT_IOC_INFO, NULL), -EFAULT);
	/* Memory of another kind, or none, or not whole pages. */
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_P2P, p, LEN, &imp), -EOPNOTSUPP);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, m.p, LEN, &imp), -EOPNOTSUPP);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_P2P, pin.p, LEN, &imp), -EOPNOTSUPP);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, pin.p, LEN, &imp), -EOPNOTSUPP);
	ASSERT_EQ(ko_try_import(ko, 0, p, LEN, &imp), -EOPNOTSUPP);
	ASSERT_EQ(ko_try_import(ko, 77, p, LEN, &imp), -EOPNOTSUPP);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, p + 1, KIB(4), &imp), -EINVAL);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, p, 0, &imp), -EINVAL);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, p, UINT64_MAX & ~UINT64_C(4095), &imp), -EFAULT);
	ASSERT_EQ(munmap(p, LEN), 0);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, p, LEN, &imp), -EFAULT);
	/* Ranges. */
	ASSERT_EQ(ko_io(ko, 2, handle, file, 0, 0, KIB(4), NULL), -EINVAL);
	ASSERT_EQ(ko_io(ko, 0, handle, file, 0, 0, 0, NULL), -EINVAL);
	ASSERT_EQ(ko_io(ko, 0, handle, file, 0, LEN, KIB(4), NULL), -EINVAL);
	ASSERT_EQ(ko_io(ko, 0, handle, file, 0, UINT64_MAX - 4095, KIB(4), NULL), -EINVAL);
	ASSERT_EQ(ko_io(ko, 0, handle, file, UINT64_MAX - 4095, 0, KIB(8), NULL), -EINVAL);
	ASSERT_EQ(ko_io(ko, 0, handle, file, INT64_MAX - 4095, 0, KIB(8), NULL), -EINVAL);
	ASSERT_EQ(ko_io(ko, 0, handle, file, 0, 0, STRAIT_IO_MAX + 512, NULL), -EINVAL);
	ASSERT_EQ(ko_io(ko, 0, handle + 1, file, 0, 0, KIB(4), NULL), -ENOENT);
	ASSERT_EQ(ko_io(ko, 0, 0, file, 0, 0, KIB(4), NULL), -ENOENT);
	ASSERT_EQ(ko_io(ko, 0, handle, -1, 0, 0, KIB(4), NULL), -EBADF);
	/* Alignment of each of the three. */
	ASSERT_EQ(ko_io(ko, 0, handle, file, 1, 0, KIB(4), &reason), -EINVAL);
	ASSERT_EQ(reason, STRAIT_REASON_ALIGNMENT);
	ASSERT_EQ(ko_io(ko, 0, handle, file, 0, 1, KIB(4), &reason), -EINVAL);
	ASSERT_EQ(reason, STRAIT_REASON_ALIGNMENT);
	ASSERT_EQ(ko_io(ko, 0, handle, file, 0, 0, 100, &reason), -EINVAL);
	ASSERT_EQ(reason, STRAIT_REASON_ALIGNMENT);
	/* Files. */
	fd = open("/mnt/file", O_RDONLY);
	ASSERT_EQ(ko_io(ko, 1, handle, fd, 0, 0, KIB(4), NULL), -EBADF);
	close(fd);
	fd = open("/mnt/file", O_WRONLY | O_APPEND);
	ASSERT_EQ(ko_io(ko, 0, handle, fd, 0, 0, KIB(4), NULL), -EBADF);
	ASSERT_EQ(ko_io(ko, 1, handle, fd, 0, 0, KIB(4), &reason), -EOPNOTSUPP);
	ASSERT_EQ(reason, STRAIT_REASON_APPEND);
	close(fd);
	fd = open("/tmp/file", O_RDWR | O_CREAT, 0600);
	ASSERT_EQ(ko_io(ko, 0, handle, fd, 0, 0, KIB(4), &reason), -EOPNOTSUPP);
	ASSERT_NE(reason, 0);
	close(fd);
	ASSERT_EQ(pipe(other), 0);
	ASSERT_EQ(ko_io(ko, 0, handle, other[0], 0, 0, KIB(4), &reason), -EOPNOTSUPP);
	ASSERT_EQ(reason, STRAIT_REASON_NOT_A_FILE);
	ASSERT_EQ(ko_io(ko, 0, handle, ko, 0, 0, KIB(4), &reason), -EOPNOTSUPP);
	ASSERT_EQ(reason, STRAIT_REASON_NOT_A_FILE);
	place_unmount();
}

/* Drives that are not a PCI device, and files that are not stored on the drive as they are read. */
TEST(files_it_refuses)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), fd;
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len), reason;

	place_mount(&ext4);
	if (access("/dev/loop0", F_OK) && system("modprobe loop 2>/dev/null"))
		SKIP("this kernel has no loop devices");
	ASSERT_EQ(system("truncate -s 16M /mnt/image && losetup /dev/loop0 /mnt/image"), 0);
	fd = open("/dev/loop0", O_RDWR);
	ASSERT_EQ(ko_io(ko, 0, handle, fd, 0, 0, KIB(4), &reason), -EOPNOTSUPP);
	ASSERT_EQ(reason, STRAIT_REASON_NOT_PCI);
	ASSERT_EQ(ko_check(ko, 0, handle, fd).reason, STRAIT_REASON_NOT_PCI);
	close(fd);
	ASSERT_EQ(system("losetup -d /dev/loop0"), 0);
	ASSERT_EQ(umount("/mnt"), 0);
	/* Data in the journal; and files without extents. */
	ASSERT_EQ(mount("/dev/nvme0n1", "/mnt", "ext4", 0, "data=journal"), 0);
	fd = open("/mnt/file", O_RDWR | O_CREAT, 0600);
	ASSERT_EQ(ko_io(ko, 1, handle, fd, 0, 0, KIB(4), &reason), -EOPNOTSUPP);
	ASSERT_TRUE(reason == STRAIT_REASON_NO_DIRECT || reason == STRAIT_REASON_TRANSFORMED);
	close(fd);
	ASSERT_EQ(umount("/mnt"), 0);
	ASSERT_EQ(system("mkfs.ext4 -q -F -O ^extents,^64bit,^metadata_csum /dev/nvme0n1"), 0);
	ASSERT_EQ(mount("/dev/nvme0n1", "/mnt", "ext4", 0, NULL), 0);
	fd = open("/mnt/file", O_RDWR | O_CREAT, 0600);
	ASSERT_EQ(ko_io(ko, 1, handle, fd, 0, 0, KIB(4), &reason), -EOPNOTSUPP);
	ASSERT_EQ(reason, STRAIT_REASON_FILE_SYSTEM);
	close(fd);
	place_unmount();
}

TEST(a_dma_buf_has_no_pages)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(&raw, LEN, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	int buf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, LEN));
	struct strait_ioc_import imp = {
		.size = sizeof(imp), .kind = STRAIT_IMPORT_DMABUF, .fd = buf, .address = 0, .length = LEN
	};
	uint32_t reason;

	ASSERT_OK(ko_call(ko, STRAIT_IOC_IMPORT, &imp));
	ASSERT_FALSE(imp.can & STRAIT_CAN_FILE_IO);
	ASSERT_EQ(ko_io(ko, 0, imp.handle, file, 0, 0, KIB(4), &reason), -EOPNOTSUPP);
	ASSERT_EQ(reason, STRAIT_REASON_NO_PAGES);
	imp.length = 2 * LEN;
	ASSERT_EQ(ko_call(ko, STRAIT_IOC_IMPORT, &imp), -EINVAL);
	imp.length = LEN;
	imp.fd = file;
	ASSERT_EQ(ko_call(ko, STRAIT_IOC_IMPORT, &imp), -EINVAL);
}

static const struct kind {
	const char *name;
	uint32_t kind;
	unsigned int least; /* number of allocations */
} kinds[] = { { "p2p", STRAIT_IMPORT_P2P, 6 },
	      { "user", STRAIT_IMPORT_USER, 6 },
	      { "dma-buf", STRAIT_IMPORT_DMABUF, 3 } };

/* Every allocation of an import fails once, without a leak. */
TEST_VARIANTS(each_allocation_fails, struct kind, kinds)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), buf;
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct gpu_mem m;
	uint64_t before[2];
	unsigned int n;

	gpu_all_free(gpu, before);
	m = gpu_alloc(gpu, PLAIN, LEN);
	buf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, LEN));
	for (n = 1; n < 20; n++) {
		struct strait_ioc_import imp = { .size = sizeof(imp), .kind = v->kind, .fd = -1, .length = LEN };
		bool left;
		int rc;

		if (v->kind == STRAIT_IMPORT_DMABUF)
			imp.fd = buf;
		else
			imp.address = (uintptr_t)(v->kind == STRAIT_IMPORT_P2P ? m.p : p);
		ko_fail_nth(n);
		rc = ko_call(ko, STRAIT_IOC_IMPORT, &imp);
		left = ko_fail_left();
		ko_fail_nth(0);
		if (left) {
			ASSERT_OK(rc);
			ASSERT_OK(ko_release(ko, imp.handle));
			break;
		}
		ASSERT_EQ(rc, -ENOMEM);
		ko_expect_counter("device_bytes", 0);
		ko_expect_counter("pinned_bytes", 0);
	}
	ASSERT_GT(n, v->least);
	ko_fail_nth(1);
	ASSERT_EQ(open("/dev/strait", O_RDWR), -1);
	ASSERT_EQ(errno, ENOMEM);
	close(buf);
	ASSERT_OK(gpu_free(&m));
	gpu_expect_free(gpu, before);
}
