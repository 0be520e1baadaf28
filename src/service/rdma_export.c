/* SPDX-License-Identifier: MIT */
/* Files of a served directory. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "service/rdma_serve.h"

#define TRIES 100

int export_open(int root, const char *path, bool write)
{
	/* O_NONBLOCK: opening a FIFO does not wait. */
	struct open_how how = { .flags = (write ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
				.mode = write ? 0644 : 0,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	struct stat st;
	int fd, tries = 0, rc;

	/* EAGAIN: a rename on the way of the path. Another process may rename for as long as it likes. */
	do
		fd = (int)syscall(__NR_openat2, root, path, &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || (errno == EAGAIN && ++tries < TRIES)));
	if (fd < 0)
		return -errno;
	rc = fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : S_ISDIR(st.st_mode) ? -EISDIR : -EPERM;
	if (!rc)
		return fd;
	close(fd);
	return rc;
}
