/* SPDX-License-Identifier: MIT */
/* Files, block devices and eventfds. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "os/inject.h"

int os_open(const char *path, int flags, mode_t mode)
{
	int fd;

	OS_POINT(OS_OPEN);
	do
		fd = open(path, flags | O_CLOEXEC, mode);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : fd;
}

int os_reopen(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return os_open(path, flags, 0);
}

int os_dup(int fd)
{
	OS_POINT(OS_FCNTL);
	return OS_RET(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

void os_close(int fd)
{
	if (fd >= 0)
		close(fd);
}

int os_fstat(int fd, struct stat *st)
{
	OS_POINT(OS_FSTAT);
	return OS_RET(fstat(fd, st));
}

int os_get_flags(int fd)
{
	OS_POINT(OS_FCNTL);
	return OS_RET(fcntl(fd, F_GETFL));
}

int os_fs_magic(int fd, uint64_t *magic)
{
	struct statfs sf;

	OS_POINT(OS_STATFS);
	if (fstatfs(fd, &sf))
		return -errno;
	*magic = (uint64_t)sf.f_type;
	return 0;
}

int os_ioctl(int fd, unsigned long request, void *arg)
{
	int rc;

	OS_POINT(OS_IOCTL);
	do
		rc = ioctl(fd, request, arg);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : rc;
}

int os_data_on_drive(int fd, uint64_t len, uint64_t *off)
{
	enum { EXTENTS = 32 };
	const uint32_t not_stored = FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_ENCODED |
				    FIEMAP_EXTENT_DATA_ENCRYPTED | FIEMAP_EXTENT_NOT_ALIGNED |
				    FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_UNWRITTEN;
	union {
		struct fiemap map;
		char room[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
	} u;
	const struct fiemap_extent *e = (const void *)(u.room + sizeof(struct fiemap));

	OS_POINT(OS_IOCTL);
	memset(&u, 0, sizeof(u));
	u.map.fm_length = FIEMAP_MAX_OFFSET;
	u.map.fm_extent_count = EXTENTS;
	if (ioctl(fd, FS_IOC_FIEMAP, &u.map) < 0)
		return -errno;
	for (uint32_t i = 0; i < u.map.fm_mapped_extents; i++) {
		if (e[i].fe_length < len || (e[i].fe_flags & not_stored))
			continue;
		*off = e[i].fe_logical;
		return 0;
	}
	return -ENODATA;
}

int os_block_size(int fd, uint64_t *bytes)
{
	OS_POINT(OS_IOCTL);
	return OS_RET(ioctl(fd, BLKGETSIZE64, bytes));
}

int os_block_sector(int fd, uint32_t *bytes)
{
	int size;

	OS_POINT(OS_IOCTL);
	if (ioctl(fd, BLKSSZGET, &size))
		return -errno;
	*bytes = (uint32_t)size;
	return 0;
}

int os_dio_align(int fd, uint32_t *mem, uint32_t *off)
{
	struct statx stx;

	OS_POINT(OS_STATX);
	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx))
		return -errno;
	if (!(stx.stx_mask & STATX_DIOALIGN))
		return -EOPNOTSUPP;
	*mem = stx.stx_dio_mem_align;
	*off = stx.stx_dio_offset_align;
	return 0;
}

ssize_t os_pread(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n;

	OS_POINT(OS_PREAD);
	do
		n = pread(fd, buf, len, (off_t)off);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t os_pread_cached(int fd, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { buf, len };
	ssize_t n;

	OS_POINT(OS_PREAD);
	do
		n = preadv2(fd, &iov, 1, (off_t)off, RWF_NOWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == ENOSYS)
		return -EOPNOTSUPP;
	return n < 0 ? -errno : n;
}

ssize_t os_pwrite(int fd, const void *buf, size_t len, uint64_t off)
{
	ssize_t n;

	OS_POINT(OS_PWRITE);
	do
		n = pwrite(fd, buf, len, (off_t)off);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int os_fdatasync(int fd)
{
	OS_POINT(OS_FDATASYNC);
	return OS_RET(fdatasync(fd));
}

int os_wait_readable(int a, int b)
{
	struct pollfd fds[] = { { .fd = a, .events = POLLIN }, { .fd = b, .events = POLLIN } };

	OS_POINT(OS_POLL);
	while (poll(fds, 2, -1) < 0)
		if (errno != EINTR)
			return -errno;
	return fds[0].revents != 0;
}

int os_wait_any(const int *fd, unsigned int count, int64_t timeout_ns)
{
	struct pollfd fds[4];
	uint64_t deadline = os_deadline(timeout_ns);
	int n;

	OS_POINT(OS_POLL);
	if (count > ARRAY_SIZE(fds))
		return -EINVAL;
	for (unsigned int i = 0; i < count; i++)
		fds[i] = (struct pollfd){ .fd = fd[i], .events = POLLIN };
	for (;;) {
		int64_t left = os_time_left(deadline);
		struct timespec ts = { .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };

		n = ppoll(fds, count, deadline == UINT64_MAX ? NULL : &ts, NULL);
		if (n >= 0)
			return n ? 0 : -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

int os_set_nonblocking(int fd)
{
	int flags;

	OS_POINT(OS_FCNTL);
	flags = fcntl(fd, F_GETFL);
	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

int os_event_fd(int *ret)
{
	int fd;

	OS_POINT(OS_EVENTFD);
	fd = eventfd(0, EFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret = fd;
	return 0;
}

void os_event_signal(int fd)
{
	eventfd_write(fd, 1);
}

int os_event_share(int fd)
{
	int flags = os_get_flags(fd);

	if (flags < 0)
		return flags;
	/* A thread that loses the race to read the event must not block until the next one. */
	return OS_RET(fcntl(fd, F_SETFL, flags | O_NONBLOCK));
}

int os_event_wait(int fd, uint64_t timeout_ns)
{
	struct timespec ts = { (time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u) };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	eventfd_t value;
	int n;

	OS_POINT(OS_POLL);
	n = ppoll(&p, 1, &ts, NULL);
	if (n < 0)
		return errno == EINTR ? -ETIMEDOUT : -errno;
	if (!n)
		return -ETIMEDOUT;
	return OS_RET(eventfd_read(fd, &value)) == -EAGAIN ? -ETIMEDOUT : 0;
}

void os_event_clear(int fd)
{
	eventfd_t value;

	eventfd_read(fd, &value);
}
