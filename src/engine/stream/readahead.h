/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_STREAM_READAHEAD_H
#define ENGINE_STREAM_READAHEAD_H

/*
 * What a stream will probably read, copied to the device before its turn comes: into memory of our own, out of pages
 * that stay registered, of a file that does not change. When its turn has come the bytes are near.
 */

#include "engine/transfer/transfer.h"

#define AHEAD_BYTES MIB(2) /* longer ones do not gain by it */

/* Memory on the device and the stream that fills and empties it. */
struct ahead_slot {
	struct list node;
	struct dev_stream *stream;
	uint64_t addr;
};

struct ahead {
	struct ahead_slot *slot; /* NULL: nothing is on its way */
	struct reg_ref place;
};

/* Starts copying what @t will read, if it can be. */
bool ahead_begin(struct ahead *a, const struct strait_transfer *t);
/* Its turn has come. True: done, and counted. Else it is to be done as any other. */
bool ahead_finish(struct ahead *a, const struct strait_transfer *t, struct strait_result *result);
/* It is not wanted any more. */
void ahead_drop(struct ahead *a);

/* When a device is closed. */
void ahead_free_slots(struct strait_device *dev, struct list *slots);

#endif
