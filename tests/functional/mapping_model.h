/* SPDX-License-Identifier: MIT */
#ifndef FUNCTIONAL_MAPPING_MODEL_H
#define FUNCTIONAL_MAPPING_MODEL_H

#include "mapping_rig.h"

/*
 * Random calls on mappings of one file by several threads, on the CPU and on devices, waiting or ordered on a stream,
 * against a reference model of lazy release consistency.
 *
 * The model: each granule has a value, and a lock of the test. A thread that has the lock of a granule for writing makes
 * one side store the next value there, between acquire and release; a thread that has it for reading checks that the side
 * it acquired the granule for sees the value. So the program has no data race, and must behave as if there were one copy.
 * Ranges of reads, and of the CPU's writes, extend far beyond the locked granules, over those that other threads write to
 * at that moment. Beside them run flush, sync, prefetch, refresh, advice, and evictions on request and where the budget is small.
 *
 * STRAIT_TEST_SEED repeats the choices of a run, STRAIT_TEST_ROUNDS makes it shorter or longer.
 */
struct mapping_model {
	unsigned int threads;
	unsigned int rounds; /* of each thread: acquire, check or store, release */
	uint64_t granules;
	uint64_t budget;      /* of each device; 0: none */
	uint64_t copy_budget; /* of the CPU with copies */
	uint32_t flags;	      /* STRAIT_MAPPING_* */
	bool anonymous;	      /* one mapping of memory instead of two of a file */
	bool mixed;	      /* the second mapping without STRAIT_MAPPING_COPY */
	bool user;	      /* as an ordinary user */
	bool peers;	      /* the second device is of the same kind: bytes pass between them */
};

void mapping_model_run(const struct mapping_model *m);

#endif
