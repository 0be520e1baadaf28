/* SPDX-License-Identifier: MIT */
#include "os/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/util.h"
#include "os/os.h"

#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif
#ifndef __NR_io_uring_setup
#define __NR_io_uring_setup 425
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

int os_probe_uring(void)
{
	/* The kernel's struct io_uring_params: 120 bytes, all zero for the defaults. */
	uint32_t params[30] = { 0 };
	long fd = syscall(__NR_io_uring_setup, 1, params);

	if (fd < 0)
		return -errno;
	os_close((int)fd);
	return 0;
}

int os_probe_cachestat(void)
{
	struct {
		uint64_t off, len;
	} range = { 0, 4096 };
	uint64_t stat[5];
	int fd, err;

	fd = os_open("/proc/self/exe", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	err = syscall(__NR_cachestat, fd, &range, stat, 0) < 0 ? -errno : 0;
	os_close(fd);
	return err;
}

int os_probe_userfaultfd(void)
{
	long fd = syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	/* An unprivileged process may still have one that handles faults in user mode only. */
	if (fd < 0 && errno == EPERM)
		fd = syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		return -errno;
	os_close((int)fd);
	return 0;
}

int os_probe_device(const char *path)
{
	int fd = os_open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);

	if (fd < 0)
		return fd;
	os_close(fd);
	return 0;
}

int os_kernel_release(char *buf, size_t len)
{
	struct utsname name;

	if (uname(&name) < 0)
		return -errno;
	str_copy(buf, len, name.release);
	return 0;
}

uint64_t os_memlock_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return limit.rlim_cur;
}
