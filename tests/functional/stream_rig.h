/* SPDX-License-Identifier: MIT */
#ifndef FUNCTIONAL_STREAM_RIG_H
#define FUNCTIONAL_STREAM_RIG_H

/* What tests of streams have in common: a stream with a file and a region. */

#include "common.h"

#define LEN MIB(8)

struct stream_rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *r;
	struct strait_endpoint *ep;
	struct strait_stream *s;
	unsigned char *want;
	uint32_t routes;
};

void stream_rig_open(struct stream_rig *g, const struct mode *m);
void stream_rig_close(struct stream_rig *g);

/* A transfer's parameters and its result, as they lie in memory. */
struct params {
	uint64_t off, region_off, len;
	int64_t result;
};

/* Puts a transfer with these parameters on the stream. */
void stream_put(struct stream_rig *g, uint32_t op, struct params *p);

/* A host function that waits until stream_blocked is false. */
extern atomic_bool stream_blocked;
void stream_block(void *arg);

#endif
