/* SPDX-License-Identifier: MIT */
#ifndef MAPPING_GRANULE_H
#define MAPPING_GRANULE_H

/*
 * The state of one granule, 4 KiB of a file, and the only function that changes it.
 *
 * The host copy is the page cache (or private memory), which the CPU loads from and stores to. Each device view may have
 * a copy too. Bytes pass between views through the host, or directly where both devices can (peer), which leaves the host
 * as it is:
 *
 *	view --- store (write-back) ---> host --- fetch ---> view
 *	view --- peer --------------------------------------> view
 *
 * Versions count what was published by release. A copy is current if its version is the granule's. The newest bytes are
 * either on the host (newest 0) or in exactly one view (newest: its number), until they are stored.
 *
 * Lazy release consistency: acquire makes the copy of one side current, release publishes. Invariants, checked by
 * granule_check() wherever the index is unlocked and by tests/functional/mapping_model_test.c:
 *
 *	one-newest	at most one view has published bytes that the host does not have
 *	visible		a side that acquires sees a version not older than any published before
 *	kept		newest bytes leave a view only by being stored, or by a later publication of the same granule
 *	again		a granule published during its store is newest in its view afterwards
 *	independent	no transition reads or changes another granule
 *	unreleased	neither a fetch nor a drop touches a copy that is acquired for writing, and a store reads its twin,
 *			for which it waits: no side, and no file, sees a part of what is being written
 *	pure-read	GRANULE_READ_* changes no version and makes nothing newest
 *
 * A copy for the CPU (copy.h) may be filled by page faults: its pages are missing while its version is 0, so making it
 * current is to remove the page.
 *
 * Owners. GRANULE_STORING, COPY_FILLING and COPY_TWINNING are marks of the one thread that a step told to move the bytes
 * (STEP_STORE, STEP_FETCH, STEP_PEER, STEP_TWIN, STEP_ZAP), COPY_FAULTING is the fault handler's. That thread moves them without the lock and reports the end. It may wait for pinned
 * memory, the device and the file, but for no other mark: a thread that meets a mark of another (STEP_WAIT) first finishes
 * what it has marked, then waits for the condition of the index. So no cycle of waiting threads exists.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

#define GRANULE_SHIFT 12
#define GRANULE_BYTES (1u << GRANULE_SHIFT)

#define GRANULE_STORING (1u << 0) /* the newest bytes are being stored on the host, or copied to another view */
#define GRANULE_AGAIN (1u << 1)	  /* published again since that began */

#define COPY_FILLING (1u << 0)	/* being fetched; version is that of the bytes to come */
#define COPY_TWINNING (1u << 1) /* its twin is being taken */
#define COPY_TWIN (1u << 2)	/* has a twin that was taken before the first store */
#define COPY_FAULTING (1u << 3) /* the fault handler is filling the page; version is that of the bytes to come */

#define COPY_BUSY (COPY_FILLING | COPY_TWINNING | COPY_FAULTING)

/* A version that is never current: the page is there and its bytes are older, or could not be read. */
#define COPY_OLD UINT32_MAX

struct granule {
	uint32_t version; /* of the newest bytes, 0: never published */
	uint8_t newest;	  /* number of the view that has them; 0: the host */
	uint8_t state;	  /* GRANULE_* */
	uint8_t twinning; /* views whose copy is COPY_TWINNING: what a store would read is about to be written */
	uint8_t reserved;
};

struct granule_copy {
	uint32_t version; /* of these bytes, + 1; 0: none */
	uint16_t writers; /* acquired for writing so often */
	uint8_t state;	  /* COPY_* */
	uint8_t reserved;
};

