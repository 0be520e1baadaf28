/* SPDX-License-Identifier: MIT */
#ifndef FUNCTIONAL_QUEUE_MODEL_WORLD_H
#define FUNCTIONAL_QUEUE_MODEL_WORLD_H

/* Shared by the parts of the model: queues, regions and files, and the groups of transfers. */

#include "queue_model.h"

#define QUEUES 3
#define REGIONS 3
#define GROUPS 96u
#define MOST 40		/* transfers of a group */
#define SHARED_ID 0xffu /* in place of the number of a transfer */
#define UNIT KIB(256)	/* of a region, for each group */
#define SMALL 5000u	/* MOST of them fit in a unit */
#define FILE_LEN (MIB(2) + 77)

enum { AS_IS, DIRECT, IMMUTABLE, LEASED, WRITABLE, OUT, ENDPOINTS };

/*
 * Locks are taken in this order: a queue's place, a group, a region's place.
 *
 * A group is a set of transfers that have the same outcome. Each has a user_data of its own, so that a result that is
 * delivered twice is noticed although another is lost; or all have the same, so that one call cancels them.
 */
struct group {
	pthread_mutex_t lock;
	bool used;
	unsigned int region;	/* index */
	uint64_t generation;	/* how often this entry was used */
	struct strait_queue *q; /* to tell it from the next in its place */
	struct strait_region *r;
	uint64_t made;	      /* generation of the region in that place */
	unsigned int n, left; /* transfers, and results that are to come */
	bool shared;	      /* the transfers have the same user_data */
	uint64_t delivered;   /* bit i: the result of transfer i; not if they are shared */
	bool canceled;	      /* perhaps */
	uint32_t op;
	uint64_t off, len, bytes; /* of the first transfer; each of the others begins where the one before it ends */
	int status;
};

struct place {
	pthread_rwlock_t lock; /* read: for a call on what is there; write: to replace it */
	struct strait_queue *q;
	struct strait_region *r;
	uint64_t made; /* how many regions were here: another may have the address of a closed one */
	bool gone;     /* the region was revoked */
};

struct world {
	const struct queue_model *m;
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep[ENDPOINTS];
	struct strait_region *src;
	unsigned char *want;
	char out[4200];
	struct place queue[QUEUES], region[REGIONS];
	struct group group[GROUPS];
	uint64_t seed;
	atomic_uint next;
	atomic_ulong accepted, delivered, lost; /* lost: closed with their queue */
};

struct model_thread {
	struct world *w;
	uint64_t state;
};

static inline uint64_t any(struct model_thread *t, uint64_t n)
{
	return prng_below(&t->state, n);
}

/* A group without transfers, locked; or NULL. */
struct group *group_get(struct model_thread *t);
/* A group of the queue that has results outstanding, or NULL; and its generation. */
struct group *group_of(struct model_thread *t, const struct strait_queue *q, uint64_t *generation);
uint64_t group_number(const struct world *w, const struct group *g);
/* What the transfers of a group have as user_data: its number, the transfer, and how often the group was used. */
uint64_t transfer_id(const struct world *w, const struct group *g, unsigned int i);
/* A result is one that is to come, and what its request must give. */
void take_result(struct world *w, const struct strait_queue *q, const struct strait_result *res);

#endif
