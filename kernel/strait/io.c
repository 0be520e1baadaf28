// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Requests that move bytes between a file and a region. */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/overflow.h>
#include <linux/uio.h>

#include "backing.h"
#include "core.h"
#include "io.h"
#include "region.h"
#include "trace.h"

static bool io_file_allows(struct file *file, u32 op)
{
	return file->f_mode & (op == STRAIT_OP_READ ? FMODE_READ : FMODE_WRITE);
}

static int io_request_open(struct strait_file *f, u32 handle, int fd, u32 op,
			   struct strait_io_request *req)
{
	struct strait_region *r;
	int rc;

	r = strait_region_find(f, handle);
	if (!r)
		return -ENOENT;
	rc = strait_region_use(r, &req->backing);
	strait_region_put(r);
	if (rc)
		return rc;
	req->file = fget(fd);
	if (!req->file || !io_file_allows(req->file, op)) {
		strait_io_request_close(req);
		return -EBADF;
	}
	return 0;
}

static void io_request_put_backing(struct strait_io_request *req)
{
	struct strait_backing *b = req->backing;

	req->backing = NULL;
	strait_backing_unuse(b);
	strait_backing_put(b);
}

void strait_io_request_close(struct strait_io_request *req)
{
	if (req->file)
		fput(req->file);
	if (req->backing)
		io_request_put_backing(req);
}

long strait_io_check(struct strait_file *f, struct strait_ioc_check *args)
{
	struct strait_io_request req = { };
	struct strait_eligibility e;
	int rc;

	if (args->flags || args->reserved || args->op > STRAIT_OP_WRITE)
		return -EINVAL;
	rc = io_request_open(f, args->handle, args->fd, args->op, &req);
	if (rc)
		return rc;
	strait_check_eligibility(req.backing, req.file, args->op, &e);
	args->reason = e.reason;
	args->offset_align = e.offset_align;
	args->mem_align = e.mem_align;
	args->distance = e.distance;
	memset(args->drive, 0, sizeof(args->drive));
	if (e.drive)
		strscpy(args->drive, pci_name(e.drive), sizeof(args->drive));
	strait_io_request_close(&req);
	return 0;
}

static int io_check_range(const struct strait_ioc_io *args)
{
	u64 end;

	if (args->flags || args->op > STRAIT_OP_WRITE)
		return -EINVAL;
	if (!args->length || args->length > STRAIT_IO_MAX)
		return -EINVAL;
	if (check_add_overflow(args->file_offset, args->length, &end) || end > MAX_LFS_FILESIZE)
		return -EINVAL;
	return check_add_overflow(args->region_offset, args->length, &end) ? -EINVAL : 0;
}

static int io_refuse(const struct strait_ioc_io *args, u32 reason)
{
	trace_strait_refuse(args->handle, args->op, args->file_offset, args->region_offset,
			    args->length, reason);
	strait_count(STRAIT_N_REFUSED, 1);
	return reason == STRAIT_REASON_ALIGNMENT ? -EINVAL : -EOPNOTSUPP;
}

/*
 * Some file systems refuse misaligned direct I/O, others turn it into buffered I/O: check it here.
 */
static u32 io_check_alignment(const struct strait_ioc_io *args, const struct strait_eligibility *e)
{
	if ((args->file_offset | args->length) % e->offset_align ||
	    args->region_offset % e->mem_align)
		return STRAIT_REASON_ALIGNMENT;
	return STRAIT_REASON_NONE;
}

int strait_io_begin(struct strait_file *f, struct strait_ioc_io *args,
		    struct strait_io_request *req)
{
	struct strait_eligibility e;
	int rc;

	args->reason = STRAIT_REASON_NONE;
	rc = io_check_range(args);
	if (rc)
		return rc;
	rc = io_request_open(f, args->handle, args->fd, args->op, req);
	if (rc)
		return rc;
	rc = -EINVAL;
	if (args->region_offset + args->length > req->backing->length)
		goto err_close;
	strait_check_eligibility(req->backing, req->file, args->op, &e);
	if (!e.reason)
		e.reason = io_check_alignment(args, &e);
	if (e.reason) {
		args->reason = e.reason;
		rc = io_refuse(args, e.reason);
		goto err_close;
	}
	strait_count(STRAIT_N_IN_FLIGHT, 1);
	return 0;
err_close:
	strait_io_request_close(req);
	return rc;
}

void strait_io_end(const struct strait_ioc_io *args, struct strait_io_request *req,
		   ssize_t result)
{
	bool read = args->op == STRAIT_OP_READ;

	trace_strait_io(args->handle, args->op, args->file_offset, args->region_offset,
			args->length, result);
	if (result >= 0) {
		strait_count(read ? STRAIT_N_READS : STRAIT_N_WRITES, 1);
		strait_count(read ? STRAIT_N_READ_BYTES : STRAIT_N_WRITTEN_BYTES, result);
	}
	strait_count(STRAIT_N_IN_FLIGHT, -1);
	io_request_put_backing(req);
}

ssize_t strait_io_submit(const struct strait_ioc_io *args, struct strait_io_request *req,
			 struct kiocb *kiocb, struct iov_iter *iter)
{
	bool read = args->op == STRAIT_OP_READ;

	strait_backing_iter(req->backing, args->region_offset, args->length,
			    read ? ITER_DEST : ITER_SOURCE, iter);
	if (read)
		return vfs_iocb_iter_read(req->file, kiocb, iter);
	return vfs_iocb_iter_write(req->file, kiocb, iter);
}

long strait_io(struct strait_file *f, struct strait_ioc_io *args)
{
	struct strait_io_request req = { };
	struct iov_iter iter;
	struct kiocb kiocb;
	ssize_t n;
	int rc;

	rc = strait_io_begin(f, args, &req);
	if (rc)
		return rc;
	init_sync_kiocb(&kiocb, req.file);
	kiocb.ki_pos = args->file_offset;
	kiocb.ki_flags |= IOCB_DIRECT;
	n = strait_io_submit(args, &req, &kiocb, &iter);
	strait_io_end(args, &req, n);
	strait_io_request_close(&req);
	if (n < 0)
		return n;
	args->done = n;
	return 0;
}
