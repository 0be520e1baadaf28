/* SPDX-License-Identifier: MIT */
#include "p2p.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define DRIVE "/dev/nvme0n1"
#define FILE_PATH "/mnt/file"
#define DEBUG "/sys/kernel/debug/strait/"
#define BLOCK KIB(64)

int ko_open(void)
{
	int fd = open("/dev/strait", O_RDWR | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		SKIP("there is no /dev/strait");
	ASSERT_GE(fd, 0);
	return fd;
}

int ko_call(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) ? -errno : 0;
}

struct strait_ioc_info ko_info(int fd)
{
	struct strait_ioc_info info = { .size = sizeof(info) };

	ASSERT_OK(ko_call(fd, STRAIT_IOC_INFO, &info));
	return info;
}

int ko_open_p2p(void)
{
	const char *why = getenv("LAB_NO_P2PDMA");
	int fd = ko_open();

	if (why && *why)
		SKIP("%s", why);
	if (!(ko_info(fd).features & STRAIT_FEATURE_IMPORT_P2P))
		SKIP("this kernel has no PCI P2PDMA");
	return fd;
}

int ko_try_import(int fd, uint32_t kind, const void *p, uint64_t len, struct strait_ioc_import *out)
{
	*out = (struct strait_ioc_import){
		.size = sizeof(*out), .kind = kind, .fd = -1, .address = (uintptr_t)p, .length = len
	};
	return ko_call(fd, STRAIT_IOC_IMPORT, out);
}

uint32_t ko_import(int fd, uint32_t kind, const void *p, uint64_t len)
{
	struct strait_ioc_import import;

	ASSERT_OK(ko_try_import(fd, kind, p, len, &import));
	ASSERT_NE(import.handle, 0);
	ASSERT_TRUE(import.can & STRAIT_CAN_FILE_IO);
	return import.handle;
}

int ko_release(int fd, uint32_t handle)
{
	struct strait_ioc_release release = { .size = sizeof(release), .handle = handle };

	return ko_call(fd, STRAIT_IOC_RELEASE, &release);
}

int64_t ko_io(int fd, uint32_t op, uint32_t handle, int file, uint64_t off, uint64_t at, uint64_t len, uint32_t *reason)
{
	struct strait_ioc_io io = { .size = sizeof(io),
				    .handle = handle,
				    .fd = file,
				    .op = op,
				    .reason = 12345,
				    .file_offset = off,
				    .region_offset = at,
				    .length = len };
	int rc = ko_call(fd, STRAIT_IOC_IO, &io);

	if (reason)
		*reason = io.reason;
	return rc ? rc : (int64_t)io.done;
}

struct io_uring_sqe *ko_sqe(struct io_uring *ring, int ko, uint32_t cmd_op, uint32_t handle, int file, uint64_t off,
			    uint64_t at, uint32_t len)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct strait_uring args = { .file_offset = off, .region_offset = at };

	ASSERT_TRUE(sqe);
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = ko;
	sqe->cmd_op = cmd_op;
	sqe->addr = handle;
	sqe->len = len;
	sqe->file_index = (uint32_t)file;
	memcpy(&sqe->addr3, &args, sizeof(args));
	return sqe;
}

void *ko_read_until_error(void *reader)
{
	const struct ko_reader *r = reader;
	int64_t n;

	do
		n = ko_io(r->ko, STRAIT_OP_READ, r->handle, r->file, 0, 0, r->len, NULL);
	while (n >= 0);
	return (void *)(intptr_t)n;
}

struct strait_ioc_check ko_check(int fd, uint32_t op, uint32_t handle, int file)
{
	struct strait_ioc_check check = { .size = sizeof(check), .handle = handle, .fd = file, .op = op };

	ASSERT_OK(ko_call(fd, STRAIT_IOC_CHECK, &check));
	return check;
}

uint64_t ko_counter(const char *name)
{
	FILE *file = fopen(DEBUG "counters", "re");
	unsigned long long value;
	char found[64];

	ASSERT_TRUE(file);
	while (fscanf(file, "%63s %llu", found, &value) == 2)
		if (!strcmp(found, name)) {
			fclose(file);
			return value;
		}
	FAIL("there is no counter %s", name);
}

void ko_expect_counter(const char *name, uint64_t value)
{
	for (int i = 0; i < 500 && ko_counter(name) != value; i++)
		sleep_ms(10);
	ASSERT_EQ(ko_counter(name), value);
}

void ko_fail_nth(unsigned int n)
{
	inject_nth("strait", n);
}

bool ko_fail_left(void)
{
	return inject_left("strait");
}

static void *wait_until_gone(void *arg)
{
	struct ko_gone *g = arg;

	while (!g->status->gone)
		sched_yield();
	g->at_ms = now_ms();
	return NULL;
}

void ko_gone_watch(struct ko_gone *g, const volatile struct strait_status *status)
{
	g->status = status;
	ASSERT_EQ(pthread_create(&g->thread, NULL, wait_until_gone, g), 0);
}

uint64_t ko_gone_at(struct ko_gone *g)
{
	ASSERT_EQ(pthread_join(g->thread, NULL), 0);
	return g->at_ms;
}

void place_unmount(void)
{
	while (!umount("/mnt"))
		;
}

void place_mount(const struct place *place)
{
	mkdir("/mnt", 0755);
	place_unmount();
	if (!place->mkfs)
		return;
	ASSERT_EQ(system(place->mkfs), 0);
	ASSERT_EQ(mount(DRIVE, "/mnt", place->name, 0, NULL), 0);
}

void file_pattern(void *p, uint64_t off, size_t len, uint64_t seed)
{
	static unsigned char block[BLOCK];
	unsigned char *out = p;

	while (len) {
		uint64_t first = off / BLOCK * BLOCK, n = min_u64(len, first + BLOCK - off);

		fill(block, sizeof(block), seed + first);
		memcpy(out, block + (off - first), n);
		out += n;
		off += n;
		len -= n;
	}
}

static void write_pattern(int fd, uint64_t len, uint64_t seed)
{
	static unsigned char buf[MIB(1)];

	for (uint64_t off = 0; off < len;) {
		size_t n = min_u64(len - off, sizeof(buf));

		file_pattern(buf, off, n, seed);
		ASSERT_EQ(pwrite(fd, buf, n, (off_t)off), n);
		off += n;
	}
	ASSERT_EQ(fsync(fd), 0);
	ASSERT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
}

int place_file(const struct place *place, uint64_t len, uint64_t seed, int flags)
{
	const char *path = place->mkfs ? FILE_PATH : DRIVE;
	int fd;

	place_mount(place);
	fd = open(path, O_RDWR | O_CLOEXEC | (place->mkfs ? O_CREAT | O_TRUNC : 0), 0644);
	ASSERT_GE(fd, 0);
	write_pattern(fd, len, seed);
	close(fd);
	fd = open(path, O_RDWR | O_CLOEXEC | flags);
	ASSERT_GE(fd, 0);
	return fd;
}
