/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_STREAM_READAHEAD_H
#define ENGINE_STREAM_READAHEAD_H

/*
 * Readahead of stream transfers: bytes that a transfer will probably read are copied to scratch memory of the device before
 * it is due, out of cached registrations of an unchanged file. When it is due they are copied within the device.
 */

#include "engine/transfer/transfer.h"

#define READAHEAD_BYTES MIB(2) /* longer transfers do not gain by it */

/* Scratch memory of the device and the stream that fills and empties it. */
struct readahead_slot {
	struct list node;
	struct dev_stream *stream;
	uint64_t addr;
};

struct readahead {
	struct readahead_slot *slot; /* NULL: nothing was read ahead */
	struct reg_ref place;
};

/* Starts to copy what @t will read. False: it cannot be read ahead. */
bool readahead_begin(struct readahead *a, const struct strait_transfer *t, const struct route_plan *plan);
/* The transfer is due. True: it is done and counted. False: it must be run as any other. */
bool readahead_finish(struct readahead *a, const struct strait_transfer *t, struct strait_result *result);
/* The transfer will not be run, or has been. */
void readahead_drop(struct readahead *a);

/* Frees the slots of a device that is being closed. */
void readahead_free_slots(struct strait_device *dev, struct list *slots);

#endif
