/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_QUEUE_COALESCE_H
#define ENGINE_QUEUE_COALESCE_H

/* Many small transfers of one device and direction at once: one host buffer, one copy, one scatter. */

#include "engine/transfer/transfer.h"

#define GATHER_MAX 256

struct gather_item {
	const struct strait_transfer *t;
	struct strait_result *result;
	uint64_t slot; /* where in the chunk its space begins */
	uint64_t skip; /* where in that space the bytes begin */
	ssize_t n;     /* bytes, or the error */
	bool miss;     /* not in memory: goes to the ring */
};

struct gather {
	unsigned int n;
	uint64_t used;	      /* bytes of the chunk spoken for */
	uint64_t room, align; /* of the chunk, and for the item added last */
	struct gather_item item[GATHER_MAX];
	struct copy_seg seg[GATHER_MAX];
	struct reg_ref place[GATHER_MAX]; /* of items whose bytes are read in place */
	/* Of those that were started: */
	struct lane_stream *started;
	struct chunk *chunk; /* NULL: all are read in place */
	struct pool_user user;
	int rc; /* of starting */
	struct stats_batch sum;
};

/* May requests of its kind, if they are small, travel with others? */
bool gather_takes(const struct strait_transfer *t);
/* Is it short enough for that? If it is no longer than gather_sure(), which is the same for all of its kind, it is. */
bool gather_fits(const struct strait_transfer *t);
uint64_t gather_sure(const struct strait_transfer *t);
/* Does a request of another kind than the last go with those already there? */
bool gather_joins(struct gather *g, const struct strait_transfer *t);

/* Adds a request that may, if it goes with those already there. */
static inline bool gather_add(struct gather *g, const struct strait_transfer *t, struct strait_result *result)
{
	const struct strait_transfer *last = g->n ? g->item[g->n - 1].t : NULL;
	uint64_t slot, span;

	if ((!last || last->endpoint != t->endpoint || last->region != t->region || last->op != t->op) &&
	    !gather_joins(g, t))
		return false;
	slot = align_up(g->used, g->align);
	span = align_up(small_span(t->endpoint, t->endpoint_offset, t->length), 64);
	if (g->n == GATHER_MAX || slot + span > g->room)
		return false;
	g->item[g->n++] = (struct gather_item){ .t = t, .result = result, .slot = slot };
	g->used = slot + span;
	return true;
}

/* Runs them all, counts them and fills their results. */
void gather_run(struct gather *g);

/*
 * Starts them, if all are read in place, which takes no time, or with @read if what is not can be read without waiting.
 * Then gather_started() is to be called, when the requests are where they stay, and gather_finish() until it says that
 * it is done: the results are there as after gather_run().
 */
bool gather_start(struct gather *g, bool read);
void gather_started(struct gather *g);
bool gather_finish(struct gather *g, int64_t timeout_ns);

#endif
