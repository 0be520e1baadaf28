/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_P2P_BATCH_H
#define ENGINE_P2P_BATCH_H

/*
 * Many transfers at once of an endpoint that moves the bytes itself and has batches: what p2p_ring.h is for files. A
 * transfer is one move; those that are too long for that are none for here. What does not go as it should is left to
 * transfer_resume().
 *
 * Used by one thread; p2p_batch_wake(), of any, makes p2p_batch_step() return.
 */

#include "engine/p2p/ring.h"

struct p2p_batch {
	struct strait_endpoint *ep;
	struct endpoint_batch *batch;
	unsigned int in_flight, room;
	struct list leftovers; /* items that must go another way */
};

/* Can a transfer go that way: allowed, all of it aligned, and not too long? */
bool p2p_batch_takes(const struct strait_transfer *t);

int p2p_batch_open(struct p2p_batch *b, struct strait_endpoint *ep);
/* Nothing is under way any more. */
void p2p_batch_close(struct p2p_batch *b);
void p2p_batch_wake(struct p2p_batch *b);

/*
 * Takes @item, whose first three pointers are set, until it comes back from p2p_batch_step(). False: not now, but
 * after a step or more.
 */
bool p2p_batch_add(struct p2p_batch *b, struct p2p_item *item);
/* As p2p_ring_step() and p2p_ring_finish(). */
unsigned int p2p_batch_step(struct p2p_batch *b, struct p2p_item *completed[P2P_RING_MAX]);
void p2p_batch_finish(struct p2p_item *item);

#endif
