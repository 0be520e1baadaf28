/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_STATS_H
#define CUFILE_STATS_H

/* Statistics: stats.c for cuFile's own, run_stats.c for `strait run`. */

#include "core.h"

struct cf_mem;

enum cf_op {
	CF_HANDLE_REG,
	CF_HANDLE_DEREG,
	CF_BUF_REG,
	CF_BUF_DEREG,
	CF_BATCH_SETUP,
	CF_BATCH_CANCEL,
	CF_BATCH_DESTROY
};
void cf_stat_op(enum cf_op op, bool ok);
/* A buffer was registered or deregistered. @m is NULL if that failed. */
void cf_stat_buffer(const struct cf_mem *m, bool registered);
/* A transfer completed. @at: its offsets and its size or'ed together, to tell whether all are multiples of a page. */
void cf_stat_io(uint32_t op, int64_t result, uint64_t ns, const struct cf_mem *m, uint32_t routes, uint64_t at);
void cf_stat_vector(uint32_t op, int64_t result, uint64_t ns);
void cf_stat_submit(const CUfileIOParams_t *p, unsigned int entries, bool ok, uint64_t ns);
void cf_stat_batch(uint32_t op, int64_t result, uint64_t ns);
void cf_stats_configure(size_t level);
bool cf_stats_wanted(void);

/* run_stats.c: counters that `strait run` reads. @route_bytes may be NULL. */
void cf_run_stats_open(void);
void cf_run_stats_add(uint32_t op, int64_t result, const uint64_t *route_bytes);
bool cf_run_stats_wanted(void);

/* Called in the child after fork(). */
void cf_stats_forked(void);
void cf_run_stats_forked(void);

#endif
