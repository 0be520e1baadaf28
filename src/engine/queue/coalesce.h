/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_QUEUE_COALESCE_H
#define ENGINE_QUEUE_COALESCE_H

/* Small transfers of one device and direction, coalesced: one staging chunk, one copy list, one wait. */

#include "engine/transfer/transfer.h"

#define COALESCE_MAX 256

struct coalesce_item {
	const struct strait_transfer *t;
	struct strait_result *result;
	uint64_t slot; /* offset of its space in the chunk */
	uint64_t skip; /* offset of its bytes in that space, or in the window */
	ssize_t n;     /* bytes read, or a negative errno */
	bool miss;     /* not in the page cache: read by the ring */
};

struct coalesce {
	unsigned int n;
	uint64_t used;	      /* bytes of the chunk taken by items */
	uint64_t room, align; /* of the chunk, and for the item added last */
	struct coalesce_item item[COALESCE_MAX];
	struct copy_seg seg[COALESCE_MAX];
	struct reg_ref place[COALESCE_MAX]; /* of items that a registered window holds or could hold */
	struct reg_rent rent;
	/* After coalesce_start(): */
	struct lane_stream *started;
	struct chunk *chunk; /* NULL: registered windows hold all items */
	struct staging_user user;
	int rc; /* of putting the copy list on the stream */
	struct stats_batch sum;
};

/* May small requests of its kind be coalesced? */
bool coalesce_takes(const struct strait_transfer *t);
/* Is it short enough? One of up to coalesce_sure() bytes, the same for all of its kind, always is. */
bool coalesce_fits(const struct strait_transfer *t);
uint64_t coalesce_sure(const struct strait_transfer *t);
/* Can a request of another kind than the last one join the batch? */
bool coalesce_joins(struct coalesce *g, const struct strait_transfer *t);

/* Adds a request that coalesce_takes() and fits. False: it needs a batch of its own. */
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

/* Runs the batch to its end, counts it and fills the results. */
void coalesce_run(struct coalesce *g);

/*
 * Starts a batch without blocking. Every item must be in a registered window or, with @read, in the page cache. Call
 * coalesce_started() when the requests are where they stay, then coalesce_finish() until it returns true: the results are
 * filled as by coalesce_run().
 */
bool coalesce_start(struct coalesce *g, bool read);
void coalesce_started(struct coalesce *g);
bool coalesce_finish(struct coalesce *g, int64_t timeout_ns);

#endif
