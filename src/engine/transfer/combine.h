/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_COMBINE_H
#define ENGINE_TRANSFER_COMBINE_H

/*
 * Combining: copies of callers on several threads become one list of marked copies. A copy engine takes some microseconds for
 * each copy beside its bytes, and the driver as long for each submission; a list has that cost once.
 *
 * A caller makes a group for its transfer, starts a request for each piece of it, and waits for the group:
 *
 *   PENDING    on the combiner's stack, owned by the combiner
 *   TAKEN      by the leader, the thread that holds the lock
 *   SUBMITTED  or failed, with the reason in the group: no other thread accesses the request again
 *
 * The caller whose request is the first on an empty stack leads: it takes the lock, then all that is pending by then, and
 * submits it. So what callers start while a leader is in the driver becomes the next list. Other callers go on at once. A
 * leader waits for the lock and for the driver, never for the device or another caller. One with a short transfer spins for
 * the lock; one with a long transfer may sleep, which makes the lists longer and the submissions fewer.
 *
 * A request may not end before it was taken and, if submitted, the device is done. The device writes the mark of the group's
 * stream when all bytes of the group are copied, which implies both; callers poll it. If it is late, or the group failed, the
 * caller leads once more, so that none of its requests is pending, and waits for the streams of its context.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "device/provider.h"

#define COMBINE_CONTEXTS 4
#define COMBINE_STREAMS 4
#define COMBINE_BROKEN 16

struct lane_stream;
struct copy_group;

struct copy_request {
	struct copy_request *next;
	struct copy_group *group;
	struct copy_seg seg;
	uint32_t filler; /* of a segment of length 0, see struct marked_copy */
};

/* The copies of one transfer. */
struct copy_group {
	struct lane_stream *ls;	 /* of the caller; its mark is written */
	uint32_t total, started; /* bytes */
	atomic_int err;		 /* why a request was not submitted */
	int32_t device_status;	 /* set before @err */
};

/* Streams on which lists run, in turn. */
struct combine_slot {
	uintptr_t context; /* 0: not used */
	struct lane_stream *ls[COMBINE_STREAMS];
	unsigned int next;
};

struct combiner {
	_Atomic(struct copy_request *) pending;
	pthread_mutex_t lock; /* protects the members below */
	struct combine_slot slot[COMBINE_CONTEXTS];
	struct lane_stream *broken[COMBINE_BROKEN]; /* a waiter may use them: closed with the device */
	atomic_uint n_broken;
};

void combiner_init(struct combiner *c);
void combiner_fini(struct combiner *c, struct strait_device *dev);

/*
 * Makes a group of @total bytes, not 0. @ls is the caller's until combine_wait() has returned. -EAGAIN: copy without the
 * combiner.
 */
int combine_begin(struct strait_device *dev, struct lane_stream *ls, uint64_t total, struct copy_group *g);
/* Starts a copy. @r and its memory are in use until combine_wait() returns. */
void combine_start(struct strait_device *dev, struct copy_group *g, struct copy_request *r, struct copy_seg seg);
/* Waits for the copies. If fewer bytes were started than the group has, @r is used for the rest. Returns their status. */
int combine_wait(struct strait_device *dev, struct copy_group *g, struct copy_request *r);

#endif
