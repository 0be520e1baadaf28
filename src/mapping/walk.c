/* SPDX-License-Identifier: MIT */
/* Walks over the granules of a range: collects what must move into batches, and has each moved at once. */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/mapping.h"

struct walk {
	struct strait_mapping *m;
	struct view *v; /* NULL for events of the host */
	uint64_t at;	/* all before is done */
	uint64_t end;
	enum granule_event event;
};

/* Granules of @g's chunk that belong to the mapping of the walk. */
static struct span chunk_span(const struct walk *w, uint64_t g)
{
	uint64_t first = g / CHUNK_GRANULES * CHUNK_GRANULES;

	return (struct span){ max_u64(first, w->m->first), min_u64(first + CHUNK_GRANULES, w->m->end) };
}

bool copy_current_locked(struct view *v, uint64_t g)
{
	const struct granule *gr = &index_chunk(v->map->index, g)->granules[g % CHUNK_GRANULES];
	const struct granule_copy *c = &view_chunk(v, g)->copies[g % CHUNK_GRANULES];

	if (c->state & (COPY_FILLING | COPY_FAULTING))
		return false;
	/* A page that is missing is filled with what the host has then. */
	if (v->faults && !c->version)
		return !gr->newest && !(gr->state & GRANULE_STORING);
	return c->version == gr->version + 1;
}

static bool copies_current_locked(struct walk *w, struct span s)
{
	for (uint64_t g = s.first; g < s.end; g++)
		if (!copy_current_locked(w->v, g))
			return false;
	return true;
}

/* Is there nothing to do in the chunk of @g from there on? A walk over a large range looks at most chunks this way. */
static bool chunk_done_locked(struct walk *w, uint64_t g, uint64_t *next)
{
	const struct map_chunk *c = index_chunk(w->m->index, g);
	struct span s = chunk_span(w, g);
	struct view_chunk *vc;

	*next = min_u64(s.end, w->end);
	if (w->event == GRANULE_READ_HOST || w->event == GRANULE_OVERWRITE_HOST)
		return !c->newer && !c->storing;
	if (w->event != GRANULE_READ_COPY && w->event != GRANULE_READ_FAULTS)
		return false;
	vc = view_chunk(w->v, g);
	if (vc->current_at == c->changes + 1)
		return true;
	if (g != s.first || w->end < s.end || !copies_current_locked(w, s))
		return false;
	vc->current_at = c->changes + 1;
	return true;
}

/* The step that the event would cause, with nothing changed. */
static enum granule_step peek_locked(const struct walk *w, uint64_t g, unsigned int *newest)
{
	struct granule gr = index_chunk(w->m->index, g)->granules[g % CHUNK_GRANULES];
	struct granule_copy copy = { 0 };

	if (w->v)
		copy = view_chunk(w->v, g)->copies[g % CHUNK_GRANULES];
	*newest = gr.newest;
	return granule_event(&gr, w->v ? &copy : NULL, w->v ? w->v->number : 0, w->event);
}

/* Does a granule with this step go into the batch? */
static bool batch_accepts(const struct walk *w, const struct batch *b, uint64_t g, enum granule_step step,
			  const struct view *from)
{
	bool next = b->n && b->runs[b->n - 1].end == g;

	if (!b->n)
		return true;
	if (step != b->step || from != b->from)
		return false;
	if (b->granules < STAGE_GRANULES)
		return next || b->n < BATCH_RUNS;
	return step == STEP_FETCH && b->n == 1 && next && !map_is_private(w->m) && w->v != copy_view(w->m);
}

static void batch_add(struct batch *b, uint64_t g, enum granule_step step, struct view *from)
{
	if (!b->n) {
		b->step = step;
		b->from = from;
		if (from)
			from->users++;
	}
	if (b->n && b->runs[b->n - 1].end == g)
		b->runs[b->n - 1].end++;
	else
		b->runs[b->n++] = (struct span){ g, g + 1 };
	b->granules++;
}

/*
 * Goes on from w->at until a batch is complete or the range ends. Waits for marks of other threads only while it has none of
 * its own.
 */
static void collect_locked(struct walk *w, struct batch *b)
{
	struct map_index *x = w->m->index;
	uint64_t g = w->at, next;

	b->n = 0;
	b->granules = 0;
	b->from = NULL;
	while (g < w->end) {
		enum granule_step step;
		struct view *from;
		unsigned int newest;

		if ((g == w->at || g % CHUNK_GRANULES == 0) && chunk_done_locked(w, g, &next)) {
			g = next;
			if (!b->n)
				w->at = g;
			continue;
		}
		step = peek_locked(w, g, &newest);
		from = step == STEP_STORE ? x->views[newest] : NULL;
		if (step == STEP_WAIT) {
			if (b->n)
				return;
			pthread_cond_wait(&x->moved, &x->lock);
			continue;
		}
		if (step != STEP_DONE && !batch_accepts(w, b, g, step, from))
			return;
		index_event_locked(x, w->v, g, w->event);
		if (step != STEP_DONE)
			batch_add(b, g, step, from);
		g++;
		if (!b->n)
			w->at = g;
	}
}

int walk_span(struct strait_mapping *m, struct view *v, struct span s, enum granule_event event, bool isolated)
{
	struct walk w = { m, v, s.first, s.end, event };
	struct batch *b = malloc(sizeof(*b));
	int rc = 0;

	if (!b)
		return -ENOMEM;
	pthread_mutex_lock(&m->index->lock);
	while (w.at < w.end && !rc) {
		uint64_t began = os_now_ns();

		collect_locked(&w, b);
		count_since(&m->walk_ns, began);
		if (!b->n)
			continue;
		pthread_mutex_unlock(&m->index->lock);
		rc = batch_move(m, v, b, isolated);
		pthread_mutex_lock(&m->index->lock);
		/* A granule that was stored is not fetched yet. One that was fetched is as new as this call promises. */
		if (b->step == STEP_FETCH)
			w.at = b->runs[b->n - 1].end;
	}
	pthread_mutex_unlock(&m->index->lock);
	free(b);
	return rc;
}
