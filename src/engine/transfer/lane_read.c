/* SPDX-License-Identifier: MIT */
#include "engine/transfer/job.h"

#include "base/util.h"
#include "engine/transfer/host_direct.h"
#include "os/os.h"

#define MAX_COPIES 64	      /* in flight per lane: there are fewer chunks, but registered windows need none */
#define MAX_REGISTER_FAULTS 4 /* failures in a row after which a lane stops registering */

static uint64_t good_limit(struct job *job)
{
	uint64_t limit;

	pthread_mutex_lock(&job->lock);
	limit = job->limit;
	pthread_mutex_unlock(&job->lock);
	return limit;
}

/* Reads a window by pieces and counts it. */
static void read_again(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	int rc = window_read_pieces(l, w);

	job_add_bytes(job, w->route, w->got);
	if (rc)
		job_fail(job, w->off + w->got, rc, w->device_status);
	else if (w->got < w->len)
		job_fail(job, w->off + w->got, w->err, 0);
}

/* Takes the result of the oldest copy in flight. False: there is none, or it is not done. */
static bool reap_copy(struct lane *l, bool wait)
{
	struct job *job = l->job;
	struct window *w;
	int err;

	w = lane_oldest_copy(l, wait, &err);
	if (!w)
		return false;
	if (err == -EFAULT) {
		/*
		 * The file was truncated while its pages were copied. Work behind that on the stream has failed as
		 * well. What is left of the file can be read.
		 */
		w->len = w->got;
		l->stream_broken = true;
		read_again(l, w);
	} else if (err) {
		l->stream_broken = true;
		job_fail(job, w->off, err, l->ls->stream->status);
	} else {
		job_add_bytes(job, w->route, w->got);
	}
	lane_free_window(l, w);
	return true;
}

/* Starts the copy of a window that passed the gate. One that lies past the valid bytes is dropped. */
static void window_start_copy(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	int rc = 0;

	if (w->got && !job->host) {
		rc = lane_copy(l, w);
		if (!rc) {
			while (l->n_copies > MAX_COPIES)
				reap_copy(l, true);
			return;
		}
		if (rc == -EFAULT && (w->reg_window || w->map)) {
			w->len = w->got; /* truncated, as in reap_copy() */
			read_again(l, w);
		} else {
			l->stream_broken = true;
			job_fail(job, w->off, rc, l->ls->stream->status);
		}
	} else if (w->got) {
		job_add_bytes(job, w->route, w->got);
	}
	lane_free_window(l, w);
}

/* Marks a window as read and starts the copies of it and of those behind it that the gate lets through now. */
static void window_ready(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	struct list out = LIST_INIT(out);

	pthread_mutex_lock(&job->lock);
	w->ready = true;
	if (!job->first_copy && w->off == job->start)
		job->first_copy = os_now_ns();
	while (!list_empty(&job->gate)) {
		struct window *first = list_first(&job->gate, struct window, node);

		if (!first->ready)
			break;
		list_del(&first->node);
		if (first->got < first->len && first->off + first->got < job->limit) {
			job->limit = first->off + first->got;
			job->err = first->err;
			job->cursor = job->stop;
		}
		if (first->off >= job->limit)
			first->got = 0;
		list_add_tail(&out, &first->node);
	}
	pthread_cond_broadcast(&job->changed);
	pthread_mutex_unlock(&job->lock);
	list_for_each_safe(it, tmp, &out) {
		struct window *first = list_entry(it, struct window, node);

		list_del(&first->node);
		window_start_copy(l, first);
	}
}

static ssize_t read_direct(struct lane *l, struct window *w)
{
	struct strait_endpoint *ep = l->job->ep;

	return ep->ops->read(ep, IO_DIRECT, lane_buffer(l, w), w->io_len, w->io_off);
}

/* Waits for a direct read and passes its window on. */
static void reap_read(struct lane *l, int64_t timeout_ns)
{
	void *tag;
	ssize_t res;

	if (!os_ring_take(l->ring, timeout_ns, &tag, &res))
		return;
	l->n_io--;
	window_finish_direct(l, tag, res == -EAGAIN ? read_direct(l, tag) : res);
	window_ready(l, tag);
}

/* Registration of a long window failed: waits for its turn at the gate, then reads it piece by piece. */
static void read_in_turn(struct lane *l, struct window *w)
{
	struct job *job = l->job;

	/* Windows of this lane that are before this one at the gate must not wait for it. */
	while (l->n_io)
		reap_read(l, STRAIT_FOREVER);
	pthread_mutex_lock(&job->lock);
	while (list_first(&job->gate, struct window, node) != w)
		pthread_cond_wait(&job->changed, &job->lock);
	pthread_mutex_unlock(&job->lock);
	if (w->off < good_limit(job))
		read_again(l, w);
	/* Its bytes have arrived: the gate only has to let the next windows through. */
	w->len = w->got = 0;
	window_ready(l, w);
}

