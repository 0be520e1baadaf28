/* SPDX-License-Identifier: MIT */
#ifndef FUNCTIONAL_QUEUE_MODEL_H
#define FUNCTIONAL_QUEUE_MODEL_H

#include "common.h"

/*
 * Random calls on a few queues by several threads, in any interleaving: submissions of all kinds and sizes, waits with
 * and without a limit, polls, waits for all, waits for the descriptor, cancelations, closed and reopened queues, revoked
 * and closed regions, forks. The model: each transfer that was accepted delivers exactly one result, unless its queue is
 * closed, which always returns; a result is what its request must give; bytes arrive.
 *
 * STRAIT_TEST_SEED repeats the choices of a run, STRAIT_TEST_ROUNDS makes it shorter or longer.
 */
struct queue_model {
	unsigned int threads;
	unsigned int rounds;  /* calls of each thread */
	uint32_t workers;     /* threads of the context */
	uint32_t entries;     /* of a queue */
	uint64_t pool, chunk; /* 0 for the defaults */
	uint64_t latency_ns;  /* of the emulated device */
	bool no_threads;      /* of the context can be created */
};

void queue_model_run(const struct queue_model *m);

#endif
