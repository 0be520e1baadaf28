/* SPDX-License-Identifier: MIT */
#include "api/api.h"

#include <strait/strait.h>

#define STR_(x) #x
#define STR(x) STR_(x)

STRAIT_API const char *strait_version(void)
{
	return STR(STRAIT_VERSION_MAJOR) "." STR(STRAIT_VERSION_MINOR) "." STR(STRAIT_VERSION_PATCH);
}

STRAIT_API int strait_context_open(const struct strait_context_opts *opts, struct strait_context **ret)
{
	API_CHECK(ret);
	return engine_open(opts, ret);
}

STRAIT_API void strait_context_close(struct strait_context *ctx)
{
	if (ctx)
		engine_unref(ctx);
}

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
	return struct_out(stats, &s, sizeof(s), sizeof(s));
}
