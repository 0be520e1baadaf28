/* SPDX-License-Identifier: MIT */
#include "api/api.h"

#include <strait/interpose.h>
#include <strait/strait.h>

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

OS_FORK_LOCK(share_lock, NULL)
static struct strait_context *shared; /* with a reference */

/* One that was inherited by fork() is no longer there. */
static bool is_shared_locked(void)
{
	return shared && !engine_alive(shared);
}

STRAIT_API int strait_context_share(struct strait_context *ctx)
{
	struct strait_context *old = NULL;
	bool busy;

	API_CHECK(ctx);
	API_ALIVE(ctx);
	engine_ref(ctx);
	pthread_mutex_lock(&share_lock);
	busy = is_shared_locked();
	if (!busy) {
		old = shared;
		shared = ctx;
	}
	pthread_mutex_unlock(&share_lock);
	if (busy)
		engine_unref(ctx);
	if (old)
		engine_unref(old);
	return busy ? -EBUSY : 0;
}

STRAIT_API int strait_context_unshare(struct strait_context *ctx)
{
	bool found;

	API_CHECK(ctx);
	API_ALIVE(ctx);
	pthread_mutex_lock(&share_lock);
	found = shared == ctx;
	if (found)
		shared = NULL;
	pthread_mutex_unlock(&share_lock);
	if (found)
		engine_unref(ctx);
	return found ? 0 : -ENOENT;
}

STRAIT_API int strait_context_shared(struct strait_context **ret)
{
	struct strait_context *ctx;

	API_CHECK(ret);
	pthread_mutex_lock(&share_lock);
	ctx = is_shared_locked() ? shared : NULL;
	if (ctx)
		engine_ref(ctx);
	pthread_mutex_unlock(&share_lock);
	if (!ctx)
		return -ENOENT;
	*ret = ctx;
	return 0;
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
	return struct_out(stats, &s, sizeof(s), STRAIT_STATS_SIZE_V1);
}
