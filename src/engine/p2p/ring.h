/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_P2P_RING_H
#define ENGINE_P2P_RING_H

/*
 * Many transfers by route p2p at once: commands on a ring, so that a drive has as many to work on as it likes and one
 * thread is enough. Of a transfer one command is under way at a time; a long one takes several, and between two of them
 * it can be canceled. What does not go as it should, for whatever reason, is left to transfer_resume().
 *
 * Used by one thread; os_event_signal() on what p2p_ring_open() was given makes p2p_ring_step() return.
 */

#include "engine/transfer/transfer.h"

#define P2P_RING_MAX 256

struct p2p_item {
	struct list node; /* p2p_ring.fresh */
	const struct strait_transfer *t;
	struct strait_result *result;
	const atomic_bool *cancel;
	uint64_t done;			   /* bytes that have arrived */
	uint64_t asked;			   /* of the command under way */
	bool fallback;			   /* the rest must go another way */
	struct endpoint_io_async io_async; /* p2p_batch.h */
};

struct p2p_ring {
	struct strait_context *ctx;
	struct os_ring *ring;
	struct list fresh; /* commands on the ring that were not handed over yet */
	unsigned int n_fresh, in_flight, room;
	bool broken;
	int wake;     /* -1: nobody does */
	bool waiting; /* for @wake, by a read that is under way */
	uint64_t woken;
};

/* Can a transfer go that way: allowed, all of it aligned, and the module has commands? */
bool p2p_ring_takes(const struct strait_transfer *t);

int p2p_ring_open(struct p2p_ring *r, struct strait_context *ctx, int wake);
/* Nothing is under way any more. */
void p2p_ring_close(struct p2p_ring *r);

/* Is there room for another? */
bool p2p_ring_room(const struct p2p_ring *r);
/* Takes @item, whose first three pointers are set, until it comes back from p2p_ring_step(). */
void p2p_ring_add(struct p2p_ring *r, struct p2p_item *item);
/*
 * Waits until something has happened, for as long as a drive takes. How many items are over, which may be none; for
 * each p2p_ring_finish() is called next.
 */
unsigned int p2p_ring_step(struct p2p_ring *r, struct p2p_item *completed[P2P_RING_MAX]);
/* What drives wrote is seen by the device before anybody is told. Where that fails an item is left, all of it. */
void p2p_items_flush(struct p2p_item **completed, unsigned int n);
/* Fills the result and counts it. The rest of an item that was left is moved here, which may take long. */
void p2p_ring_finish(struct p2p_item *item);

#endif
