/* SPDX-License-Identifier: MIT */
/*
 * Stores of the CPU, found at its release: by the kernel's scan of pages that were written since they were protected, or
 * by comparison with a twin that was copied at acquire.
 */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/mapping.h"
#include "os/os.h"

#define SCAN_RUNS 512u
#define COMPARE_GRANULES 4u /* on the stack */

/*
 * The host has @n granules from @g on that are stored by the library, or about to be published: no other acquirer is to take
 * them for its own stores. With the index's host_lock.
 */
static void twins_update_locked(struct map_index *x, uint64_t g, uint64_t n, const char *buf)
{
	list_for_each(it, &x->mappings) {
		struct strait_mapping *m = list_entry(it, struct strait_mapping, in_index);

		for (uint64_t i = 0; m->twin && i < n; i++)
			if (g + i >= m->first && g + i < m->end && m->twin_writers[g + i - m->first])
				memcpy(m->twin + ((g + i - m->first) << GRANULE_SHIFT), buf + (i << GRANULE_SHIFT),
				       GRANULE_BYTES);
	}
}

/* Is there a twin, in any mapping of the file? With the index's host_lock. */
static bool has_twin_locked(struct map_index *x)
{
	list_for_each(it, &x->mappings)
		if (list_entry(it, struct strait_mapping, in_index)->twin)
			return true;
	return false;
}

/*
 * Publishes a range of the host's granules, which the CPU has stored to. First, twins of acquirers that still write to them
 * get these bytes: otherwise a later release would publish them again, over what a device has published since. What such an
 * acquirer stores before its twin is copied is published now, and later stores differ from the twin.
 */
static void publish_span(struct strait_mapping *m, struct span s)
{
	char buf[COMPARE_GRANULES * GRANULE_BYTES];
	struct map_index *x = m->index;
	uint64_t good, n;

	for (uint64_t g = s.first; g < s.end && has_twin_locked(x); g += n) {
		n = min_u64(s.end - g, COMPARE_GRANULES);
		host_read(m, g, n, buf, &good);
		twins_update_locked(x, g, good, buf);
	}
	pthread_mutex_lock(&x->lock);
	for (uint64_t g = s.first; g < s.end; g++)
		if (index_event_locked(x, NULL, g, GRANULE_PUBLISH_HOST) == STEP_CONFLICT)
			count(&m->conflicts, 1);
	pthread_mutex_unlock(&x->lock);
}

/* Publishes the part of @s that is not in @over. */
static void publish_except(struct strait_mapping *m, struct span s, struct span over)
{
	if (over.first == over.end || over.end <= s.first || s.end <= over.first) {
		publish_span(m, s);
		return;
	}
	if (s.first < over.first)
		publish_span(m, (struct span){ s.first, over.first });
	if (over.end < s.end)
		publish_span(m, (struct span){ over.end, s.end });
}

/* The pages of the CPU's mapping that contain granules of @s. */
static struct page_span span_pages(const struct strait_mapping *m, struct span s)
{
	uint64_t at = (uintptr_t)m->addr + ((s.first - m->first) << GRANULE_SHIFT);
	struct page_span p = page_span(at, (s.end - s.first) << GRANULE_SHIFT, os_page_size());

	p.length = min_u64(p.length, (uintptr_t)m->addr + m->map_len - p.start);
	return p;
}

/* Protects the chunks of @s that are not protected yet. Under the lock: a store of another acquirer must not come between. */
static int arm(struct strait_mapping *m, struct span s)
{
	uint64_t base = m->first / CHUNK_GRANULES, c = s.first / CHUNK_GRANULES;
	uint64_t end = (s.end + CHUNK_GRANULES - 1) / CHUNK_GRANULES;
	int rc = 0;

	pthread_mutex_lock(&m->index->lock);
	while (c < end && !rc) {
		uint64_t n = 0;

		while (c + n < end && !m->armed[c + n - base])
			n++;
		if (n) {
			struct span part = { max_u64(c * CHUNK_GRANULES, m->first),
					     min_u64((c + n) * CHUNK_GRANULES, m->end) };
			struct page_span p = span_pages(m, part);

			rc = os_track_protect(&m->track, (void *)(uintptr_t)p.start, p.length);
			if (!rc)
				memset(m->armed + (c - base), 1, n);
		}
		c += n ? n : 1;
	}
	pthread_mutex_unlock(&m->index->lock);
	return rc;
}

/* Takes the twin of granules that no other acquirer writes to. */
static int twin_begin(struct strait_mapping *m, struct span s)
{
	uint64_t g = s.first, good;
	int rc = 0;

	pthread_mutex_lock(&m->index->host_lock);
	while (g < s.end && !rc) {
		uint64_t n = 0;

		while (g + n < s.end && !m->twin_writers[g + n - m->first])
			n++;
		if (n)
			rc = host_read(m, g, n, m->twin + ((g - m->first) << GRANULE_SHIFT), &good);
		if (rc)
			break;
		n = n ? n : 1;
		for (uint64_t i = g; i < g + n; i++)
			m->twin_writers[i - m->first]++;
		g += n;
	}
	for (uint64_t i = s.first; rc && i < g; i++)
		m->twin_writers[i - m->first]--;
	pthread_mutex_unlock(&m->index->host_lock);
	return rc;
}

int host_track_begin(struct strait_mapping *m, struct span s)
{
	uint64_t began = os_now_ns();
	int rc = m->tracking == STRAIT_TRACKING_SCAN ? arm(m, s) : twin_begin(m, s);

	count_since(&m->protect_ns, began);
	return rc;
}

