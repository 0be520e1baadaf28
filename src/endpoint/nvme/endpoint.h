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
	_Atomic uint32_t epoch; /* ctrl.ns_epoch that @length is from */
	_Atomic int gone;	/* 0, or the errno of every call: removed or reformatted */
	pthread_mutex_t lock;	/* protects @ranges */
	pthread_cond_t freed;
	struct list ranges; /* struct range_lock */
	_Atomic uint64_t edge_reads, edge_writes, direct_bytes, bounced_bytes;
};

/*
 * A range of the namespace that is being written. A partial write of a block is a read-modify-write cycle and holds the
 * range exclusively: a write of the same block in between would be lost.
 */
struct range_lock {
	struct list node;
	uint64_t start, end;
	bool exclusive;
};

static inline struct namespace *to_namespace(struct strait_endpoint *ep)
{
	return container_of(ep, struct namespace, ep);
}

/* range_lock.c: a non-exclusive lock conflicts with exclusive ones only. */
void range_lock_get(struct namespace *n, struct range_lock *h, uint64_t off, uint64_t len, bool exclusive);
void range_lock_put(struct namespace *n, struct range_lock *h);
/* Non-exclusive, without waiting: false if there is a conflict. */
bool range_lock_try(struct namespace *n, struct range_lock *h, uint64_t off, uint64_t len);

/* bounce.c: any byte offset, through a bounce buffer. */
ssize_t namespace_read(struct strait_endpoint *ep, enum io_mode mode, void *buf, size_t len, uint64_t off);
ssize_t namespace_write(struct strait_endpoint *ep, enum io_mode mode, const void *buf, size_t len, uint64_t off);

/* endpoint.c: the current length, or why the namespace cannot be used; a job on the namespace. */
int namespace_look(struct namespace *n, uint64_t *length);
struct nvme_job namespace_job(const struct namespace *n, bool write);
/* Fill in a job from @m and map its memory; on completion set the results in @m: bytes transferred, of @done. */
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
