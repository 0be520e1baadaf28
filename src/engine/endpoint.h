/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_ENDPOINT_H
#define ENGINE_ENDPOINT_H

/* The engine's state of an endpoint, and the references on it. */

#include "endpoint/endpoint.h"

struct strait_context;

struct endpoint_engine {
	struct strait_endpoint *ep;
	struct list reg_windows;		/* struct reg_window.ep_node; under reg_cache.lock */
	unsigned int n_listed[2];		/* long and short windows that are listed; under reg_cache.lock */
	struct list lease_node;			/* in reg_cache.leases; under reg_cache.lock */
	bool leased;				/* a read lease stands; under reg_cache.lock */
	_Atomic uint16_t p2p[ENDPOINT_DEVICES]; /* the p2p verdict for each device, 0: not asked yet */
	atomic_uint p2p_tries;
};

static inline struct endpoint_engine *endpoint_engine(const struct strait_endpoint *ep)
{
	return ep->engine;
}

/* Makes a new endpoint one of the context, and takes the lease it was opened with. Destroys it on failure. */
int endpoint_adopt(struct strait_context *ctx, struct strait_endpoint *ep);

void endpoint_ref(struct strait_endpoint *ep, unsigned int n);
/* The last reference destroys the endpoint. */
void endpoint_unref(struct strait_endpoint *ep, unsigned int n);

#endif
