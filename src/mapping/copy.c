/* SPDX-License-Identifier: MIT */
/* The CPU's copies of a mapping: their memory, acquire and release. */
#include "mapping/copy.h"

#include <stdlib.h>

#include "base/util.h"
#include "mapping/range.h"
#include "os/os.h"

#define SCAN_RUNS 256u
#define SCAN_GRANULES (8u * CHUNK_GRANULES) /* scanned with the index locked */

struct view *copy_view(const struct strait_mapping *m)
{
	return m->copy ? m->copy->view : NULL;
}

/* Has the kernel tell missing pages and stores. */
static int copy_watch(struct strait_mapping *m, struct cpu_copy *c)
{
	bool user_only;
	int rc;

	if (m->flags & STRAIT_MAPPING_COMPARE || os_page_size() != GRANULE_BYTES)
		return -EOPNOTSUPP;
	rc = os_event_fd(&c->stop_fd);
	if (rc)
		return rc;
	rc = os_fault_open(&m->track, m->addr, m->map_len, &user_only);
	if (rc)
		return rc;
	/* A mapping of the file is read by the handler without its locks for read(2) and write(2), and without SIGBUS. */
	c->filled = user_only || !m->host || os_vm_read(c->bytes, m->host, 1) < 1;
	c->faulting = true;
	m->tracking = m->flags & STRAIT_MAPPING_READ_ONLY ? STRAIT_TRACKING_NONE : STRAIT_TRACKING_SCAN;
	return 0;
}

int copy_map(struct strait_mapping *m, bool must)
{
	struct cpu_copy *c = calloc(1, sizeof(*c));
	void *addr;
	int rc;

	if (!c)
		return -ENOMEM;
	c->stop_fd = -1;
	pthread_rwlock_init(&c->evict_lock, NULL);
	c->bytes = malloc(CLUSTER_BYTES);
	c->zeros = calloc(1, GRANULE_BYTES);
	m->copy = c;
	rc = c->bytes && c->zeros ? os_map_copy(m->map_len, CLUSTER_BYTES, true, &addr) : -ENOMEM;
	if (rc)
		goto err_unmap;
	m->addr = addr;
	rc = copy_watch(m, c);
	if (rc && rc != -ENOMEM && must) {
		m->tracking = m->flags & STRAIT_MAPPING_READ_ONLY ? STRAIT_TRACKING_NONE : STRAIT_TRACKING_COMPARE;
		c->filled = true;
		rc = 0;
	}
	if (!rc)
		return 0;
err_unmap:
	copy_unmap(m);
	return rc;
}

/* Undoes copy_map(), after copy_stop(). */
void copy_unmap(struct strait_mapping *m)
{
	struct cpu_copy *c = m->copy;

	os_track_close(&m->track);
	if (c->stop_fd >= 0)
		os_close(c->stop_fd);
	os_unmap(m->addr, m->map_len);
	free(c->bytes);
	free(c->zeros);
	pthread_rwlock_destroy(&c->evict_lock);
	free(c);
	m->addr = NULL;
	m->copy = NULL;
}

static int copy_memory(struct strait_mapping *m, struct view *v)
{
	struct strait_region *data;
	int rc;

	rc = region_import(&m->ctx->set, v->dev, (uintptr_t)m->addr, (m->end - m->first) << GRANULE_SHIFT, 0, &data);
	if (rc)
		return rc;
	rc = extent_adopt(v, (struct span){ m->first, m->end }, data, &m->copy->extent);
	if (rc)
		region_put(data);
	return rc;
}

