/* SPDX-License-Identifier: MIT */
/* The files that are read and written, and whether their bytes are right. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

/* The contents of the file: eight bytes for every offset. */
static void pattern(uint64_t *to, uint64_t off, size_t len)
{
	for (size_t i = 0; i < len / 8; i++) {
		uint64_t x = off + i * 8 + 1;

		x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
		x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
		to[i] = x ^ (x >> 31);
	}
}

/* A file that exists is never written to: it must hold the pattern already. */
static int check_file(const char *path, uint64_t length)
{
	uint64_t got[512], want[512];
	int fd = open(path, O_RDONLY);
	bool same = fd >= 0;

	for (int end = 0; end < 2 && same; end++) {
		uint64_t off = end ? length - sizeof(got) : 0;

		pattern(want, off, sizeof(want));
		same = pread(fd, got, sizeof(got), (off_t)off) == sizeof(got) && !memcmp(got, want, sizeof(got));
	}
	same = same && lseek(fd, 0, SEEK_END) == (off_t)length;
	if (fd >= 0)
		close(fd);
	if (!same)
		fprintf(stderr,
			"client: %s exists and is not a file of %llu MiB written by this program: give another path\n",
			path, (unsigned long long)(length / MIB));
	return same ? 0 : EEXIST;
}

int make_file(const char *path, uint64_t length)
{
	uint64_t *buf;
	int fd;

	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 && errno == EEXIST)
		return check_file(path, length);
	buf = malloc(4u * MIB);
	for (uint64_t off = 0; fd >= 0 && buf && off < length; off += 4u * MIB) {
		size_t n = length - off < 4u * MIB ? (size_t)(length - off) : 4u * MIB;

		pattern(buf, off, n);
		if (pwrite(fd, buf, n, (off_t)off) != (ssize_t)n)
			return say(path, errno);
	}
	if (fd < 0 || !buf || fdatasync(fd))
		return say(path, errno);
	free(buf);
	close(fd);
	return 0;
}

void warm_cache(const struct client *c)
{
	int fd = open(c->path, O_RDONLY);
	char *buf = malloc(16u * MIB);

	for (uint64_t off = 0; fd >= 0 && buf && off < c->length; off += 16u * MIB)
		if (pread(fd, buf, 16u * MIB, (off_t)off) < 0)
			break;
	free(buf);
	close(fd);
}

bool right(struct client *c, uint64_t off, uint64_t at, size_t len)
{
	static uint64_t *got, *want;

	if (!got) {
		got = malloc(16u * MIB);
		want = malloc(16u * MIB);
	}
	for (size_t done = 0, n; done < len; done += n) {
		n = len - done < 16u * MIB ? len - done : 16u * MIB;
		pattern(want, off + done, n);
		if (cuda_copy_out(got, (char *)c->memory + at + done, n) || memcmp(got, want, n)) {
			fprintf(stderr, "client: wrong bytes at offset %llu of the file\n",
				(unsigned long long)(off + done));
			return false;
		}
	}
	return true;
}

void drop_cache(int fd)
{
	fdatasync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

bool was_written(const char *path, uint64_t length)
{
	unsigned char *buf = malloc(16u * MIB);
	int fd = open(path, O_RDONLY);
	bool ok = fd >= 0 && buf;

	for (uint64_t off = 0; ok && off < length; off += 16u * MIB) {
		size_t n = length - off < 16u * MIB ? (size_t)(length - off) : 16u * MIB;

		ok = pread(fd, buf, n, (off_t)off) == (ssize_t)n && buf[0] == FILLED && !memcmp(buf, buf + 1, n - 1);
	}
	if (fd >= 0)
		close(fd);
	free(buf);
	return ok;
}
