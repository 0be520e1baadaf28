/* SPDX-License-Identifier: MIT */
#ifndef CLI_PATTERN_H
#define CLI_PATTERN_H

/*
 * Test data without end. The position determines each byte, so that misplaced bytes are detected: every 8-byte word is
 * a mix of its index and the seed.
 */

#include <stddef.h>
#include <stdint.h>

#include <strait/types.h>

enum pattern_kind {
	PATTERN_RANDOM, /* cannot be compressed or deduplicated */
	PATTERN_ZERO,
	PATTERN_INDEX, /* each word is its index plus the seed: easy to read in a dump */
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

/* Write these bytes into device memory. Returns 0 or a negative errno. */
int pattern_to_region(const struct pattern *p, uint64_t pos, struct strait_region *region, uint64_t off, uint64_t len);

#endif
