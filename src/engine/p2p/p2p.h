/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_P2P_P2P_H
#define ENGINE_P2P_P2P_H

/*
 * Route p2p: the drive moves the bytes itself, commanded by the kernel (/dev/strait) or by the endpoint's own driver.
 *
 * Software cannot tell a fabric that drops peer writes from one that delivers them. So a pair of drive and device is
 * used only after a block of the drive was read into device memory and found there. The verdict is kept as long as the
 * context.
 *
 * p2p.lock is held over calls of providers. A verdict that is known is read without it.
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
	bool tried; /* the module was opened, or could not be */
	int fd;	    /* -1: it could not be opened */
	int status; /* the error of that */
	uint64_t features;
	struct list pairs; /* struct p2p_pair */
};

void p2p_init(struct p2p *p);
void p2p_fini(struct p2p *p);

/* Fills the facts of the p2p route. The first call for an endpoint and a device verifies the pair by I/O. */
void p2p_facts(const struct strait_transfer *t, struct route_facts *f);

/* The aligned part of a request, in offsets of the endpoint. False: no part is aligned. */
bool p2p_part(const struct strait_transfer *t, uint64_t *start, uint64_t *end);

/*
 * Moves [start, end) of the endpoint. Returns the offset it reached; @err says why not @end, @device_status is the drive's
 * own. -EOPNOTSUPP: another route must move the rest. -EAGAIN: the drive moved less than asked, as at the new end of a file
 * that was truncated meanwhile.
 */
struct p2p_piece {
	uint64_t start, end;
	uint64_t deadline;
	const atomic_bool *cancel;
	int err;
	int32_t device_status;
};

uint64_t p2p_run(const struct strait_transfer *t, struct p2p_piece *p);

/* Does the module take such a request as an io_uring command? */
bool p2p_commands(const struct strait_transfer *t);
/* Queues a command for what follows the first @done bytes of a request. @len: how many bytes it covers. */
int p2p_command(const struct strait_transfer *t, struct os_ring *ring, uint64_t done, void *tag, uint64_t *len);

/* Releases what was imported of a region that is about to be freed. */
void p2p_release_region(struct strait_region *r);

#endif
