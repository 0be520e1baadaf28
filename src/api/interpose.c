/* SPDX-License-Identifier: MIT */
#include <strait/interpose.h>

#include "api/api.h"
#include "engine/stream/stream.h"
#include "os/os.h"

OS_FORK_LOCK(share_lock, NULL)
static struct strait_context *shared; /* holds a reference */

/* A context inherited over fork() does not count. */
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

STRAIT_API void strait_stream_detach(struct strait_stream *stream)
{
	if (stream && !engine_alive(stream_context(stream)))
		stream_detach(stream);
}
