/* SPDX-License-Identifier: MIT */
#include "os/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int names_add(struct os_names *names, unsigned int *room, const char *name)
{
	char *copy;

	if (names->n == *room) {
		unsigned int more = *room ? *room * 2 : 16;
		char **grown = realloc(names->name, more * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		names->name = grown;
		*room = more;
	}
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	names->name[names->n++] = copy;
	return 0;
}

int os_names_read(const char *path, struct os_names *ret)
{
	struct os_names names = { 0 };
	unsigned int room = 0;
	struct dirent *e;
	DIR *dir;
	int fd, err;

	fd = os_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		err = -errno;
		os_close(fd);
		return err;
	}
	for (err = 0; !err;) {
		errno = 0;
		e = readdir(dir);
		if (!e) {
			err = -errno;
			break;
		}
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			err = names_add(&names, &room, e->d_name);
	}
	closedir(dir);
	if (err) {
		os_names_free(&names);
		return err;
	}
	if (names.n)
		qsort(names.name, names.n, sizeof(*names.name), by_name);
	*ret = names;
	return 0;
}

void os_names_free(struct os_names *names)
{
	for (unsigned int i = 0; i < names->n; i++)
		free(names->name[i]);
	free(names->name);
	*names = (struct os_names){ 0 };
}

ssize_t os_read_bytes(const char *path, void *buf, size_t len)
{
	size_t done = 0;
	ssize_t n = 0;
	int fd;

	fd = os_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	while (done < len) {
		n = os_pread(fd, (char *)buf + done, len - done, done);
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	os_close(fd);
	/* PCI config space ends with an error, not with an end of file, where the reader may see no more. */
	return done ? (ssize_t)done : n;
}

static int write_all(const char *path, const char *text, int flags)
{
	size_t len = strlen(text);
	ssize_t n;
	int fd = os_open(path, O_WRONLY | O_CLOEXEC | flags, 0644);

	if (fd < 0)
		return fd;
	n = os_pwrite(fd, text, len, 0);
	os_close(fd);
	return n < 0 ? (int)n : (size_t)n == len ? 0 : -EIO;
}

int os_write_text(const char *path, const char *text)
{
	return write_all(path, text, 0);
}

int os_create_text(const char *path, const char *text)
{
	char part[512];
	int rc;

	if (strlen(path) + 6 > sizeof(part))
		return -ENAMETOOLONG;
	str_format(part, sizeof(part), "%s.part", path);
	rc = write_all(part, text, O_CREAT | O_TRUNC);
	if (!rc && rename(part, path) < 0)
		rc = -errno;
	if (rc)
		unlink(part);
	return rc;
}

int os_make_dirs(const char *path)
{
	char part[512];

	if (strlen(path) >= sizeof(part))
		return -ENAMETOOLONG;
	for (const char *at = path; (at = strchr(at + 1, '/'));) {
		str_copy(part, (size_t)(at - path) + 1, path);
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

int os_remove(const char *path)
{
	return unlink(path) < 0 ? -errno : 0;
}

/* @text is a whole number of lines, terminated. */
static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
		bool begins = at == text || strchr(" \t\n", at[-1]);

		if (begins && strchr(" \t\n", at[len]))
			return true;
	}
	return false;
}

int os_file_has_word(const char *path, const char *word)
{
	enum { PIECE = 64 << 10 };
	size_t reg_window = 0;
	uint64_t off = 0;
	int fd, ret = 0;
	ssize_t n;
	char *buf;

	buf = malloc(PIECE + 1);
	if (!buf)
		return -ENOMEM;
	fd = os_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0) {
		free(buf);
		return fd;
	}
	for (;;) {
		char *end, cut;

		n = os_pread(fd, buf + reg_window, PIECE - reg_window, off);
		if (n <= 0)
			break;
		off += (uint64_t)n;
		reg_window += (size_t)n;
		buf[reg_window] = '\0';
		/* A word may go on in the next piece: look at whole lines only. */
		end = memrchr(buf, '\n', reg_window);
		if (!end && reg_window < PIECE)
			continue;
		if (!end)
			end = buf + reg_window - 1;
		cut = end[1];
		end[1] = '\0';
		ret = has_word(buf, word);
		end[1] = cut;
		if (ret)
			break;
		reg_window -= (size_t)(end + 1 - buf);
		memmove(buf, end + 1, reg_window);
	}
	if (n < 0)
		ret = (int)n;
	else if (!n && reg_window) {
		buf[reg_window] = '\0';
		ret = has_word(buf, word);
	}
	os_close(fd);
	free(buf);
	return ret;
}

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

	/* Without privilege the kernel still gives one that catches faults of user code only. */
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
