/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_P2P_PAIR_H
#define ENGINE_P2P_PAIR_H

/* Verifies a pair: do bytes that the drive writes arrive in the memory of the device? */

#include "engine/engine.h"
#include "engine/p2p/p2p.h"

struct p2p_pair {
	struct list node; /* p2p.pairs */
	char drive[16], device[16];
	bool good;
};

/* What a pair is verified with: memory of the device and a file on the drive. */
struct p2p_scratch {
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_device *dev;
	struct provider_mem mem;
	uint32_t handle;
	uint64_t start; /* offset of @mem in what was imported */
};

/*
 * With p2p.lock held: ROUTE_OK, ROUTE_PAIR if they did not, or ROUTE_UNVERIFIED when it cannot be tried by this
 * file. What came out once is what comes out from then on.
 */
enum route_reason p2p_pair_verify(struct p2p *p, const struct p2p_scratch *s, const char *drive, const char *device);

#endif
