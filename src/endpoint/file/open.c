/* SPDX-License-Identifier: MIT */
/* Opening a file: the endpoint has its own descriptors, whatever flags the application's have. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "endpoint/file/file.h"
#include "os/os.h"

#define FILE_FLAGS (STRAIT_FILE_BUFFERED | STRAIT_FILE_DIRECT | STRAIT_FILE_IMMUTABLE | STRAIT_FILE_LEASE)
/* Flags that change the meaning of a write: kept when a descriptor is reopened. */
#define SYNC_FLAGS (O_SYNC | O_DSYNC)

static int check_flags(uint32_t flags)
{
	if (flags & ~FILE_FLAGS)
		return -EINVAL;
	if ((flags & STRAIT_FILE_BUFFERED) && (flags & STRAIT_FILE_DIRECT))
		return -EINVAL;
	return 0;
}

static int check_type(const struct log_sink *log, const struct stat *st)
{
	if (S_ISREG(st->st_mode) || S_ISBLK(st->st_mode))
		return 0;
	if (S_ISDIR(st->st_mode))
		return -EISDIR;
	log_warn(log, "not a regular file or block device (mode 0%o)", st->st_mode);
	return -ENOTSUP;
}

/* Opening a pipe would block: check the type with O_PATH first. */
static int refuse_type(const struct log_sink *log, const char *path)
{
	int fd = os_open(path, O_PATH, 0), rc;
	struct stat st;

	if (fd < 0)
		return 0;
	rc = os_fstat(fd, &st);
	if (!rc)
		rc = check_type(log, &st);
	os_close(fd);
	return rc;
}

static struct file *file_new(uint32_t flags)
{
	struct file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	endpoint_init(&f->ep, &file_endpoint_ops, flags);
	f->ep.facts.immutable = flags & STRAIT_FILE_IMMUTABLE;
	/* With the promise a lease is useless: it would only block a writer. */
	f->ep.facts.wants_lease = (flags & STRAIT_FILE_LEASE) && !f->ep.facts.immutable;
	f->fd = f->fd_direct = f->fd_lease = -1;
	f->read_nowait = true;
	return f;
}

/* Complete opening, with f->fd set. */
static int file_finish(struct file *f, const struct stat *st, const char *path, int oflags,
		       struct strait_endpoint **ret)
{
	int acc = oflags & O_ACCMODE, rc;

	f->ep.facts.can_read = acc == O_RDONLY || acc == O_RDWR;
	f->ep.facts.can_write = acc == O_WRONLY || acc == O_RDWR;
	f->ep.facts.can_map = f->ep.facts.can_read;
	f->ep.facts.can_buffered = !(oflags & O_DIRECT);
	f->ep.facts.is_block = S_ISBLK(st->st_mode);
	f->ep.facts.inode = ((uint64_t)st->st_dev << 40) ^ (uint64_t)st->st_ino;
	rc = file_probe(f, st, path, oflags);
	if (rc)
		return rc;
	/* An O_DIRECT descriptor that cannot be reopened is useless without direct I/O. */
	if (!f->ep.facts.can_buffered && !f->ep.facts.can_direct)
		return -ENOTSUP;
	f->ep.facts.force_direct = f->ep.facts.can_direct && (f->ep.flags & STRAIT_FILE_DIRECT);
	*ret = &f->ep;
	return 0;
}

int file_endpoint_open(const struct log_sink *log, const char *path, int oflags, mode_t mode, uint32_t flags,
		       struct strait_endpoint **ret)
{
	const int known = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_DIRECT | SYNC_FLAGS | O_CLOEXEC | O_LARGEFILE |
			  O_NOFOLLOW | O_NOCTTY | O_NOATIME;
	struct stat st;
	struct file *f;
	int rc;

	rc = check_flags(flags);
	if (rc)
		return rc;
	if (oflags & ~known)
		return -EINVAL;
	if (oflags & O_DIRECT) {
		if (flags & STRAIT_FILE_BUFFERED)
			return -EINVAL;
		flags |= STRAIT_FILE_DIRECT;
	}
	f = file_new(flags);
	if (!f)
		return -ENOMEM;
	rc = refuse_type(log, path);
	if (rc)
		goto destroy;
	rc = os_open(path, oflags & ~O_DIRECT, mode);
	if (rc < 0)
		goto destroy;
	f->fd = rc;
	rc = os_fstat(f->fd, &st);
	if (rc)
		goto destroy;
	rc = check_type(log, &st);
	if (rc)
		goto destroy;
	rc = file_finish(f, &st, path, oflags & ~O_DIRECT, ret);
	if (rc)
		goto destroy;
	return 0;
destroy:
	f->ep.ops->destroy(&f->ep);
	return rc;
}

/*
 * A descriptor of the same file without O_DIRECT, O_APPEND, O_PATH and O_NONBLOCK (io_uring returns -EAGAIN for it).
 * Sets
 * @oflags to its flags.
 */
static int own_descriptor(const struct log_sink *log, int fd, int *oflags)
{
	int flags = *oflags, want = flags & (O_ACCMODE | SYNC_FLAGS), own;

	if (!(flags & (O_DIRECT | O_APPEND | O_PATH | O_NONBLOCK)))
		return os_dup(fd);
	if (flags & O_PATH) {
		want = O_RDWR;
		own = os_reopen(fd, want);
		if (own == -EACCES || own == -EROFS || own == -EPERM || own == -ETXTBSY) {
			want = O_RDONLY;
			own = os_reopen(fd, want);
		}
	} else {
		own = os_reopen(fd, want);
	}
	if (own >= 0) {
		*oflags = want;
		return own;
	}
	if ((flags & O_PATH) || ((flags & O_APPEND) && (flags & O_ACCMODE) != O_RDONLY)) {
		log_warn(log, "descriptor %d cannot be reopened through /proc (%s): %s", fd, strerror(-own),
			 flags & O_PATH ? "an O_PATH descriptor cannot be read" :
					  "O_APPEND would ignore the offsets of writes");
		return -ENOTSUP;
	}
	/* Usable as it is: O_DIRECT, O_NONBLOCK, or O_APPEND for reading only. */
	return os_dup(fd);
}

int file_endpoint_import(const struct log_sink *log, int fd, uint32_t flags, struct strait_endpoint **ret)
{
	struct stat st;
	struct file *f;
	int rc, oflags;

	rc = check_flags(flags);
	if (rc)
		return rc;
	oflags = os_get_flags(fd);
	if (oflags < 0)
		return oflags;
	rc = os_fstat(fd, &st);
	if (rc)
		return rc;
	rc = check_type(log, &st);
	if (rc)
		return rc;
	if ((oflags & O_DIRECT) && !(flags & STRAIT_FILE_BUFFERED))
		flags |= STRAIT_FILE_DIRECT;
	f = file_new(flags);
	if (!f)
		return -ENOMEM;
	rc = own_descriptor(log, fd, &oflags);
	if (rc < 0)
		goto destroy;
	f->fd = rc;
	rc = file_finish(f, &st, NULL, oflags, ret);
	if (rc)
		goto destroy;
	return 0;
destroy:
	f->ep.ops->destroy(&f->ep);
	return rc;
}