enum granule_event {
	GRANULE_READ_HOST,	/* the CPU needs the newest bytes */
	GRANULE_OVERWRITE_HOST, /* the CPU will replace all of it */
	GRANULE_PUBLISH_HOST,	/* the CPU released a change */
	GRANULE_READ_COPY,	/* the view needs the newest bytes */
	GRANULE_READ_PEER,	/* the same, and the view that has them can be read directly */
	GRANULE_READ_FAULTS,	/* the same, where a page that is missing is filled by a fault */
	GRANULE_OVERWRITE_COPY, /* the view will replace all of it */
	GRANULE_WRITE_BEGIN,	/* the view acquired it for writing; a twin can be taken */
	GRANULE_WRITE_DECLARED, /* the same without a twin: it counts as changed at release, and is stored before */
	GRANULE_TWIN_AGAIN,	/* before a publication while other acquirers write: their twin is taken again */
	GRANULE_TWINNED,	/* the twin was taken */
	GRANULE_TWIN_FAILED,	/* it was not: the granule counts as changed at release */
	GRANULE_PUBLISH_COPY,	/* the view released a change */
	GRANULE_WRITE_END,	/* the view released it, after GRANULE_PUBLISH_COPY if it was changed */
	GRANULE_FETCHED,
	GRANULE_FETCH_FAILED,
	GRANULE_PEERED,
	GRANULE_PEER_FAILED,
	GRANULE_STORED,
	GRANULE_STORE_FAILED,
	GRANULE_ZAPPED,	      /* the page was removed */
	GRANULE_FAULT,	      /* a thread of the CPU faulted in the page, or next to it */
	GRANULE_FAULTED,      /* the page is there */
	GRANULE_FAULT_FAILED, /* the page is there, with zeros in place of its bytes */
	GRANULE_FAULT_LEFT,   /* the page is still missing */
	GRANULE_REFRESH,      /* the file was changed by another process */
	GRANULE_EVICT,	      /* the application does not need the copy; one that is acquired for writing stays */
	GRANULE_EVICT_PAGE,   /* the same for a page of the CPU */
	GRANULE_EVICT_CLEAN,  /* the same, if nothing has to be stored and no thread moves its bytes */
	GRANULE_DROP,	      /* the memory of the copy is needed for other granules */
};

enum granule_step {
	STEP_DONE,
	STEP_CONFLICT, /* done, and another side had changed it without an acquire in between */
	STEP_WAIT,     /* nothing done: a thread moves its bytes */
	STEP_BUSY,     /* nothing done: there are changes in the way */
	STEP_STORE,    /* marked: store the bytes of view g->newest on the host, then GRANULE_STORED */
	STEP_FETCH,    /* marked: copy the host's bytes to the view, then GRANULE_FETCHED */
	STEP_PEER,     /* marked: copy the bytes of view g->newest to the view, then GRANULE_PEERED */
	STEP_TWIN,     /* marked: copy the view's bytes to its twin, then GRANULE_TWINNED */
	STEP_ZAP,      /* marked: remove the page, then GRANULE_ZAPPED */
};

static inline void granule_check(const struct granule *g, const struct granule_copy *c, unsigned int view)
{
	CHECK(!(g->state & GRANULE_AGAIN) || g->state & GRANULE_STORING);
	if (!c)
		return;
	/* one-newest, visible: the view with the newest bytes has the current version. */
	CHECK(g->newest != view || c->version == g->version + 1);
	CHECK(g->newest != view || !(c->state & COPY_FILLING));
	/* unreleased */
	CHECK(!(c->state & COPY_FILLING) || !c->writers);
	CHECK(!(c->state & (COPY_TWIN | COPY_TWINNING)) || c->writers);
}

static inline void granule_publish(struct granule *g, unsigned int newest)
{
	g->version++;
	g->newest = (uint8_t)newest;
	if (g->state & GRANULE_STORING)
		g->state |= GRANULE_AGAIN;
}

static inline enum granule_step granule_store(struct granule *g)
{
	if (g->state & GRANULE_STORING || g->twinning)
		return STEP_WAIT;
	g->state = GRANULE_STORING;
	return STEP_STORE;
}

