/* SPDX-License-Identifier: MIT */
#ifndef CLI_HIST_H
#define CLI_HIST_H

/* A latency histogram with 32 buckets per power of two: percentiles are exact to 3 %. */

#include <stdint.h>

enum { HIST_SUB = 32, HIST_BUCKETS = 60 * HIST_SUB };

struct hist {
	uint64_t count, sum, max;
	uint64_t bucket[HIST_BUCKETS];
};

void hist_add(struct hist *h, uint64_t ns);
void hist_merge(struct hist *h, const struct hist *other);
/* The value that @percent of all values do not exceed; 0 if there are none. */
uint64_t hist_percentile(const struct hist *h, double percent);

#endif
