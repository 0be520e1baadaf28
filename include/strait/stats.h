/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_STATS_H
#define STRAIT_STATS_H

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct strait_route_stats - Counters of one route
 * @read_bytes: bytes brought to regions
 * @write_bytes: bytes brought to endpoints
 * @transfers: transfers that used the route; one that mixes routes counts on each
 * @reserved: 0
 */
struct strait_route_stats {
	uint64_t read_bytes;
	uint64_t write_bytes;
	uint64_t transfers;
	uint64_t reserved;
};

/**
 * struct strait_stats - Counters, of a context or of the process
 * @size: sizeof(struct strait_stats), set by the caller
 * @transfers: transfers completed, failed ones included
 * @errors: transfers that failed
 * @canceled: of those, canceled ones
 * @small: transfers that took the short path: one call, no thread
 * @gathered: queued transfers that travelled in a common buffer
 * @gathers: common buffers they travelled in
 * @stream: transfers ordered on a stream
 * @direct_bytes: bytes that went by direct I/O
 * @registrations: page-cache windows registered
 * @registration_hits: windows found registered, under a lease or promise
 * @kept_bytes: page-cache bytes registered right now
 * @pool_bytes: pinned staging bytes right now
 * @pool_waits: times a transfer waited for a staging chunk
 * @route: counters by route, indexed by enum strait_route
 */
struct strait_stats {
	size_t size;
	uint64_t transfers;
	uint64_t errors;
	uint64_t canceled;
	uint64_t small;
	uint64_t gathered;
	uint64_t gathers;
	uint64_t stream;
	uint64_t direct_bytes;
	uint64_t registrations;
	uint64_t registration_hits;
	uint64_t kept_bytes;
	uint64_t pool_bytes;
	uint64_t pool_waits;
	struct strait_route_stats route[STRAIT_ROUTES_MAX];
};

#define STRAIT_STATS_SIZE_V1 368

/**
 * strait_stats_get() - Read the counters
 * @ctx: the context, or NULL for all contexts this process has had
 * @stats: filled; @stats->size must be set before
 *
 * Counters only grow, except those that say "right now". Each is exact; together they are not a
 * snapshot of one moment.
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_stats_get(struct strait_context *ctx, struct strait_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
