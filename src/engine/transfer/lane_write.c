/* SPDX-License-Identifier: MIT */
#include "engine/transfer/job.h"

#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"

#define COPIES_AHEAD 8 /* windows copied from the device while the file is written */
#define COPIES_AHEAD_BUFFERED                                                                                          \
	2 /* fewer for buffered writes: the CPU copies them again and should find them in its cache */

static bool still_good(struct job *job, uint64_t off)
{
	bool good;

	pthread_mutex_lock(&job->lock);
	good = off < job->limit;
	pthread_mutex_unlock(&job->lock);
	return good;
}

/* Writes a window from byte @done on and frees it. */
static void write_rest(struct lane *l, struct window *w, uint64_t done, enum io_mode mode)
{
	struct job *job = l->job;
	const char *buf = lane_buffer(l, w);
	int err = 0;

	while (done < w->len && !err) {
		ssize_t n = job->ep->ops->write(job->ep, mode, buf + done, w->len - done, w->off + done);

		if (n == -EINVAL && mode == IO_DIRECT && job->ep->facts.can_buffered) {
			mode = IO_BUFFERED;
			continue;
		}
		if (n <= 0) {
			err = n ? (int)n : -EIO;
			break;
		}
		if (mode == IO_DIRECT)
			stat_add(&job->ctx->stats.direct_bytes, (uint64_t)n);
		done += (uint64_t)n;
		/* A short direct write leaves a remainder that need not be aligned. */
		if (job->ep->facts.can_buffered)
			mode = IO_BUFFERED;
	}
	job_add_bytes(job, w->route, done);
	if (err)
		job_fail(job, w->off + done, err, 0);
	lane_free_window(l, w);
}

static void take_io(struct lane *l)
{
	struct window *w;
	void *tag;
	ssize_t res;

	if (!os_ring_take(l->ring, STRAIT_FOREVER, &tag, &res))
		return;
	l->n_io--;
	w = tag;
	if (res == (ssize_t)w->len) {
		stat_add(&l->job->ctx->stats.direct_bytes, w->len);
		job_add_bytes(l->job, w->route, w->len);
		lane_free_window(l, w);
	} else if (res > 0 || res == -EINVAL || res == -EAGAIN) {
		write_rest(l, w, res > 0 ? (uint64_t)res : 0, res > 0 ? IO_BUFFERED : IO_DIRECT);
	} else {
		job_fail(l->job, w->off, res ? (int)res : -EIO, 0);
		lane_free_window(l, w);
	}
}

/* Writes a window whose bytes are in host memory. */
static void write_window(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	struct strait_endpoint *ep = job->ep;
	struct os_ring *ring;

	if (!still_good(job, w->off)) {
		lane_free_window(l, w);
		return;
	}
	if (job->host && w->direct && (uintptr_t)lane_buffer(l, w) % ep->facts.dio_mem_align)
		w->direct = false;
	/* Only overwrites are asynchronous. Writes that extend the file go in order, so that a full disk leaves no gap. */
	if (w->direct && w->off + w->len <= job->ep_len) {
		ring = lane_ring(l);
		if (ring && !os_ring_write(ring, ep->ops->fd(ep, IO_DIRECT), lane_buffer(l, w), w->len, w->off, w)) {
			if (os_ring_submit(ring) == 1) {
				l->n_io++;
				return;
			}
			l->ring_broken = true;
		}
	}
	while (l->n_io)
		take_io(l);
	/* One of those may have failed: nothing that extends the file may follow it. */
	if (still_good(job, w->off))
		write_rest(l, w, 0, w->direct ? IO_DIRECT : IO_BUFFERED);
	else
		lane_free_window(l, w);
}

static void reap_copy(struct lane *l)
{
	struct window *w;
	int err;

	w = lane_oldest_copy(l, true, &err);
	if (!w)
		return;
	if (err) {
		l->stream_broken = true;
		job_fail(l->job, w->off, err, l->ls->stream->status);
		lane_free_window(l, w);
		return;
	}
	write_window(l, w);
}

void lane_write(struct lane *l)
{
	struct job *job = l->job;
	unsigned int readahead = job_write_buffered(job) ? COPIES_AHEAD_BUFFERED : COPIES_AHEAD;
	struct window *w;
	int rc;

	for (;;) {
		job_poll(job);
		if (l->n_copies < readahead && l->n_io < job->ctx->queue_depth) {
			w = lane_take_window(l);
			if (w && job->host) {
				write_window(l, w);
				continue;
			}
			if (w) {
				rc = lane_copy(l, w);
				if (rc) {
					l->stream_broken = true;
					job_fail(job, w->off, rc, l->ls->stream->status);
					lane_free_window(l, w);
				}
				continue;
			}
		}
		if (l->n_copies)
			reap_copy(l);
		else if (l->n_io)
			take_io(l);
		else
			break;
	}
}
