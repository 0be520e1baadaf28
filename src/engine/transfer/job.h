/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_JOB_H
#define ENGINE_TRANSFER_JOB_H

/*
 * A job is one transfer under way. Its range is cut into windows that one or more lanes (threads)
 * take from a common cursor, so windows travel at the same time and not all by the same route.
 *
 * Reads pass a gate: the bytes of a window go to the device only when those of all windows before
 * it have been read. So a failing file leaves device memory untouched past the good bytes, however
 * far ahead other lanes have read.
 *
 * Why this cannot deadlock on the staging pool: a lane takes its window only after it has a chunk for
 * it, so the first window of the gate's line always has what it needs and moves on by itself.
 */

#include <pthread.h>

#include "engine/engine.h"
#include "engine/route.h"

#define JOB_LANES 32

struct window {
	struct list node; /* job.gate, then lane.copies, then job.used if another lane is to unregister it */
	uint64_t off;	  /* in the endpoint */
	uint64_t len;
	uint64_t got; /* bytes read */
	int err;
	int32_t device_status; /* of a copy that was made again */
	bool ready;	       /* read; waits for those before it */
	bool direct;
	bool cached; /* all of it was in the page cache when asked */
	int route;
	struct chunk *chunk;
	uint64_t skip;		 /* where in the chunk, or mapping, the window starts */
	uint64_t io_off, io_len; /* what direct I/O asks for: the window rounded outwards */
	void *map;		 /* a page-cache window registered for this transfer */
	uint64_t map_len;
	struct host_reg reg;
	struct reg_window *reg_window;
	struct dev_event *event;
};

struct job;

struct helper {
	struct task task;
	struct job *job;
};

struct job {
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_region *region;
	struct strait_device *dev;
	struct staging_pool *pool;
	uint32_t op;
	struct route_plan plan;
	bool host;		   /* the region is host memory */
	uint64_t start;		   /* first byte in the endpoint */
	uint64_t stop;		   /* one past the last */
	uint64_t addr;		   /* device address of the first byte */
	uint64_t ep_len;	   /* length of the endpoint when the job began */
	uint64_t block;		   /* windows end at multiples of this */
	uint32_t walign;	   /* alignment of direct windows of a write */
	bool isolated;		   /* a stream of the application's waits for it */
	uint64_t deadline;	   /* in os_now_ns() time, UINT64_MAX for none */
	const atomic_bool *cancel; /* NULL if nobody can */
	atomic_bool no_direct;	   /* direct I/O was refused on the way */
	struct staging_user user;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* the gate moved, or a lane ended */
	struct list gate;	/* windows not yet on their way to the device, in order */
	struct list used;	/* windows copied by others than the lane that registers, which unregisters them */
	uint64_t cursor;
	uint64_t limit; /* bytes are good up to here */
	int err;	/* why not further, 0 for the end of the file */
	int32_t device_status;
	bool fresh; /* windows were registered for this transfer alone */
	unsigned int lanes;
	unsigned int helpers;
	unsigned int max_lanes;
	unsigned int register_lanes;
	uint64_t route_bytes[STRAIT_ROUTE_COUNT];
	struct helper helper[JOB_LANES];
};

/* A thread's part in a job. */
struct lane {
	struct job *job;
	struct lane_stream *ls; /* NULL on the host route */
	struct os_ring *ring;
	bool ring_broken;
	bool stream_broken;
	bool registers;		      /* takes cached windows by registering them */
	bool no_register;	      /* has tried, and it does not work */
	unsigned int register_faults; /* in a row */
	unsigned int n_io;	      /* on the ring */
	struct list copies;	      /* windows the copy engine works on, oldest first */
	unsigned int n_copies;
};

/* Runs the transfer to its end, on this thread and such others as are free. */
void job_run(struct job *job, struct strait_result *result);

/* The bytes past @off are not good: @err says why, 0 means that the file ends there. */
void job_fail(struct job *job, uint64_t off, int err, int32_t device_status);
/* Ends the job early if it was canceled or its time is up. */
void job_poll(struct job *job);
void job_add_bytes(struct job *job, int route, uint64_t bytes);
void job_want_helper(struct job *job);
/* Is the beginning of what it reads in the page cache? */
bool job_starts_cached(const struct job *job);
/* Makes the lane one that registers, if this is the job for it and none too many do. Under the job's lock. */
void job_claim_register(struct lane *l);
void job_release_register(struct lane *l);
/* For a lane that does not register: leaves a window to one that does. */
void job_leave_registered(struct job *job, struct window *w);
/* Unregisters what was left so. */
void job_unregister_used(struct job *job);

/* Do all bytes of a write go through the page cache? */
bool job_write_buffered(const struct job *job);

void lane_read(struct lane *l);
void lane_write(struct lane *l);

/* lane.c: what both directions need */
struct window *lane_take_window(struct lane *l);
struct os_ring *lane_ring(struct lane *l);
void *lane_buffer(struct lane *l, const struct window *w);
int lane_copy(struct lane *l, struct window *w);
struct window *lane_oldest_copy(struct lane *l, bool wait, int *err);
void lane_free_window(struct lane *l, struct window *w);
uint64_t job_dev_addr(const struct job *job, uint64_t off);

#endif
