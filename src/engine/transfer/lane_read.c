/* SPDX-License-Identifier: MIT */
#include "engine/transfer/job.h"

#include <stdlib.h>

#include "base/util.h"
#include "engine/transfer/host_direct.h"
#include "os/os.h"

#define MAX_COPIES 64	      /* per lane; chunks are fewer, but registered windows need none */
#define MAX_FAULTS 64	      /* how often a file may be cut under one window */
#define MAX_REGISTER_FAULTS 4 /* how often in a row pages of a file may not be had before a lane gives up */
#define BOUNCE_BYTES KIB(256)

static uint64_t good_limit(struct job *job)
{
	uint64_t limit;

	pthread_mutex_lock(&job->lock);
	limit = job->limit;
	pthread_mutex_unlock(&job->lock);
	return limit;
}

/*
 * Read a window's bytes from @done on, buffered; the end of the file makes it short. Used for cached
 * windows, and to finish what direct I/O left short.
 */
static void read_buffered(struct lane *l, struct window *w, uint64_t done)
{
	struct strait_endpoint *ep = l->job->ep;
	char *buf = (char *)lane_buffer(l, w) + w->skip;

	while (done < w->len) {
		ssize_t n = ep->ops->read(ep, IO_BUFFERED, buf + done, w->len - done, w->off + done);

		if (n < 0)
			w->err = (int)n;
		if (n <= 0)
			break;
		done += (uint64_t)n;
	}
	w->got = done;
}

/* On the host route: what lies behind the part of a window that was read into the caller's memory directly. */
static uint64_t read_host_rest(struct lane *l, struct window *w, uint64_t done)
{
	struct strait_endpoint *ep = l->job->ep;
	ssize_t n = host_direct_rest(ep, (char *)lane_buffer(l, w) + done, w->off + done, w->len - done);

	if (n < 0 && !ep->facts.can_buffered)
		w->err = (int)n;
	return n > 0 ? (uint64_t)n : 0;
}

/* What a direct read of the rounded window gave, in terms of the window. */
static void finish_direct(struct lane *l, struct window *w, ssize_t n)
{
	struct job *job = l->job;
	uint64_t done;

	if (n < 0) {
		if (!job->ep->facts.can_buffered || (n != -EINVAL && n != -EOPNOTSUPP)) {
			w->err = (int)n;
			return;
		}
		/* Refused: not a second time. */
		atomic_store_explicit(&job->no_direct, true, memory_order_relaxed);
		read_buffered(l, w, 0);
		return;
	}
	done = (uint64_t)n > w->skip ? min_u64((uint64_t)n - w->skip, w->len) : 0;
	if (job->host && done < w->len && (!job->ep->facts.can_buffered || job->ep->facts.force_direct))
		done += read_host_rest(l, w, done);
	stat_add(&job->ctx->stats.direct_bytes, done);
	w->got = done;
	if (done < w->len && job->ep->facts.can_buffered)
		read_buffered(l, w, done);
}

/* Register the window, kept or for this transfer; 0 when its copy can start. */
static int register_window(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	uint64_t len, start = align_down(w->off, os_page_size()), unit = job->dev->tuning.window_bytes;
	int rc;

	rc = job->ep->ops->length(job->ep, &len);
	if (rc)
		return rc;
	if (w->off >= len)
		return -ENODATA; /* nothing to map: the file ends before */
	if (w->off + w->len <= align_down(w->off, unit) + unit)
		w->reg_window = regcache_get(&job->ctx->reg_cache, job->ep, job->dev, w->off, len);
	w->got = min_u64(w->len, len - w->off);
	if (w->reg_window) {
		w->skip = w->off - w->reg_window->off;
		if (w->skip + w->got <= w->reg_window->len)
			return 0;
		regcache_put(&job->ctx->reg_cache, w->reg_window); /* the file has grown since, promise or not */
		w->reg_window = NULL;
	}
	w->map_len = align_up(w->off + w->got - start, os_page_size());
	rc = window_register(job->ep, job->dev, start, w->map_len, &w->map, &w->reg);
	if (rc) {
		w->map = NULL;
		return rc;
	}
	w->skip = w->off - start;
	stat_add(&job->ctx->stats.registrations, 1);
	pthread_mutex_lock(&job->lock);
	job->fresh = true;
	pthread_mutex_unlock(&job->lock);
	return 0;
}

