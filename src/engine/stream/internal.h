/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_STREAM_INTERNAL_H
#define ENGINE_STREAM_INTERNAL_H

/*
 * A transfer on a stream (struct ordered) is
 *
 *	queued	the device has not come to its notice yet
 *	due	the notice was called: posted to a worker, or handed to one that spins for it
 *	run	a worker moves the bytes, stores the result and posts the word that the stream waits for
 *	ended	its region, endpoint and windows are released; the stream may be closed when all are
 *
 * One that could not be put on the stream as a whole is abandoned: the submitter waits until its notice was called, and
 * nothing is run.
 *
 * Transfers that follow each other are not combined into one read, unless the file does not change (readahead.h). Between
 * two of them the application may have put work of its own on the stream: a kernel that reads the first one's bytes, a
 * host function that changes the file or the parameters of the second, a wait for an event. The driver does not tell
 * what precedes an operation on a stream, and the device does not come to the second notice before the first wait is
 * over: by then the second file read is due anyway. Ending that wait early, to see whether the second notice is next,
 * would let such work run before its bytes are there. So a file that may change is read when its transfer is due, never
 * before, and the transfer is made short instead: several threads read it (transfer/chunk_read.c), and each of them
 * spins for the next one.
 *
 * Locks: order (submitters only), then lock or readahead_lock. lock is never held over a call of the driver. The other
 * two are: order by a submitter, readahead_lock by whichever thread starts or ends a read ahead; no thread that holds
 * one of them waits for a transfer of this stream. A closer waits for the device, then for all transfers to end; workers
 * wait for neither submitters nor closers.
 */

#include "engine/regcache/read.h"
#include "engine/stream/readahead.h"
#include "engine/stream/stream.h"

struct ordered;

struct strait_stream {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct dev_stream *stream;
	/*
	 * Keeps the notice and the wait of one transfer together. Held over calls of the driver, which may block until
	 * transfers have completed: so workers never take it.
	 */
	pthread_mutex_t order;
	uint32_t sequence; /* under @order */
	pthread_mutex_t lock;
	pthread_cond_t idle;	/* a transfer has ended */
	unsigned int in_flight; /* transfers that have not ended; under @lock */
	struct word *word;
	bool imported;
	pthread_mutex_t readahead_lock; /* protects what follows, and each transfer's part in it */
	struct list waiting;		/* transfers that may be read ahead */
	unsigned int readahead;		/* transfers being read ahead */
	_Atomic(struct ordered *) next; /* NULL, SPINNING (ordered.c), or the transfer that is due */
};

struct ordered {
	struct task task;
	struct strait_stream *stream;
	struct strait_stream_transfer t;
	struct route_plan plan;
	uint32_t sequence;
	atomic_uint refs;	      /* of the stream, and of stream_transfer() */
	atomic_bool abandoned;	      /* stream_transfer() failed: do not run it */
	struct reg_ref early;	      /* if it has a window, the copy is on the stream, before the notice */
	bool ended;		      /* under the stream's lock */
	struct list node;	      /* strait_stream.waiting */
	struct strait_transfer guess; /* its parameters as they were when it was put on the stream */
	struct readahead readahead;
};

#endif
