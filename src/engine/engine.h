/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

/* The context: devices, the threads and memory that move data to them, counters. */

#include <pthread.h>
#include <stdatomic.h>

#include <strait/context.h>

#include "device/region.h"
#include "engine/endpoint.h"
#include "engine/p2p/p2p.h"
#include "engine/regcache/regcache.h"
#include "engine/stats.h"
#include "engine/stream/words.h"
#include "engine/transfer/combine.h"
#include "engine/transfer/small_lane.h"
#include "engine/transfer/staging.h"
#include "engine/workers.h"
#include "os/os.h"
#include "os/ring.h"

#define ENGINE_RINGS 32

/* The engine's state of one device. */
struct device_engine {
	struct staging_pool pool;
	pthread_mutex_t lock;
	struct list streams; /* idle struct lane_stream */
	struct list slots;   /* idle struct readahead_slot */
	struct words words;
	struct list broken_slots; /* whose stream failed: freed with the device */
	unsigned int n_slots;
	/* Lanes of mixed jobs that register windows now. Drivers register one at a time: more lanes would only wait. */
	atomic_uint registering;
	atomic_uint lanes;   /* of all jobs, on callers' threads and on workers */
	atomic_uint callers; /* threads that run transfers of at most a chunk now */
	struct combiner combiner;
	struct small_lanes small_lanes;
	struct task prepare;
	atomic_int preparing; /* prepare.h */
};

struct strait_context {
	atomic_uint refs;
	unsigned int fork_generation;
	struct log_sink log;
	uint32_t threads;
	uint64_t pool_bytes;  /* 0: the device's default */
	uint64_t chunk_bytes; /* 0: the device's default */
	uint32_t queue_depth;
	struct device_set set;
	struct workers workers;
	struct reg_cache reg_cache;
	struct stats stats;
	struct p2p p2p;
	pthread_mutex_t ring_lock;
	struct os_ring *rings[ENGINE_RINGS]; /* idle ones */
	unsigned int n_rings;
	int ring_error; /* why there is no io_uring, 0 while it works */
};

/* A stream and the events that go with it, borrowed from the device. */
struct lane_stream {
	struct list node;
	uintptr_t context;
	bool isolated;
	bool broken; /* a copy on it failed: close it instead of using it again */
	struct dev_stream *stream;
	struct dev_event *events[64]; /* idle ones */
	unsigned int n_events;
};

int engine_open(const struct strait_context_opts *opts, struct strait_context **ret);
/* Coalesced transfers are to be expected: see prepare_copy_lists. */
void engine_prepare_copy_lists(struct strait_context *ctx);
void engine_ref(struct strait_context *ctx);
void engine_unref(struct strait_context *ctx);

/* -EOWNERDEAD in a forked child. */
static inline int engine_alive(const struct strait_context *ctx)
{
	return ctx->fork_generation == os_fork_generation() ? 0 : -EOWNERDEAD;
}

static inline struct strait_context *device_context(const struct strait_device *dev)
{
	return dev->provider->set->owner;
}

static inline struct device_engine *device_engine(const struct strait_device *dev)
{
	return dev->engine;
}

/* Takes an idle ring, or opens one. NULL: io_uring is not available. */
struct os_ring *engine_ring_get(struct strait_context *ctx);
/* Makes the ring idle; closes a broken one. */
void engine_ring_put(struct strait_context *ctx, struct os_ring *ring, bool broken);

/* Takes an idle stream, or opens one. @isolated: a stream of the application waits for its copies. */
int engine_stream_get(struct strait_device *dev, const struct provider_mem *m, bool isolated, struct lane_stream **ret);
void engine_stream_put(struct strait_device *dev, struct lane_stream *ls, bool broken);
/* Opens another idle stream. */
int engine_stream_add(struct strait_device *dev, const struct provider_mem *m);
void engine_stream_free(struct strait_device *dev, struct lane_stream *ls);
int engine_event_get(struct lane_stream *ls, struct dev_event **ret);
void engine_event_put(struct lane_stream *ls, struct dev_event *e);

#endif
