/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_STATS_H
#define ENGINE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#include <strait/stats.h>
#include <strait/transfer.h>

#include "base/list.h"

/* The counters of struct strait_stats, in the same order. */
struct stats {
	_Atomic uint64_t transfers, errors, canceled, small, coalesced, coalesced_copies, stream, direct_bytes,
		registrations, registration_hits, registered_bytes, pool_bytes, pool_waits;
	struct {
		_Atomic uint64_t read_bytes, write_bytes, transfers, reserved;
	} route[STRAIT_ROUTES_MAX];
	struct list node; /* in the list of open contexts */
};

static inline void stat_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline void stat_sub(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_sub_explicit(counter, n, memory_order_relaxed);
}

/* The sum of several finished transfers. */
struct stats_batch {
	uint64_t transfers, errors, canceled;
	uint64_t bytes[STRAIT_ROUTE_COUNT], used[STRAIT_ROUTE_COUNT];
};

void stats_collect(struct stats_batch *b, const struct strait_result *r);
/* Count several transfers of one direction, or one. */
void stats_transfers(struct stats *s, uint32_t op, const struct stats_batch *b);
void stats_transfer(struct stats *s, uint32_t op, const struct strait_result *r);
/* An open context attaches its counters; strait_stats_get(NULL) adds up all that are attached. */
void stats_attach(struct stats *s);
void stats_detach(struct stats *s);
void stats_read(struct stats *s, struct strait_stats *out);
void stats_read_process(struct strait_stats *out);

#endif
