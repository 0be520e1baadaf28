/* SPDX-License-Identifier: MIT */
#ifndef OS_RING_H
#define OS_RING_H

/* A small interface to io_uring. A ring is used by one thread at a time. */

#include <stdint.h>
#include <sys/types.h>

struct os_ring;

struct os_command {
	uint32_t op;
	uint32_t length;
	uint64_t address;
	int file;
	uint64_t args[2];
};

int os_ring_open(unsigned int depth, struct os_ring **ret);
void os_ring_close(struct os_ring *ring);

/* Queue one request; -EAGAIN when the ring is full. @tag is returned with its result. */
int os_ring_read(struct os_ring *ring, int fd, void *buf, size_t len, uint64_t off, void *tag);
int os_ring_write(struct os_ring *ring, int fd, const void *buf, size_t len, uint64_t off, void *tag);
/* IORING_OP_URING_CMD: a command of the driver of @fd. */
int os_ring_command(struct os_ring *ring, int fd, const struct os_command *cmd, void *tag);

/*
 * Submit queued requests in order: how many were submitted, or a negative errno if none was. A request that was not
 * submitted never runs if the ring is closed before the next submission.
 */
int os_ring_submit(struct os_ring *ring);

/*
 * Reap one completion: 1 with @tag and @res (bytes or negative errno), 0 if none arrives within @timeout_ns. Waits only
 * for submitted requests. -EAGAIN in @res: the request was not executed; do it synchronously.
 */
int os_ring_take(struct os_ring *ring, int64_t timeout_ns, void **tag, ssize_t *res);

#endif
