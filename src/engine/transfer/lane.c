/* SPDX-License-Identifier: MIT */
/* Common to reading and writing lanes: windows, chunks, copies. */
#include "engine/transfer/job.h"

#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"

#define RAMP_BYTES KIB(512)	 /* shorter windows cost more than they gain */
#define STAGING_TICK_NS 10000000 /* a lane that waits for a chunk checks for cancellation this often */

uint64_t job_dev_addr(const struct job *job, uint64_t off)
{
	return job->addr + (off - job->start);
}

struct os_ring *lane_ring(struct lane *l)
{
	if (!l->ring && !l->ring_broken) {
		l->ring = engine_ring_get(l->job->ctx);
		if (!l->ring)
			l->ring_broken = true;
	}
	return l->ring_broken ? NULL : l->ring;
}

/* The host memory of a window's file I/O. */
void *lane_buffer(struct lane *l, const struct window *w)
{
	return w->chunk ? w->chunk->ptr : (void *)(uintptr_t)job_dev_addr(l->job, w->off);
}

void lane_free_window(struct lane *l, struct window *w)
{
	struct job *job = l->job;

	if (w->event)
		engine_event_put(l->ls, w->event);
	if (w->reg_window)
		regcache_put(&job->ctx->reg_cache, w->reg_window);
	if (w->chunk)
		staging_put(job->pool, &job->user, w->chunk);
	if (w->map && !l->registers) {
		job_leave_registered(job, w);
		return;
	}
	if (w->map)
		window_unregister(job->dev, w->map, w->map_len, &w->reg);
	free(w);
}

static bool nothing_left(struct job *job)
{
	bool done;

	pthread_mutex_lock(&job->lock);
	done = job->cursor >= job->stop;
	pthread_mutex_unlock(&job->lock);
	return done;
}

/* Takes a chunk. Waits for one only if this lane has nothing in flight. */
static struct chunk *get_chunk(struct lane *l)
{
	struct job *job = l->job;

	for (;;) {
		struct chunk *c = staging_try(job->pool, &job->user);

		if (c || l->n_io || l->n_copies || nothing_left(job))
			return c;
		c = staging_wait(job->pool, &job->user, STAGING_TICK_NS);
		if (c)
			return c;
		job_poll(job);
	}
}

/*
 * The length of the window at the cursor. The device has nothing to copy until the first window was read, and all lanes
 * but one are done while the last is read, so windows are short there: each as long as its share of what was taken
 * before it, and of what is left after it, for all lanes.
 */
static uint64_t window_bytes_locked(const struct job *job)
{
	uint64_t size = job->block, lanes = max_u64(job->max_lanes, 1);
	uint64_t most =
		max_u64(min_u64((job->cursor - job->start) / lanes * 2, (job->stop - job->cursor) / lanes), RAMP_BYTES);

	while (job->ramps && size > most)
		size /= 2;
	return size;
}

/* Takes the next window at the cursor, of which something must be left. */
static void window_take_locked(struct job *job, struct window *w)
{
	uint64_t size = window_bytes_locked(job), end = align_down(job->cursor, size) + size;

	w->off = job->cursor;
	w->len = min_u64(end, job->stop) - w->off;
	if (job->op == STRAIT_WRITE && job->walign) {
		/* The direct and the buffered parts of a write are separate windows. */
		uint64_t head = align_up(w->off, job->walign), tail = align_down(w->off + w->len, job->walign);

		if (head != w->off)
			w->len = min_u64(head - w->off, w->len);
		else if (tail > w->off)
			w->len = tail - w->off;
		w->direct = head == w->off && tail > w->off;
	}
	job->cursor = w->off + w->len;
}

/* Does the page cache hold all of [off, end)? */
static bool all_cached(struct job *job, uint64_t off, uint64_t end)
{
	uint64_t cached;

	return !job->ep->ops->cached(job->ep, off, end - off, &cached) &&
	       cached >= align_down(end - off, os_page_size());
}

/*
 * A lane that registers takes a longer window if the page cache holds all of it. The lock is held since
 * window_take_locked(), so no other lane has taken the part behind.
 */
