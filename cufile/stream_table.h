/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_STREAM_TABLE_H
#define CUFILE_STREAM_TABLE_H

/*
 * The application's streams, imported into Strait. The application may destroy a stream that it never registered at
 * any time: such a stream is detached, never closed, since closing would use the handle.
 */

#include "mem.h"

/* One stream of the application on one device. */
struct stream {
	struct cf_node node; /* by the application's handle */
	CUstream native;
	struct strait_device *dev;
	struct strait_stream *stream;
	atomic_uint in_flight;
	/* Protected by table_lock. */
	unsigned int users; /* calls between stream_get() and stream_put() */
	bool listed;	    /* in the table */
	bool awaited;	    /* a closing thread waits for the last user; otherwise the last user detaches it */
	uint64_t last_use;
};

/*
 * The stream of a handle on a device, imported at its first use, with a user until stream_put(). For host memory any
 * device will do.
 */
int stream_get(CUstream native, struct strait_device *dev, struct stream **ret);
int stream_get_for_host(struct strait_context *ctx, CUstream native, struct stream **ret);
void stream_put(struct stream *s);
bool stream_known(CUstream native);
/* Unlists a stream without transfers in flight; its last user detaches it. False if there are some. */
bool stream_unlist_idle(struct stream *s);

/* The application vouches for the handle: waits for the work of its streams and for their users, and closes them. */
void streams_close(CUstream native);
/* No stream has users. */
void streams_detach_all(void);
void stream_table_forked(void);

/* stream.c: the flags a stream was registered with. */
unsigned int stream_flags(CUstream native, bool *registered);

#endif
