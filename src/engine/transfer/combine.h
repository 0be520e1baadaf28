/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_COMBINE_H
#define ENGINE_TRANSFER_COMBINE_H

/*
 * Combining: copies of callers on several threads become one copy list. A copy engine takes some microseconds for each
 * copy beside its bytes, and the driver as long for each submission; a list has that cost once.
 *
 * A request is
 *
 *   PENDING    on the combiner's list, under its lock
 *   TAKEN      owned by the leader, the thread that submits lists; there is one at a time
 *   SUBMITTED  part of a list in flight, whose stream is @ls; or failed with @rc, and @ls is NULL
 *
 * A caller whose request finds no leader becomes the leader, submits what is pending, also what came meanwhile, and stops
 * leading: it never waits for the device. A pending request that the leader left behind is submitted by the next leader;
 * that is its owner at the latest, in combine_wait(). So callers wait for the leader, which waits for the driver only.
 * One member of a list at a time asks the device whether it is complete, the others poll what that one found. The last
 * member to see the end returns the stream.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "device/provider.h"

struct lane_stream;

struct combiner {
	pthread_mutex_t lock;
	struct list pending; /* struct copy_request.node */
	atomic_uint n_pending;
	atomic_uint in_flight; /* requests of submitted lists whose owners have not seen the end */
	atomic_bool leading;   /* a thread submits lists; changed under @lock */
};

enum copy_state { COPY_PENDING, COPY_TAKEN, COPY_SUBMITTED };

struct copy_request {
	struct list node;
	const struct provider_mem *mem; /* of the region that @seg writes to or reads from */
	struct copy_seg seg;
	atomic_int state; /* enum copy_state */
	struct lane_stream *ls;
	int rc;
	int32_t device_status;
};

/* The list in flight on a stream. */
struct copy_batch {
	atomic_uint members;  /* that have not seen its end */
	pthread_mutex_t lock; /* of the member that asks the driver */
	atomic_bool done;     /* @rc is its status; set under @lock */
	int rc;
};

void combiner_init(struct combiner *c);
void combiner_fini(struct combiner *c);

/* Starts a copy. The memory of @r and of the copy is in use until combine_wait() returns its status. */
void combine_start(struct strait_device *dev, struct copy_request *r);
int combine_wait(struct strait_device *dev, struct copy_request *r);

#endif
