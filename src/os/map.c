/* SPDX-License-Identifier: MIT */
/* Memory: mappings, page-cache residency, memfds, dma-bufs, copies that raise no signal. */
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/magic.h>
#include <linux/mempolicy.h>
#include <linux/udmabuf.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "os/inject.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif

uint64_t os_page_override;

uint64_t os_page_size(void)
{
	return os_page_override ? os_page_override : (uint64_t)getpagesize();
}

int os_map_file(int fd, uint64_t off, size_t len, void **ret)
{
	void *p;

	OS_POINT(OS_MMAP);
	if (off % os_page_size()) /* what the kernel returns, also with os_page_override */
		return -EINVAL;
	p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, (off_t)off);
	if (p == MAP_FAILED)
		return -errno;
	*ret = p;
	return 0;
}

static int bind_to_node(void *p, size_t len, int node)
{
	unsigned long mask[4] = { 0 };

	OS_POINT(OS_MBIND);
	if (node < 0 || node >= (int)sizeof(mask) * 8)
		return 0;
	mask[node / 64] = 1ul << (node % 64);
	return OS_RET((int)syscall(__NR_mbind, p, len, MPOL_PREFERRED, mask, sizeof(mask) * 8, 0));
}

int os_map_anon(size_t len, int numa_node, void **ret)
{
	void *p;

	OS_POINT(OS_MMAP);
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	/* Best effort: memory on another node, or in small pages, works as well. */
	bind_to_node(p, len, numa_node);
	madvise(p, len, MADV_HUGEPAGE);
	*ret = p;
	return 0;
}

int os_map_shared(int fd, size_t len, void **ret)
{
	void *p;

	OS_POINT(OS_MMAP);
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	*ret = p;
	return 0;
}

int os_map_user(int fd, uint64_t off, size_t len, bool shared, bool write, void **ret)
{
	int flags = (shared ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE) | (fd < 0 ? MAP_ANONYMOUS : 0);
	void *p;

	OS_POINT(OS_MMAP);
	p = mmap(NULL, len, PROT_READ | (write ? PROT_WRITE : 0), flags, fd, (off_t)off);
	if (p == MAP_FAILED)
		return -errno;
	*ret = p;
	return 0;
}

int os_map_copy(size_t len, size_t align, bool write, void **ret)
{
	size_t before;
	char *p;

	OS_POINT(OS_MMAP);
	p = mmap(NULL, len + align, PROT_READ | (write ? PROT_WRITE : 0), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	before = align_up((uintptr_t)p, align) - (uintptr_t)p;
	if (before)
		munmap(p, before);
	munmap(p + before + len, align - before);
	p += before;
	if (madvise(p, len, MADV_NOHUGEPAGE) && errno != EINVAL) {
		int err = errno;

		munmap(p, len);
		return -err;
	}
	madvise(p, len, MADV_DONTFORK);
	*ret = p;
	return 0;
}

int os_advise(void *ptr, size_t len, enum os_advice advice)
{
	static const int values[] = { MADV_NORMAL, MADV_SEQUENTIAL, MADV_RANDOM };

	OS_POINT(OS_MADVISE);
	return OS_RET(madvise(ptr, len, values[advice]));
}

int os_discard(void *ptr, size_t len)
{
	OS_POINT(OS_MADVISE);
	return OS_RET(madvise(ptr, len, MADV_DONTNEED));
}

int os_reserve(size_t len, void **ret)
{
	void *p;

	OS_POINT(OS_MMAP);
	p = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	*ret = p;
	return 0;
}

int os_map_device(int fd, uint64_t off, size_t len, size_t align, void **ret)
{
	size_t before, room = len + align;
	char *p;

	OS_POINT(OS_MMAP);
	/* Reserve enough to align the mapping, then unmap the excess. */
	p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	before = align_up((uintptr_t)p, align) - (uintptr_t)p;
	if (mmap(p + before, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)off) == MAP_FAILED) {
		int err = errno;

		munmap(p, room);
		return -err;
	}
	if (before)
		munmap(p, before);
	munmap(p + before + len, align - before);
	*ret = p + before;
	return 0;
}

void os_unmap(void *ptr, size_t len)
{
	if (ptr)
		munmap(ptr, len);
}

int os_populate_read(void *ptr, size_t len)
{
	OS_POINT(OS_MADVISE);
	if (!madvise(ptr, len, MADV_POPULATE_READ))
		return 0;
	/* Kernels before 5.14 lack it, and nothing else faults pages in without a signal. */
	return errno == EINVAL ? -EOPNOTSUPP : -errno;
}

void os_populate(void *ptr, size_t len)
{
	char *p = ptr;

	/* By stores: madvise() would hold the lock of the address space, and with it up each mmap() of other threads. */
	for (size_t at = 0; at < len; at += (size_t)getpagesize())
		__atomic_store_n(p + at, 0, __ATOMIC_RELAXED);
}

int os_dont_fork(void *ptr, size_t len)
{
	OS_POINT(OS_MADVISE);
	return OS_RET(madvise(ptr, len, MADV_DONTFORK));
}

