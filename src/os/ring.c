/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "os/inject.h"
#include "os/ring.h"

struct os_ring {
	struct io_uring uring;
};

int os_ring_open(unsigned int depth, struct os_ring **ret)
{
	struct os_ring *ring;
	int rc;

	OS_POINT(OS_RING_SETUP);
	ring = calloc(1, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	rc = io_uring_queue_init(depth, &ring->uring, 0);
	if (rc) {
		free(ring);
		return rc;
	}
	/* The rings belong to the parent: do not map them in a forked child. */
	io_uring_ring_dontfork(&ring->uring);
	*ret = ring;
	return 0;
}

void os_ring_close(struct os_ring *ring)
{
	if (!ring)
		return;
	io_uring_queue_exit(&ring->uring);
	free(ring);
}

int os_ring_read(struct os_ring *ring, int fd, void *buf, size_t len, uint64_t off, void *tag)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);

	if (!sqe)
		return -EAGAIN;
	io_uring_prep_read(sqe, fd, buf, (unsigned int)len, off);
	io_uring_sqe_set_data(sqe, tag);
	return 0;
}

int os_ring_write(struct os_ring *ring, int fd, const void *buf, size_t len, uint64_t off, void *tag)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);

	if (!sqe)
		return -EAGAIN;
	io_uring_prep_write(sqe, fd, buf, (unsigned int)len, off);
	io_uring_sqe_set_data(sqe, tag);
	return 0;
}

int os_ring_command(struct os_ring *ring, int fd, const struct os_command *cmd, void *tag)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);

	if (!sqe)
		return -EAGAIN;
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = cmd->op;
	sqe->addr = cmd->address;
	sqe->len = cmd->length;
	sqe->file_index = (uint32_t)cmd->file;
	memcpy(&sqe->addr3, cmd->args, sizeof(cmd->args));
	io_uring_sqe_set_data(sqe, tag);
	return 0;
}

int os_ring_submit(struct os_ring *ring)
{
	int done = 0;

	OS_POINT(OS_RING_SUBMIT);
	while (io_uring_sq_ready(&ring->uring)) {
		int rc = io_uring_submit(&ring->uring);

		if (rc == -EINTR)
			continue;
		if (rc <= 0)
			return done ? done : rc ? rc : -EIO;
		done += rc;
	}
	return done;
}

int os_ring_take(struct os_ring *ring, int64_t timeout_ns, void **tag, ssize_t *res)
{
	struct io_uring_cqe *cqe;
	int64_t injected;
	int rc;

	rc = io_uring_peek_cqe(&ring->uring, &cqe);
	while (rc == -EAGAIN && timeout_ns > 0) {
		if (timeout_ns == INT64_MAX) {
			rc = io_uring_wait_cqe(&ring->uring, &cqe);
		} else {
			struct __kernel_timespec ts = { timeout_ns / 1000000000, timeout_ns % 1000000000 };

			rc = io_uring_wait_cqe_timeout(&ring->uring, &cqe, &ts);
			timeout_ns = 0;
		}
		if (rc == -EINTR)
			rc = -EAGAIN;
	}
	if (rc)
		return 0;
	*tag = io_uring_cqe_get_data(cqe);
	*res = cqe->res;
	io_uring_cqe_seen(&ring->uring, cqe);
	if (os_inject && os_inject(OS_RING_RESULT, &injected))
		*res = (ssize_t)injected;
	/* We never cancel: io-wq could not start a worker. Report -EAGAIN so that the caller does it synchronously. */
	if (*res == -ECANCELED)
		*res = -EAGAIN;
	return 1;
}
