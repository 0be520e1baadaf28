/* SPDX-License-Identifier: MIT */
#include "api/api.h"

#include <strait/context.h>

#define STR_(x) #x
#define STR(x) STR_(x)

STRAIT_API const char *strait_version(void)
{
	return STR(STRAIT_VERSION_MAJOR) "." STR(STRAIT_VERSION_MINOR) "." STR(STRAIT_VERSION_PATCH);
}

STRAIT_API uint32_t strait_version_number(void)
{
	return STRAIT_VERSION;
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
