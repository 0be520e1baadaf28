/* SPDX-License-Identifier: MIT */
#include "lib/hist.h"

/* Values below HIST_SUB have a bucket each; above, each power of two has HIST_SUB of them. */
static unsigned int bucket_of(uint64_t v)
{
	unsigned int exp;

	if (v < HIST_SUB)
		return (unsigned int)v;
	exp = 63 - (unsigned int)__builtin_clzll(v) - 5;
	return (exp + 1) * HIST_SUB + (unsigned int)((v >> exp) - HIST_SUB);
}

/* The largest value that falls into a bucket. */
static uint64_t bucket_top(unsigned int b)
{
	unsigned int exp;

	if (b < HIST_SUB)
		return b;
	exp = b / HIST_SUB - 1;
	return (((uint64_t)(b % HIST_SUB) + HIST_SUB + 1) << exp) - 1;
}

void hist_add(struct hist *h, uint64_t ns)
{
	unsigned int b = bucket_of(ns);

	h->count++;
	h->sum += ns;
	if (ns > h->max)
		h->max = ns;
	h->bucket[b < HIST_BUCKETS ? b : HIST_BUCKETS - 1]++;
}

void hist_merge(struct hist *h, const struct hist *other)
{
	h->count += other->count;
	h->sum += other->sum;
	if (other->max > h->max)
		h->max = other->max;
	for (unsigned int i = 0; i < HIST_BUCKETS; i++)
		h->bucket[i] += other->bucket[i];
}

uint64_t hist_percentile(const struct hist *h, double percent)
{
	uint64_t rank = (uint64_t)((double)h->count * percent / 100 + 0.999999), seen = 0;

	if (!h->count)
		return 0;
	if (!rank)
		rank = 1;
	for (unsigned int i = 0; i < HIST_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen >= rank)
			return bucket_top(i) < h->max ? bucket_top(i) : h->max;
	}
	return h->max;
}
