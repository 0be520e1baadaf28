/* SPDX-License-Identifier: MIT */
#ifndef OS_RING_H
#define OS_RING_H

/* io_uring, as far as the library needs it. A ring is used by one thread at a time. */

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

/* Queue one request; -EAGAIN when the ring is full. @tag comes back with its result. */
int os_ring_read(struct os_ring *ring, int fd, void *buf, size_t len, uint64_t off, void *tag);
int os_ring_write(struct os_ring *ring, int fd, const void *buf, size_t len, uint64_t off, void *tag);
/* A command of the driver behind @fd, as its header lays it out. */
int os_ring_command(struct os_ring *ring, int fd, const struct os_command *cmd, void *tag);

/*
 * Hand what is queued to the kernel, in order: how many were handed over, or a negative errno for none.
 * What was not handed over never runs if the ring is closed before another submit.
 */
int os_ring_submit(struct os_ring *ring);

/*
 * Take one result: 1 with @tag and @res (bytes or negative errno), 0 when none came within
 * @timeout_ns. Waits only for requests that os_ring_submit() handed over. -EAGAIN in @res: nothing was done, the
 * same by a plain call will do.
 */
int os_ring_take(struct os_ring *ring, int64_t timeout_ns, void **tag, ssize_t *res);

#endif
