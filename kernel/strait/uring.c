// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * File I/O as io_uring commands, submitted without waiting. The completion drops the backing in the
 * context in which it comes, often an interrupt. Only dropping the file and posting the CQE are
 * left to task work of the submitter.
 */
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/io_uring/cmd.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>

#include "core.h"
#include "file.h"
#include "io.h"
#include "window.h"

/*
 * One command. Referenced by the submitter while it submits and by the completion: a write to a
 * block device reads the iterator after it queued the I/O, which may have completed by then.
 */
struct uring_io {
	struct kiocb kiocb;
	struct iov_iter iter;
	struct strait_ioc_io args;
	struct strait_io_request req;
	struct io_uring_cmd *cmd;
	const struct cred *cred;	/* the submitter's, for resubmission */
	refcount_t refs;
	ssize_t result;
	struct work_struct retry;
};

static void uring_free(struct uring_io *io)
{
	strait_io_request_close(&io->req);
	put_cred(io->cred);
	kfree(io);
}

static void uring_finish(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct uring_io *io = *io_uring_cmd_to_pdu(cmd, struct uring_io *);
	ssize_t result = io->result;

	strait_window(STRAIT_W_FINISH);
	uring_free(io);
	compat_uring_done(cmd, result, issue_flags);
}

COMPAT_URING_TASK_WORK(uring_finish);

/* Called in interrupts too. Drops the backing here: task work may run much later. */
static void uring_end(struct uring_io *io)
{
	strait_io_end(&io->args, &io->req, io->result);
	io_uring_cmd_complete_in_task(io->cmd, uring_finish_task_work);
}

/*
 * IOCB_NOWAIT may still complete with -EAGAIN, where a block device's queue is full. A worker does
 * not have the submitter's RLIMIT_FSIZE, so a write to a regular file is not resubmitted: its
 * submitter gets -EAGAIN. ext4 and XFS do not complete one with it, as they do not set REQ_NOWAIT.
 */
static bool uring_must_retry(const struct uring_io *io)
{
	return io->result == -EAGAIN && (io->kiocb.ki_flags & IOCB_NOWAIT) &&
	       (io->args.op == STRAIT_OP_READ || !S_ISREG(file_inode(io->req.file)->i_mode));
}

static void uring_put(struct uring_io *io)
{
	if (!refcount_dec_and_test(&io->refs))
		return;
	strait_window_spin(STRAIT_W_COMPLETE);
	if (uring_must_retry(io))
		queue_work(strait_retry_wq, &io->retry);
	else
		uring_end(io);
}

/* ki_complete of queued I/O. Called in interrupts too. */
static void uring_complete(struct kiocb *kiocb, long result)
{
	struct uring_io *io = container_of(kiocb, struct uring_io, kiocb);

	if (io->args.op == STRAIT_OP_WRITE)
		kiocb_end_write(kiocb);
	io->result = result;
	uring_put(io);
}

static ssize_t uring_submit(struct uring_io *io, bool nowait)
{
	ssize_t n;

	refcount_set(&io->refs, 2);
	init_sync_kiocb(&io->kiocb, io->req.file);
	io->kiocb.ki_complete = uring_complete;
	io->kiocb.ki_pos = io->args.file_offset;
	io->kiocb.ki_flags |= IOCB_DIRECT | (nowait ? IOCB_NOWAIT : 0);
	n = strait_io_submit(&io->args, &io->req, &io->kiocb, &io->iter);
	if (n == -EIOCBQUEUED)
		uring_put(io);
	return n;
}

/* Resubmits with the submitter's credentials: a worker has the kernel's. */
static void uring_retry_work(struct work_struct *work)
{
	struct uring_io *io = container_of(work, struct uring_io, retry);
	const struct cred *old;
	ssize_t n;

	strait_count(STRAIT_N_RETRIED, 1);
	strait_window(STRAIT_W_RETRY);
	old = override_creds(io->cred);
	n = uring_submit(io, false);
	revert_creds(old);
	if (n == -EIOCBQUEUED)
		return;
	io->result = n;
	uring_end(io);
}

/* The program may change the SQE at any time: each field is read once. */
static int uring_read_sqe(const struct io_uring_cmd *cmd, struct strait_ioc_io *args)
{
	const struct io_uring_sqe *sqe = cmd->sqe;
	const struct strait_uring *payload = (const void *)sqe->cmd;
	u64 handle = READ_ONCE(sqe->addr);

	if (cmd->cmd_op != STRAIT_URING_READ && cmd->cmd_op != STRAIT_URING_WRITE)
		return -EOPNOTSUPP;
	if (cmd->flags & COMPAT_URING_USER_FLAGS || handle > U32_MAX)
		return -EINVAL;
	*args = (struct strait_ioc_io){
		.handle = handle,
		.fd = READ_ONCE(sqe->file_index),
		.op = cmd->cmd_op == STRAIT_URING_READ ? STRAIT_OP_READ : STRAIT_OP_WRITE,
		.file_offset = READ_ONCE(payload->file_offset),
		.region_offset = READ_ONCE(payload->region_offset),
		.length = READ_ONCE(sqe->len),
	};
	return 0;
}

static int uring_begin(struct strait_file *f, struct io_uring_cmd *cmd, struct uring_io **ret)
{
	struct uring_io *io;
	int rc;

	io = strait_zalloc(sizeof(*io));
	if (!io)
		return -ENOMEM;
	rc = uring_read_sqe(cmd, &io->args);
	if (!rc)
		rc = strait_io_begin(f, &io->args, &io->req);
	if (rc) {
		kfree(io);
		return rc;
	}
	INIT_WORK(&io->retry, uring_retry_work);
	io->cred = get_current_cred();
	io->cmd = cmd;
	*io_uring_cmd_to_pdu(cmd, struct uring_io *) = io;
	*ret = io;
	return 0;
}

int strait_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	bool nowait = issue_flags & IO_URING_F_NONBLOCK;
	struct uring_io *io;
	ssize_t n;
	int rc;

	rc = uring_begin(cmd->file->private_data, cmd, &io);
	if (rc)
		return rc;
	/* -EAGAIN: io_uring calls again from a context that may wait. */
	n = nowait && !(io->req.file->f_mode & FMODE_NOWAIT) ? -EAGAIN : uring_submit(io, nowait);
	if (n == -EIOCBQUEUED)
		return n;
	strait_io_end(&io->args, &io->req, n);
	uring_free(io);
	return n;
}
