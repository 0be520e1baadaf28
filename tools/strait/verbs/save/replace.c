/* SPDX-License-Identifier: MIT */
#include "verbs/save/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "lib/cli.h"
#include "lib/size.h"

static char *dir_of(const char *path)
{
	char *copy = xstrdup(path), *dir = xstrdup(dirname(copy));

	free(copy);
	return dir;
}

static int open_block(struct replace *r, uint64_t bytes, bool force)
{
	char have[SIZE_TEXT], need[SIZE_TEXT];
	uint64_t room;

	if (!force)
		return fail(CLI_USAGE, "its contents will be lost: give --force to overwrite it",
			    "%s is a block device", r->path);
	/* O_EXCL refuses one that is mounted or otherwise in use. */
	r->fd = open(r->path, O_RDWR | O_EXCL | O_CLOEXEC);
	if (r->fd < 0)
		return fail(CLI_FAILED, errno == EBUSY ? "it is mounted or in use: unmount it first" : NULL,
			    "cannot open %s: %s", r->path, strerror(errno));
	r->in_place = true;
	r->block = true;
	if (!ioctl(r->fd, BLKGETSIZE64, &room) && room < bytes)
		return fail(CLI_FAILED, "use a smaller --size", "%s has %s, less than the %s to be written", r->path,
			    size_format(room, have), size_format(bytes, need));
	return CLI_OK;
}

/* For file systems without O_TMPFILE. */
static int open_in_place(struct replace *r)
{
	r->fd = open(r->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	r->created = r->fd >= 0;
	if (r->fd < 0 && errno == EEXIST)
		r->fd = open(r->path, O_RDWR | O_CLOEXEC);
	if (r->fd < 0)
		return fail(CLI_FAILED, NULL, "cannot open %s: %s", r->path, strerror(errno));
	r->in_place = true;
	note("%s is written in place, because its file system has no O_TMPFILE: an interrupted run leaves it incomplete",
	     r->path);
	return CLI_OK;
}

static int open_unnamed(struct replace *r, const struct stat *old)
{
	char *dir = dir_of(r->path);
	int code = CLI_OK;

	r->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
	if (r->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOSYS))
		code = open_in_place(r);
	else if (r->fd < 0)
		code = fail(CLI_FAILED, errno == ENOENT ? "create the directory first" : NULL,
			    "cannot create a file in %s: %s", dir, strerror(errno));
	else if (old && fchown(r->fd, old->st_uid, old->st_gid) < 0 && errno != EPERM)
		code = fail(CLI_FAILED, NULL, "cannot set the owner of %s: %s", r->path, strerror(errno));
	if (!code && old && !r->in_place && fchmod(r->fd, old->st_mode & 0777) < 0)
		code = fail(CLI_FAILED, NULL, "cannot set the mode of %s: %s", r->path, strerror(errno));
	free(dir);
	return code;
}

static int reserve(struct replace *r, uint64_t bytes)
{
	char size[SIZE_TEXT];

	/* Where the file system cannot reserve space, writing reports that it is full. */
	if (!bytes || r->block || !fallocate(r->fd, 0, 0, (off_t)bytes) || (errno != ENOSPC && errno != EFBIG))
		return CLI_OK;
	return fail(CLI_FAILED, "free space, or use a smaller --size", "%s: cannot reserve %s: %s", r->path,
		    size_format(bytes, size), strerror(errno));
}

int replace_open(struct replace *r, const char *path, uint64_t bytes, bool force)
{
	struct stat st;
	bool exists;
	int code;

	*r = (struct replace){ .fd = -1 };
	exists = !stat(path, &st);
	if (!exists && errno != ENOENT)
		return fail(CLI_FAILED, NULL, "cannot stat %s: %s", path, strerror(errno));
	r->path = exists ? realpath(path, NULL) : NULL;
	if (!r->path)
		r->path = xstrdup(path);
	if (exists && S_ISBLK(st.st_mode))
		return open_block(r, bytes, force);
	if (exists && !S_ISREG(st.st_mode))
		return fail(CLI_FAILED, "name a regular file or a block device",
			    "%s is neither a regular file nor a block device", path);
	/* Write permission on the directory would suffice to replace a file; that of the file itself is respected. */
	if (exists && access(path, W_OK) < 0)
		return fail(CLI_FAILED, NULL, "cannot write %s: %s", path, strerror(errno));
	code = open_unnamed(r, exists ? &st : NULL);
	if (!code)
		code = reserve(r, bytes);
	if (!code && r->in_place && !r->created && ftruncate(r->fd, (off_t)bytes) < 0)
		code = fail(CLI_FAILED, NULL, "cannot set the length of %s: %s", r->path, strerror(errno));
	return code;
}

/* linkat() does not replace a file: where the name exists, link to a temporary name and rename() that over it. */
static int link_name(struct replace *r)
{
	char self[64], *temp;
	int err = 0;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", r->fd);
	if (!linkat(AT_FDCWD, self, AT_FDCWD, r->path, AT_SYMLINK_FOLLOW))
		return 0;
	if (errno != EEXIST)
		return -errno;
	temp = xasprintf("%s.strait-%08" PRIx32, r->path, (uint32_t)(now_ns() ^ (uint64_t)getpid() << 16));
	signals_hold(true);
	if (linkat(AT_FDCWD, self, AT_FDCWD, temp, AT_SYMLINK_FOLLOW) < 0) {
		err = -errno;
	} else if (rename(temp, r->path) < 0) {
		err = -errno;
		unlink(temp);
	}
	signals_hold(false);
	free(temp);
	return err;
}

int replace_commit(struct replace *r)
{
	char *dir;
	int fd, err = 0;

	if (fsync(r->fd) < 0)
		return fail(CLI_FAILED, NULL, "cannot sync %s to storage: %s", r->path, strerror(errno));
	if (!r->in_place)
		err = link_name(r);
	if (err)
		return fail(CLI_FAILED, "check that /proc is mounted", "cannot link the new file to %s: %s", r->path,
			    error_text(err));
	r->created = false;
	/* The name is durable once its directory is synced. Not every file system can sync a directory. */
	dir = dir_of(r->path);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
	free(dir);
	return CLI_OK;
}

void replace_close(struct replace *r)
{
	if (r->created)
		unlink(r->path);
	if (r->fd >= 0)
		close(r->fd);
	free(r->path);
	*r = (struct replace){ .fd = -1 };
}
