/* SPDX-License-Identifier: MIT */
/*
 * Acquire and release ordered on a stream, and prefetch: the work is done by a worker while the stream waits.
 *
 * Work ordered on a stream waits for no other such work: only marks of granules, whose owners run. A device sees what
 * another stream released if the application ordered one stream after the other.
 */
#include <stdlib.h>

#include "base/util.h"
#include "engine/stream/stream.h"
#include "mapping/copy.h"
#include "mapping/range.h"
#include "os/os.h"

struct work {
	struct strait_mapping *m;
	struct strait_stream *stream;
	struct acquired *a;
	int *status;
	struct stage *st; /* release: results of the comparison, NULL: none */
	int compared;	  /* 0: it is on the stream */
};

void mapping_background_begin(struct strait_mapping *m)
{
	pthread_mutex_lock(&m->index->lock);
	m->in_background++;
	pthread_mutex_unlock(&m->index->lock);
}

void mapping_background_end(struct strait_mapping *m)
{
	struct map_index *x = m->index;

	pthread_mutex_lock(&x->lock);
	m->in_background--;
	pthread_cond_broadcast(&x->moved);
	pthread_mutex_unlock(&x->lock);
}

/* Applications poll for it from other threads. */
static void set_status(int *status, int rc)
{
	if (status)
		__atomic_store_n(status, rc, __ATOMIC_RELEASE);
}

static struct work *work_new(struct strait_mapping *m, struct strait_stream *s, struct acquired *a, int *status)
{
	struct work *w = calloc(1, sizeof(*w));

	if (w)
		*w = (struct work){ .m = m, .stream = s, .a = a, .status = status, .compared = -EOPNOTSUPP };
	return w;
}

static void acquire_due(void *arg)
{
	struct work *w = arg;
	struct acquired *a = w->a;

	int rc = view_acquire(a->view, a->extent, a->offset, a->length, a->intent, true);

	a->status = rc;
	/* From here on a release by another thread may end it. */
	acquired_done(w->m, a);
	set_status(w->status, rc);
	mapping_background_end(w->m);
	free(w);
}

int mapping_acquire_on(struct strait_mapping *m, struct strait_stream *s, uint64_t offset, uint64_t length,
		       uint32_t intent, void **addr, int *status)
{
	struct acquired *a;
	struct work *w;
	void *at;
	int rc;

	rc = range_check(m, offset, length, intent);
	if (rc)
		return rc;
	a = acquired_new(NULL, offset, length, intent);
	w = work_new(m, s, a, status);
	rc = a && w ? device_memory(m, stream_device(s), a) : -ENOMEM;
	if (rc) {
		free(a);
		free(w);
		return rc;
	}
	at = acquired_addr(m, a);
	a->queued = s;
	acquired_add(m, a);
	mapping_background_begin(m);
	rc = stream_run_work(s, NULL, acquire_due, w);
	if (rc) {
		mapping_background_end(m);
		acquired_end(m, a);
		free(w);
		return rc;
	}
	if (addr)
		*addr = at;
	advice_acquired(m, stream_device(s), offset, length);
	return 0;
}

static void release_compare(void *arg)
{
	struct work *w = arg;

	if (w->st)
		w->compared = compare_start(w->a, stream_native(w->stream), w->st);
}

static void release_due(void *arg)
{
	struct work *w = arg;
	struct acquired *a = w->a;
	int rc = a->status;

	if (!rc)
		rc = view_release(a->view, a->offset, a->length, a->intent,
				  w->compared ? NULL : (const uint32_t *)(const void *)w->st->ptr, true);
	if (w->st)
		stage_put(a->view, w->st);
	acquired_end(w->m, a);
	set_status(w->status, rc);
	mapping_background_end(w->m);
	free(w);
}

int mapping_release_on(struct strait_mapping *m, struct strait_stream *s, uint64_t offset, uint64_t length,
		       uint32_t intent, int *status)
{
	struct acquired *a;
	struct work *w;
	int rc;

	rc = acquired_claim(m, stream_device(s), s, offset, length, intent, &a);
	if (rc)
		return rc;
	w = work_new(m, s, a, status);
	rc = w ? 0 : -ENOMEM;
	if (!rc && acquired_twin(a))
		rc = compare_stage(a, &w->st);
	if (rc) {
		acquired_unclaim(m, a);
		free(w);
		return rc;
	}
	mapping_background_begin(m);
	rc = stream_run_work(s, release_compare, release_due, w);
	if (rc) {
		/* The comparison may be in flight, and writes to the stage. */
		if (w->st) {
			if (!w->compared)
				stream_wait(s, STRAIT_FOREVER);
			stage_put(a->view, w->st);
		}
		acquired_unclaim(m, a);
		mapping_background_end(m);
		free(w);
	}
	return rc;
}

struct prefetch {
	struct task task;
	struct strait_mapping *m;
	struct strait_device *dev;
	uint64_t offset, length;
	bool ahead; /* of an acquire */
};

static void prefetch_device(struct prefetch *p)
{
	struct span s = span_around(p->m, p->offset, p->length);
	struct extent *e;
	struct view *v;

	if (view_get(p->m, p->dev, &v) || extent_get(v, s, false, true, &e))
		return;
	walk_span(p->m, v, s, GRANULE_READ_COPY, false);
	extent_put(v, e, true);
}

static void prefetch_host(struct prefetch *p)
{
	struct strait_mapping *m = p->m;
	struct page_span pages = page_span((uintptr_t)m->addr + p->offset, p->length, os_page_size());

	if (m->copy)
		copy_prefetch(m, p->offset, p->length);
	else if (!walk_span(m, NULL, span_around(m, p->offset, p->length), GRANULE_READ_HOST, false))
		os_populate_read((void *)(uintptr_t)pages.start, pages.length);
}

static uint64_t *ahead_of(struct strait_mapping *m, const struct strait_device *dev)
{
	return &m->ahead[dev ? dev->number + 1 : 0];
}

/* Has the side gone on while the request waited for a worker? */
static bool prefetch_overtaken(const struct prefetch *p)
{
	bool yes;

	pthread_mutex_lock(&p->m->index->lock);
	yes = p->ahead && *ahead_of(p->m, p->dev) != p->offset;
	pthread_mutex_unlock(&p->m->index->lock);
	return yes;
}

static void prefetch_run(struct task *task)
{
	struct prefetch *p = container_of(task, struct prefetch, task);
	struct strait_mapping *m = p->m;

	if (!prefetch_overtaken(p)) {
		if (p->dev)
			prefetch_device(p);
		else
			prefetch_host(p);
	}
	free(p);
	mapping_background_end(m);
}

static int prefetch(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length, bool ahead)
{
	struct prefetch *p;
	int rc;

	rc = range_check(m, offset, length, STRAIT_INTENT_READ);
	if (rc)
		return rc;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	*p = (struct prefetch){ .m = m, .dev = dev, .offset = offset, .length = length, .ahead = ahead };
	task_init(&p->task, prefetch_run);
	mapping_background_begin(m);
	rc = workers_post(&m->ctx->workers, &p->task);
	if (rc) {
		mapping_background_end(m);
		free(p);
	}
	return rc;
}

int mapping_prefetch(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length)
{
	return prefetch(m, dev, offset, length, false);
}

int mapping_read_ahead(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length)
{
	pthread_mutex_lock(&m->index->lock);
	*ahead_of(m, dev) = offset;
	pthread_mutex_unlock(&m->index->lock);
	return prefetch(m, dev, offset, length, true);
}
