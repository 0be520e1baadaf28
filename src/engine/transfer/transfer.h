/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_TRANSFER_H
#define ENGINE_TRANSFER_TRANSFER_H

#include <strait/rows.h>
#include <strait/transfer.h>

#include "engine/engine.h"
#include "engine/route.h"

/* Is the request well formed? Checks nothing that changes with time. */
int transfer_check(const struct strait_context *ctx, const struct strait_transfer *t);

/* References region and endpoint, if they can be used. transfer_end() drops the references of @n such transfers. */
int transfer_begin(const struct strait_transfer *t);
void transfer_end(const struct strait_transfer *t, unsigned int n);
/* Checks and begins all of them, or none. */
int transfer_begin_all(const struct strait_context *ctx, const struct strait_transfer *t, unsigned int n);

/* The facts for a request that has begun; @ask: look at the page cache, too. */
void transfer_facts(const struct strait_transfer *t, bool ask, struct route_facts *f);
/* The decision for it, without looking at the page cache. */
void transfer_decide(const struct strait_transfer *t, struct route_decision *d);

/* Is it short enough for one staging chunk on the calling thread, or to be coalesced? */
bool transfer_is_small(const struct strait_transfer *t);

/*
 * Runs a request that has begun, and counts it. Stops early when *@cancel becomes true. @isolated: a stream of the
 * application waits for it.
 */
void transfer_execute(const struct strait_transfer *t, uint64_t deadline, const atomic_bool *cancel, bool isolated,
		      struct strait_result *result);

/*
 * Runs the rest of a request whose first @done bytes have been moved, and adds it to the result. Does not count it.
 */
void transfer_resume(const struct strait_transfer *t, uint64_t done, const atomic_bool *cancel,
		     struct strait_result *result);

/* Callers that run transfers of at most a chunk now, this one included. */
static inline unsigned int callers_enter(struct strait_device *dev)
{
	return atomic_fetch_add_explicit(&device_engine(dev)->callers, 1, memory_order_relaxed) + 1;
}

static inline void callers_leave(struct strait_device *dev)
{
	atomic_fetch_sub_explicit(&device_engine(dev)->callers, 1, memory_order_relaxed);
}

/*
 * Is it quicker to combine the copies of so many callers than to have the copy engine serve the stream of each? It needs
 * some microseconds to change streams. Shorter copies cost no more than a list.
 */
#define COMBINE_CALLERS 5
#define COMBINE_MIN KIB(32)
#define COMBINE_MAX MIB(4)
static inline bool combine_pays(unsigned int callers, uint64_t len)
{
	return callers >= COMBINE_CALLERS && len >= COMBINE_MIN && len <= COMBINE_MAX;
}

/*
 * Reads a transfer that fits into one staging chunk, in pieces, so that one is read while another is copied. -EAGAIN: it
 * cannot be run that way now.
 */
int chunk_read_run(const struct strait_transfer *t, const struct route_plan *plan, uint64_t deadline,
		   const atomic_bool *cancel, bool isolated, struct strait_result *result);

/* Is it well formed? Fills @t, whose endpoint, region and region offset are set. */
int rows_check(const struct strait_context *ctx, const struct strait_rows *rows, struct strait_transfer *t);
/* Reads rows into a region that is in use, and counts them. -EAGAIN: they cannot be read that way. */
int rows_read(const struct strait_transfer *t, const struct strait_rows *rows, struct strait_result *result);

/* Runs a small transfer on the calling thread. -EAGAIN: it cannot be run that way now. */
int small_run(const struct strait_transfer *t, uint32_t mask, bool isolated, struct strait_result *result);

/*
 * Reads [off, off + len) into @buf, whose space of small_span() bytes is aligned for direct I/O: from memory if it
 * is there, directly if not. @skip: where in @buf the bytes begin. Returns bytes or a negative errno.
 */
ssize_t small_read(struct strait_context *ctx, struct strait_endpoint *ep, void *buf, uint64_t off, uint64_t len,
		   uint64_t *skip);
static inline uint64_t small_span(const struct strait_endpoint *ep, uint64_t off, uint64_t len)
{
	uint64_t align = ep->facts.can_direct ? ep->facts.dio_align : 1;

	return align_up(off + len, align) - align_down(off, align);
}
/* Reads through the page cache from byte @done of the range on. Returns bytes of the range, less only at the end of file. */
ssize_t read_full(struct strait_endpoint *ep, void *buf, uint64_t off, uint64_t len, uint64_t done);
/* Returns the bytes written; if that is not all, the error is in @err. */
uint64_t small_write(struct strait_context *ctx, struct strait_endpoint *ep, const void *buf, uint64_t off,
		     uint64_t len, int *err);

#endif
