/* SPDX-License-Identifier: MIT */
/* Acquire, release, refresh, flush and prefetch of a range, on the calling thread. */
#include "mapping/range.h"

#include <stdlib.h>

#include "base/util.h"
#include "mapping/copy.h"
#include "os/os.h"

#define RESULT_BYTES KIB(64)

int range_check(const struct strait_mapping *m, uint64_t offset, uint64_t length, uint32_t intent)
{
	if (!length || !range_inside(offset, length, m->length) || intent > STRAIT_INTENT_OVERWRITE)
		return -EINVAL;
	return intent != STRAIT_INTENT_READ && m->flags & STRAIT_MAPPING_READ_ONLY ? -EACCES : 0;
}

int range_check_any(const struct strait_mapping *m, uint64_t offset, uint64_t length)
{
	return range_inside(offset, length, m->length) ? 0 : -EINVAL;
}

struct acquired *acquired_new(struct view *v, uint64_t offset, uint64_t length, uint32_t intent)
{
	struct acquired *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	list_init(&a->node);
	a->view = v;
	a->offset = offset;
	a->length = length;
	a->intent = intent;
	return a;
}

bool acquired_overlaps_locked(const struct strait_mapping *m, const struct view *v, struct span s)
{
	list_for_each(it, &m->acquired) {
		struct acquired *a = list_entry(it, struct acquired, node);
		struct span r = span_around(m, a->offset, a->length);

		if (a->view == v && r.first < s.end && s.first < r.end)
			return true;
	}
	return false;
}

void acquired_free(struct acquired *a)
{
	if (a)
		free(a->changed);
	free(a);
}

void acquired_add(struct strait_mapping *m, struct acquired *a)
{
	pthread_mutex_lock(&m->index->lock);
	list_add_tail(&m->acquired, &a->node);
	m->n_acquired++;
	pthread_mutex_unlock(&m->index->lock);
}

void acquired_done(struct strait_mapping *m, struct acquired *a)
{
	pthread_mutex_lock(&m->index->lock);
	a->queued = NULL;
	pthread_mutex_unlock(&m->index->lock);
}

void acquired_end(struct strait_mapping *m, struct acquired *a)
{
	pthread_mutex_lock(&m->index->lock);
	list_del(&a->node);
	m->n_acquired--;
	pthread_mutex_unlock(&m->index->lock);
	if (a->extent)
		extent_put(a->view, a->extent, false);
	acquired_free(a);
}

/* Equal ranges that were acquired more than once differ only in whether the acquire is still queued. */
static struct acquired *acquired_find_locked(struct strait_mapping *m, struct strait_device *dev, uint64_t offset,
					     uint64_t length, uint32_t intent, const struct strait_stream *queued)
{
	list_for_each(it, &m->acquired) {
		struct acquired *a = list_entry(it, struct acquired, node);

		if (!a->releasing && (a->view ? a->view->dev : NULL) == dev && a->offset == offset &&
		    a->length == length && a->intent == intent && a->queued == queued)
			return a;
	}
	return NULL;
}

int acquired_claim(struct strait_mapping *m, struct strait_device *dev, const struct strait_stream *s, uint64_t offset,
		   uint64_t length, uint32_t intent, struct acquired **ret)
{
	struct acquired *a;

	pthread_mutex_lock(&m->index->lock);
	/* One that is done is left to a release that waits for no stream, if this one has another. */
	a = acquired_find_locked(m, dev, offset, length, intent, s);
	if (!a && s)
		a = acquired_find_locked(m, dev, offset, length, intent, NULL);
	if (a)
		a->releasing = true;
	pthread_mutex_unlock(&m->index->lock);
	*ret = a;
	return a ? 0 : -ENOENT;
}

void acquired_unclaim(struct strait_mapping *m, struct acquired *a)
{
	pthread_mutex_lock(&m->index->lock);
	a->releasing = false;
	pthread_mutex_unlock(&m->index->lock);
}

