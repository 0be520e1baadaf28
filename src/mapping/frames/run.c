/* SPDX-License-Identifier: MIT */
/*
 * Begin and end of a view. Both run on a worker while the stream waits, so the tables in device memory are the host's then: it
 * copies them, changes them and copies them back.
 */
#include <stdlib.h>

#include "base/util.h"
#include "engine/stream/stream.h"
#include "mapping/frames/frames.h"
#include "mapping/range.h"

struct view_work {
	struct strait_frames *f;
	int *status;
};

static void set_state(struct strait_frames *f, enum frames_state state)
{
	pthread_mutex_lock(&f->lock);
	__atomic_store_n(&f->state, state, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
}

static bool bit_get(const uint8_t *bits, uint64_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

/* ---- begin ---- */

/* Marks granules whose version is another one than when the frames may have got them. */
static uint64_t find_stale(struct strait_frames *f)
{
	struct strait_mapping *m = f->m;
	uint64_t first = m->first / CHUNK_GRANULES, n = 0;

	pthread_mutex_lock(&m->index->lock);
	for (uint64_t c = first; c * CHUNK_GRANULES < m->end; c++) {
		const struct map_chunk *chunk = index_chunk(m->index, c * CHUNK_GRANULES);
		uint64_t g = max_u64(c * CHUNK_GRANULES, m->first), end = min_u64((c + 1) * CHUNK_GRANULES, m->end);

		if (f->seen_changes[c - first] == chunk->changes)
			continue;
		f->seen_changes[c - first] = chunk->changes;
		for (; g < end; g++) {
			uint32_t version = chunk->granules[g % CHUNK_GRANULES].version, *seen = &f->seen[g - m->first];

			if (*seen == version)
				continue;
			*seen = version;
			f->stale[(g - m->first) / 8] |= (uint8_t)(1u << (g - m->first) % 8);
			n++;
		}
	}
	pthread_mutex_unlock(&m->index->lock);
	return n;
}

/* Makes granules of one frame absent that are stale, or could not be read. Returns how many. */
static unsigned int drop_granules(struct strait_frames *f, uint64_t page, uint64_t *state)
{
	uint32_t granules = 1u << f->view.page_shift;
	unsigned int n = 0;

	for (uint32_t i = 0; i < granules; i++) {
		uint64_t g = (page << f->view.page_shift) + i, *word = &state[i / 32], mask = 3ull << i % 32 * 2;
		uint64_t has = *word >> i % 32 * 2 & 3;

		if (has == STRAIT_GRANULE_VALID && g < f->view.granules && bit_get(f->stale, g)) {
			*word &= ~mask;
			n++;
		} else if (has == STRAIT_GRANULE_FAILED || has == STRAIT_GRANULE_FILLING) {
			*word &= ~mask;
		}
	}
	return n;
}

static int drop_stale(struct strait_frames *f)
{
	uint64_t frames = f->view.n_frames, words = frames * f->view.words;
	uint32_t *owner;
	uint64_t *state;
	int rc;

	if (!find_stale(f) && !f->failed)
		return 0;
	owner = calloc(frames, sizeof(*owner));
	state = calloc(words, sizeof(*state));
	rc = owner && state ? frames_copy(f, f->at_owner, owner, frames * sizeof(*owner), true, true) : -ENOMEM;
	if (!rc)
		rc = frames_copy(f, f->at_state, state, words * sizeof(*state), true, true);
	for (uint64_t i = 0; i < frames && !rc; i++)
		if (owner[i] >= STRAIT_FRAME_PAGE)
			f->dropped += drop_granules(f, owner[i] - STRAIT_FRAME_PAGE, state + i * f->view.words);
	if (!rc)
		rc = frames_copy(f, f->at_state, state, words * sizeof(*state), false, true);
	/* On an error what was found stays marked for the next begin. */
	if (!rc) {
		memset(f->stale, 0, (f->view.granules + 7) / 8);
		f->failed = false;
	}
	free(owner);
	free(state);
	return rc;
}

/* All requests are complete: slots that timed out are free again. */
static int reset_shared(struct strait_frames *f)
{
	struct strait_view_shared *sh = &f->shared;

	memset(sh->taken, 0, sizeof(sh->taken));
	memset(sh->quarantine, 0, sizeof(sh->quarantine));
	sh->quarantined = 0;
	sh->failed = 0;
	sh->first_error = 0;
	f->error = 0;
	return frames_copy(f, f->at_shared, sh, sizeof(*sh), false, true);
}

static void finish_work(struct view_work *w, int rc)
{
	struct strait_mapping *m = w->f->m;

	if (w->status)
		__atomic_store_n(w->status, rc, __ATOMIC_RELEASE);
	mapping_background_end(m);
	free(w);
}

static void begin_due(void *arg)
{
	struct view_work *w = arg;
	struct strait_frames *f = w->f;
	int rc;

	/* What other devices and the CPU's copies have newest goes to the host, where the device's requests read it. */
	rc = walk_span(f->m, NULL, (struct span){ f->m->first, f->m->end }, GRANULE_READ_HOST, true);
	if (!rc)
		rc = drop_stale(f);
	if (!rc)
		rc = reset_shared(f);
	/* Also after an error: the kernels behind it run, and their requests are answered. */
	set_state(f, FRAMES_BEGUN);
	finish_work(w, rc);
}

static int put_work(struct strait_frames *f, struct strait_stream *s, strait_stream_fn *fn, int *status)
{
	struct view_work *w = malloc(sizeof(*w));
	int rc;

	if (!w)
		return -ENOMEM;
	*w = (struct view_work){ f, status };
	mapping_background_begin(f->m);
	rc = stream_run_work(s, NULL, fn, w);
	if (rc) {
		mapping_background_end(f->m);
		free(w);
	}
	return rc;
}

static int use_memory(struct strait_frames *f)
{
	int rc = region_use(f->data, 0, 0);

	if (rc)
		return rc;
	rc = region_use(f->tables, 0, 0);
	if (rc)
		region_unuse(f->data);
	return rc;
}

static void writers_add(struct strait_frames *f, int n)
{
	if (!(f->view.flags & STRAIT_VIEW_WRITE))
		return;
	pthread_mutex_lock(&f->m->index->lock);
	f->m->index->paged_writers += (unsigned int)n;
	pthread_mutex_unlock(&f->m->index->lock);
}

int frames_begin(struct strait_frames *f, struct strait_stream *s, uint32_t intent, struct strait_view *view,
		 int *status)
{
	int rc;

	if (view->abi != STRAIT_VIEW_ABI)
		return -EPROTO;
	if (intent != STRAIT_INTENT_READ && intent != STRAIT_INTENT_WRITE)
		return -EINVAL;
	if (intent == STRAIT_INTENT_WRITE && f->m->flags & STRAIT_MAPPING_READ_ONLY)
		return -EACCES;
	if (stream_device(s) != f->dev)
		return -EINVAL;
	pthread_mutex_lock(&f->lock);
	rc = f->state == FRAMES_IDLE ? 0 : -EBUSY;
	if (!rc)
		f->state = FRAMES_BEGINNING;
	pthread_mutex_unlock(&f->lock);
	if (rc)
		return rc;
	rc = use_memory(f);
	if (rc)
		goto idle;
	f->view.flags &= ~(STRAIT_VIEW_WRITE | STRAIT_VIEW_DIRTY);
	if (intent == STRAIT_INTENT_WRITE)
		f->view.flags |= STRAIT_VIEW_WRITE;
	/* Also granules that could not be written back at the last end. */
	if (intent == STRAIT_INTENT_WRITE || f->shared.dirty != f->dirty_stored)
		f->view.flags |= STRAIT_VIEW_DIRTY;
	writers_add(f, 1);
	rc = put_work(f, s, begin_due, status);
	if (rc)
		goto unuse;
	f->end_queued = false;
	*view = f->view;
	return 0;
unuse:
	writers_add(f, -1);
	region_unuse(f->tables);
	region_unuse(f->data);
idle:
	set_state(f, FRAMES_IDLE);
	return rc;
}

/* ---- end ---- */

/* A run of dirty granules of one frame. */
struct dirty_run {
	uint64_t g; /* in the mapping */
	uint32_t frame, first, n;
};

struct write_back {
	struct strait_frames *f;
	bool isolated;
	uint32_t *dirty;
	struct dirty_run *runs;
	unsigned int n_runs;
	uint32_t granules; /* of @runs; at most the number of slots, whose memory they are copied to */
	int error;
};

static void run_failed(struct write_back *wb, const struct dirty_run *r, int rc)
{
	if (!wb->error)
		wb->f->error_granule = r->g;
	wb->error = wb->error ? wb->error : rc;
}

static void clear_dirty(struct write_back *wb, const struct dirty_run *r)
{
	for (uint32_t i = r->first; i < r->first + r->n; i++)
		wb->dirty[(uint64_t)r->frame * wb->f->view.words + i / 32] &= ~(1u << i % 32);
}

/* Copies the runs to host memory with one wait, and stores each. */
static int store_runs(struct write_back *wb)
{
	struct strait_frames *f = wb->f;
	char *to = f->slot_data;
	struct lane_stream *ls;
	int rc, done;

	if (!wb->n_runs)
		return 0;
	rc = engine_stream_get(f->dev, &f->data->mem, wb->isolated, &ls);
	if (rc)
		return rc;
	for (unsigned int i = 0; i < wb->n_runs && !rc; i++) {
		const struct dirty_run *r = &wb->runs[i];

		rc = f->dev->ops->copy_out(ls->stream, to, (uintptr_t)strait_vc_data(&f->view, r->frame, r->first),
					   (uint64_t)r->n << GRANULE_SHIFT);
		to += (uint64_t)r->n << GRANULE_SHIFT;
	}
	done = f->dev->ops->stream_wait(ls->stream, STRAIT_FOREVER);
	rc = rc ? rc : done;
	engine_stream_put(f->dev, ls, rc != 0);
	to = f->slot_data;
	for (unsigned int i = 0; i < wb->n_runs && !rc; i++) {
		const struct dirty_run *r = &wb->runs[i];
		int one = frames_store(f, f->m->first + r->g, r->n, to);

		if (one) {
			run_failed(wb, r, one);
		} else {
			clear_dirty(wb, r);
			f->stored += r->n;
		}
		to += (uint64_t)r->n << GRANULE_SHIFT;
	}
	wb->n_runs = 0;
	wb->granules = 0;
	return rc;
}

/* Collects the dirty granules of a frame. */
static int add_frame(struct write_back *wb, uint32_t frame, uint64_t page)
{
	const struct strait_view *v = &wb->f->view;
	const uint32_t *dirty = wb->dirty + (uint64_t)frame * v->words;
	int rc = 0;

	for (uint32_t i = 0; i < 1u << v->page_shift && !rc; i++) {
		struct dirty_run *last = &wb->runs[wb->n_runs];

		if (!(dirty[i / 32] >> i % 32 & 1))
			continue;
		if (wb->granules == v->n_slots)
			rc = store_runs(wb);
		last = wb->n_runs ? &wb->runs[wb->n_runs - 1] : NULL;
		if (last && last->frame == frame && last->first + last->n == i)
			last->n++;
		else
			wb->runs[wb->n_runs++] = (struct dirty_run){ (page << v->page_shift) + i, frame, i, 1 };
		wb->granules++;
	}
	return rc;
}

/* Writes back what is dirty in all frames. Granules that cannot be written stay dirty. */
static int store_dirty(struct strait_frames *f, bool isolated)
{
	uint64_t frames = f->view.n_frames, words = frames * f->view.words;
	struct write_back wb = { .f = f, .isolated = isolated };
	uint32_t *owner = calloc(frames, sizeof(*owner));
	int rc;

	wb.dirty = calloc(words, sizeof(*wb.dirty));
	wb.runs = calloc(f->view.n_slots, sizeof(*wb.runs));
	rc = owner && wb.dirty && wb.runs ?
		     frames_copy(f, f->at_owner, owner, frames * sizeof(*owner), true, isolated) :
		     -ENOMEM;
	if (!rc)
		rc = frames_copy(f, f->at_dirty, wb.dirty, words * sizeof(*wb.dirty), true, isolated);
	for (uint64_t i = 0; i < frames && !rc; i++)
		if (owner[i] >= STRAIT_FRAME_PAGE)
			rc = add_frame(&wb, (uint32_t)i, owner[i] - STRAIT_FRAME_PAGE);
	if (!rc)
		rc = store_runs(&wb);
	if (!rc)
		rc = frames_copy(f, f->at_dirty, wb.dirty, words * sizeof(*wb.dirty), false, isolated);
	free(owner);
	free(wb.dirty);
	free(wb.runs);
	return rc ? rc : wb.error;
}

static int end_run(struct strait_frames *f, bool isolated)
{
	int rc;

	set_state(f, FRAMES_ENDING);
	frames_service_drain(f);
	rc = frames_copy(f, f->at_shared, &f->shared, sizeof(f->shared), true, isolated);
	/* The device counts granules that become dirty: nothing to look for if there was none since the last time. */
	if (!rc && f->shared.dirty != f->dirty_stored) {
		rc = store_dirty(f, isolated);
		if (!rc)
			f->dirty_stored = f->shared.dirty;
	}
	f->failed |= f->shared.failed != 0;
	if (rc)
		atomic_store_explicit(&f->m->error, rc, memory_order_relaxed);
	pthread_mutex_lock(&f->lock);
	f->error = rc;
	pthread_mutex_unlock(&f->lock);
	writers_add(f, -1);
	region_unuse(f->tables);
	region_unuse(f->data);
	set_state(f, FRAMES_IDLE);
	return rc;
}

static void end_due(void *arg)
{
	struct view_work *w = arg;

	finish_work(w, end_run(w->f, true));
}

int frames_end(struct strait_frames *f, struct strait_stream *s, int *status)
{
	int rc;

	if (stream_device(s) != f->dev)
		return -EINVAL;
	pthread_mutex_lock(&f->lock);
	rc = f->state == FRAMES_IDLE || f->end_queued ? -EINVAL : 0;
	if (!rc)
		f->end_queued = true;
	pthread_mutex_unlock(&f->lock);
	if (rc)
		return rc;
	rc = put_work(f, s, end_due, status);
	if (rc) {
		pthread_mutex_lock(&f->lock);
		f->end_queued = false;
		pthread_mutex_unlock(&f->lock);
	}
	return rc;
}

int frames_end_now(struct strait_frames *f)
{
	bool end;

	pthread_mutex_lock(&f->lock);
	while (f->state == FRAMES_BEGINNING || (f->state != FRAMES_IDLE && f->end_queued))
		pthread_cond_wait(&f->changed, &f->lock);
	end = f->state != FRAMES_IDLE;
	pthread_mutex_unlock(&f->lock);
	if (end)
		return end_run(f, false);
	/* What could not be written before is tried once more. */
	return f->shared.dirty != f->dirty_stored ? store_dirty(f, false) : 0;
}