static inline enum granule_step granule_take_twin(struct granule *g, struct granule_copy *c)
{
	c->state |= COPY_TWINNING;
	g->twinning++;
	return STEP_TWIN;
}

static inline enum granule_step granule_begin_write(struct granule *g, struct granule_copy *c, bool twin)
{
	if (c->state & COPY_BUSY || g->state & GRANULE_STORING)
		return STEP_WAIT;
	c->writers++;
	if (c->writers > 1 || !twin)
		return STEP_DONE;
	return granule_take_twin(g, c);
}

/* The newest bytes stay where they are, under the mark of a store, so they are not written over while they are read. */
static inline enum granule_step granule_peer(struct granule *g, struct granule_copy *c)
{
	if (granule_store(g) == STEP_WAIT)
		return STEP_WAIT;
	c->state |= COPY_FILLING;
	c->version = g->version + 1;
	return STEP_PEER;
}

/* @faults: a page that is not current is removed, for a page fault to fetch it. @peer: see GRANULE_READ_PEER. */
static inline enum granule_step granule_read(struct granule *g, struct granule_copy *c, bool faults, bool peer)
{
	if (c->state & (COPY_FILLING | COPY_FAULTING))
		return STEP_WAIT;
	/* Unreleased stores of this view stay. Versions that differ show at its next publication. */
	if (c->writers || c->version == g->version + 1)
		return STEP_DONE;
	if (g->newest)
		return peer ? granule_peer(g, c) : granule_store(g);
	/* The host's bytes may be those of a store in flight, which may come from bytes published earlier. */
	if (g->state & GRANULE_STORING)
		return STEP_WAIT;
	if (faults && !c->version)
		return STEP_DONE;
	c->state |= COPY_FILLING;
	if (faults)
		return STEP_ZAP;
	c->version = g->version + 1;
	return STEP_FETCH;
}

/*
 * The fault handler fills a page that is missing. The bytes of the host may be older than what was published since the
 * acquire: the next acquire removes such a page.
 */
static inline enum granule_step granule_fault(const struct granule *g, struct granule_copy *c)
{
	if (c->state & (COPY_FILLING | COPY_FAULTING))
		return STEP_WAIT;
	if (c->version)
		return STEP_DONE;
	c->version = g->newest || g->state & GRANULE_STORING ? COPY_OLD : g->version + 1;
	c->state |= COPY_FAULTING;
	return STEP_FETCH;
}

static inline enum granule_step granule_evict(struct granule *g, struct granule_copy *c, unsigned int view,
					      enum granule_event event)
{
	bool busy = c->state & COPY_BUSY || g->state & GRANULE_STORING;

	if (c->writers || !c->version)
		return STEP_DONE;
	if (event == GRANULE_EVICT_CLEAN && (busy || g->newest == view))
		return STEP_DONE;
	if (busy)
		return STEP_WAIT;
	if (g->newest == view)
		return granule_store(g);
	if (event == GRANULE_EVICT) {
		c->version = 0;
		return STEP_DONE;
	}
	c->state |= COPY_FILLING;
	return STEP_ZAP;
}

/*
 * What @event does to the granule @g and, for events of a view, its copy @c in view number @view. Called with the lock of
 * the index held.
 */
static inline enum granule_step granule_event(struct granule *g, struct granule_copy *c, unsigned int view,
					      enum granule_event event)
{
	enum granule_step step = STEP_DONE;

