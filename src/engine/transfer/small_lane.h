/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_SMALL_LANE_H
#define ENGINE_TRANSFER_SMALL_LANE_H

/*
 * What a small transfer needs, ready to use: a staging buffer and a stream. A device has a fixed array of small lanes;
 * a caller claims one with an atomic exchange and mostly gets the one it had last, so callers on different threads share
 * no lock and no cache line.
 *
 * A lane is idle, or busy and owned by the caller that claimed it: only the owner touches its buffer and its stream. No
 * caller waits for a lane: if all are busy it takes a chunk of the staging pool instead.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "device/provider.h"

struct lane_stream;

#define SMALL_LANES 32

struct small_lane {
	_Alignas(64) atomic_bool busy;
	char *buf;
	uint64_t dev_addr;	/* of @buf */
	struct lane_stream *ls; /* NULL until the first use */
};

struct small_lanes {
	pthread_mutex_t lock; /* of the first use, which registers the buffers */
	atomic_uint n;	      /* lanes; 0 until the first use, or if there is no memory for any */
	bool tried;	      /* under @lock */
	uint64_t buf_bytes;
	uint64_t max_bytes; /* for all buffers */
	struct host_reg reg;
	struct small_lane lane[SMALL_LANES];
};

/* @max_bytes: what all buffers together may take. */
void small_lanes_init(struct small_lanes *l, struct strait_device *dev, uint64_t max_bytes);
void small_lanes_fini(struct small_lanes *l, struct strait_device *dev);

/*
 * Claims a lane with a stream that reaches @m. -EAGAIN: none is idle, or there are none. small_lane_put() ends the
 * claim; @broken: a copy on the stream failed, so it is not used again.
 */
int small_lane_get(struct strait_device *dev, const struct provider_mem *m, bool isolated, struct small_lane **ret);
void small_lane_put(struct strait_device *dev, struct small_lane *l, bool broken);

#endif