/* Makes the host's bytes current for the CPU, and finds its stores from now on. */
static int host_acquire(struct strait_mapping *m, uint64_t offset, uint64_t length, uint32_t intent)
{
	struct span s = span_around(m, offset, length), in = span_inside(m, offset, length);
	int rc;

	if (intent != STRAIT_INTENT_OVERWRITE)
		in.first = in.end = s.end;
	rc = walk_span(m, NULL, (struct span){ s.first, in.first }, GRANULE_READ_HOST, false);
	if (!rc)
		rc = walk_span(m, NULL, (struct span){ in.end, s.end }, GRANULE_READ_HOST, false);
	if (!rc && intent != STRAIT_INTENT_READ)
		rc = host_track_begin(m, s);
	/* Last, since it supersedes bytes of devices. */
	if (!rc) {
		rc = walk_span(m, NULL, in, GRANULE_OVERWRITE_HOST, false);
		if (rc && intent != STRAIT_INTENT_READ)
			host_track_cancel(m, s);
	}
	return rc;
}

static void host_release(struct strait_mapping *m, uint64_t offset, uint64_t length, uint32_t intent)
{
	struct span s = span_around(m, offset, length), in = span_inside(m, offset, length);

	if (intent == STRAIT_INTENT_READ)
		return;
	if (intent == STRAIT_INTENT_WRITE)
		in.end = in.first;
	host_track_end(m, s, in);
}

int device_memory(struct strait_mapping *m, struct strait_device *dev, struct acquired *a)
{
	struct span s = span_around(m, a->offset, a->length);
	int rc;

	rc = view_get(m, dev, &a->view);
	if (rc)
		return rc;
	return extent_get(a->view, s, a->intent == STRAIT_INTENT_WRITE, false, &a->extent);
}

void *acquired_addr(struct strait_mapping *m, const struct acquired *a)
{
	struct span s = span_around(m, a->offset, a->length);

	if (!a->view)
		return m->addr + a->offset;
	return (void *)(uintptr_t)(extent_addr(a->extent->data, a->extent, s.first) + a->offset % GRANULE_BYTES);
}

int mapping_acquire(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length,
		    uint32_t intent, void **addr)
{
	struct acquired *a;
	int rc;

	rc = range_check(m, offset, length, intent);
	if (rc)
		return rc;
	a = acquired_new(NULL, offset, length, intent);
	if (!a)
		return -ENOMEM;
	if (dev) {
		rc = device_memory(m, dev, a);
		if (!rc)
			rc = view_acquire(a->view, a->extent, offset, length, intent, false);
	} else {
		rc = m->copy ? copy_acquire(m, a) : host_acquire(m, offset, length, intent);
	}
	if (rc) {
		if (a->extent)
			extent_put(a->view, a->extent, false);
		acquired_free(a);
		return rc;
	}
	if (addr)
		*addr = dev ? acquired_addr(m, a) : m->addr + offset;
	/* copy_acquire() has added it: another thread may have released it already. */
	if (dev || !m->copy)
		acquired_add(m, a);
	advice_acquired(m, dev, offset, length);
	return 0;
}

bool acquired_twin(const struct acquired *a)
{
	struct map_index *x = a->view->map->index;
	bool twin;

	pthread_mutex_lock(&x->lock);
	twin = a->intent == STRAIT_INTENT_WRITE && a->extent->twin;
	pthread_mutex_unlock(&x->lock);
	return twin;
}

int compare_stage(const struct acquired *a, struct stage **ret)
{
	struct span s = span_around(a->view->map, a->offset, a->length);
	uint64_t words = (s.end - s.first + 31) / 32, len = RESULT_BYTES;

	while (len < words * sizeof(uint32_t) || len == STAGE_BYTES)
		len *= 2;
	return stage_get(a->view, len, ret);
}

int compare_start(const struct acquired *a, struct dev_stream *stream, struct stage *st)
{
	struct span s = span_around(a->view->map, a->offset, a->length);
	struct extent *e = a->extent;

	return a->view->dev->ops->compare_pages(stream, extent_addr(e->data, e, s.first),
						extent_addr(e->twin, e, s.first), (s.end - s.first) << GRANULE_SHIFT,
						st->reg.dev_addr);
}