static int cached_by_cachestat(int fd, uint64_t off, uint64_t len, uint64_t *bytes)
{
	struct {
		uint64_t off, len;
	} range = { off, len };
	struct {
		uint64_t cache, dirty, writeback, evicted, recently_evicted;
	} cs;

	OS_POINT(OS_CACHESTAT);
	if (syscall(__NR_cachestat, fd, &range, &cs, 0))
		return -errno;
	*bytes = min_u64(cs.cache * (uint64_t)getpagesize(), len);
	return 0;
}

static int cached_by_mincore(int fd, uint64_t off, uint64_t len, uint64_t *bytes)
{
	uint64_t page = os_page_size();
	uint64_t start = align_down(off, page);
	size_t span = align_up(off + len - start, page), n = 0;
	unsigned char *vec;
	void *p;
	int rc;

	OS_POINT(OS_MINCORE);
	vec = malloc(span / page);
	if (!vec)
		return -ENOMEM;
	rc = os_map_file(fd, start, span, &p);
	if (rc)
		goto free_vec;
	if (mincore(p, span, vec))
		rc = -errno;
	munmap(p, span);
	for (size_t i = 0; !rc && i < span / page; i++)
		n += vec[i] & 1;
	if (!rc)
		*bytes = min_u64(n * page, len);
free_vec:
	free(vec);
	return rc;
}

/*
 * The kernel reports page-cache residency only to a process that owns the file or may write it. For any other process
 * cachestat(2) fails with -EPERM, and mincore(2) reports all pages as resident.
 */
static bool may_see_residency(int fd)
{
	struct stat st;

	return !faccessat(fd, "", W_OK, AT_EMPTY_PATH | AT_EACCESS) || (!fstat(fd, &st) && st.st_uid == geteuid());
}

int os_cached_bytes(int fd, uint64_t off, uint64_t len, uint64_t *bytes)
{
	static atomic_bool no_cachestat;
	int rc;

	if (!len) {
		*bytes = 0;
		return 0;
	}
	if (!atomic_load_explicit(&no_cachestat, memory_order_relaxed)) {
		rc = cached_by_cachestat(fd, off, len, bytes);
		if (rc != -ENOSYS && rc != -EPERM)
			return rc;
	}
	if (!may_see_residency(fd))
		return -EOPNOTSUPP;
	/* An old kernel or a sandbox, not the file: do not try cachestat(2) again. */
	if (!os_inject)
		atomic_store_explicit(&no_cachestat, true, memory_order_relaxed);
	rc = cached_by_mincore(fd, off, len, bytes);
	return rc == -ENOMEM ? rc : rc ? -EOPNOTSUPP : 0;
}

/*
 * Older kernels abort the whole allocation at any signal. Allocating in pieces makes progress in a program with a timer
 * signal.
 */
static int reserve(int fd, uint64_t len)
{
	const uint64_t piece = MIB(64);

	for (uint64_t at = 0; at < len; at += piece) {
		int rc;

		do
			rc = posix_fallocate(fd, (off_t)at, (off_t)min_u64(piece, len - at));
		while (rc == EINTR);
		if (rc)
			return rc == ENOSPC ? -ENOMEM : -rc;
	}
	return 0;
}

int os_memfd(const char *name, uint64_t len, int *ret)
{
	int fd, rc;

	OS_POINT(OS_MEMFD);
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* Reserve now: running out of memory is an error here, and a SIGBUS later. */
	rc = reserve(fd, len);
	if (rc)
		goto close_fd;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)) {
		rc = -errno;
		goto close_fd;
	}
	*ret = fd;
	return 0;
close_fd:
	close(fd);
	return rc;
}

ssize_t os_vm_read(void *dst, const void *src, size_t len)
{
	struct iovec local = { dst, len }, remote = { (void *)src, len };

	OS_POINT(OS_VM_READ);
	return OS_RET(process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
}

ssize_t os_vm_write(void *dst, const void *src, size_t len)
{
	struct iovec local = { (void *)src, len }, remote = { dst, len };

	OS_POINT(OS_VM_WRITE);
	return OS_RET(process_vm_writev(getpid(), &local, 1, &remote, 1, 0));
}

bool os_is_dmabuf(int fd)
{
	uint64_t magic;

	return !os_fs_magic(fd, &magic) && magic == DMA_BUF_MAGIC;
}

int os_seek_end(int fd, uint64_t *len)
{
	off_t end = lseek(fd, 0, SEEK_END);

	if (end < 0)
		return -errno;
	*len = (uint64_t)end;
	return 0;
}

int os_dmabuf_sync(int fd, bool begin)
{
	struct dma_buf_sync sync = { .flags = DMA_BUF_SYNC_RW | (begin ? DMA_BUF_SYNC_START : DMA_BUF_SYNC_END) };
	int rc;

	do
		rc = OS_RET(ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync));
	while (rc == -EINTR || rc == -EAGAIN);
	return rc == -ENOTTY ? 0 : rc;
}

int os_udmabuf(int memfd, uint64_t off, uint64_t len, int *ret)
{
	struct udmabuf_create create = { (uint32_t)memfd, UDMABUF_FLAGS_CLOEXEC, off, len };
	int dev, fd;

	dev = os_open("/dev/udmabuf", O_RDWR, 0);
	if (dev < 0)
		return dev;
	fd = ioctl(dev, UDMABUF_CREATE, &create);
	if (fd < 0)
		fd = -errno;
	close(dev);
	if (fd < 0)
		return fd;
	*ret = fd;
	return 0;
}
