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
	bool isolated; /* a stream of the application waits for it */
};

/* Granules of @g's chunk that belong to the mapping of the walk. */
static struct span chunk_span(const struct walk *w, uint64_t g)
{
	uint64_t first = g / CHUNK_GRANULES * CHUNK_GRANULES;

	return (struct span){ max_u64(first, w->m->first), min_u64(first + CHUNK_GRANULES, w->m->end) };
}

static bool is_current(const struct view *v, const struct granule *gr, const struct granule_copy *c)
{
	if (c->state & (COPY_FILLING | COPY_FAULTING))
		return false;
	/* A page that is missing is filled with what the host has then. */
	if (v->faults && !c->version)
		return !gr->newest && !(gr->state & GRANULE_STORING);
	return c->version == gr->version + 1;
}

bool copy_current_locked(struct view *v, uint64_t g)
{
	return is_current(v, &index_chunk(v->map->index, g)->granules[g % CHUNK_GRANULES],
			  &view_chunk(v, g)->copies[g % CHUNK_GRANULES]);
}

static bool walk_fetches(const struct walk *w)
{
	return w->event == GRANULE_READ_COPY || w->event == GRANULE_READ_FAULTS;
}

static bool walk_stores(const struct walk *w)
{
	return w->event == GRANULE_READ_HOST || w->event == GRANULE_OVERWRITE_HOST;
}

/* The first granule of [g, end), which lie in one group, whose copy is not current. Notes if all copies of the group are. */
static uint64_t skip_current_locked(const struct walk *w, uint64_t g, uint64_t end, struct span whole)
{
	const struct map_chunk *chunk = index_chunk(w->m->index, g);
	struct view_chunk *vc = view_chunk(w->v, g);
	uint64_t group = g % CHUNK_GRANULES / GROUP_GRANULES, at = g;

	if (vc->group_current_at[group] == chunk->group_changes[group] + 1)
		return end;
	while (at < end && is_current(w->v, &chunk->granules[at % CHUNK_GRANULES], &vc->copies[at % CHUNK_GRANULES]))
		at++;
	if (g == whole.first && at == whole.end)
		vc->group_current_at[group] = chunk->group_changes[group] + 1;
	return at;
}

/*
 * The first granule of [g, end), which lie in one chunk, for which the event may do something. Most granules of a chunk
 * with changes are current: what a walk over a large range costs is to skip them.
 */
static uint64_t skip_done_locked(const struct walk *w, uint64_t g, uint64_t end)
{
	const struct granule *gr = index_chunk(w->m->index, g)->granules + g % CHUNK_GRANULES;

	if (walk_stores(w)) {
		for (; g < end && !gr->newest && !gr->state; g++)
			gr++;
	} else if (walk_fetches(w)) {
		while (g < end) {
			uint64_t first = align_down(g, GROUP_GRANULES), next = first + GROUP_GRANULES;
			struct span whole = { max_u64(first, w->m->first), min_u64(next, w->m->end) };
			uint64_t to = min_u64(whole.end, end);

			g = skip_current_locked(w, g, to, whole);
			if (g < to)
				break;
		}
	}
	return g;
}

/* Is there nothing to do in the chunk of @g from there on? A walk over a large range looks at most chunks this way. */
static bool chunk_done_locked(struct walk *w, uint64_t g, uint64_t *next)
{
	const struct map_chunk *c = index_chunk(w->m->index, g);
	struct span s = chunk_span(w, g);
	struct view_chunk *vc;

	*next = min_u64(s.end, w->end);
	if (walk_stores(w))
		return !c->newer && !c->storing;
	if (!walk_fetches(w))
		return false;
	vc = view_chunk(w->v, g);
	if (vc->current_at == c->changes + 1)
		return true;
	if (g != s.first || w->end < s.end || skip_done_locked(w, g, s.end) < s.end)
		return false;
	vc->current_at = c->changes + 1;
	return true;
}

/*
 * Can the view read the memory of the one that has the newest bytes? Not while a stream waits: a driver that stages the
 * copy may need that stream's queue. Copies of the CPU are written back.
 */
static bool peers_locked(const struct walk *w, unsigned int newest)
{
	const struct view *from = newest ? w->m->index->views[newest] : NULL;

	return from && from != w->v && !w->isolated && w->event == GRANULE_READ_COPY && w->v->dev->tuning.peer_copies &&
	       w->v->dev->provider == from->dev->provider && from != copy_view(from->map) && w->v != copy_view(w->m) &&
	       !w->v->peer_refused[newest];
}

/* The event at @g, and the step that it would cause, with nothing changed. */
static enum granule_step peek_locked(const struct walk *w, uint64_t g, enum granule_event *event, unsigned int *newest)
{
	struct granule gr = index_chunk(w->m->index, g)->granules[g % CHUNK_GRANULES];
	struct granule_copy copy = { 0 };

	if (w->v)
		copy = view_chunk(w->v, g)->copies[g % CHUNK_GRANULES];
	*newest = gr.newest;
	*event = peers_locked(w, gr.newest) ? GRANULE_READ_PEER : w->event;
	return granule_event(&gr, w->v ? &copy : NULL, w->v ? w->v->number : 0, *event);
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
	/* Without staging memory, only the number of copies is limited. */
	if (step == STEP_PEER)
		return next || b->n < BATCH_RUNS;
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
		enum granule_event event;
		enum granule_step step;
		struct view *from;
		unsigned int newest;