/* Compares the range with its twin and waits. -EOPNOTSUPP: the device cannot. */
static int compare_now(const struct acquired *a, struct stage *st)
{
	struct strait_device *dev = a->view->dev;
	struct lane_stream *ls;
	int rc, done;

	rc = region_use(a->extent->data, 0, 0);
	if (rc)
		return rc;
	rc = engine_stream_get(dev, &a->extent->data->mem, false, &ls);
	if (rc)
		goto unuse;
	rc = compare_start(a, ls->stream, st);
	done = dev->ops->stream_wait(ls->stream, STRAIT_FOREVER);
	if (!rc)
		rc = done;
	engine_stream_put(dev, ls, rc && rc != -EOPNOTSUPP);
unuse:
	region_unuse(a->extent->data);
	return rc;
}

int device_release(const struct acquired *a)
{
	struct stage *st = NULL;
	int rc = -EOPNOTSUPP, done;

	if (acquired_twin(a)) {
		rc = compare_stage(a, &st);
		if (!rc)
			rc = compare_now(a, st);
	}
	done = view_release(a->view, a->offset, a->length, a->intent,
			    rc ? NULL : (const uint32_t *)(const void *)st->ptr, false);
	if (st)
		stage_put(a->view, st);
	return rc && rc != -EOPNOTSUPP ? rc : done;
}

int mapping_release(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length,
		    uint32_t intent)
{
	struct acquired *a;
	int rc;

	rc = acquired_claim(m, dev, NULL, offset, length, intent, &a);
	if (rc)
		return rc;
	if (!dev && m->copy)
		rc = copy_release(m, a);
	else if (!dev)
		host_release(m, offset, length, intent);
	else if (!a->status)
		rc = device_release(a);
	acquired_end(m, a);
	if (!dev && m->copy)
		copy_trim(m);
	return rc;
}

/* Is a part of @s acquired for writing, through any mapping of the file? */
static bool being_written_locked(struct map_index *x, struct span s)
{
	list_for_each(it, &x->mappings) {
		struct strait_mapping *m = list_entry(it, struct strait_mapping, in_index);

		list_for_each(at, &m->acquired) {
			struct acquired *a = list_entry(at, struct acquired, node);
			struct span r = span_around(m, a->offset, a->length);

			if (a->intent != STRAIT_INTENT_READ && r.first < s.end && s.first < r.end)
				return true;
		}
	}
	return false;
}

static bool unstored_locked(struct map_index *x, struct span s)
{
	for (uint64_t g = s.first; g < s.end; g++) {
		const struct granule *gr = &index_chunk(x, g)->granules[g % CHUNK_GRANULES];

		if (gr->newest || gr->state)
			return true;
	}
	return false;
}

int mapping_refresh(struct strait_mapping *m, uint64_t offset, uint64_t length)
{
	struct span s = span_around(m, offset, length);
	struct map_index *x = m->index;
	int rc;

	rc = map_is_private(m) ? -EINVAL : range_check_any(m, offset, length);
	if (rc)
		return rc;
	pthread_mutex_lock(&x->lock);
	if (x->paged_writers || being_written_locked(x, s) || unstored_locked(x, s))
		rc = -EBUSY;
	for (uint64_t g = s.first; g < s.end && !rc; g++)
		index_event_locked(x, NULL, g, GRANULE_REFRESH);
	pthread_mutex_unlock(&x->lock);
	return rc;
}

int mapping_flush(struct strait_mapping *m, uint64_t offset, uint64_t length)
{
	int rc = range_check_any(m, offset, length);

	return rc ? rc : walk_span(m, NULL, span_around(m, offset, length), GRANULE_READ_HOST, false);
}

int mapping_sync(struct strait_mapping *m, uint64_t offset, uint64_t length)
{
	int rc = mapping_flush(m, offset, length), fault;

	if (!rc && !map_is_private(m) && !(m->flags & STRAIT_MAPPING_READ_ONLY))
		rc = m->ep->ops->sync(m->ep);
	if (!rc)
		atomic_store_explicit(&m->error, 0, memory_order_relaxed);
	fault = atomic_exchange_explicit(&m->fault_error, 0, memory_order_relaxed);
	return rc ? rc : fault;
}
