/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_P2P_BATCH_H
#define ENGINE_P2P_BATCH_H

/*
 * Many transfers in flight at an endpoint that does the DMA itself: what ring.h is for files. A transfer is one command;
 * longer ones do not qualify. What fails or falls short is left to transfer_resume().
 *
 * Used by one thread. p2p_batch_wake(), from any thread, makes p2p_batch_step() return.
 */

#include "engine/p2p/ring.h"

struct p2p_batch {
	struct strait_endpoint *ep;
	struct endpoint_batch *batch;
	unsigned int in_flight, room;
	struct list leftovers; /* items that another route must run */
};

/* Does a transfer qualify: is the route in its plan, is all of it aligned, and is it short enough? */
bool p2p_batch_takes(const struct strait_transfer *t);

int p2p_batch_open(struct p2p_batch *b, struct strait_endpoint *ep);
/* Nothing may be in flight. */
void p2p_batch_close(struct p2p_batch *b);
void p2p_batch_wake(struct p2p_batch *b);

/*
 * Owns @item, whose first three pointers are set, until p2p_batch_step() returns it. False: there is no room before
 * another step.
 */
bool p2p_batch_add(struct p2p_batch *b, struct p2p_item *item);
/* See p2p_ring_step() and p2p_ring_finish(). */
unsigned int p2p_batch_step(struct p2p_batch *b, struct p2p_item *completed[P2P_RING_MAX]);
void p2p_batch_finish(struct p2p_item *item);

#endif
