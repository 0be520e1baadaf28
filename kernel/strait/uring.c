// SPDX-License-Identifier: GPL-2.0 OR MIT
/* File I/O as commands of io_uring: submitted without waiting, finished in the submitter's task. */
#include <linux/fs.h>
#include <linux/refcount.h>

#include "core.h"
#include "window.h"

/*
 * One command. The submitter has a hold while it submits, and what completes it has one: a write to a
 * block device looks at the iterator after it was queued, which may be after it has ended.
 */
struct uring_io {
	struct kiocb kiocb;
	struct iov_iter iter;
	struct strait_ioc_io req;
	struct strait_io_scene scene;
	struct io_uring_cmd *cmd;
	refcount_t holds;
	ssize_t result;
	struct work_struct retry;
};

static void finish(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct uring_io *io = *io_uring_cmd_to_pdu(cmd, struct uring_io *);
	ssize_t result = io->result;

	strait_window(STRAIT_W_FINISH);
	strait_io_end(&io->req, &io->scene, result);
	kfree(io);
	compat_uring_done(cmd, result, issue_flags);
}
COMPAT_URING_TASK_WORK(finish);

/* The last of the two: nobody looks at it any more. */
static void put(struct uring_io *io)
{
	if (!refcount_dec_and_test(&io->holds))
		return;
	strait_window_spin(STRAIT_W_COMPLETE);
	/* Some of what may not wait finds out only below that it would have to. */
	if (io->result == -EAGAIN && (io->kiocb.ki_flags & IOCB_NOWAIT))
		queue_work(strait_wq, &io->retry);
	else
		io_uring_cmd_complete_in_task(io->cmd, finish_task_work);
}

/* Called in interrupts too, and only for what was queued. */
static void complete_io(struct kiocb *kiocb, long result)
{
	struct uring_io *io = container_of(kiocb, struct uring_io, kiocb);

	if (io->req.op == STRAIT_OP_WRITE)
		kiocb_end_write(kiocb);
	io->result = result;
	put(io);
}

static ssize_t submit(struct uring_io *io, bool nowait)
{
	ssize_t n;

	refcount_set(&io->holds, 2);
	init_sync_kiocb(&io->kiocb, io->scene.file);
	io->kiocb.ki_complete = complete_io;
	io->kiocb.ki_pos = io->req.file_offset;
	io->kiocb.ki_flags |= IOCB_DIRECT | (nowait ? IOCB_NOWAIT : 0);
	n = strait_io_submit(&io->req, &io->scene, &io->kiocb, &io->iter);
	if (n == -EIOCBQUEUED)
		put(io);
	return n;
}

static void retry(struct work_struct *work)
{
	struct uring_io *io = container_of(work, struct uring_io, retry);
	ssize_t n;

	strait_count(STRAIT_N_RETRIED, 1);
	strait_window(STRAIT_W_RETRY);
	n = submit(io, false);
	if (n == -EIOCBQUEUED)
		return;
	io->result = n;
	io_uring_cmd_complete_in_task(io->cmd, finish_task_work);
}

/* What the ring holds belongs to the program, which may change it at any time: it is read once. */
static int read_command(const struct io_uring_cmd *cmd, struct strait_ioc_io *req)
{
	const struct io_uring_sqe *sqe = cmd->sqe;
	const struct strait_uring *args = (const void *)sqe->cmd;
	u64 handle = READ_ONCE(sqe->addr);

	if (cmd->cmd_op != STRAIT_URING_READ && cmd->cmd_op != STRAIT_URING_WRITE)
		return -EOPNOTSUPP;
	if (cmd->flags & COMPAT_URING_USER_FLAGS || handle > U32_MAX)
		return -EINVAL;
	*req = (struct strait_ioc_io){
		.handle = handle,
		.fd = READ_ONCE(sqe->file_index),
		.op = cmd->cmd_op == STRAIT_URING_READ ? STRAIT_OP_READ : STRAIT_OP_WRITE,
		.file_offset = READ_ONCE(args->file_offset),
		.region_offset = READ_ONCE(args->region_offset),
		.length = READ_ONCE(sqe->len),
	};
	return 0;
}

static int begin(struct strait_file *f, struct io_uring_cmd *cmd, struct uring_io **ret)
{
	struct uring_io *io;
	int rc;

	io = strait_zalloc(sizeof(*io));
	if (!io)
		return -ENOMEM;
	rc = read_command(cmd, &io->req);
	if (!rc)
		rc = strait_io_begin(f, &io->req, &io->scene);
	if (rc) {
		kfree(io);
		return rc;
	}
	INIT_WORK(&io->retry, retry);
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

	rc = begin(cmd->file->private_data, cmd, &io);
	if (rc)
		return rc;
	/* -EAGAIN: the ring calls again from where it may wait. */
	n = nowait && !(io->scene.file->f_mode & FMODE_NOWAIT) ? -EAGAIN : submit(io, nowait);
	if (n == -EIOCBQUEUED)
		return n;
	strait_io_end(&io->req, &io->scene, n);
	kfree(io);
	return n;
}
