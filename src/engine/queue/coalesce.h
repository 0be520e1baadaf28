/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_QUEUE_COALESCE_H
#define ENGINE_QUEUE_COALESCE_H

/* Many small transfers of one device and direction at once: one host buffer, one copy, one scatter. */

#include "engine/transfer/transfer.h"

#define COALESCE_MAX 256

struct coalesce_item {
	const struct strait_transfer *t;
	struct strait_result *result;
	uint64_t slot; /* where in the chunk its space begins */
	uint64_t skip; /* where in that space the bytes begin */
	ssize_t n;     /* bytes, or the error */
	bool miss;     /* not in memory: goes to the ring */
};

struct coalesce {
	unsigned int n;
	uint64_t used;	      /* bytes of the chunk spoken for */
	uint64_t room, align; /* of the chunk, and for the item added last */
	struct coalesce_item item[COALESCE_MAX];
	struct copy_seg seg[COALESCE_MAX];
	struct reg_ref place[COALESCE_MAX]; /* of items whose bytes are read in place */
	/* Of those that were started: */
	struct lane_stream *started;
	struct chunk *chunk; /* NULL: all are read in place */
	struct staging_user user;
	int rc; /* of starting */
	struct stats_batch sum;
};

/* May requests of its kind, if they are small, travel with others? */
bool coalesce_takes(const struct strait_transfer *t);
/* Is it short enough for that? If it is no longer than coalesce_sure(), which is the same for all of its kind, it is. */
bool coalesce_fits(const struct strait_transfer *t);
uint64_t coalesce_sure(const struct strait_transfer *t);
/* Does a request of another kind than the last go with those already there? */
bool coalesce_joins(struct coalesce *g, const struct strait_transfer *t);

/* Adds a request that may, if it goes with those already there. */
static inline bool coalesce_add(struct coalesce *g, const struct strait_transfer *t, struct strait_result *result)
{
	const struct strait_transfer *last = g->n ? g->item[g->n - 1].t : NULL;
	uint64_t slot, span;

	if ((!last || last->endpoint != t->endpoint || last->region != t->region || last->op != t->op) &&
	    !coalesce_joins(g, t))
		return false;
	slot = align_up(g->used, g->align);
	span = align_up(small_span(t->endpoint, t->endpoint_offset, t->length), 64);
	if (g->n == COALESCE_MAX || slot + span > g->room)
		return false;
	g->item[g->n++] = (struct coalesce_item){ .t = t, .result = result, .slot = slot };
	g->used = slot + span;
	return true;
}

/* Runs them all, counts them and fills their results. */
void coalesce_run(struct coalesce *g);

/*
 * Starts them, if all are read in place, which takes no time, or with @read if what is not can be read without waiting.
 * Then coalesce_started() is to be called, when the requests are where they stay, and coalesce_finish() until it says that
 * it is done: the results are there as after coalesce_run().
 */
bool coalesce_start(struct coalesce *g, bool read);
void coalesce_started(struct coalesce *g);
bool coalesce_finish(struct coalesce *g, int64_t timeout_ns);

#endif
