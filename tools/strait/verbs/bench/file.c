/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "lib/cli.h"
#include "lib/pattern.h"
#include "lib/progress.h"
#include "lib/size.h"
#include "verbs/bench/bench.h"

enum { STEP = 4 << 20 };

static int fill(struct bench_file *f)
{
	const struct pattern p = { PATTERN_RANDOM, 1 };
	char *buf = xcalloc(1, STEP), size[SIZE_TEXT];
	int code = CLI_OK;

	progress_start("creating the file", f->bytes);
	for (uint64_t done = 0; done < f->bytes && !code;) {
		size_t n = min_u64(STEP, f->bytes - done);
		ssize_t got;

		pattern_fill(&p, done, buf, n);
		got = pwrite(f->fd, buf, n, (off_t)done);
		if (got < 0 && errno != EINTR)
			code = fail(CLI_FAILED, "free space, or use a smaller --size", "cannot create %s with %s: %s",
				    f->path, size_format(f->bytes, size), strerror(errno));
		else if (got > 0)
			done += (uint64_t)got;
		progress_set(done);
	}
	progress_end();
	free(buf);
	return code;
}

static int create(struct bench_file *f, uint64_t size, bool keep)
{
	int code;

	f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (f->fd < 0)
		return fail(CLI_FAILED, NULL, "cannot create %s: %s", f->path, strerror(errno));
	f->created = true;
	f->bytes = size;
	/* Without a name it exists while it is open: a killed run leaves nothing behind. */
	if (!keep)
		unlink(f->path);
	code = fill(f);
	if (code && keep)
		unlink(f->path);
	return code;
}

static int use_existing(struct bench_file *f, const struct stat *st, uint64_t size, bool writes, bool force)
{
	char have[SIZE_TEXT];

	f->block = S_ISBLK(st->st_mode);
	if (!S_ISREG(st->st_mode) && !f->block)
		return fail(CLI_FAILED, "name another path", "%s is not a regular file or block device", f->path);
	if (writes && !force)
		return fail(CLI_USAGE, "its contents will be lost: give --force to overwrite it, or name a new file",
			    "%s exists and would be overwritten", f->path);
	f->fd = open(f->path, (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC | (writes && f->block ? O_EXCL : 0));
	if (f->fd < 0)
		return fail(CLI_FAILED, errno == EBUSY ? "it is mounted or in use: unmount it first" : NULL,
			    "cannot open %s: %s", f->path, strerror(errno));
	f->bytes = (uint64_t)st->st_size;
	if (f->block && ioctl(f->fd, BLKGETSIZE64, &f->bytes) < 0)
		return fail(CLI_FAILED, NULL, "cannot get the size of %s: %s", f->path, strerror(errno));
	if (size && size > f->bytes)
		return fail(CLI_USAGE, "use a smaller --size, or name a new file", "%s has only %s", f->path,
			    size_format(f->bytes, have));
	if (size)
		f->bytes = size;
	return CLI_OK;
}

int bench_file_open(struct bench_file *f, const char *path, uint64_t size, bool writes, bool force, bool keep)
{
	struct stat st;

	*f = (struct bench_file){ .path = path, .fd = -1 };
	if (!stat(path, &st))
		return use_existing(f, &st, size, writes, force);
	return create(f, size ? size : GIB, keep);
}

void bench_file_close(struct bench_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

static int warm(struct bench_file *f)
{
	char *buf = xcalloc(1, STEP);
	int code = CLI_OK;

	for (uint64_t done = 0; done < f->bytes;) {
		ssize_t n = pread(f->fd, buf, STEP, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			code = fail(CLI_FAILED, NULL, "cannot read %s: %s", f->path, strerror(errno));
		if (n <= 0)
			break;
		done += (uint64_t)n;
	}
	free(buf);
	return code;
}

int bench_file_prepare(struct bench_file *f, enum bench_cache cache)
{
	switch (cache) {
	case BENCH_AS_IS:
		break;
	case BENCH_CACHED:
		return warm(f);
	case BENCH_DIRECT:
		/* Dirty pages cannot be dropped: write them back first. A read-only file system has none. */
		fdatasync(f->fd);
		posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
		break;
	}
	return CLI_OK;
}
