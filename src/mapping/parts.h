/* SPDX-License-Identifier: MIT */
#ifndef MAPPING_PARTS_H
#define MAPPING_PARTS_H

/* The bytes of a batch in the memory of a view, for move.c and peer.c. */

#include "mapping/mapping.h"

/* A part of a batch that is contiguous in device memory. */
struct part {
	struct extent *extent;
	struct span span;
	uint64_t at; /* offset in the batch, and in the stage */
	bool twin;   /* read from the twin: the copy is being written to */
};

struct parts {
	struct view *v;
	struct part *part;
	unsigned int n, used; /* regions of the first @used are in use */
};

/* Marked granules keep their extents where they are. parts_put() is called after a failure, too. */
int parts_get(struct parts *p, struct view *v, const struct batch *b);
void parts_put(struct parts *p);

static inline uint64_t part_len(const struct part *p)
{
	return (p->span.end - p->span.first) << GRANULE_SHIFT;
}

static inline uint64_t part_addr(const struct part *p)
{
	return extent_addr(p->twin ? p->extent->twin : p->extent->data, p->extent, p->span.first);
}

/* Ends the marks of a batch: @yes for its first @good granules, @no for the others. */
void batch_end(struct strait_mapping *m, struct view *v, const struct batch *b, uint64_t good, enum granule_event yes,
	       enum granule_event no);

#endif
