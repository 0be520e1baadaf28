/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_STREAM_TABLE_H
#define CUFILE_STREAM_TABLE_H

/*
 * The program's streams, as Strait knows them. Streams that the program never registered may be destroyed without a
 * word: what Strait has of them is forgotten, never closed.
 */

#include "mem.h"

/* One stream of the program on one device. */
struct stream {
	struct cf_node node; /* by the program's handle */
	CUstream native;
	struct strait_device *dev;
	struct strait_stream *stream;
	atomic_uint in_flight;
	/* The rest is under the lock of the table. */
	unsigned int users; /* calls that use it now */
	bool listed;	    /* in the table */
	bool awaited;	    /* a thread that closes it waits for the last user; else that one forgets it */
	uint64_t last_use;
};

/*
 * The stream of a handle on a device, imported the first time, in use until stream_put(). For host memory it may be that
 * of any device.
 */
int stream_get(CUstream native, struct strait_device *dev, struct stream **ret);
int stream_get_for_host(struct strait_context *ctx, CUstream native, struct stream **ret);
void stream_put(struct stream *s);
bool stream_known(CUstream native);
/* Takes a stream that has nothing to do out of the table: it goes with its last user. False if it has. */
bool stream_unlist_idle(struct stream *s);

/* The program says that its stream is still there: waits for its work, and for calls that use it. */
void streams_close(CUstream native);
/* No call is inside: forgets them all. */
void streams_forget_all(void);
void stream_table_forked(void);

/* stream.c: what a stream was registered with, 0 if it was not. */
unsigned int stream_flags(CUstream native, bool *registered);

#endif
