/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_JOB_H
#define ENGINE_TRANSFER_JOB_H

/*
 * A job is one transfer in flight. Its range is divided into windows. One lane or more, each a thread, take windows at
 * a common cursor, so several windows are in flight, not all by the same route.
 *
 * Reads pass a gate: a window is copied to the device only after all windows before it have been read. So a failing
 * file leaves device memory untouched past the valid bytes, however far ahead other lanes have read.
 *
 * A window is taken (on job.gate; its lane reads or registers it) -> ready -> past the gate -> copying (on lane.copies)
 * -> freed, or on job.used until a lane that registers unregisters it. The lane that took it owns it until it is ready;
 * the lane that lets it through the gate owns it from then on.
 *
 * Helpers. A lane asks for one before each window that it reads, as long as there are enough bytes for another lane: workers
 * that other transfers have kept busy are found as soon as they are idle. Before its first window it asks for several, so
 * that the number of lanes grows by a factor with each wakeup.
 *
 * Waiting: a lane waits for its own I/O and copies and, in read_in_turn(), for windows before its own at the gate. It
 * takes a window only after it has a chunk for it, so the first window at the gate needs nothing of another lane. The
 * caller of job_run() waits for all lanes.
 */

#include <pthread.h>

#include "engine/engine.h"
#include "engine/route.h"

#define JOB_LANES 32

struct window {
	struct list node; /* job.gate, then lane.copies, then perhaps job.used */
	uint64_t off;	  /* in the endpoint */
	uint64_t len;
	uint64_t got; /* bytes read */
	int err;
	int32_t device_status; /* of a copy that was repeated */
	bool ready;	       /* read: waits for the windows before it */
	bool direct;
	bool cached; /* the page cache held all of it when asked */
	int route;
	struct chunk *chunk;
	uint64_t skip;		 /* where in the chunk, or mapping, the window starts */
	uint64_t io_off, io_len; /* range of the direct read: the window rounded outwards */
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
	bool taken; /* posted or running; under the job's lock */
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
	bool ramps;		   /* or of a fraction of it at the beginning and towards the end */
	uint32_t walign;	   /* alignment of direct windows of a write */
	bool isolated;		   /* a stream of the application waits for it */
	uint64_t deadline;	   /* in os_now_ns() time, UINT64_MAX for none */
	const atomic_bool *cancel; /* NULL: it cannot be canceled */
	atomic_bool no_direct;	   /* the file refused direct I/O */
	struct staging_user user;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* the gate moved, or a lane ended */
	struct list gate;	/* windows whose copy has not started, in order */
	struct list used;	/* registered windows whose copy is done, left to a lane that registers */
	uint64_t cursor;
	uint64_t limit; /* bytes up to here are valid */
	int err;	/* why not further, 0 for the end of the file */
	int32_t device_status;
	bool fresh;	   /* windows were registered for this job alone */
	atomic_uint lanes; /* changed under the lock */
	unsigned int max_lanes;
	unsigned int n_lanes;		       /* that have begun */
	uint64_t began, first_copy, last_lane; /* in os_now_ns() time: of the job, its first copy, its newest lane */
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
	bool has_asked;		      /* for helpers */
	bool registers;		      /* registers cached windows */
	bool no_register;	      /* registering has failed: this lane does not try again */
	unsigned int register_faults; /* in a row */
	unsigned int n_io;	      /* on the ring */
	struct list copies;	      /* windows the copy engine works on, oldest first */
	unsigned int n_copies;
};

/* Runs the transfer to its end, on this thread and on idle workers. */
void job_run(struct job *job, struct strait_result *result);

/* Bytes past @off are not valid. @err: why, 0 for the end of the file. */
void job_fail(struct job *job, uint64_t off, int err, int32_t device_status);
/* Ends the job early if it was canceled or its deadline has passed. */
void job_poll(struct job *job);
void job_add_bytes(struct job *job, int route, uint64_t bytes);
/* Has idle workers help, if there are any: one, or several before the lane's first window. */
void lane_want_helpers(struct lane *l);
/* Does the page cache hold the first block of the range? */
bool job_starts_cached(const struct job *job);
/* Lets the lane register windows, if the plan says so and not too many lanes do; @bytes are read otherwise. */
void job_claim_register_locked(struct lane *l, uint64_t bytes);
void job_release_register(struct lane *l);
/* Leaves a registered window to a lane that registers, which unregisters it. */
void job_leave_registered(struct job *job, struct window *w);
/* Unregisters the windows that were left by job_leave_registered(). */
void job_unregister_used(struct job *job);

/* Does a write go through the page cache as a whole? */
bool job_write_buffered(const struct job *job);

void lane_read(struct lane *l);
void lane_write(struct lane *l);

/* window_read.c */

/*
 * Reads a window from byte @done on through the page cache; it is short where the file ends. For cached windows, and for
 * what direct I/O has left.
 */
void window_read_buffered(struct lane *l, struct window *w, uint64_t done);
/* Takes the result @n of a direct read of the rounded window. */
void window_finish_direct(struct lane *l, struct window *w, ssize_t n);
/* Registers the window's pages, by the registration cache if the file allows it. 0: its copy can start. */
int window_register_pages(struct lane *l, struct window *w);
int window_read_pieces(struct lane *l, struct window *w);

/* lane.c: what both directions need */
struct window *lane_take_window(struct lane *l);
struct os_ring *lane_ring(struct lane *l);
void *lane_buffer(struct lane *l, const struct window *w);
int lane_copy(struct lane *l, struct window *w);
struct window *lane_oldest_copy(struct lane *l, bool wait, int *err);
void lane_free_window(struct lane *l, struct window *w);
uint64_t job_dev_addr(const struct job *job, uint64_t off);

#endif