static void window_widen_locked(struct job *job, struct window *w)
{
	const struct device_tuning *tuning = &job->dev->tuning;
	bool mixes = job->plan.mixed;
	uint64_t size = mixes && tuning->mixed_window ? tuning->mixed_window : tuning->window_bytes, end;

	if (job->plan.io == ROUTE_IO_DIRECT)
		return;
	/* The windows before this one are copied while it is registered. */
	while (job->ramps && size > w->off - job->start)
		size /= 2;
	if (job->ramps && size < job->block)
		return;
	end = min_u64(align_down(w->off, size) + size, min_u64(job->stop, job->ep_len));
	/* Smaller windows towards the end, so that reading lanes and the registering one finish together. */
	if (mixes)
		end = min_u64(end, align_up(w->off + (job->stop - w->off) / 4, job->block));
	if (end <= w->off || !all_cached(job, w->off, end))
		return;
	w->cached = true;
	w->len = max_u64(w->len, end - w->off);
	job->cursor = w->off + w->len;
}

/* The next window, with a chunk unless it needs none. NULL: none is left, or no chunk is free and this lane has work. */
struct window *lane_take_window(struct lane *l)
{
	struct job *job = l->job;
	struct chunk *c = NULL;
	struct window *w;

	if (nothing_left(job))
		return NULL;
	if (!job->host) {
		c = get_chunk(l);
		if (!c)
			return NULL;
	}
	w = calloc(1, sizeof(*w));
	pthread_mutex_lock(&job->lock);
	if (!w || job->cursor >= job->stop) {
		uint64_t at = job->cursor;

		pthread_mutex_unlock(&job->lock);
		if (!w)
			job_fail(job, at, -ENOMEM, 0);
		if (c)
			staging_put(job->pool, &job->user, c);
		free(w);
		return NULL;
	}
	w->chunk = c;
	w->route = job->host ? STRAIT_ROUTE_HOST : STRAIT_ROUTE_STAGED;
	window_take_locked(job, w);
	job_claim_register_locked(l, w->len);
	if (l->registers)
		window_widen_locked(job, w);
	if (job->op == STRAIT_READ)
		list_add_tail(&job->gate, &w->node);
	pthread_mutex_unlock(&job->lock);
	return w;
}

/* Starts the copy between a window's host memory and the device and records its event. */
int lane_copy(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	const struct provider_ops *ops = job->dev->ops;
	uint64_t addr = job_dev_addr(job, w->off);
	struct dev_stream *s = l->ls->stream;
	int rc;

	rc = engine_event_get(l->ls, &w->event);
	if (rc)
		return rc;
	if (job->op == STRAIT_WRITE)
		rc = ops->copy_out(s, w->chunk->ptr, addr, w->len);
	else if (w->reg_window || w->map)
		rc = ops->copy_pages(s, addr, w->reg_window ? &w->reg_window->reg : &w->reg, w->skip, w->got);
	else
		rc = ops->copy_in(s, addr, (char *)w->chunk->ptr + w->skip, w->got);
	if (rc)
		return rc;
	rc = ops->event_record(w->event, s);
	if (rc) {
		/* The copy may be in flight, and the caller frees the window's memory after an error. */
		ops->stream_wait(s, STRAIT_FOREVER);
		return rc;
	}
	list_add_tail(&l->copies, &w->node);
	l->n_copies++;
	return 0;
}

/* Takes the oldest window off the list of copies if its copy is done. @err: the copy's status. */
struct window *lane_oldest_copy(struct lane *l, bool wait, int *err)
{
	struct window *w;
	int rc;

	if (!l->n_copies)
		return NULL;
	w = list_first(&l->copies, struct window, node);
	/*
	 * No deadline: the copy engine uses memory that must not be freed before it is done.
	 */
	rc = l->job->dev->ops->event_wait(w->event, wait ? STRAIT_FOREVER : 0);
	if (rc == -ETIMEDOUT && !wait)
		return NULL;
	list_del(&w->node);
	l->n_copies--;
	*err = rc;
	return w;
}
