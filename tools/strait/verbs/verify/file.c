/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "lib/cli.h"
#include "verbs/verify/verify.h"

static int open_in_directory(struct verify_file *f, const char *dir)
{
	f->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (f->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
		char *name = xasprintf("%s/strait-verify-XXXXXX", dir);

		f->fd = mkostemp(name, O_CLOEXEC);
		if (f->fd >= 0)
			unlink(name);
		free(name);
	}
	f->ours = true;
	if (f->fd < 0)
		return fail(CLI_FAILED, "name a directory that you may write to", "cannot create a file in %s: %s", dir,
			    strerror(errno));
	return CLI_OK;
}

static int open_existing(struct verify_file *f, const char *path, const struct stat *st, bool force)
{
	f->block = S_ISBLK(st->st_mode);
	if (!S_ISREG(st->st_mode) && !f->block)
		return fail(CLI_FAILED, "name another path", "%s is not a directory, regular file or block device",
			    path);
	if (!force)
		return fail(CLI_USAGE, "its contents will be lost: give --force to overwrite it", "%s exists", path);
	/* O_EXCL refuses a block device that is mounted or otherwise in use. */
	f->fd = open(path, O_RDWR | O_CLOEXEC | (f->block ? O_EXCL : 0));
	if (f->fd < 0)
		return fail(CLI_FAILED, errno == EBUSY ? "it is mounted or in use: unmount it first" : NULL,
			    "cannot open %s: %s", path, strerror(errno));
	f->length = (uint64_t)st->st_size;
	if (f->block && ioctl(f->fd, BLKGETSIZE64, &f->length) < 0)
		return fail(CLI_FAILED, NULL, "cannot get the size of %s: %s", path, strerror(errno));
	return CLI_OK;
}

int verify_file_open(struct verify_file *f, const char *path, bool force)
{
	struct stat st;

	*f = (struct verify_file){ .fd = -1 };
	if (!stat(path, &st))
		return S_ISDIR(st.st_mode) ? open_in_directory(f, path) : open_existing(f, path, &st, force);
	f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (f->fd < 0)
		return fail(CLI_FAILED, NULL, "cannot create %s: %s", path, strerror(errno));
	/* Without a name it exists while it is open: a killed run leaves nothing behind. */
	unlink(path);
	f->ours = true;
	return CLI_OK;
}

void verify_file_close(struct verify_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

int verify_file_check(const struct verify_file *f, const char *path, const struct pattern *p, uint64_t size,
		      uint64_t *where)
{
	enum { STEP = 1 << 20 };
	char *have = xcalloc(1, STEP), *want = xcalloc(1, STEP);
	uint64_t at = 0;
	int code = CLI_OK;

	*where = size;
	while (at < size && *where == size) {
		size_t n = min_u64(STEP, size - at);
		ssize_t got = pread(f->fd, have, n, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			code = fail(CLI_FAILED, NULL, "cannot read %s: %s", path, strerror(errno));
			break;
		}
		if (!got) {
			*where = at; /* the file ends too early */
			break;
		}
		pattern_fill(p, at, want, (size_t)got);
		for (ssize_t i = 0; memcmp(have, want, (size_t)got) && i < got; i++) {
			if (have[i] != want[i]) {
				*where = at + (uint64_t)i;
				break;
			}
		}
		at += (uint64_t)got;
	}
	free(have);
	free(want);
	return code;
}