int copy_start(struct strait_mapping *m)
{
	struct cpu_copy *c = m->copy;
	struct strait_device *dev;
	struct view *v;
	int rc;

	rc = device_set_find(&m->ctx->set, "host", &dev);
	if (!rc)
		rc = view_open(m, dev, &v);
	if (rc)
		return rc;
	v->scanned = c->faulting;
	v->faults = c->faulting && !c->filled;
	rc = copy_memory(m, v);
	if (rc)
		goto err_close;
	c->view = v;
	if (c->faulting)
		rc = os_thread("strait-fault", copy_handler, m, &c->thread);
	if (rc)
		goto err_close;
	return 0;
err_close:
	c->view = NULL;
	view_close(v);
	return rc;
}

/* The caller has stored what the view had newest, as far as that was possible. */
void copy_stop(struct strait_mapping *m)
{
	struct cpu_copy *c = m->copy;

	if (c->faulting) {
		os_event_signal(c->stop_fd);
		pthread_join(c->thread, NULL);
	}
	view_close(c->view);
	c->view = NULL;
}

void copy_zap(struct view *v, const struct batch *b)
{
	for (unsigned int i = 0; i < b->n; i++)
		os_discard(cpu_ptr(v->map, b->runs[i].first), (b->runs[i].end - b->runs[i].first) << GRANULE_SHIFT);
}

void copy_wake(struct view *v, const struct batch *b)
{
	for (unsigned int i = 0; i < b->n; i++)
		os_fault_wake(&v->map->track, cpu_ptr(v->map, b->runs[i].first),
			      (b->runs[i].end - b->runs[i].first) << GRANULE_SHIFT);
}

/*
 * A page that is there is written in place, since another thread may have acquired it for reading. This is not a store of
 * the CPU, so it is protected again: no release scans it, for it is not acquired for writing.
 */
int copy_fill(struct view *v, uint64_t g, uint64_t n, const char *from)
{
	struct strait_mapping *m = v->map;
	uint64_t len = min_u64(n << GRANULE_SHIFT, m->map_len - ((g - m->first) << GRANULE_SHIFT)), at = 0;
	char *to = cpu_ptr(m, g);
	size_t done;
	int rc = 0;

	if (!v->scanned) {
		memcpy(to, from, len);
		return 0;
	}
	while (at < len && !rc) {
		rc = os_fault_copy(&m->track, to + at, from + at, len - at, &done);
		at += done;
		if (rc != -EEXIST)
			continue;
		memcpy(to + at, from + at, GRANULE_BYTES);
		rc = os_track_protect(&m->track, to + at, GRANULE_BYTES);
		at += GRANULE_BYTES;
	}
	return rc;
}

/* Fills the missing pages of what is about to be overwritten: system calls of an unprivileged process need them. */
static int fill_zeros(struct strait_mapping *m, struct span s)
{
	struct cpu_copy *c = m->copy;
	size_t done;

	for (uint64_t g = s.first; g < s.end; g++) {
		bool missing;

		pthread_mutex_lock(&m->index->lock);
		missing = !view_chunk(c->view, g)->copies[g % CHUNK_GRANULES].version;
		pthread_mutex_unlock(&m->index->lock);
		if (missing) {
			int rc = os_fault_copy(&m->track, cpu_ptr(m, g), c->zeros, GRANULE_BYTES, &done);

			if (rc && rc != -EEXIST)
				return rc;
		}
	}
	return 0;
}

static int acquire(struct strait_mapping *m, struct acquired *a)
{
	struct span s = span_around(m, a->offset, a->length);
	struct cpu_copy *c = m->copy;
	int rc = 0;

	if (a->intent != STRAIT_INTENT_READ && c->view->scanned) {
		a->changed = calloc((s.end - s.first + 31) / 32, sizeof(*a->changed));
		if (!a->changed)
			return -ENOMEM;
	}
	if (a->intent == STRAIT_INTENT_OVERWRITE && c->faulting && c->filled)
		rc = fill_zeros(m, span_inside(m, a->offset, a->length));
	if (!rc && a->intent == STRAIT_INTENT_WRITE && !c->view->scanned)
		extent_twin(c->view, c->extent);
	return rc ? rc : view_acquire(c->view, c->extent, a->offset, a->length, a->intent, false);
}

