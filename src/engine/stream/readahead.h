/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_STREAM_READAHEAD_H
#define ENGINE_STREAM_READAHEAD_H

/*
 * What a stream will probably read, copied to the device before its turn comes: into memory of our own, out of pages
 * that stay registered, of a file that does not change. When its turn has come the bytes are near.
 */

#include "engine/transfer/transfer.h"

#define READAHEAD_BYTES MIB(2) /* longer ones do not gain by it */

/* Memory on the device and the stream that fills and empties it. */
struct readahead_slot {
	struct list node;
	struct dev_stream *stream;
	uint64_t addr;
};

struct readahead {
	struct readahead_slot *slot; /* NULL: nothing is on its way */
	struct reg_ref place;
};

/* Starts copying what @t will read, if it can be. */
bool readahead_begin(struct readahead *a, const struct strait_transfer *t, const struct route_plan *plan);
/* Its turn has come. True: done, and counted. Else it is to be done as any other. */
bool readahead_finish(struct readahead *a, const struct strait_transfer *t, struct strait_result *result);
/* It is not wanted any more. */
void readahead_drop(struct readahead *a);

/* When a device is closed. */
void readahead_free_slots(struct strait_device *dev, struct list *slots);

#endif