/* A copy was put on the stream, or not: wait for it. */
static int copied(struct job *job, struct window *w, struct dev_stream *s, int rc)
{
	if (!rc)
		rc = job->dev->ops->stream_wait(s, STRAIT_FOREVER);
	w->device_status = rc ? s->status : 0;
	return rc;
}

/* Piece by piece through host memory: a chunk if the window has one. */
static int read_through(struct lane *l, struct window *w, struct dev_stream *s)
{
	struct job *job = l->job;
	struct strait_endpoint *ep = job->ep;
	uint64_t size = w->chunk ? job->pool->chunk_bytes : BOUNCE_BYTES;
	void *own = w->chunk ? NULL : malloc(size), *buf = w->chunk ? w->chunk->ptr : own;
	int rc = buf ? 0 : -ENOMEM;

	while (!rc && w->got < w->len) {
		uint64_t at = w->off + w->got;
		ssize_t n = ep->ops->read(ep, IO_BUFFERED, buf, min_u64(w->len - w->got, size), at);

		if (n <= 0) {
			w->err = (int)n;
			break;
		}
		rc = copied(job, w, s, job->dev->ops->copy_in(s, job_dev_addr(job, at), buf, (uint64_t)n));
		if (!rc)
			w->got += (uint64_t)n;
	}
	free(own);
	return rc;
}

/* Piece by piece out of the page cache, smaller ones each time the file is cut under us again. */
static int read_pages(struct lane *l, struct window *w, struct dev_stream *s)
{
	struct job *job = l->job;
	uint64_t piece = align_up(w->len, os_page_size());
	int faults = 0, rc = 0;

	pthread_mutex_lock(&job->lock);
	job->fresh = true;
	pthread_mutex_unlock(&job->lock);
	while (w->got < w->len) {
		uint64_t at = w->off + w->got, start = align_down(at, os_page_size()), n, map_len, len;
		struct host_reg reg;
		void *map;

		rc = job->ep->ops->length(job->ep, &len);
		if (rc || at >= len)
			return rc;
		n = min_u64(min_u64(start + piece, w->off + w->len), len) - at;
		map_len = align_up(at + n - start, os_page_size());
		rc = window_register(job->ep, job->dev, start, map_len, &map, &reg);
		if (!rc) {
			rc = job->dev->ops->copy_pages(s, job_dev_addr(job, at), &reg, at - start, n);
			rc = copied(job, w, s, rc);
			window_unregister(job->dev, map, map_len, &reg);
		}
		if (!rc)
			w->got += n;
		else if (rc != -EFAULT)
			return rc;
		else if (++faults == MAX_FAULTS)
			break;
		else
			piece = max_u64(align_down(piece / 2, os_page_size()), os_page_size());
	}
	/* In the file, and yet it cannot be brought to memory: the file's failure. */
	if (rc)
		w->err = -EIO;
	return 0;
}

/*
 * A window longer than a chunk that could not be registered, or one whose pages went away. It waits for
 * no chunk: those there are may belong to windows this very lane must see to. And it has a stream of its
 * own, whose errors are not those of other windows.
 */
static int read_pieces(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	bool pages = job->plan.registers == ROUTE_REGISTER_ALL;
	struct lane_stream *ls;
	int rc;

	w->got = 0;
	w->err = w->device_status = 0;
	rc = engine_stream_get(job->dev, &job->region->mem, job->isolated, &ls);
	if (rc)
		return rc;
	w->route = pages ? STRAIT_ROUTE_PAGECACHE : STRAIT_ROUTE_STAGED;
	rc = pages ? read_pages(l, w, ls->stream) : read_through(l, w, ls->stream);
	engine_stream_put(job->dev, ls, rc != 0);
	return rc;
}

