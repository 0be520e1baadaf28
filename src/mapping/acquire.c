/* SPDX-License-Identifier: MIT */
/* Acquire and release of a device, once there is memory for the range. */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/mapping.h"

struct span span_around(const struct strait_mapping *m, uint64_t offset, uint64_t length)
{
	return (struct span){ m->first + (offset >> GRANULE_SHIFT),
			      m->first + ((offset + length + GRANULE_BYTES - 1) >> GRANULE_SHIFT) };
}

struct span span_inside(const struct strait_mapping *m, uint64_t offset, uint64_t length)
{
	uint64_t first = (offset + GRANULE_BYTES - 1) >> GRANULE_SHIFT, end = (offset + length) >> GRANULE_SHIFT;

	/* The last granule of the mapping has no other bytes that anyone could see. */
	if (offset + length == m->length && map_is_private(m))
		end = m->end - m->first;
	return (struct span){ m->first + first, m->first + max_u64(first, end) };
}

/* Ends writing of [s.first, s.end), which changed nothing. */
static void write_cancel(struct view *v, struct span s)
{
	pthread_mutex_lock(&v->map->index->lock);
	for (uint64_t g = s.first; g < s.end; g++)
		index_event_locked(v->map->index, v, g, GRANULE_WRITE_END);
	pthread_mutex_unlock(&v->map->index->lock);
}

static bool can_write_locked(struct view *v, uint64_t g)
{
	return view_chunk(v, g)->copies[g % CHUNK_GRANULES].writers || copy_current_locked(v, g);
}

static void twin_batch_init(struct batch *b)
{
	b->n = 0;
	b->granules = 0;
	b->from = NULL;
	b->step = STEP_TWIN;
}

static void twin_batch_add(struct batch *b, uint64_t g)
{
	if (b->n && b->runs[b->n - 1].end == g)
		b->runs[b->n - 1].end++;
	else
		b->runs[b->n++] = (struct span){ g, g + 1 };
	b->granules++;
}

/* Without a twin, published bytes that only the view has are stored before they are written over. */
static bool must_store_locked(struct view *v, uint64_t g)
{
	return index_chunk(v->map->index, g)->granules[g % CHUNK_GRANULES].newest == v->number &&
	       !view_chunk(v, g)->copies[g % CHUNK_GRANULES].writers;
}

/* Begins writing of granules from *@at on, up to one that is not current. @b: those whose twin is to be taken. */
static void write_collect_locked(struct view *v, uint64_t *at, uint64_t end, bool twin, struct batch *b)
{
	struct map_index *x = v->map->index;

	twin_batch_init(b);
	while (*at < end && can_write_locked(v, *at) && (twin || !must_store_locked(v, *at))) {
		enum granule_step step;

		if (b->n == BATCH_RUNS)
			return;
		step = index_event_locked(x, v, *at, twin ? GRANULE_WRITE_BEGIN : GRANULE_WRITE_DECLARED);
		if (step == STEP_WAIT) {
			if (b->n)
				return;
			pthread_cond_wait(&x->moved, &x->lock);
			continue;
		}
		if (step == STEP_TWIN)
			twin_batch_add(b, *at);
		(*at)++;
	}
}

/* Makes [s.first, s.end) current and begins writing. */
static int write_begin(struct view *v, struct span s, bool twin, bool isolated)
{
	struct strait_mapping *m = v->map;
	struct batch *b = malloc(sizeof(*b));
	uint64_t at = s.first;
	int rc = 0;

	if (!b)
		return -ENOMEM;
	while (at < s.end && !rc) {
		rc = walk_read(v, (struct span){ at, s.end }, isolated);
		if (!rc && !twin)
			rc = walk_span(m, NULL, (struct span){ at, s.end }, GRANULE_READ_HOST, isolated);
		if (rc)
			break;
		pthread_mutex_lock(&m->index->lock);
		write_collect_locked(v, &at, s.end, twin, b);
		pthread_mutex_unlock(&m->index->lock);
		if (b->n)
			rc = batch_move(m, v, b, isolated);
	}
	if (rc)
		write_cancel(v, (struct span){ s.first, at });
	free(b);
	return rc;
}

