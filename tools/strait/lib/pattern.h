/* SPDX-License-Identifier: MIT */
#ifndef CLI_PATTERN_H
#define CLI_PATTERN_H

/*
 * Endless data that every position of determines: a byte that is not where it belongs differs from what
 * belongs there. Each 8-byte word is a mix of its number and the seed.
 */

#include <stddef.h>
#include <stdint.h>

#include <strait/types.h>

enum pattern_kind {
	PATTERN_RANDOM, /* cannot be compressed or deduplicated */
	PATTERN_ZERO,
	PATTERN_INDEX, /* each word is its number: easy to read in a dump */
};

struct pattern {
	enum pattern_kind kind;
	uint64_t seed;
};

/* -EINVAL for an unknown name. */
int pattern_parse(const char *name, enum pattern_kind *kind);
const char *pattern_name(enum pattern_kind kind);

/* Bytes [pos, pos + len) of the pattern. */
void pattern_fill(const struct pattern *p, uint64_t pos, void *buf, size_t len);

/* The same into device memory. 0 or a negative errno. */
int pattern_to_region(const struct pattern *p, uint64_t pos, struct strait_region *region, uint64_t off, uint64_t len);

#endif
