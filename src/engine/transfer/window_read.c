/* SPDX-License-Identifier: MIT */
/* How the bytes of one window are read: through the page cache, by direct I/O, or by registering its pages. */
#include <stdlib.h>

#include "base/util.h"
#include "engine/transfer/host_direct.h"
#include "engine/transfer/job.h"
#include "os/os.h"

#define MAX_FAULTS 64 /* truncations of the file under one window before it is an I/O error */
#define BOUNCE_BYTES KIB(256)

void window_read_buffered(struct lane *l, struct window *w, uint64_t done)
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

/* Host route: reads what follows the part of a window that direct I/O has put into the caller's memory. */
static uint64_t read_host_rest(struct lane *l, struct window *w, uint64_t done)
{
	struct strait_endpoint *ep = l->job->ep;
	ssize_t n = host_direct_rest(ep, (char *)lane_buffer(l, w) + done, w->off + done, w->len - done);

	if (n < 0 && !ep->facts.can_buffered)
		w->err = (int)n;
	return n > 0 ? (uint64_t)n : 0;
}

void window_finish_direct(struct lane *l, struct window *w, ssize_t n)
{
	struct job *job = l->job;
	uint64_t done;

	if (n < 0) {
		/*
		 * A direct read of blocks that a store to a mapping of the file is just allocating fails with -EIO.
		 * The page cache has the bytes, or the error of the drive.
		 */
		bool collides = n == -EIO && !job->ep->facts.force_direct;

		if (!job->ep->facts.can_buffered || (n != -EINVAL && n != -EOPNOTSUPP && !collides)) {
			w->err = (int)n;
			return;
		}
		/* Direct I/O was refused: do not try it again for this job. */
		if (!collides)
			atomic_store_explicit(&job->no_direct, true, memory_order_relaxed);
		window_read_buffered(l, w, 0);
		return;
	}
	done = (uint64_t)n > w->skip ? min_u64((uint64_t)n - w->skip, w->len) : 0;
	if (job->host && done < w->len && (!job->ep->facts.can_buffered || job->ep->facts.force_direct))
		done += read_host_rest(l, w, done);
	stat_add(&job->ctx->stats.direct_bytes, done);
	w->got = done;
	if (done < w->len && job->ep->facts.can_buffered)
		window_read_buffered(l, w, done);
}

/* Does a job leave the registration of its window in the cache? It registers all of the cache's window then. */
static bool window_fills_cache(const struct job *job, const struct window *w, uint64_t file_len)
{
	uint64_t unit = job->dev->tuning.window_bytes, start = align_down(w->off, unit);

	return job->plan.registers == ROUTE_REGISTER_ALL || w->len >= min_u64(unit, file_len - start) / 2;
}

int window_register_pages(struct lane *l, struct window *w)
{
	struct job *job = l->job;
	uint64_t len, start = align_down(w->off, os_page_size()), unit = job->dev->tuning.window_bytes;
	int rc;

	rc = job->ep->ops->length(job->ep, &len);
	if (rc)
		return rc;
	if (w->off >= len)
		return -ENODATA; /* the file ends before the window */
	if (w->off + w->len <= align_down(w->off, unit) + unit)
		w->reg_window = regcache_get(&job->ctx->reg_cache, job->ep, job->dev, w->off, len,
					     window_fills_cache(job, w, len));
	w->got = min_u64(w->len, len - w->off);
	if (w->reg_window) {
		w->skip = w->off - w->reg_window->off;
		if (w->skip + w->got <= w->reg_window->len)
			return 0;
		regcache_put(&job->ctx->reg_cache,
			     w->reg_window); /* the file has grown since the window was registered */
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

/* Waits for a copy that was put on the stream with status @rc. */
static int wait_copy(struct job *job, struct window *w, struct dev_stream *s, int rc)
{
	if (!rc)
		rc = job->dev->ops->stream_wait(s, STRAIT_FOREVER);
	w->device_status = rc ? s->status : 0;
	return rc;
}

/* Reads a window piece by piece through host memory, its chunk if it has one. */
static int read_by_host(struct lane *l, struct window *w, struct dev_stream *s)
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
		rc = wait_copy(job, w, s, job->dev->ops->copy_in(s, job_dev_addr(job, at), buf, (uint64_t)n));
		if (!rc)
			w->got += (uint64_t)n;
	}
	free(own);
	return rc;
}

/* Copies a window piece by piece out of registered pages; pieces get smaller each time the file is truncated meanwhile. */
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
			rc = wait_copy(job, w, s, rc);
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
	/* Within the file, and yet its pages cannot be brought into memory: an I/O error of the file. */
	if (rc)
		w->err = -EIO;
	return 0;
}

/*
 * For a window that is longer than a chunk and could not be registered, or whose pages went away. Waits for no chunk:
 * all chunks may belong to windows that only this lane can finish. Uses a stream of its own, so that its errors are not
 * those of other windows.
 */
int window_read_pieces(struct lane *l, struct window *w)
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
	rc = pages ? read_pages(l, w, ls->stream) : read_by_host(l, w, ls->stream);
	engine_stream_put(job->dev, ls, rc != 0);
	return rc;
}
