/* SPDX-License-Identifier: MIT */
#ifndef CLI_VERIFY_H
#define CLI_VERIFY_H

/*
 * `strait verify`: a pattern goes from device memory into a file and comes back into other device memory,
 * in pieces of odd sizes at odd places, in every way the library has.
 */

#include <stdbool.h>
#include <stdint.h>

#include <strait/types.h>

#include "lib/pattern.h"
#include "lib/target.h"

/* Untouched memory around the data, so that a byte too many is noticed. */
#define VERIFY_GUARD 4096u
/* How far reads at the end of the file ask past it. Less than the guard. */
#define VERIFY_PAST_END 100u

enum verify_method {
	VERIFY_SYNC,
	VERIFY_QUEUE,
	VERIFY_STREAM,
};

const char *verify_method_name(enum verify_method method);

struct verify_piece {
	uint64_t off; /* in the file */
	uint64_t len;
};

/* A range of the file cut into pieces, in no particular order, each byte in exactly one. */
struct verify_plan {
	struct verify_piece *piece;
	unsigned int n;
};

void verify_plan_make(struct verify_plan *plan, uint64_t start, uint64_t len, uint64_t seed);
void verify_plan_free(struct verify_plan *plan);

/* A set of pieces to be moved in one way. */
struct verify_move {
	struct target *target;
	const char *path;
	enum strait_op op;
	uint32_t routes;
	struct strait_endpoint *ep;
	struct strait_region *region;
	uint64_t region_base; /* where in the region ... */
	uint64_t file_base;   /* ... this offset of the file is */
	uint64_t file_end;    /* reads that reach it ask for more */
	const struct verify_piece *piece;
	unsigned int n;
};

/* Returns an exit code, having said what was wrong. */
int verify_move(const struct verify_move *m, enum verify_method method);

/* The file under test. */
struct verify_file {
	int fd;
	bool ours;	 /* it has no name and goes away by itself */
	uint64_t length; /* of a file that was there before */
	bool block;
};

/*
 * @path: a directory to make an unnamed file in, a file that is not there yet, or with @force an existing
 * file or block device. Returns an exit code, having said what was wrong.
 */
int verify_file_open(struct verify_file *f, const char *path, bool force);
void verify_file_close(struct verify_file *f);

/*
 * Compare the file with the pattern by plain reads, without the library. *@where is the first offset that
 * differs, @size if none. Returns an exit code, having said what was wrong.
 */
int verify_file_check(const struct verify_file *f, const char *path, const struct pattern *p, uint64_t size,
		      uint64_t *where);

/* One way to read everything back. */
struct verify_pass {
	const char *name;
	enum verify_method method;
	bool direct;   /* by direct I/O where the file has it */
	bool cold;     /* from storage, not from the page cache */
	uint64_t base; /* where the data lies in the region read into */
	/* how it went */
	bool done;
	uint64_t bytes, ns, where; /* where: first offset that differs, UINT64_MAX if none */
	bool guard;		   /* memory beside the data was touched */
};

struct verify {
	const char *path;
	uint64_t size;
	bool force;
	struct pattern pattern;
	struct target_opts opts;
	struct target target;
	struct verify_file file;
	struct strait_endpoint *ep, *direct_ep;
	struct strait_region *source, *copy;
	uint64_t window; /* how much of the file fits into the memory at once */
	uint64_t source_base;
	uint64_t filled; /* start of the window whose pattern the source holds, UINT64_MAX for none */
	uint32_t write_routes;
	uint64_t file_where; /* what a plain read found */
	uint64_t write_ns;
	uint64_t shown;
	struct verify_pass pass[3];
};

/* Show what was found. Returns the exit code: CLI_MISMATCH if anything differs. */
int verify_report(const struct verify *v);

#endif
