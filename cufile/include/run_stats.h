/* SPDX-License-Identifier: MIT */
#ifndef RUN_STATS_H
#define RUN_STATS_H

/*
 * Statistics shared between `strait run` and libcufile. Not installed. The command creates a file of this form and
 * passes its path in the environment. Every process that opens the cuFile driver maps the file, takes a slot and counts
 * there, so the sum is complete however a process ends.
 */

#include <stdatomic.h>
#include <stdint.h>

#define RUN_STATS_ENV "STRAIT_CUFILE_RUN_STATS"
#define RUN_STATS_MAGIC 0x31796c6c61747453u
#define RUN_STATS_BYTES 65536
#define RUN_STATS_ROUTES 4 /* indexed by enum strait_route */

struct run_stats_process {
	_Atomic uint32_t pid;
	char name[28];
	_Atomic uint64_t bytes[2][RUN_STATS_ROUTES]; /* read, written */
	_Atomic uint64_t transfers[2];
	_Atomic uint64_t failed;
	uint64_t reserved[9];
};

struct run_stats {
	uint64_t magic;
	_Atomic uint32_t used; /* slots requested; processes beyond the last slot share it */
	uint32_t reserved[45];
	struct run_stats_process process[];
};

#define RUN_STATS_SLOTS ((RUN_STATS_BYTES - sizeof(struct run_stats)) / sizeof(struct run_stats_process))

_Static_assert(sizeof(struct run_stats_process) == 192 && sizeof(struct run_stats) == 192, "layout");

#endif
