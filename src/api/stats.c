/* SPDX-License-Identifier: MIT */
#include <strait/stats.h>

#include "api/api.h"
#include "base/util.h"

STRAIT_API int strait_stats_get(struct strait_context *ctx, struct strait_stats *stats)
{
	struct strait_stats s = { .size = sizeof(s) };

	API_CHECK(stats);
	if (ctx) {
		API_ALIVE(ctx);
		stats_read(&ctx->stats, &s);
	} else {
		stats_read_process(&s);
	}
	return struct_out(stats, &s, sizeof(s), STRAIT_STATS_SIZE_V1);
}
