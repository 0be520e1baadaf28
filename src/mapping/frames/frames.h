/* SPDX-License-Identifier: MIT */
#ifndef MAPPING_FRAMES_FRAMES_H
#define MAPPING_FRAMES_FRAMES_H

/*
 * The host's side of a paged view (strait/device/core.h has the device's): memory, requests, begin and end.
 *
 * States, in @state under @lock:
 *
 *	IDLE	   no view. The tables in device memory are the host's
 *	BEGINNING  strait_view_begin() is on a stream
 *	BEGUN	   device code changes the tables. Service threads poll the slots
 *	ENDING	   strait_view_end() is on a stream. It becomes IDLE when the worker has written back what is dirty
 *
 * Which thread may wait for which: a service thread waits for the file, for index.host_lock and index.lock, and never for the
 * device. The worker of begin waits for marks of granules (granule.h) as an acquire does; that of end for the file, and for
 * service threads to complete the requests that they have taken. Device threads wait for service threads. No thread that a
 * service thread waits for waits for the device: index.host_lock and index.lock are not held while bytes move to or from a
 * device.
 */

#include <strait/device/core.h>
#include <strait/frames.h>

#include "mapping/mapping.h"

#define FRAMES_THREADS_MAX 16u

enum frames_state { FRAMES_IDLE, FRAMES_BEGINNING, FRAMES_BEGUN, FRAMES_ENDING };

struct frames_window {
	struct host_reg reg;
	bool registered;
};

struct strait_frames {
	struct strait_mapping *m;
	struct strait_device *dev;
	uint32_t flags, threads;
	struct strait_view view; /* as kernels get it */
	struct strait_region *data, *tables;
	uint64_t at_owner, at_state, at_dirty, at_shared; /* addresses in @tables */

	/* Requests: pinned host memory. */
	char *pinned;
	size_t pinned_len;
	struct host_reg pinned_reg;
	bool pinned_registered;
	struct strait_view_request *request;
	_Atomic uint64_t *completion;
	char *slot_data;

	struct frames_window *windows;
	uint64_t n_windows, window_bytes;

	/* What the frames may hold: versions by granule as of the last begin, or write-back. Under the index's lock. */
	uint32_t *seen;
	uint64_t *seen_changes; /* by chunk of the index */
	uint8_t *stale;		/* of begin: a bit for each granule that is not current */

	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum frames_state state;
	bool stop;
	bool end_queued;      /* strait_view_end() was called */
	bool failed;	      /* the last run left granules in the state FAILED */
	unsigned int polling; /* service threads that may serve a request */
	unsigned long thread[FRAMES_THREADS_MAX];
	unsigned int n_threads;
	struct strait_view_shared shared; /* as of the last begin or end */
	uint64_t stored, dropped;
	uint64_t dirty_stored; /* shared.dirty when all was clean */
	int error;	       /* of write-back at the last end */
	uint64_t error_granule;
};

/* open.c */
int frames_open(struct strait_mapping *m, struct strait_device *dev, const struct strait_frames_opts *opts,
		struct strait_frames **ret);
void frames_close(struct strait_frames *f);
void frames_info(struct strait_frames *f, struct strait_frames_info *info);
/* Copies between the host and the tables or frames, and waits. @isolated: a stream of the application waits for it. */
int frames_copy(struct strait_frames *f, uint64_t addr, void *host, uint64_t len, bool out, bool isolated);

/* run.c */
int frames_begin(struct strait_frames *f, struct strait_stream *s, uint32_t intent, struct strait_view *view,
		 int *status);
int frames_end(struct strait_frames *f, struct strait_stream *s, int *status);
/* Ends a view that was begun, without a stream: its kernels are complete. */
int frames_end_now(struct strait_frames *f);

/* service.c */
int frames_service_start(struct strait_frames *f);
void frames_service_stop(struct strait_frames *f);
/* Waits until every request has its completion and no thread polls. The state is no longer BEGUN. */
void frames_service_drain(struct strait_frames *f);
/* Stores granules and publishes them as the newest bytes, which the frames have too. */
int frames_store(struct strait_frames *f, uint64_t g, uint64_t n, const char *buf);

#endif