static void overwrite_begin(struct view *v, struct span s)
{
	struct map_index *x = v->map->index;

	pthread_mutex_lock(&x->lock);
	for (uint64_t g = s.first; g < s.end;) {
		/* The first may be repeated if the second has to wait. */
		if (index_event_locked(x, v, g, GRANULE_OVERWRITE_COPY) == STEP_WAIT ||
		    index_event_locked(x, v, g, GRANULE_WRITE_DECLARED) == STEP_WAIT)
			pthread_cond_wait(&x->moved, &x->lock);
		else
			g++;
	}
	pthread_mutex_unlock(&x->lock);
}

int view_acquire(struct view *v, struct extent *e, uint64_t offset, uint64_t length, uint32_t intent, bool isolated)
{
	struct span s = span_around(v->map, offset, length), in = span_inside(v->map, offset, length);
	bool twin;
	int rc;

	if (intent == STRAIT_INTENT_READ)
		return walk_read(v, s, isolated);
	pthread_mutex_lock(&v->map->index->lock);
	twin = e->twin;
	pthread_mutex_unlock(&v->map->index->lock);
	if (intent == STRAIT_INTENT_WRITE)
		return write_begin(v, s, twin, isolated);
	/* Granules of which a part is overwritten are fetched first: the rest cannot fail. */
	if (in.first == in.end)
		return write_begin(v, s, false, isolated);
	rc = write_begin(v, (struct span){ s.first, in.first }, false, isolated);
	if (rc)
		return rc;
	rc = write_begin(v, (struct span){ in.end, s.end }, false, isolated);
	if (rc) {
		write_cancel(v, (struct span){ s.first, in.first });
		return rc;
	}
	overwrite_begin(v, in);
	return 0;
}

static bool bit(const uint32_t *bits, uint64_t i)
{
	return bits[i / 32] >> i % 32 & 1;
}

/*
 * Takes the twins of changed granules again that other acquirers still write to: otherwise a later release would publish
 * these changes once more, over what another side has published since. What such an acquirer stores before the copy is
 * published with this release, and later stores differ from the twin.
 */
static int twin_again(struct view *v, struct span s, const uint32_t *changed, bool isolated)
{
	struct map_index *x = v->map->index;
	struct batch *b = malloc(sizeof(*b));
	uint64_t g = s.first;
	int rc = 0;

	if (!b)
		return -ENOMEM;
	while (g < s.end && !rc) {
		twin_batch_init(b);
		pthread_mutex_lock(&x->lock);
		for (; g < s.end && b->n < BATCH_RUNS; g++) {
			enum granule_step step;

			if (!bit(changed, g - s.first))
				continue;
			step = index_event_locked(x, v, g, GRANULE_TWIN_AGAIN);
			while (step == STEP_WAIT && !b->n) {
				pthread_cond_wait(&x->moved, &x->lock);
				step = index_event_locked(x, v, g, GRANULE_TWIN_AGAIN);
			}
			if (step == STEP_WAIT)
				break;
			if (step == STEP_TWIN)
				twin_batch_add(b, g);
		}
		pthread_mutex_unlock(&x->lock);
		if (b->n)
			rc = batch_move(v->map, v, b, isolated);
	}
	free(b);
	return rc;
}

int view_release(struct view *v, uint64_t offset, uint64_t length, uint32_t intent, const uint32_t *changed,
		 bool isolated)
{
	struct strait_mapping *m = v->map;
	struct span s = span_around(m, offset, length);
	uint64_t conflicts = 0, declared = 0;
	int rc = 0;

	if (intent == STRAIT_INTENT_READ)
		return 0;
	if (changed && !v->scanned)
		rc = twin_again(v, s, changed, isolated);
	pthread_mutex_lock(&m->index->lock);
	for (uint64_t g = s.first; g < s.end; g++) {
		bool known = changed && (v->scanned || view_chunk(v, g)->copies[g % CHUNK_GRANULES].state & COPY_TWIN);

		declared += !known;
		if (!known || bit(changed, g - s.first))
			conflicts += index_event_locked(m->index, v, g, GRANULE_PUBLISH_COPY) == STEP_CONFLICT;
		index_event_locked(m->index, v, g, GRANULE_WRITE_END);
	}
	pthread_mutex_unlock(&m->index->lock);
	count(&m->conflicts, conflicts);
	count(&m->declared, declared);
	return rc;
}
