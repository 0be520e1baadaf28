/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_TALLY_H
#define STRAIT_TALLY_H

/*
 * What `strait run` and libcufile agree on; not installed. The command makes a file of this form and names it
 * in the environment. Every process that opens the cuFile driver takes a place in it and counts there, so that
 * the sum is right however a process ends.
 */

#include <stdatomic.h>
#include <stdint.h>

#define STRAIT_TALLY_ENV "STRAIT_CUFILE_TALLY"
#define STRAIT_TALLY_MAGIC 0x31796c6c61747453u
#define STRAIT_TALLY_BYTES 65536
#define STRAIT_TALLY_ROUTES 4 /* as enum strait_route */

struct strait_tally_process {
	_Atomic uint32_t pid;
	char name[28];
	_Atomic uint64_t bytes[2][STRAIT_TALLY_ROUTES]; /* read, written */
	_Atomic uint64_t transfers[2];
	_Atomic uint64_t failed;
	uint64_t reserved[9];
};

struct strait_tally {
	uint64_t magic;
	_Atomic uint32_t used; /* places asked for: the last one is shared by all that come too late */
	uint32_t reserved[45];
	struct strait_tally_process process[];
};

#define STRAIT_TALLY_PLACES ((STRAIT_TALLY_BYTES - sizeof(struct strait_tally)) / sizeof(struct strait_tally_process))

_Static_assert(sizeof(struct strait_tally_process) == 192 && sizeof(struct strait_tally) == 192, "layout");

#endif
