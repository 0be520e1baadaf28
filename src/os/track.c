/* SPDX-License-Identifier: MIT */
/*
 * Stores to a mapping, found by asynchronous write protection (userfaultfd, Linux 6.7) and the PAGEMAP_SCAN ioctl. The
 * kernel resolves the faults itself: no thread handles them, and stores made inside system calls are found as well.
 * With os_fault_open() a thread of the library fills missing pages, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "os/inject.h"

/* Of kernels newer than the headers this may be built with. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define FEATURE_WP_HUGETLBFS_SHMEM (1u << 12)
#define FEATURE_WP_UNPOPULATED (1u << 13)
#define FEATURE_WP_ASYNC (1u << 15)

#define CATEGORY_WRITTEN (1u << 1)
#define SCAN_WP_MATCHING (1u << 0)
#define SCAN_CHECK_WPASYNC (1u << 1)

struct scan_arg {
	__u64 size;
	__u64 flags;
	__u64 start;
	__u64 end;
	__u64 walk_end;
	__u64 vec;
	__u64 vec_len;
	__u64 max_pages;
	__u64 category_inverted;
	__u64 category_mask;
	__u64 category_anyof_mask;
	__u64 return_mask;
};

#define IOC_PAGEMAP_SCAN _IOWR('f', 16, struct scan_arg)

static int userfaultfd_open(unsigned int flags)
{
	OS_POINT(OS_USERFAULTFD);
	return OS_RET((int)syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags));
}

static int track_register(struct os_track *t, void *ptr, size_t len, uint64_t mode)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED | FEATURE_WP_HUGETLBFS_SHMEM };
	struct uffdio_register reg = { .range = { (uintptr_t)ptr, len }, .mode = mode };
	int rc;

	rc = os_ioctl(t->uffd, UFFDIO_API, &api);
	return rc < 0 ? rc : os_ioctl(t->uffd, UFFDIO_REGISTER, &reg);
}

/* Registers the range with t->uffd. Closes @t on failure. */
static int track_begin(struct os_track *t, void *ptr, size_t len, uint64_t mode)
{
	struct os_page_run run;
	void *next;
	int rc;

	rc = track_register(t, ptr, len, mode);
	if (rc < 0)
		goto close;
	rc = os_open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
	if (rc < 0)
		goto close;
	t->pagemap = rc;
	/* Find out now whether the kernel has the scan and the range may be scanned. */
	rc = os_track_protect(t, ptr, os_page_size());
	if (!rc)
		rc = os_track_scan(t, ptr, os_page_size(), &run, 1, &next);
	if (rc < 0)
		goto close;
	return 0;
close:
	os_track_close(t);
	return rc;
}

int os_track_open(struct os_track *t, void *ptr, size_t len)
{
	t->pagemap = -1;
	/* Unprivileged processes may have one for faults in user mode, and asynchronous protection needs no other. */
	t->uffd = userfaultfd_open(UFFD_USER_MODE_ONLY);
	return t->uffd < 0 ? t->uffd : track_begin(t, ptr, len, UFFDIO_REGISTER_MODE_WP);
}

int os_fault_open(struct os_track *t, void *ptr, size_t len, bool *user_only)
{
	t->pagemap = -1;
	t->uffd = userfaultfd_open(0);
	*user_only = t->uffd == -EPERM;
	if (*user_only)
		t->uffd = userfaultfd_open(UFFD_USER_MODE_ONLY);
	if (t->uffd < 0)
		return t->uffd;
	return track_begin(t, ptr, len, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
}

void os_track_close(struct os_track *t)
{
	if (t->pagemap >= 0)
		os_close(t->pagemap);
	if (t->uffd >= 0)
		os_close(t->uffd);
	t->uffd = t->pagemap = -1;
}

int os_track_protect(const struct os_track *t, void *ptr, size_t len)
{
	struct uffdio_writeprotect wp = { .range = { (uintptr_t)ptr, len }, .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	int rc;

	/* The kernel asks to repeat it while the address space changes. */
	do
		rc = os_ioctl(t->uffd, UFFDIO_WRITEPROTECT, &wp);
	while (rc == -EAGAIN);
	return rc < 0 ? rc : 0;
}

int os_track_scan(const struct os_track *t, void *ptr, size_t len, struct os_page_run *runs, unsigned int n,
		  void **next)
{
	struct scan_arg arg = {
		.size = sizeof(arg),
		.flags = SCAN_WP_MATCHING | SCAN_CHECK_WPASYNC,
		.start = (uintptr_t)ptr,
		.end = (uintptr_t)ptr + len,
		.vec = (uintptr_t)runs,
		.vec_len = n,
		.category_mask = CATEGORY_WRITTEN,
		.return_mask = CATEGORY_WRITTEN,
	};
	int rc = os_ioctl(t->pagemap, IOC_PAGEMAP_SCAN, &arg);

	if (rc >= 0)
		*next = (void *)(uintptr_t)arg.walk_end;
	return rc;
}

int os_fault_read(const struct os_track *t, int stop_fd, uint64_t *addrs, unsigned int n)
{
	struct uffd_msg msg[16];
	unsigned int faults = 0;
	ssize_t got;
	int rc;

	rc = os_wait_readable(t->uffd, stop_fd);
	if (rc < 1)
		return rc < 0 ? rc : -ECANCELED;
	got = read(t->uffd, msg, min_u64(n, ARRAY_SIZE(msg)) * sizeof(*msg));
	/* A thread that waited may have been woken in between. */
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	for (size_t i = 0; i < (size_t)got / sizeof(*msg); i++)
		if (msg[i].event == UFFD_EVENT_PAGEFAULT)
			addrs[faults++] = msg[i].arg.pagefault.address;
	return (int)faults;
}

int os_fault_copy(const struct os_track *t, void *dst, const void *src, size_t len, size_t *done)
{
	int rc;

	*done = 0;
	do {
		struct uffdio_copy c = { .dst = (uintptr_t)dst + *done,
					 .src = (uintptr_t)src + *done,
					 .len = len - *done,
					 .mode = UFFDIO_COPY_MODE_WP };

		rc = os_ioctl(t->uffd, UFFDIO_COPY, &c);
		if (c.copy > 0)
			*done += (size_t)c.copy;
	} while (*done < len && (rc >= 0 || rc == -EAGAIN));
	return *done == len ? 0 : rc;
}

void os_fault_wake(const struct os_track *t, void *ptr, size_t len)
{
	struct uffdio_range range = { (uintptr_t)ptr, len };

	os_ioctl(t->uffd, UFFDIO_WAKE, &range);
}
