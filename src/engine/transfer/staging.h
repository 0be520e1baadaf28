/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_STAGING_H
#define ENGINE_TRANSFER_STAGING_H

#include <pthread.h>
#include <stdint.h>

#include "base/list.h"
#include "device/provider.h"
#include "engine/workers.h"

/*
 * Pinned staging memory of one device, divided into chunks and shared by all transfers of a context.
 *
 * The first use allocates a small part of it, so that it does not wait for pinning all. When chunks run short a thread of
 * the pool's own adds the rest, slab by slab: once transfers of many bytes have used the pool, or one has waited for a chunk
 * for long. Pinning holds up driver calls of other threads, which few bytes are not worth.
 *
 * No thread waits for a chunk while it holds what another holder of chunks waits for (job.h, staging_try_spare()). So a
 * pool of one chunk is enough for any number of transfers. Transfers that compete get equal shares.
 */
struct chunk {
	struct list node; /* staging_pool.free; not on a list while it is held */
	void *ptr;
	uint64_t dev_addr;
	unsigned int slab, index; /* which one it is */
};

/* Memory that is allocated and registered at once. */
struct staging_slab {
	struct host_reg reg;
	struct chunk *chunks;
	uint64_t bytes;
};

#define STAGING_SLABS 40

struct staging_pool {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	struct strait_device *dev;
	struct workers *workers; /* they help the first user of the pool to fault memory in; NULL: none */
	uint64_t chunk_bytes;
	uint64_t want_bytes;
	unsigned int n; /* chunks, 0 until the first use */
	unsigned int users;
	unsigned int waiters;
	uint64_t moved; /* bytes of transfers that have used the pool */
	struct list free;
	struct staging_slab slab[STAGING_SLABS];
	unsigned int slabs;
	unsigned long thread;
	bool growing; /* the thread that adds slabs was started */
	bool stop;
	_Atomic uint64_t *stat_waits;
	_Atomic uint64_t *stat_bytes;
};

/* The use of the pool by one transfer or batch. */
struct staging_user {
	unsigned int held;
};

int staging_init(struct staging_pool *p, struct strait_device *dev, uint64_t bytes, uint64_t chunk_bytes);
void staging_fini(struct staging_pool *p);

/* Begins to use the pool. The first use allocates and pins a part of its memory. */
int staging_enter(struct staging_pool *p, struct staging_user *u);
void staging_leave(struct staging_pool *p, struct staging_user *u);
/* A transfer of so many bytes uses the pool. */
void staging_count(struct staging_pool *p, uint64_t bytes);
/* Many bytes are to be expected: the pool is completed as soon as chunks are short. */
void staging_expect(struct staging_pool *p);

/* NULL: none is free, or the user has its share. */
struct chunk *staging_try(struct staging_pool *p, struct staging_user *u);
/*
 * For a holder that needs a worker to put the chunk back: NULL also if it is the last free chunk. So one chunk at least is
 * always free or held by a running thread, and workers that wait for a chunk do not wait for each other.
 */
struct chunk *staging_try_spare(struct staging_pool *p, struct staging_user *u);
/* Waits for a chunk. NULL after @timeout_ns. */
struct chunk *staging_wait(struct staging_pool *p, struct staging_user *u, int64_t timeout_ns);
void staging_put(struct staging_pool *p, struct staging_user *u, struct chunk *c);

#endif
