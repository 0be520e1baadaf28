/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_P2P_RING_H
#define ENGINE_P2P_RING_H

/*
 * Many transfers of route p2p in flight as io_uring commands, so that one thread keeps a drive busy. A transfer has one
 * command in flight at a time; a long one takes several and can be canceled between two. What fails or falls short is
 * left to transfer_resume().
 *
 * Used by one thread. os_event_signal() on the event that p2p_ring_open() was given makes p2p_ring_step() return.
 */

#include "engine/transfer/transfer.h"

#define P2P_RING_MAX 256

struct p2p_item {
	struct list node; /* p2p_ring.fresh */
	const struct strait_transfer *t;
	struct strait_result *result;
	const atomic_bool *cancel;
	uint64_t done;			   /* bytes that have arrived */
	uint64_t asked;			   /* by the command in flight */
	bool fallback;			   /* another route must run the rest */
	struct endpoint_io_async io_async; /* batch.h */
};

struct p2p_ring {
	struct strait_context *ctx;
	struct os_ring *ring;
	struct list fresh; /* queued on the ring, not submitted yet */
	unsigned int n_fresh, in_flight, room;
	bool broken;
	int wake;     /* -1: none */
	bool waiting; /* a read of @wake is in flight */
	uint64_t woken;
};

/* Does a transfer qualify: is p2p in its plan, is all of it aligned, and has the module commands? */
bool p2p_ring_takes(const struct strait_transfer *t);

int p2p_ring_open(struct p2p_ring *r, struct strait_context *ctx, int wake);
/* Nothing may be in flight. */
void p2p_ring_close(struct p2p_ring *r);

/* Is there room for another? */
bool p2p_ring_room(const struct p2p_ring *r);
/* Owns @item, whose first three pointers are set, until p2p_ring_step() returns it. */
void p2p_ring_add(struct p2p_ring *r, struct p2p_item *item);
/*
 * Waits for a completion or a wake-up and returns how many items are complete, perhaps none. Call p2p_ring_finish() for
 * each.
 */
unsigned int p2p_ring_step(struct p2p_ring *r, struct p2p_item *completed[P2P_RING_MAX]);
/* Makes what drives have written visible to the device. Where that fails, the whole item is left to another route. */
void p2p_items_flush(struct p2p_item **completed, unsigned int n);
/* Fills the result and counts it. Runs the rest of an item that needs another route, which may take long. */
void p2p_ring_finish(struct p2p_item *item);

#endif
