/* SPDX-License-Identifier: MIT */
#ifndef FUNCTIONAL_STRESS_H
#define FUNCTIONAL_STRESS_H

#include "common.h"

/*
 * Many threads on one context, each doing all there is to do in no order: reads and writes of all sizes by all
 * routes, queues and streams, on two emulated devices and the host, while regions and endpoints come and go.
 */
struct stress {
	unsigned int threads;
	unsigned int rounds; /* of each thread */
	uint64_t file_bytes;
	uint64_t seed;
	uint32_t context; /* STRAIT_CONTEXT_* */
	uint64_t pool, chunk;
};

void stress_run(const struct stress *s);

#endif