		if ((g == w->at || g % CHUNK_GRANULES == 0) && chunk_done_locked(w, g, &next)) {
			g = next;
			if (!b->n)
				w->at = g;
			continue;
		}
		next = skip_done_locked(w, g, min_u64(align_down(g, CHUNK_GRANULES) + CHUNK_GRANULES, w->end));
		if (next > g) {
			g = next;
			if (!b->n)
				w->at = g;
			continue;
		}
		step = peek_locked(w, g, &event, &newest);
		from = step == STEP_STORE || step == STEP_PEER ? x->views[newest] : NULL;
		if (step == STEP_WAIT) {
			if (b->n)
				return;
			pthread_cond_wait(&x->moved, &x->lock);
			continue;
		}
		if (step != STEP_DONE && !batch_accepts(w, b, g, step, from))
			return;
		index_event_locked(x, w->v, g, event);
		if (step != STEP_DONE)
			batch_add(b, g, step, from);
		g++;
		if (!b->n)
			w->at = g;
	}
}

static int walk_part(struct walk w)
{
	struct map_index *x = w.m->index;
	struct batch *b = malloc(sizeof(*b));
	int rc = 0;

	if (!b)
		return -ENOMEM;
	pthread_mutex_lock(&x->lock);
	while (w.at < w.end && !rc) {
		uint64_t began = os_now_ns();

		collect_locked(&w, b);
		count_since(&w.m->walk_ns, began);
		if (!b->n)
			continue;
		pthread_mutex_unlock(&x->lock);
		rc = batch_move(w.m, w.v, b, w.isolated);
		pthread_mutex_lock(&x->lock);
		/* A granule that was stored is not fetched yet. One that was fetched is as new as this call promises. */
		if (b->step == STEP_FETCH || (b->step == STEP_PEER && b->granules))
			w.at = b->runs[b->n - 1].end;
	}
	pthread_mutex_unlock(&x->lock);
	free(b);
	return rc;
}

/*
 * A walk that finds changes in many places is split into parts, walked side by side: while one thread collects a batch,
 * others read the file, and copies run on as many streams. Each thread has marks of its own and waits as any other
 * acquirer does; the caller has none when it waits for the others.
 */
#define SPLIT_CHUNKS 64u /* with changes, from which on it is worth to wake workers */
#define SPLIT_PARTS 48u

struct split {
	struct walk walk;
	uint64_t granules; /* of a part */
	pthread_mutex_t lock;
	unsigned int failed; /* the first part that failed, under @lock */
	int rc;
};

static void split_run(void *arg, unsigned int i)
{
	struct split *s = arg;
	struct walk w = s->walk;
	bool skip;
	int rc;

	w.at = max_u64(s->walk.at, align_down(s->walk.at, CHUNK_GRANULES) + i * s->granules);
	w.end = min_u64(s->walk.end, align_down(s->walk.at, CHUNK_GRANULES) + (i + 1) * s->granules);
	pthread_mutex_lock(&s->lock);
	skip = s->rc;
	pthread_mutex_unlock(&s->lock);
	rc = skip ? 0 : walk_part(w);
	if (!rc)
		return;
	pthread_mutex_lock(&s->lock);
	if (!s->rc || i < s->failed) {
		s->rc = rc;
		s->failed = i;
	}
	pthread_mutex_unlock(&s->lock);
}

/* Advances w->at to the first chunk with something to do. Are there many such, with short runs? */
static bool walk_splits(struct walk *w)
{
	uint64_t first = w->end, g, next, end = 0, chunks = 0;
	enum granule_event event;
	unsigned int newest;

	if (!walk_stores(w) && !walk_fetches(w))
		return false;
	pthread_mutex_lock(&w->m->index->lock);
	for (g = w->at; g < w->end && chunks < SPLIT_CHUNKS; g = next) {
		if (chunk_done_locked(w, g, &next))
			continue;
		first = min_u64(first, g);
		chunks++;
	}
	w->at = first;
	g = first;
	if (chunks == SPLIT_CHUNKS) {
		g = skip_done_locked(w, g, min_u64(align_down(g, CHUNK_GRANULES) + CHUNK_GRANULES, w->end));
		for (end = g + LONG_GRANULES; g < min_u64(end, w->end); g++)
			if (peek_locked(w, g, &event, &newest) != STEP_FETCH)
				break;
	}
	pthread_mutex_unlock(&w->m->index->lock);
	return chunks == SPLIT_CHUNKS && g < end;
}

int walk_span(struct strait_mapping *m, struct view *v, struct span s, enum granule_event event, bool isolated)
{
	struct split split = { .walk = { m, v, s.first, s.end, event, isolated } };
	struct walk *w = &split.walk;
	uint64_t first;

	/* A stream of the application that waits has one isolated stream for its copies. */
	if (isolated || !walk_splits(w))
		return w->at < w->end ? walk_part(*w) : 0;
	first = align_down(w->at, CHUNK_GRANULES);
	split.granules = align_up((w->end - first + SPLIT_PARTS - 1) / SPLIT_PARTS, CHUNK_GRANULES);
	pthread_mutex_init(&split.lock, NULL);
	parallel_for(&m->ctx->workers, (unsigned int)((w->end - first + split.granules - 1) / split.granules),
		     split_run, &split);
	pthread_mutex_destroy(&split.lock);
	return split.rc;
}
