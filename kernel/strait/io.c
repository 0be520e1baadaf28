// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Bytes between a file and a region. */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/overflow.h>
#include <linux/uio.h>

#include "core.h"
#include "trace.h"

static bool io_file_allows(struct file *file, u32 op)
{
	return file->f_mode & (op == STRAIT_OP_READ ? FMODE_READ : FMODE_WRITE);
}

/* What a request works on: a region's memory and a file. */
static int scene_open(struct strait_file *f, u32 handle, int fd, u32 op, struct strait_io_scene *s)
{
	struct strait_region *r;
	int rc;

	r = strait_region_find(f, handle);
	if (!r)
		return -ENOENT;
	rc = strait_region_use(r, &s->backing);
	strait_region_put(r);
	if (rc)
		return rc;
	s->file = fget(fd);
	if (!s->file || !io_file_allows(s->file, op)) {
		strait_scene_close(s);
		return -EBADF;
	}
	return 0;
}

static void scene_put_memory(struct strait_io_scene *s)
{
	struct strait_backing *b = s->backing;

	s->backing = NULL;
	strait_backing_unuse(b);
	strait_backing_put(b);
}

void strait_scene_close(struct strait_io_scene *s)
{
	if (s->file)
		fput(s->file);
	if (s->backing)
		scene_put_memory(s);
}

long strait_io_check(struct strait_file *f, struct strait_ioc_check *req)
{
	struct strait_io_scene s = { };
	struct strait_verdict v;
	int rc;

	if (req->flags || req->reserved || req->op > STRAIT_OP_WRITE)
		return -EINVAL;
	rc = scene_open(f, req->handle, req->fd, req->op, &s);
	if (rc)
		return rc;
	strait_judge(s.backing, s.file, req->op, &v);
	req->reason = v.reason;
	req->offset_align = v.offset_align;
	req->mem_align = v.mem_align;
	req->distance = v.distance;
	memset(req->drive, 0, sizeof(req->drive));
	if (v.drive)
		strscpy(req->drive, pci_name(v.drive), sizeof(req->drive));
	strait_scene_close(&s);
	return 0;
}

static int io_check_range(const struct strait_ioc_io *req)
{
	u64 end;

	if (req->flags || req->op > STRAIT_OP_WRITE || !req->length || req->length > STRAIT_IO_MAX)
		return -EINVAL;
	if (check_add_overflow(req->file_offset, req->length, &end) || end > MAX_LFS_FILESIZE)
		return -EINVAL;
	return check_add_overflow(req->region_offset, req->length, &end) ? -EINVAL : 0;
}

static int io_refuse(const struct strait_ioc_io *req, u32 reason)
{
	trace_strait_refuse(req->handle, req->op, req->file_offset, req->region_offset, req->length,
			    reason);
	strait_count(STRAIT_N_REFUSED, 1);
	return reason == STRAIT_REASON_ALIGNMENT ? -EINVAL : -EOPNOTSUPP;
}

/*
 * What a request needs before it may begin. Misaligned direct I/O is refused by some file systems and
 * turned into buffered I/O by others: so it is found out here.
 */
int strait_io_begin(struct strait_file *f, struct strait_ioc_io *req, struct strait_io_scene *s)
{
	struct strait_verdict v;
	int rc;

	req->reason = STRAIT_REASON_NONE;
	rc = io_check_range(req);
	if (rc)
		return rc;
	rc = scene_open(f, req->handle, req->fd, req->op, s);
	if (rc)
		return rc;
	rc = -EINVAL;
	if (req->region_offset + req->length > s->backing->length)
		goto err_close;
	strait_judge(s->backing, s->file, req->op, &v);
	if (!v.reason && ((req->file_offset | req->length) % v.offset_align || req->region_offset % v.mem_align))
		v.reason = STRAIT_REASON_ALIGNMENT;
	if (v.reason) {
		req->reason = v.reason;
		rc = io_refuse(req, v.reason);
		goto err_close;
	}
	strait_count(STRAIT_N_IN_FLIGHT, 1);
	return 0;
err_close:
	strait_scene_close(s);
	return rc;
}

void strait_io_end(const struct strait_ioc_io *req, struct strait_io_scene *s, ssize_t result)
{
	trace_strait_io(req->handle, req->op, req->file_offset, req->region_offset, req->length, result);
	if (result >= 0) {
		strait_count(req->op == STRAIT_OP_READ ? STRAIT_N_READS : STRAIT_N_WRITES, 1);
		strait_count(req->op == STRAIT_OP_READ ? STRAIT_N_READ_BYTES : STRAIT_N_WRITTEN_BYTES,
			     result);
	}
	strait_count(STRAIT_N_IN_FLIGHT, -1);
	scene_put_memory(s);
}

ssize_t strait_io_submit(const struct strait_ioc_io *req, struct strait_io_scene *s, struct kiocb *kiocb,
			 struct iov_iter *iter)
{
	bool read = req->op == STRAIT_OP_READ;

	strait_backing_iter(s->backing, req->region_offset, req->length, read ? ITER_DEST : ITER_SOURCE,
			    iter);
	return read ? vfs_iocb_iter_read(s->file, kiocb, iter) : vfs_iocb_iter_write(s->file, kiocb, iter);
}

long strait_io(struct strait_file *f, struct strait_ioc_io *req)
{
	struct strait_io_scene s = { };
	struct iov_iter iter;
	struct kiocb kiocb;
	ssize_t n;
	int rc;

	rc = strait_io_begin(f, req, &s);
	if (rc)
		return rc;
	init_sync_kiocb(&kiocb, s.file);
	kiocb.ki_pos = req->file_offset;
	kiocb.ki_flags |= IOCB_DIRECT;
	n = strait_io_submit(req, &s, &kiocb, &iter);
	strait_io_end(req, &s, n);
	strait_scene_close(&s);
	if (n < 0)
		return n;
	req->done = n;
	return 0;
}