int host_store(struct strait_mapping *m, uint64_t g, uint64_t n, const char *buf)
{
	struct map_index *x = m->index;
	bool twins;
	int rc;

	pthread_mutex_lock(&x->host_lock);
	twins = has_twin_locked(x);
	/* Writes to a file may run side by side, unless a twin has to follow. */
	if (!twins && !map_is_private(m))
		pthread_mutex_unlock(&x->host_lock);
	rc = host_write(m, g, n, buf);
	if (twins && !rc)
		twins_update_locked(x, g, n, buf);
	if (twins || map_is_private(m))
		pthread_mutex_unlock(&x->host_lock);
	return rc;
}

void host_track_cancel(struct strait_mapping *m, struct span s)
{
	if (m->tracking != STRAIT_TRACKING_COMPARE)
		return;
	pthread_mutex_lock(&m->index->host_lock);
	for (uint64_t g = s.first; g < s.end; g++)
		m->twin_writers[g - m->first]--;
	pthread_mutex_unlock(&m->index->host_lock);
}

/*
 * A scan of the page tables, in slices that are scanned side by side. What is found is protected in the same step, which
 * flushes the TLBs of all processors that run threads of the process: so few threads would take longer than one.
 */
#define SLICE_BYTES MIB(128)
#define SCAN_THREADS 4u
struct slice {
	struct os_page_run *runs;
	uint64_t n, room;
	int rc;
};

struct scan {
	struct strait_mapping *m;
	struct page_span pages;
	struct slice *slices;
};

static int slice_room(struct slice *s)
{
	struct os_page_run *more;

	if (s->room - s->n >= SCAN_RUNS)
		return 0;
	more = reallocarray(s->runs, 2 * s->room + SCAN_RUNS, sizeof(*more));
	if (!more)
		return -ENOMEM;
	s->runs = more;
	s->room = 2 * s->room + SCAN_RUNS;
	return 0;
}

static void scan_slice(void *arg, unsigned int i)
{
	struct scan *c = arg;
	struct slice *s = &c->slices[i];
	uint64_t at = c->pages.start + i * SLICE_BYTES,
		 end = min_u64(at + SLICE_BYTES, c->pages.start + c->pages.length);
	void *next;

	while (at < end) {
		int n = slice_room(s);

		if (!n)
			n = os_track_scan(&c->m->track, (void *)(uintptr_t)at, end - at, s->runs + s->n, SCAN_RUNS,
					  &next);
		if (n < 0) {
			s->rc = n;
			return;
		}
		s->n += (uint64_t)n;
		at = (uintptr_t)next;
	}
}

static uint64_t granule_at(const struct strait_mapping *m, uint64_t addr)
{
	return min_u64(m->first + ((addr - (uintptr_t)m->addr) >> GRANULE_SHIFT), m->end);
}

/* Publishes what the kernel found to be written in @s, except for @over. */
static void scan_end(struct strait_mapping *m, struct span s, struct span over)
{
	struct scan c = { m, span_pages(m, s), NULL };
	unsigned int n = (unsigned int)((c.pages.length + SLICE_BYTES - 1) / SLICE_BYTES);
	int rc = 0;

	c.slices = calloc(n, sizeof(*c.slices));
	if (!c.slices)
		rc = -ENOMEM;
	else if (m->ctx->threads >= SCAN_THREADS)
		parallel_for(&m->ctx->workers, n, scan_slice, &c);
	for (unsigned int i = 0; i < n && c.slices && m->ctx->threads < SCAN_THREADS; i++)
		scan_slice(&c, i);
	for (unsigned int i = 0; i < n && c.slices; i++) {
		struct slice *slice = &c.slices[i];

		for (uint64_t k = 0; k < slice->n; k++)
			publish_except(m,
				       (struct span){ granule_at(m, slice->runs[k].start),
						      granule_at(m, slice->runs[k].end) },
				       over);
		rc = slice->rc ? slice->rc : rc;
		free(slice->runs);
	}
	free(c.slices);
	if (rc) {
		/* What was stored is not known: all of it may be. */
		count(&m->declared, s.end - s.first);
		publish_span(m, s);
	}
}

static void twin_end(struct strait_mapping *m, struct span s, struct span over)
{
	char buf[COMPARE_GRANULES * GRANULE_BYTES];
	uint64_t n, good;

	for (uint64_t g = s.first; g < s.end; g += n) {
		n = min_u64(s.end - g, COMPARE_GRANULES);
		/* Granules that a truncation removed have no bytes to publish. */
		host_read(m, g, n, buf, &good);
		for (uint64_t i = g; i < g + n; i++) {
			const char *twin = m->twin + ((i - m->first) << GRANULE_SHIFT);

			m->twin_writers[i - m->first]--;
			if (i < g + good && memcmp(twin, buf + ((i - g) << GRANULE_SHIFT), GRANULE_BYTES) != 0)
				publish_except(m, (struct span){ i, i + 1 }, over);
		}
	}
}

void host_track_end(struct strait_mapping *m, struct span s, struct span over)
{
	uint64_t began;

	pthread_mutex_lock(&m->index->host_lock);
	began = os_now_ns();
	if (m->tracking == STRAIT_TRACKING_COMPARE)
		twin_end(m, s, over);
	else
		scan_end(m, s, over);
	count(&m->declared, over.end - over.first);
	publish_span(m, over);
	count_since(&m->scan_ns, began);
	pthread_mutex_unlock(&m->index->host_lock);
}
