/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_NVME_ENDPOINT_H
#define ENDPOINT_NVME_ENDPOINT_H

/* A namespace as an endpoint of transfers. */

#include "endpoint/nvme/nvme.h"

struct namespace
{
	struct strait_endpoint ep;
	struct strait_nvme *ctrl;
	uint32_t nsid;
	uint32_t lba_shift;
	uint32_t generation;
	_Atomic uint64_t length;
	_Atomic uint32_t epoch; /* of the controller's list when length was right */
	_Atomic int gone;	/* 0, or what everything gets */
	pthread_mutex_t lock;	/* protects @holds */
	pthread_cond_t freed;
	struct list holds; /* struct hold */
	_Atomic uint64_t edge_reads, edge_writes, direct_bytes, bounced_bytes;
};

/*
 * A part of the namespace that is being written. Who writes a part of a block reads the rest of it first,
 * and has it alone until it is written back: a write of the whole block in between would be undone.
 */
struct range_lock {
	struct list node;
	uint64_t start, end;
	bool alone;
};

static inline struct namespace *to_namespace(struct strait_endpoint *ep)
{
	return container_of(ep, struct namespace, ep);
}

/* hold.c */
void range_lock_get(struct namespace *n, struct range_lock *h, uint64_t off, uint64_t len, bool alone);
void range_lock_put(struct namespace *n, struct range_lock *h);
/* For who does not want it alone: false if it had to wait. */
bool range_lock_try(struct namespace *n, struct range_lock *h, uint64_t off, uint64_t len);

/* bounce.c: any byte offset, by way of memory of the controller's own. */
ssize_t namespace_read(struct strait_endpoint *ep, enum io_mode mode, void *buf, size_t len, uint64_t off);
ssize_t namespace_write(struct strait_endpoint *ep, enum io_mode mode, const void *buf, size_t len, uint64_t off);

/* endpoint.c: is it still there, and how long? A job on it. */
int namespace_look(struct namespace *n, uint64_t *length);
struct nvme_job namespace_job(const struct namespace *n, bool write);
/* What @m says, for a job: its memory mapped. And when that is over, with @done bytes: how many of them are good. */
int namespace_prepare(struct namespace *n, const struct endpoint_io *m, struct nvme_job *job);
uint64_t namespace_io_result(struct namespace *n, const struct strait_nvme_map *map, struct endpoint_io *m,
			     const struct nvme_job *job, uint64_t done);

/* batch.c */
int namespace_batch_open(struct strait_endpoint *ep, unsigned int *room, struct endpoint_batch **ret);
int namespace_batch_start(struct endpoint_batch *b, struct endpoint_io_async *f);
unsigned int namespace_batch_reap(struct endpoint_batch *b, struct endpoint_io_async **completed, unsigned int max);
void namespace_batch_wake(struct endpoint_batch *b);
void namespace_batch_close(struct endpoint_batch *b);

#endif