	switch (event) {
	case GRANULE_READ_HOST:
		if (g->newest)
			step = granule_store(g);
		else if (g->state & GRANULE_STORING)
			step = STEP_WAIT;
		break;
	case GRANULE_OVERWRITE_HOST:
		/* The bytes of a view are superseded now: a store later on would destroy those of the CPU. */
		if (g->state & GRANULE_STORING)
			step = STEP_WAIT;
		else if (g->newest)
			granule_publish(g, 0);
		break;
	case GRANULE_PUBLISH_HOST:
		/* The last release wins: bytes of a view that are not stored are superseded. */
		step = g->newest ? STEP_CONFLICT : STEP_DONE;
		granule_publish(g, 0);
		break;
	case GRANULE_READ_COPY:
		step = granule_read(g, c, false, false);
		break;
	case GRANULE_READ_PEER:
		step = granule_read(g, c, false, true);
		break;
	case GRANULE_READ_FAULTS:
		step = granule_read(g, c, true, false);
		break;
	case GRANULE_FAULT:
		step = granule_fault(g, c);
		break;
	case GRANULE_FAULTED:
		c->state &= (uint8_t)~COPY_FAULTING;
		break;
	case GRANULE_FAULT_FAILED:
		c->state &= (uint8_t)~COPY_FAULTING;
		if (g->newest != view)
			c->version = COPY_OLD;
		break;
	case GRANULE_FAULT_LEFT:
		c->state &= (uint8_t)~COPY_FAULTING;
		if (g->newest != view)
			c->version = 0;
		break;
	case GRANULE_OVERWRITE_COPY:
		if (c->state & (COPY_FILLING | COPY_FAULTING) || g->state & GRANULE_STORING) {
			step = STEP_WAIT;
		} else if (!c->writers) {
			/* What the view has published is given up: a store later on would read what is being written. */
			if (g->newest == view)
				granule_publish(g, 0);
			c->version = g->version + 1;
		}
		break;
	case GRANULE_WRITE_BEGIN:
		step = granule_begin_write(g, c, true);
		break;
	case GRANULE_WRITE_DECLARED:
		step = granule_begin_write(g, c, false);
		break;
	case GRANULE_TWIN_AGAIN:
		if (c->state & COPY_TWINNING || g->state & GRANULE_STORING) {
			step = STEP_WAIT;
		} else if (c->state & COPY_TWIN && c->writers > 1) {
			step = granule_take_twin(g, c);
		}
		break;
	case GRANULE_TWINNED:
		g->twinning--;
		c->state = COPY_TWIN;
		break;
	case GRANULE_TWIN_FAILED:
		g->twinning--;
		c->state = 0;
		break;
	case GRANULE_PUBLISH_COPY:
		step = c->version == g->version + 1 ? STEP_DONE : STEP_CONFLICT;
		granule_publish(g, view);
		c->version = g->version + 1;
		break;
	case GRANULE_WRITE_END:
		if (!--c->writers)
			c->state &= (uint8_t)~COPY_TWIN;
		break;
	case GRANULE_FETCHED:
		c->state &= (uint8_t)~COPY_FILLING;
		break;
	case GRANULE_FETCH_FAILED:
	case GRANULE_ZAPPED:
		c->state &= (uint8_t)~COPY_FILLING;
		c->version = 0;
		break;
	case GRANULE_PEERED:
		c->state &= (uint8_t)~COPY_FILLING;
		g->state = 0;
		break;
	case GRANULE_PEER_FAILED:
		c->state &= (uint8_t)~COPY_FILLING;
		c->version = 0;
		g->state = 0;
		break;
	case GRANULE_STORED:
		if (!(g->state & GRANULE_AGAIN))
			g->newest = 0;
		g->state = 0;
		break;
	case GRANULE_STORE_FAILED:
		g->state = 0;
		break;
	case GRANULE_REFRESH:
		if (g->newest || g->state & GRANULE_STORING)
			step = STEP_BUSY;
		else
			granule_publish(g, 0);
		break;
	case GRANULE_EVICT:
	case GRANULE_EVICT_PAGE:
	case GRANULE_EVICT_CLEAN:
		step = granule_evict(g, c, view, event);
		break;
	case GRANULE_DROP:
		if (c->writers || c->state & COPY_BUSY)
			step = STEP_WAIT;
		else if (g->newest == view)
			step = granule_store(g);
		else if (g->state & GRANULE_STORING)
			step = STEP_WAIT;
		else
			c->version = 0;
		break;
	}
	granule_check(g, c, view);
	return step;
}

#endif
