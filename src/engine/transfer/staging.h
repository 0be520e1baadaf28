/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_STAGING_H
#define ENGINE_TRANSFER_STAGING_H

#include <pthread.h>
#include <stdint.h>

#include "device/provider.h"

/*
 * Pinned staging memory of one device, cut into chunks and shared by all transfers of a context.
 *
 * Nothing waits for a chunk while it holds something another holder of chunks waits for (lane.c says
 * how; staging_try_spare()), so a pool of a single chunk is enough for any number of transfers. When transfers compete, none
 * gets more than its share.
 */
struct chunk {
	struct chunk *next;
	void *ptr;
	uint64_t dev_addr;
};

struct staging_pool {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	struct strait_device *dev;
	uint64_t chunk_bytes;
	uint64_t want_bytes;
	unsigned int n; /* 0 until first used */
	unsigned int users;
	unsigned int waiters;
	struct chunk *free;
	struct chunk *chunks;
	struct host_reg reg;
	_Atomic uint64_t *stat_waits;
	_Atomic uint64_t *stat_bytes;
};

/* One transfer's, or one batch's, use of the pool. */
struct staging_user {
	unsigned int held;
};

int staging_init(struct staging_pool *p, struct strait_device *dev, uint64_t bytes, uint64_t chunk_bytes);
void staging_fini(struct staging_pool *p);

/* Begin to use the pool; allocates and pins its memory the first time. */
int staging_enter(struct staging_pool *p, struct staging_user *u);
void staging_leave(struct staging_pool *p, struct staging_user *u);

/* NULL when none is free or the user has its share. */
struct chunk *staging_try(struct staging_pool *p, struct staging_user *u);
/*
 * The same, for a holder that needs a thread of the context to give the chunk back: NULL also when no other chunk is
 * free. So one chunk at least is always free or held by a thread that runs, and threads of the context that wait for a
 * chunk do not wait for each other.
 */
struct chunk *staging_try_spare(struct staging_pool *p, struct staging_user *u);
/* Wait a while for one: NULL after @timeout_ns. */
struct chunk *staging_wait(struct staging_pool *p, struct staging_user *u, int64_t timeout_ns);
void staging_put(struct staging_pool *p, struct staging_user *u, struct chunk *c);

#endif
