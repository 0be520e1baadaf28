/* SPDX-License-Identifier: MIT */
/* Idle io_uring instances of a context. */
#include "engine/engine.h"

struct os_ring *engine_ring_get(struct strait_context *ctx)
{
	struct os_ring *ring = NULL;
	int rc = 0;

	pthread_mutex_lock(&ctx->ring_lock);
	if (ctx->n_rings)
		ring = ctx->rings[--ctx->n_rings];
	else
		rc = ctx->ring_error;
	pthread_mutex_unlock(&ctx->ring_lock);
	if (ring || rc)
		return ring;
	rc = os_ring_open(ctx->queue_depth, &ring);
	if (!rc)
		return ring;
	/* A missing or forbidden io_uring stays so; a lack of memory or descriptors may pass. */
	if (rc == -ENOSYS || rc == -EPERM || rc == -EACCES) {
		pthread_mutex_lock(&ctx->ring_lock);
		if (!ctx->ring_error)
			log_info(&ctx->log, "no io_uring (%s): threads do the direct I/O", strerror(-rc));
		ctx->ring_error = rc;
		pthread_mutex_unlock(&ctx->ring_lock);
	}
	return NULL;
}

void engine_ring_put(struct strait_context *ctx, struct os_ring *ring, bool broken)
{
	if (!broken) {
		pthread_mutex_lock(&ctx->ring_lock);
		if (ctx->n_rings < ENGINE_RINGS) {
			ctx->rings[ctx->n_rings++] = ring;
			ring = NULL;
		}
		pthread_mutex_unlock(&ctx->ring_lock);
	}
	os_ring_close(ring);
}