/* The same, counted. */
static void read_again(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	int rc = read_pieces(l, w);

	job_add_bytes(job, w->route, w->got);
	if (rc)
		job_fail(job, w->off + w->got, rc, w->device_status);
	else if (w->got < w->len)
		job_fail(job, w->off + w->got, w->err, 0);
}

/* Take the result of the oldest copy. False if there was none to take. */
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
		 * The file was cut while pages of it were being copied, and work behind that on the stream
		 * counts as failed too: what is left can be read.
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

/* Send a window that passed the gate to the device, or drop it if it lies past the good bytes. */
static void pass(struct lane *l, struct window *w)
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
			w->len = w->got; /* the file was cut, as in reap_copy(), and was found to be right away */
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

/* The window has been read: send it and all behind it that only waited for it. */
static void window_ready(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	struct list out = LIST_INIT(out);

	pthread_mutex_lock(&job->lock);
	w->ready = true;
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
		pass(l, first);
	}
}

static ssize_t read_direct(struct lane *l, struct window *w)
{
	struct strait_endpoint *ep = l->job->ep;

	return ep->ops->read(ep, IO_DIRECT, lane_buffer(l, w), w->io_len, w->io_off);
}

static void take_io(struct lane *l, int64_t timeout_ns)
{
	void *tag;
	ssize_t res;

	if (!os_ring_take(l->ring, timeout_ns, &tag, &res))
		return;
	l->n_io--;
	finish_direct(l, tag, res == -EAGAIN ? read_direct(l, tag) : res);
	window_ready(l, tag);
}

/* Registration failed after the window was cut: wait for its turn at the gate, then read it piece by piece. */
static void read_in_turn(struct lane *l, struct window *w)
{
	struct job *job = l->job;

	/* What this lane itself holds before the window must not wait for us. */
	while (l->n_io)
		take_io(l, STRAIT_FOREVER);
	pthread_mutex_lock(&job->lock);
	while (list_first(&job->gate, struct window, node) != w)
		pthread_cond_wait(&job->changed, &job->lock);
	pthread_mutex_unlock(&job->lock);
	if (w->off < good_limit(job))
		read_again(l, w);
	/* The bytes are there already: the gate only lets the next ones through. */
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
		/* Straight into the caller's memory: no room to round outwards. */
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
	/* No io_uring: threads keep the drive busy. */
	job_want_helper(l->job);
	finish_direct(l, w, w->io_len ? read_direct(l, w) : 0);
	window_ready(l, w);
}

/* True if the window went, or will go, by registration. */
static bool try_register(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	bool only = job->plan.registers == ROUTE_REGISTER_ALL;
	int rc;

	if (!l->registers || !(w->cached || only))
		return false;
	rc = register_window(l, w);
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
	/* The file ended, or shrank just now; anything else would fail again, and so would a file that always shrinks. */
	if (rc != -ENODATA && (rc != -EFAULT || ++l->register_faults == MAX_REGISTER_FAULTS)) {
		l->no_register = true;
		job_release_register(l);
	}
	if (w->len <= job->pool->chunk_bytes)
		return false;
	read_in_turn(l, w);
	return true;
}

static void start(struct lane *l, struct window *w)
{
	enum io_mode mode = window_io_mode(l, w);

	if (try_register(l, w))
		return;
	if (mode == IO_DIRECT && prepare_direct(l, w)) {
		start_direct(l, w);
		return;
	}
	job_want_helper(l->job);
	read_buffered(l, w, 0);
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
				start(l, w);
				continue;
			}
		}
		if (l->n_io)
			take_io(l, STRAIT_FOREVER);
		else if (l->n_copies)
			reap_copy(l, true);
		else
			break;
	}
}
