/* SPDX-License-Identifier: MIT */
#ifndef MODEL_VIEW_RIG_H
#define MODEL_VIEW_RIG_H

/* The tables of strait/view.h in memory of the CPU, and a host that serves requests, well or badly. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <strait/view.h>

#define GRANULE STRAIT_VIEW_GRANULE
#define WORDS (GRANULE / 8)

/* What the host does with a request. */
struct view_host {
	unsigned int delay_us; /* before each completion, at random up to so long */
	bool twice;	       /* completes each request again later, and writes other numbers first */
	uint64_t bad;	       /* granule that cannot be read or written; UINT64_MAX: none */
	atomic_bool full;      /* writes fail with -ENOSPC */
	atomic_bool silent;    /* requests are left alone */
};

struct view_rig {
	struct strait_view v;
	struct strait_view_shared *shared;
	uint64_t granules;
	uint64_t *file; /* of the host */
	struct strait_view_request *request;
	_Atomic uint64_t *completion;
	struct view_host host;
	pthread_t thread[2];
	atomic_bool stop;
	atomic_uint reads, writes;
};

/* What word @word of the file holds at first. */
uint64_t view_pattern(uint64_t word);
/* calloc() that does not fail. */
void *view_zeros(size_t n, size_t size);
void view_rig_open(struct view_rig *r, uint64_t granules, unsigned int frames, unsigned int page_shift,
		   unsigned int slots);
/* Starts the host, once r->host says how it behaves. */
void view_rig_start(struct view_rig *r);
/* Checks the invariants of strait/device/core.h. No thread uses the view. */
void view_rig_check(struct view_rig *r);
void view_rig_close(struct view_rig *r);

#endif