int copy_acquire(struct strait_mapping *m, struct acquired *a)
{
	int rc;

	pthread_rwlock_rdlock(&m->copy->evict_lock);
	rc = acquire(m, a);
	if (!rc)
		acquired_add(m, a);
	pthread_rwlock_unlock(&m->copy->evict_lock);
	copy_trim(m);
	return rc;
}

static bool copy_is_there(struct view *v, uint64_t g)
{
	return view_chunk(v, g)->copies[g % CHUNK_GRANULES].version;
}

/* Sets the bits of [g, end) that are there: what is missing was not stored to, also if the kernel says so. */
static void set_changed_locked(struct view *v, uint64_t first, uint64_t g, uint64_t end, uint32_t *changed)
{
	for (; g < end; g++)
		if (copy_is_there(v, g))
			changed[(g - first) / 32] |= 1u << (g - first) % 32;
}

/* While the handler fills a page, it is not known whether that was there when the scan passed. */
static void wait_for_handler_locked(struct view *v, struct span s)
{
	for (uint64_t g = s.first; g < s.end; g++)
		while (view_chunk(v, g)->copies[g % CHUNK_GRANULES].state & COPY_FAULTING) {
			pthread_cond_wait(&v->map->index->moved, &v->map->index->lock);
			g = s.first;
		}
}

/* Finds the granules of @s, which begin at @first of the release, that were stored to, and protects them again. */
static void scan_locked(struct view *v, struct span s, uint64_t first, uint32_t *changed)
{
	struct strait_mapping *m = v->map;
	char *at = cpu_ptr(m, s.first), *end = cpu_ptr(m, s.end);
	struct os_page_run runs[SCAN_RUNS];
	void *next;

	wait_for_handler_locked(v, s);
	while (at < end) {
		int n = os_track_scan(&m->track, at, (size_t)(end - at), runs, SCAN_RUNS, &next);

		if (n < 0) {
			/* What was stored is not known: all that is there may be. */
			set_changed_locked(v, first, s.first, s.end, changed);
			return;
		}
		for (int i = 0; i < n; i++)
			set_changed_locked(v, first, m->first + ((runs[i].start - (uintptr_t)m->addr) >> GRANULE_SHIFT),
					   m->first + ((runs[i].end - (uintptr_t)m->addr) >> GRANULE_SHIFT), changed);
		at = next;
	}
}

static void scan(struct view *v, struct span s, uint32_t *changed)
{
	struct map_index *x = v->map->index;

	for (uint64_t g = s.first; g < s.end; g += SCAN_GRANULES) {
		pthread_mutex_lock(&x->lock);
		scan_locked(v, (struct span){ g, min_u64(g + SCAN_GRANULES, s.end) }, s.first, changed);
		pthread_mutex_unlock(&x->lock);
	}
}

int copy_release(struct strait_mapping *m, struct acquired *a)
{
	struct view *v = m->copy->view;

	if (!v->scanned)
		return device_release(&(struct acquired){ .view = v,
							  .extent = m->copy->extent,
							  .offset = a->offset,
							  .length = a->length,
							  .intent = a->intent });
	/* All that is overwritten counts as changed, and is protected again. */
	if (a->intent != STRAIT_INTENT_READ)
		scan(v, span_around(m, a->offset, a->length), a->changed);
	return view_release(v, a->offset, a->length, a->intent, a->intent == STRAIT_INTENT_WRITE ? a->changed : NULL,
			    false);
}

int copy_prefetch(struct strait_mapping *m, uint64_t offset, uint64_t length)
{
	struct page_span pages = page_span((uintptr_t)m->addr + offset, length, os_page_size());
	int rc = walk_read(m->copy->view, span_around(m, offset, length), false);

	return !rc && m->copy->view->faults ? os_populate_read((void *)(uintptr_t)pages.start, pages.length) : rc;
}
