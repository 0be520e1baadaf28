/* SPDX-License-Identifier: MIT */
#include "engine/transfer/job.h"

#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"

#define FIRST_HELPERS 3
#define LANE_BYTES MIB(1) /* left for each lane where another one is to help */
#define SPIN_NS 50000u	  /* lanes mostly end together */

void job_fail(struct job *job, uint64_t off, int err, int32_t device_status)
{
	pthread_mutex_lock(&job->lock);
	if (off < job->limit) {
		job->limit = off;
		job->err = err;
		job->device_status = device_status;
	}
	job->cursor = job->stop;
	pthread_cond_broadcast(&job->changed);
	pthread_mutex_unlock(&job->lock);
}

void job_poll(struct job *job)
{
	int err = os_stop(job->deadline, job->cancel);

	if (!err)
		return;
	pthread_mutex_lock(&job->lock);
	if (job->cursor < job->stop && job->cursor < job->limit) {
		job->limit = job->cursor;
		job->err = err;
	}
	job->cursor = job->stop;
	pthread_mutex_unlock(&job->lock);
}

void job_add_bytes(struct job *job, int route, uint64_t bytes)
{
	pthread_mutex_lock(&job->lock);
	job->route_bytes[route] += bytes;
	pthread_mutex_unlock(&job->lock);
}

bool job_write_buffered(const struct job *job)
{
	return job->ep->facts.can_buffered && !job->walign;
}

bool job_starts_cached(const struct job *job)
{
	uint64_t len = min_u64(job->block, job->stop - job->start), bytes;

	return !job->ep->ops->cached(job->ep, job->start, len, &bytes) && bytes >= len / 2;
}

void job_claim_register_locked(struct lane *l, uint64_t bytes)
{
	struct job *job = l->job;
	atomic_uint *all = &device_engine(job->dev)->registering;
	unsigned int most = (unsigned int)max_u64(job->dev->tuning.register_lanes, 1), now;

	if (l->registers || l->no_register || job->plan.registers == ROUTE_REGISTER_NONE || job->register_lanes >= most)
		return;
	/* Windows are staged until the device is ready to register any. */
	if (job->plan.registers != ROUTE_REGISTER_ALL && !job->dev->ops->register_ready(job->dev, bytes))
		return;
	/* Mixed jobs share the register lanes of the device; a job that may only register has its own. */
	if (job->plan.mixed) {
		now = atomic_load_explicit(all, memory_order_relaxed);
		do {
			if (now >= most)
				return;
		} while (!atomic_compare_exchange_weak_explicit(all, &now, now + 1, memory_order_relaxed,
								memory_order_relaxed));
	}
	job->register_lanes++;
	l->registers = true;
}

void job_release_register(struct lane *l)
{
	struct job *job = l->job;

	if (!l->registers)
		return;
	l->registers = false;
	if (job->plan.mixed)
		atomic_fetch_sub_explicit(&device_engine(job->dev)->registering, 1, memory_order_relaxed);
	pthread_mutex_lock(&job->lock);
	job->register_lanes--;
	pthread_mutex_unlock(&job->lock);
}

/*
 * Drivers register and unregister one window at a time. A lane that unregistered the window of another would wait for
 * that lane's next registration, and delay the one after it.
 */
void job_leave_registered(struct job *job, struct window *w)
{
	pthread_mutex_lock(&job->lock);
	list_add_tail(&job->used, &w->node);
	pthread_mutex_unlock(&job->lock);
}

void job_unregister_used(struct job *job)
{
	struct list used = LIST_INIT(used);

	pthread_mutex_lock(&job->lock);
	if (!list_empty(&job->used))
		list_move_front(&used, &job->used, job->used.prev);
	pthread_mutex_unlock(&job->lock);
	list_for_each_safe(it, tmp, &used) {
		struct window *w = list_entry(it, struct window, node);

		window_unregister(job->dev, w->map, w->map_len, &w->reg);
		free(w);
	}
}

static void job_want_no_more(struct job *job)
{
	pthread_mutex_lock(&job->lock);
	job->max_lanes = 0;
	pthread_mutex_unlock(&job->lock);
}

static void lane_count(struct job *job)
{
	pthread_mutex_lock(&job->lock);
	job->n_lanes++;
	job->last_lane = os_now_ns();
	pthread_mutex_unlock(&job->lock);
}

static void lane_run(struct job *job, bool helper)
{
	struct lane l = { .job = job };
	int rc;

	list_init(&l.copies);
	pthread_mutex_lock(&job->lock);
	job_claim_register_locked(&l, 0);
	pthread_mutex_unlock(&job->lock);
	if (!helper && l.registers && job->plan.mixed && job_starts_cached(job))
		lane_want_helpers(&l);

	if (!job->host) {
		rc = engine_stream_get(job->dev, &job->region->mem, job->isolated, &l.ls);
		if (rc) {
			/* A helper's windows are taken by other lanes; without the first lane there may be none. */
			if (!helper)
				job_fail(job, job->start, rc, 0);
			job_want_no_more(job);
			job_release_register(&l);
			return;
		}
	}
	atomic_fetch_add_explicit(&device_engine(job->dev)->lanes, 1, memory_order_relaxed);
	lane_count(job);
	if (job->op == STRAIT_READ)
		lane_read(&l);
	else
		lane_write(&l);
	atomic_fetch_sub_explicit(&device_engine(job->dev)->lanes, 1, memory_order_relaxed);
	job_release_register(&l);
	if (l.ls)
		engine_stream_put(job->dev, l.ls, l.stream_broken);
	if (l.ring)
		engine_ring_put(job->ctx, l.ring, l.ring_broken);
}

