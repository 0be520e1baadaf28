/* SPDX-License-Identifier: MIT */
#include "lib/pattern.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <strait/region.h>

#include "lib/cli.h"

static const char *const names[] = {
	[PATTERN_RANDOM] = "random",
	[PATTERN_ZERO] = "zero",
	[PATTERN_INDEX] = "index",
};

int pattern_parse(const char *name, enum pattern_kind *kind)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		if (!strcmp(names[i], name)) {
			*kind = i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *pattern_name(enum pattern_kind kind)
{
	return names[kind];
}

/* splitmix64: every bit of the input reaches every bit of the output. */
static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static uint64_t word_at(const struct pattern *p, uint64_t index)
{
	switch (p->kind) {
	case PATTERN_ZERO:
		return 0;
	case PATTERN_INDEX:
		return htole64(index + p->seed);
	case PATTERN_RANDOM:
		break;
	}
	return htole64(mix(mix(p->seed + 0x9e3779b97f4a7c15u) + index * 0x9e3779b97f4a7c15u));
}

void pattern_fill(const struct pattern *p, uint64_t pos, void *buf, size_t len)
{
	uint64_t index = pos / 8, word;
	size_t skip = pos % 8;
	char *at = buf;

	while (len) {
		size_t n = min_u64(len, 8 - skip);

		word = word_at(p, index++);
		memcpy(at, (const char *)&word + skip, n);
		at += n;
		len -= n;
		skip = 0;
	}
}

int pattern_to_region(const struct pattern *p, uint64_t pos, struct strait_region *region, uint64_t off, uint64_t len)
{
	size_t step = min_u64(len, 4 * MIB);
	char *buf;
	int err = 0;

	if (p->kind == PATTERN_ZERO)
		return strait_region_fill(region, off, 0, len);
	buf = malloc(step ? step : 1);
	if (!buf)
		return -ENOMEM;
	while (len && !err) {
		size_t n = min_u64(len, step);

		pattern_fill(p, pos, buf, n);
		err = strait_region_copy_in(region, off, buf, n);
		pos += n;
		off += n;
		len -= n;
	}
	free(buf);
	return err;
}
