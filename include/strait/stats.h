/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_STATS_H
#define STRAIT_STATS_H

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct strait_route_stats - Counters of one route
 * @read_bytes: bytes transferred to regions
 * @write_bytes: bytes transferred to endpoints
 * @transfers: transfers that used the route; a transfer on several routes counts for each
 * @reserved: 0
 */
struct strait_route_stats {
	uint64_t read_bytes;
	uint64_t write_bytes;
	uint64_t transfers;
	uint64_t reserved;
};

/**
 * struct strait_stats - Counters of a context or of the process
 * @size: sizeof(struct strait_stats), set by the caller
 * @transfers: completed transfers, including failed ones
 * @errors: failed transfers, including canceled ones
 * @canceled: canceled transfers
 * @small: small transfers, run on the calling thread with one I/O and one copy
 * @coalesced: small transfers that were coalesced
 * @coalesced_copies: copies of coalesced transfers
 * @stream: transfers ordered on a stream
 * @direct_bytes: bytes of direct I/O
 * @registrations: windows of the page cache that were registered
 * @registration_hits: windows found in the registration cache
 * @registered_bytes: bytes in the registration cache now
 * @pool_bytes: bytes of pinned staging memory now
 * @pool_waits: times a transfer waited for a staging chunk
 * @route: counters by route, indexed by enum strait_route
 */
struct strait_stats {
	size_t size;
	uint64_t transfers;
	uint64_t errors;
	uint64_t canceled;
	uint64_t small;
	uint64_t coalesced;
	uint64_t coalesced_copies;
	uint64_t stream;
	uint64_t direct_bytes;
	uint64_t registrations;
	uint64_t registration_hits;
	uint64_t registered_bytes;
	uint64_t pool_bytes;
	uint64_t pool_waits;
	struct strait_route_stats route[STRAIT_ROUTES_MAX];
};

#define STRAIT_STATS_SIZE_V1 368

/**
 * strait_stats_get() - Read the counters
 * @ctx: the context, or NULL for the sum of all contexts of the process, including closed ones
 * @stats: filled; @stats->size must be set before
 *
 * Counters only grow, except @registered_bytes and @pool_bytes. Each counter is exact, but they are not read at the same
 * instant.
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_stats_get(struct strait_context *ctx, struct strait_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
