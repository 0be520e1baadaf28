/* SPDX-License-Identifier: MIT */
#ifndef CLI_HIST_H
#define CLI_HIST_H

/* Latencies in buckets a thirty-second wide each: a percentile is at most 3 % off. */

#include <stdint.h>

enum { HIST_SUB = 32, HIST_BUCKETS = 60 * HIST_SUB };

struct hist {
	uint64_t count, sum, max;
	uint64_t bucket[HIST_BUCKETS];
};

void hist_add(struct hist *h, uint64_t ns);
void hist_merge(struct hist *h, const struct hist *other);
/* The value that @percent of all values do not exceed; 0 without any. */
uint64_t hist_percentile(const struct hist *h, double percent);

#endif
