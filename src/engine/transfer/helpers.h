/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_HELPERS_H
#define ENGINE_TRANSFER_HELPERS_H

/*
 * Workers that help a caller with one transfer: each runs the same function on the same argument as the caller does, and
 * these divide the work among themselves.
 *
 *   POSTED     on the list of tasks, owned by the workers
 *   RUNNING    on a worker
 *   ENDED      has run, or was withdrawn: no thread accesses the helper again
 *
 * helpers_end() withdraws what is POSTED and waits for what is RUNNING. So the caller waits for whatever the function waits
 * for, and never for a worker to become free.
 */

#include "engine/workers.h"

#define HELPERS_MAX 11

struct helpers;

struct helper {
	struct task task;
	struct helpers *all;
};

struct helpers {
	struct workers *workers;
	void (*run)(void *arg);
	void *arg;
	unsigned int n; /* of .helper that were posted */
	pthread_mutex_t lock;
	pthread_cond_t ended;
	atomic_uint active; /* POSTED or RUNNING; changed with @lock held */
	struct helper helper[HELPERS_MAX];
};

/* Which workers help. */
enum helpers_from {
	HELPERS_IDLE, /* those that are idle, and those that can be created; each lingers for the next transfer */
	HELPERS_ANY,  /* also those that become free before the caller is done */
};

/* Has up to @n workers, at most HELPERS_MAX, run @run on @arg. */
void helpers_begin(struct helpers *h, struct workers *w, enum helpers_from from, unsigned int n, void (*run)(void *arg),
		   void *arg);
void helpers_end(struct helpers *h);

#endif