static void helper_run(struct task *task)
{
	struct helper *h = container_of(task, struct helper, task);
	struct job *job = h->job;

	lane_run(job, true);
	pthread_mutex_lock(&job->lock);
	h->taken = false;
	job->lanes--;
	pthread_cond_broadcast(&job->changed);
	pthread_mutex_unlock(&job->lock);
}

/* A helper for one more lane. NULL: there are enough, or too few bytes are left to wake a thread for. */
static struct helper *helper_get_locked(struct job *job)
{
	uint64_t left = job->stop - job->cursor;

	if (job->lanes >= job->max_lanes || left < min_u64(4 * job->block, 2 * LANE_BYTES) ||
	    left < job->lanes * min_u64(job->block, LANE_BYTES))
		return NULL;
	for (int i = 0; i < JOB_LANES; i++) {
		struct helper *h = &job->helper[i];

		if (h->taken)
			continue;
		h->taken = true;
		job->lanes++;
		return h;
	}
	return NULL;
}

/* False: none can help now. */
static bool job_want_helper(struct job *job)
{
	struct device_engine *de = device_engine(job->dev);
	struct helper *h;

	/* Callers' threads move bytes as well as workers do; more of them than threads only contend. */
	if (atomic_load_explicit(&de->lanes, memory_order_relaxed) +
		    atomic_load_explicit(&de->callers, memory_order_relaxed) >
	    job->ctx->threads)
		return false;
	pthread_mutex_lock(&job->lock);
	h = helper_get_locked(job);
	pthread_mutex_unlock(&job->lock);
	if (!h)
		return false;
	h->job = job;
	task_init(&h->task, helper_run);
	if (!workers_offer(&job->ctx->workers, &h->task))
		return true;
	pthread_mutex_lock(&job->lock);
	h->taken = false;
	job->lanes--;
	pthread_mutex_unlock(&job->lock);
	return false;
}

void lane_want_helpers(struct lane *l)
{
	int n = l->has_asked ? 1 : FIRST_HELPERS;

	l->has_asked = true;
	while (n-- && job_want_helper(l->job))
		;
}

/* Waits for the other lanes. */
static void job_wait(struct job *job)
{
	uint64_t end = os_now_ns() + SPIN_NS;

	pthread_mutex_lock(&job->lock);
	job->lanes--;
	pthread_mutex_unlock(&job->lock);
	while (atomic_load_explicit(&job->lanes, memory_order_acquire) && os_now_ns() < end)
		cpu_pause();
	pthread_mutex_lock(&job->lock);
	while (job->lanes)
		pthread_cond_wait(&job->changed, &job->lock);
	pthread_mutex_unlock(&job->lock);
}

/* A file was truncated while its pages were registered: bytes past its new end are not valid. */
static void clip_to_file(struct job *job)
{
	uint64_t len;

	if (!job->fresh || job->ep->ops->length(job->ep, &len) || len >= job->limit)
		return;
	job->limit = max_u64(len, job->start);
	job->err = 0;
}

/* Bytes copied past the end of a truncated file count for no route. */
static void clip_route_bytes(struct job *job)
{
	static const int order[] = { STRAIT_ROUTE_PAGECACHE, STRAIT_ROUTE_STAGED, STRAIT_ROUTE_HOST, STRAIT_ROUTE_P2P };
	uint64_t excess = 0;

	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
		excess += job->route_bytes[r];
	excess -= min_u64(excess, job->limit - job->start);
	for (size_t i = 0; i < ARRAY_SIZE(order) && excess; i++) {
		uint64_t n = min_u64(excess, job->route_bytes[order[i]]);

		job->route_bytes[order[i]] -= n;
		excess -= n;
	}
}

static double ms_between(uint64_t start, uint64_t end)
{
	return end > start ? (double)(end - start) / 1e6 : 0;
}

static void job_log(const struct job *job)
{
	log_debug(
		&job->ctx->log,
		"%s: %s of %.2f MiB in %.2f ms by %u lanes: the last one began after %.2f ms, the first copy after %.2f ms",
		job->dev->name, job->op == STRAIT_READ ? "read" : "write", (double)(job->stop - job->start) / 1048576,
		ms_between(job->began, os_now_ns()), job->n_lanes, ms_between(job->began, job->last_lane),
		ms_between(job->began, job->first_copy));
}

void job_run(struct job *job, struct strait_result *result)
{
	job->began = os_now_ns();
	pthread_mutex_init(&job->lock, NULL);
	pthread_cond_init(&job->changed, NULL);
	list_init(&job->gate);
	list_init(&job->used);
	job->cursor = job->start;
	job->limit = job->stop;
	job->lanes = 1;
	/* Unknown length: reads find the end themselves, writes count as extending the file. */
	if (job->ep->ops->length(job->ep, &job->ep_len))
		job->ep_len = job->op == STRAIT_READ ? UINT64_MAX : 0;

	lane_run(job, false);
	job_wait(job);
	job_unregister_used(job);
	job_log(job);
	clip_to_file(job);
	if (!job->err)
		clip_route_bytes(job);

	result->bytes = job->limit - job->start;
	result->status = job->err;
	result->device_status = job->device_status;
	result->routes = 0;
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
		result->route_bytes[r] = job->route_bytes[r];
		if (job->route_bytes[r])
			result->routes |= STRAIT_ROUTE_MASK(r);
	}
	pthread_cond_destroy(&job->changed);
	pthread_mutex_destroy(&job->lock);
}