/* The plan's I/O mode for one window. By the way finds out whether the page cache holds the window. */
static enum io_mode window_io_mode(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	bool refused = atomic_load_explicit(&job->no_direct, memory_order_relaxed);
	uint64_t in_file, bytes;

	if (job->plan.io == ROUTE_IO_DIRECT && (!refused || !job->ep->facts.can_buffered))
		return IO_DIRECT;
	if (w->cached)
		return IO_BUFFERED;
	in_file = w->off < job->ep_len ? min_u64(w->len, job->ep_len - w->off) : 0;
	if (!in_file)
		return IO_BUFFERED;
	if (job->ep->ops->cached(job->ep, w->off, in_file, &bytes))
		return IO_BUFFERED;
	w->cached = bytes >= align_down(in_file, os_page_size());
	if (refused || job->plan.io == ROUTE_IO_BUFFERED)
		return IO_BUFFERED;
	/* A few missing pages are read faster along with the rest than around it. */
	return bytes >= in_file - in_file / 16 ? IO_BUFFERED : IO_DIRECT;
}

static bool prepare_direct(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	uint32_t align = job->ep->facts.dio_align;

	if (job->host) {
		/* Into the caller's memory: there is no room to round the range outwards. */
		bool aligned = host_direct_aligned(job->ep, lane_buffer(l, w), w->off);

		w->io_off = w->off;
		w->io_len = aligned ? host_direct_part(job->ep, w->off, w->len) : 0;
		return aligned || !job->ep->facts.can_buffered;
	}
	w->io_off = align_down(w->off, align);
	w->io_len = align_up(w->off + w->len, align) - w->io_off;
	w->skip = w->off - w->io_off;
	return true;
}

static void start_direct(struct lane *l, struct window *w)
{
	struct strait_endpoint *ep = l->job->ep;
	struct os_ring *ring = w->io_len ? lane_ring(l) : NULL;

	if (ring && !os_ring_read(ring, ep->ops->fd(ep, IO_DIRECT), lane_buffer(l, w), w->io_len, w->io_off, w)) {
		if (os_ring_submit(ring) == 1) {
			l->n_io++;
			return;
		}
		l->ring_broken = true;
	}
	/* Without io_uring, more threads keep the drive busy. */
	lane_want_helpers(l);
	window_finish_direct(l, w, w->io_len ? read_direct(l, w) : 0);
	window_ready(l, w);
}

/* Registers a window if the plan says so. False: it must be read. */
static bool try_register(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	bool only = job->plan.registers == ROUTE_REGISTER_ALL;
	int rc;

	if (!l->registers || !(w->cached || only))
		return false;
	/* Registering takes some time for each window beside that for its bytes. */
	if (job->ramps && w->len < job->block)
		return false;
	rc = window_register_pages(l, w);
	if (!rc) {
		l->register_faults = 0;
		w->route = STRAIT_ROUTE_PAGECACHE;
		staging_put(job->pool, &job->user, w->chunk);
		w->chunk = NULL;
		window_ready(l, w);
		return true;
	}
	w->got = w->skip = 0;
	if (only && rc == -EFAULT) {
		read_in_turn(l, w);
		return true;
	}
	if (only) {
		w->err = rc == -ENODATA ? 0 : rc;
		window_ready(l, w);
		return true;
	}
	/* Past the end of the file, or truncated right now: try again. Other errors, and repeated ones, would recur. */
	if (rc != -ENODATA && (rc != -EFAULT || ++l->register_faults == MAX_REGISTER_FAULTS)) {
		l->no_register = true;
		job_release_register(l);
	}
	if (w->len <= job->pool->chunk_bytes)
		return false;
	read_in_turn(l, w);
	return true;
}

static void window_start(struct lane *l, struct window *w)
{
	enum io_mode mode = window_io_mode(l, w);

	if (try_register(l, w))
		return;
	if (mode == IO_DIRECT && prepare_direct(l, w)) {
		start_direct(l, w);
		return;
	}
	lane_want_helpers(l);
	window_read_buffered(l, w, 0);
	window_ready(l, w);
}

void lane_read(struct lane *l)
{
	struct window *w;

	for (;;) {
		job_poll(l->job);
		while (l->n_copies && reap_copy(l, false))
			;
		if (l->registers)
			job_unregister_used(l->job);
		if (l->n_io < l->job->ctx->queue_depth) {
			w = lane_take_window(l);
			if (w) {
				window_start(l, w);
				continue;
			}
		}
		if (l->n_io)
			reap_read(l, STRAIT_FOREVER);
		else if (l->n_copies)
			reap_copy(l, true);
		else
			break;
	}
}
