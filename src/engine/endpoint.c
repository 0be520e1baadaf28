/* SPDX-License-Identifier: MIT */
#include "engine/endpoint.h"

#include <stdlib.h>

#include "base/util.h"
#include "engine/engine.h"

int endpoint_adopt(struct strait_context *ctx, struct strait_endpoint *ep)
{
	struct endpoint_engine *ee = calloc(1, sizeof(*ee));

	if (!ee) {
		ep->ops->destroy(ep);
		return -ENOMEM;
	}
	ee->ep = ep;
	list_init(&ee->reg_windows);
	list_init(&ee->lease_node);
	ep->engine = ee;
	ep->owner = ctx;
	engine_ref(ctx);
	if (ep->facts.wants_lease)
		regcache_take_lease(&ctx->reg_cache, ep);
	return 0;
}

void endpoint_ref(struct strait_endpoint *ep, unsigned int n)
{
	atomic_fetch_add_explicit(&ep->refs, n, memory_order_relaxed);
}

void endpoint_unref(struct strait_endpoint *ep, unsigned int n)
{
	struct strait_context *ctx = ep->owner;

	if (atomic_fetch_sub_explicit(&ep->refs, n, memory_order_acq_rel) != n)
		return;
	regcache_drop_endpoint(&ctx->reg_cache, ep);
	free(ep->engine);
	ep->ops->destroy(ep);
	engine_unref(ctx);
}
