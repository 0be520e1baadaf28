/* SPDX-License-Identifier: MIT */
#include "os/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "os/os.h"

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
	/* Reading PCI config space past what the process may see is an error, not an end of file. */
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

/* @text is whole lines, NUL-terminated. */
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
	size_t have = 0;
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

		n = os_pread(fd, buf + have, PIECE - have, off);
		if (n <= 0)
			break;
		off += (uint64_t)n;
		have += (size_t)n;
		buf[have] = '\0';
		/* A word may continue in the next piece: search whole lines only. */
		end = memrchr(buf, '\n', have);
		if (!end && have < PIECE)
			continue;
		if (!end)
			end = buf + have - 1;
		cut = end[1];
		end[1] = '\0';
		ret = has_word(buf, word);
		end[1] = cut;
		if (ret)
			break;
		have -= (size_t)(end + 1 - buf);
		memmove(buf, end + 1, have);
	}
	if (n < 0)
		ret = (int)n;
	else if (!n && have) {
		buf[have] = '\0';
		ret = has_word(buf, word);
	}
	os_close(fd);
	free(buf);
	return ret;
}
