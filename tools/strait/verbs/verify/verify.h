/* SPDX-License-Identifier: MIT */
#ifndef CLI_VERIFY_H
#define CLI_VERIFY_H

/*
 * `strait verify`: writes a pattern from device memory to a file and reads it back into other device memory, in pieces of
 * many lengths at unaligned offsets, through every interface of the library.
 */

#include <stdbool.h>
#include <stdint.h>

#include <strait/types.h>

#include "lib/pattern.h"
#include "lib/target.h"

/* Memory on each side of the data, checked for bytes written outside the data. */
#define VERIFY_GUARD 4096u
/* Reads at the end of the file ask for this many bytes past it. Less than the guard. */
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

/* A range of the file split into pieces in random order; each byte is in exactly one. */
struct verify_plan {
	struct verify_piece *piece;
	unsigned int n;
};

void verify_plan_make(struct verify_plan *plan, uint64_t start, uint64_t len, uint64_t seed);
void verify_plan_free(struct verify_plan *plan);

/* Pieces to transfer through one interface. */
struct verify_move {
	struct target *target;
	const char *path;
	enum strait_op op;
	uint32_t routes;
	struct strait_endpoint *ep;
	struct strait_region *region;
	uint64_t region_base; /* offset in the region of file_base */
	uint64_t file_base;   /* offset in the file */
	uint64_t file_end;    /* reads that end here ask for VERIFY_PAST_END bytes more */
	const struct verify_piece *piece;
	unsigned int n;
};

/* Returns an exit code, having printed what was wrong. */
int verify_move(const struct verify_move *m, enum verify_method method);

/* The file under test. */
struct verify_file {
	int fd;
	bool ours;	 /* created by this run; it has no name and disappears when it is closed */
	uint64_t length; /* of an existing file */
	bool block;
};

/*
 * @path: a directory to create an unnamed file in, a file that does not exist yet, or with @force an existing file or
 * block device. Returns an exit code, having printed what was wrong.
 */
int verify_file_open(struct verify_file *f, const char *path, bool force);
void verify_file_close(struct verify_file *f);

/*
 * Compare the file with the pattern by pread(2), without the library. *@where is the first offset that differs, @size if
 * none. Returns an exit code, having printed what was wrong.
 */
int verify_file_check(const struct verify_file *f, const char *path, const struct pattern *p, uint64_t size,
		      uint64_t *where);

/* One pass that reads everything back. */
struct verify_pass {
	const char *name;
	enum verify_method method;
	bool direct;   /* use direct I/O where the file has it */
	bool cold;     /* drop the page cache first */
	uint64_t base; /* offset of the data in the region read into */
	/* results */
	bool done;
	uint64_t bytes, ns, where; /* where: first offset that differs, UINT64_MAX if none */
	bool guard;		   /* bytes outside the data were written */
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
	uint64_t window; /* bytes of the file that fit into device memory at once */
	uint64_t source_base;
	uint64_t filled; /* start of the window whose pattern the source holds, UINT64_MAX for none */
	uint32_t write_routes;
	uint64_t file_where; /* first offset at which pread(2) differs, @size if none */
	uint64_t write_ns;
	uint64_t shown;
	struct verify_pass pass[3];
};

/* Print the results. Returns the exit code: CLI_MISMATCH if anything differs. */
int verify_report(const struct verify *v);

#endif
