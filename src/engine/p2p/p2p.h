/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_P2P_P2P_H
#define ENGINE_P2P_P2P_H

/*
 * Route p2p: the drive moves the bytes itself, by /dev/strait, or because the endpoint drives it.
 *
 * Software cannot tell a fabric that drops what one device writes to another from one that works. So a
 * pair of drive and device is trusted after a block of the drive was read into device memory and found
 * there. What came out is kept as long as the context.
 *
 * Locks: p2p.lock, with providers called under it. What is known already is found without it.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <strait/transfer.h>

#include "device/region.h"
#include "engine/route.h"

struct os_ring;
struct strait_context;

struct p2p {
	pthread_mutex_t lock;
	bool tried; /* to open the module */
	int fd;	    /* -1 without it */
	int status; /* why not */
	uint64_t features;
	struct list pairs; /* struct p2p_pair */
};

void p2p_init(struct p2p *p);
void p2p_fini(struct p2p *p);

/* Fills what a route needs to know. The first time for an endpoint and a device it finds out, by I/O. */
void p2p_facts(const struct strait_transfer *t, struct route_facts *f);

/* The part of a request that is aligned, in offsets of the endpoint; false if there is none. */
bool p2p_part(const struct strait_transfer *t, uint64_t *start, uint64_t *end);

/*
 * Moves [start, end) of the endpoint. Returns how far it came; @err is why not further, and @device_status what
 * the drive said. -EOPNOTSUPP: another route must take the rest. -EAGAIN: the drive moved less than it was told
 * to, as it does where a file that has shrunk meanwhile ends now.
 */
struct p2p_piece {
	uint64_t start, end;
	uint64_t deadline;
	const atomic_bool *cancel;
	int err;
	int32_t device_status;
};

uint64_t p2p_run(const struct strait_transfer *t, struct p2p_piece *p);

/* Does the module move bytes of such a request by commands on a ring, too? */
bool p2p_commands(const struct strait_transfer *t);
/* Queue one for what follows the first @done bytes of a request; @len: how much of it. */
int p2p_command(const struct strait_transfer *t, struct os_ring *ring, uint64_t done, void *tag, uint64_t *len);

/* The region is about to go. */
void p2p_forget(struct strait_region *r);

#endif
