/* SPDX-License-Identifier: MIT */
/*
 * Device memory of a view. A mapping that fits the budget has one extent for all of it, so that addresses never change.
 * Otherwise each acquired range has its own, and those that are not acquired are evicted in the order of a clock with
 * second chance.
 *
 * A granule is in at most one extent of a view. An extent is rebound to other granules only when it has no pin and all its
 * copies were dropped, which waits for every fetch and store of them.
 */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/mapping.h"

#define EXTENT_ALIGN 16u /* granules */

static uint64_t extent_bytes(const struct extent *e)
{
	return e->n << GRANULE_SHIFT;
}

static struct map_index *view_index(const struct view *v)
{
	return v->map->index;
}

/* Adds to the view's totals; negative amounts wrap around. */
static void account(struct view *v, uint64_t data, uint64_t twin)
{
	pthread_mutex_lock(&view_index(v)->lock);
	v->device_bytes += data + twin;
	v->twin_bytes += twin;
	pthread_mutex_unlock(&view_index(v)->lock);
}

static void extent_free(struct view *v, struct extent *e)
{
	account(v, e->data ? -extent_bytes(e) : 0, e->twin ? -extent_bytes(e) : 0);
	if (e->data)
		region_put(e->data);
	if (e->twin)
		region_put(e->twin);
	free(e);
}

void extents_free(struct view *v)
{
	list_for_each_safe(it, tmp, &v->extents) {
		struct extent *e = list_entry(it, struct extent, node);

		list_del(&e->node);
		extent_free(v, e);
	}
}

/* An extent without a pin that is not needed again; NULL: none. */
static struct extent *once_locked(struct view *v, const struct extent *keep)
{
	list_for_each(it, &v->extents) {
		struct extent *e = list_entry(it, struct extent, node);

		if (!e->pins && e != keep && advice_at_locked(v->map, e->first) == STRAIT_ADVICE_ONCE)
			return e;
	}
	return NULL;
}

/* Turns the clock to the next extent to evict, except @keep. @any: also one that is to be kept. NULL: none. */
static struct extent *clock_turn_locked(struct view *v, const struct extent *keep, bool any)
{
	unsigned int n = 0;

	list_for_each(it, &v->extents)
		n += 2;
	while (n--) {
		struct extent *e = list_first(&v->extents, struct extent, node);

		if (!e->pins && !e->referenced && e != keep &&
		    (any || advice_at_locked(v->map, e->first) != STRAIT_ADVICE_KEEP))
			return e;
		if (!e->pins)
			e->referenced = false;
		list_del(&e->node);
		list_add_tail(&v->extents, &e->node);
	}
	return NULL;
}

static bool prefetching_locked(struct view *v, const struct extent *keep)
{
	list_for_each(it, &v->extents) {
		struct extent *e = list_entry(it, struct extent, node);

		if (e != keep && e->pins && e->pins == e->prefetching)
			return true;
	}
	return false;
}

/* The next extent to evict, except @keep. Waits for one that only a prefetch has pinned. NULL: all are acquired. */
static struct extent *clock_next_locked(struct view *v, const struct extent *keep)
{
	for (;;) {
		struct extent *e = once_locked(v, keep);

		if (!e)
			e = clock_turn_locked(v, keep, false);
		if (!e)
			e = clock_turn_locked(v, keep, true);
		if (e || !prefetching_locked(v, keep))
			return e;
		pthread_cond_wait(&view_index(v)->moved, &view_index(v)->lock);
	}
}

/* Stores and drops the copies of an extent without a pin and takes it off the view. New pins need the memory lock. */
static int extent_detach(struct view *v, struct extent *e)
{
	int rc = walk_span(v->map, v, (struct span){ e->first, e->first + e->n }, GRANULE_DROP, true);

	if (rc)
		return rc;
	pthread_mutex_lock(&view_index(v)->lock);
	list_del(&e->node);
	pthread_mutex_unlock(&view_index(v)->lock);
	count(&v->map->evictions, 1);
	return 0;
}

/* Evicts one extent. Its memory is kept in *@spare if that has the length @n and nothing is kept yet. -ENOSPC: none. */
static int evict_one(struct view *v, const struct extent *keep, uint64_t n, struct extent **spare)
{
	struct extent *e;
	int rc;

	pthread_mutex_lock(&view_index(v)->lock);
	e = clock_next_locked(v, keep);
	pthread_mutex_unlock(&view_index(v)->lock);
	if (!e)
		return -ENOSPC;
	rc = extent_detach(v, e);
	if (rc)
		return rc;
	if (spare && !*spare && e->n == n)
		*spare = e;
	else
		extent_free(v, e);
	return 0;
}

static bool fits(struct view *v, uint64_t bytes)
{
	uint64_t budget = v->map->device_budget, used;

	pthread_mutex_lock(&view_index(v)->lock);
	used = v->device_bytes;
	pthread_mutex_unlock(&view_index(v)->lock);
	return !budget || (bytes <= budget && used <= budget - bytes);
}

/* Allocates @n granules, evicting other extents as long as the budget or the device has no room. */
static int alloc_memory(struct view *v, uint64_t n, const struct extent *keep, struct extent **spare,
			struct strait_region **ret)
{
	int rc = 0;

	while (!rc && !(spare && *spare) && !fits(v, n << GRANULE_SHIFT))
		rc = evict_one(v, keep, n, spare);
	if (rc || (spare && *spare))
		return rc;
	for (;;) {
		rc = region_alloc(v->dev, n << GRANULE_SHIFT, ret);
		if (rc != -ENOMEM || evict_one(v, keep, n, NULL))
			return rc;
	}
}

static int extent_new(struct view *v, struct span s, struct extent **ret)
{
	struct extent *e = NULL, *made;
	struct strait_region *data = NULL;
	int rc;

	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	rc = alloc_memory(v, s.end - s.first, NULL, &e, &data);
	if (rc || e) {
		free(made);
		if (rc)
			return rc;
	} else {
		e = made;
		list_init(&e->node);
		e->data = data;
		account(v, (s.end - s.first) << GRANULE_SHIFT, 0);
	}
	e->first = s.first;
	e->n = s.end - s.first;
	e->pins = 1;
	/* The second chance is for what is acquired again: a pass over the whole file does not evict it. */
	e->referenced = false;
	pthread_mutex_lock(&view_index(v)->lock);
	list_add_tail(&v->extents, &e->node);
	pthread_mutex_unlock(&view_index(v)->lock);
	*ret = e;
	return 0;
}

/* Does all of the mapping fit? Without a budget it may take half of what is free. */
static bool whole_fits(struct view *v)
{
	struct strait_device_info info = { .size = sizeof(info) };
	uint64_t bytes = (v->map->end - v->map->first) << GRANULE_SHIFT;

	if (v->map->device_budget)
		return bytes <= v->map->device_budget;
	return !v->dev->ops->info(v->dev, &info) && bytes <= info.mem_free / 2;
}

static struct extent *overlapping_locked(struct view *v, struct span s)
{
	list_for_each(it, &v->extents) {
		struct extent *e = list_entry(it, struct extent, node);

		if (e->first < s.end && s.first < e->first + e->n)
			return e;
	}
	return NULL;
}

/* Removes extents that overlap @s: there is one copy of a granule on a device. */
static int drop_overlapping(struct view *v, struct span s)
{
	for (;;) {
		struct extent *e;
		bool pinned;
		int rc;

		pthread_mutex_lock(&view_index(v)->lock);
		while ((e = overlapping_locked(v, s)) && e->pins && e->pins == e->prefetching)
			pthread_cond_wait(&view_index(v)->moved, &view_index(v)->lock);
		pinned = e && e->pins;
		pthread_mutex_unlock(&view_index(v)->lock);
		if (!e)
			return 0;
		if (pinned)
			return -EBUSY;
		rc = extent_detach(v, e);
		if (rc)
			return rc;
		extent_free(v, e);
	}
}

static int extent_make(struct view *v, struct span s, struct extent **ret)
{
	struct span whole = { v->map->first, v->map->end };
	bool first;
	int rc;

	pthread_mutex_lock(&view_index(v)->lock);
	first = list_empty(&v->extents);
	pthread_mutex_unlock(&view_index(v)->lock);
	if (first && whole_fits(v)) {
		rc = extent_new(v, whole, ret);
		if (rc != -ENOMEM)
			return rc;
	}
	s.first = max_u64(align_down(s.first, EXTENT_ALIGN), whole.first);
	s.end = min_u64(align_up(s.end, EXTENT_ALIGN), whole.end);
	rc = drop_overlapping(v, s);
	return rc ? rc : extent_new(v, s, ret);
}

/* The twin is useful, not needed: without one, a release counts all of its range as changed. */
static void add_twin(struct view *v, struct extent *e)
{
	struct strait_region *twin;

	if (alloc_memory(v, e->n, e, NULL, &twin))
		return;
	account(v, 0, extent_bytes(e));
	/* The comparison is device code, too: the time to load it is now, not when a stream waits. */
	v->dev->ops->prepare_copy_lists(v->dev);
	pthread_mutex_lock(&view_index(v)->lock);
	e->twin = twin;
	pthread_mutex_unlock(&view_index(v)->lock);
}

static struct extent *containing_locked(struct view *v, struct span s)
{
	struct extent *e = view_extent_locked(v, s.first);

	return e && s.end <= e->first + e->n ? e : NULL;
}

int extent_get(struct view *v, struct span s, bool twin, bool prefetch, struct extent **ret)
{
	struct extent *e;
	int rc = 0;

	pthread_mutex_lock(&v->memory_lock);
	pthread_mutex_lock(&view_index(v)->lock);
	e = containing_locked(v, s);
	if (e) {
		e->pins++;
		e->prefetching += prefetch;
		e->referenced = true;
	}
	pthread_mutex_unlock(&view_index(v)->lock);
	if (!e) {
		rc = extent_make(v, s, &e);
		if (!rc && prefetch) {
			/* Threads that look at the pins of a view hold its memory lock. */
			pthread_mutex_lock(&view_index(v)->lock);
			e->prefetching++;
			pthread_mutex_unlock(&view_index(v)->lock);
		}
	}
	if (!rc && twin && !e->twin)
		add_twin(v, e);
	pthread_mutex_unlock(&v->memory_lock);
	if (!rc)
		*ret = e;
	return rc;
}

void extent_put(struct view *v, struct extent *e, bool prefetch)
{
	pthread_mutex_lock(&view_index(v)->lock);
	e->pins--;
	e->prefetching -= prefetch;
	if (prefetch)
		pthread_cond_broadcast(&view_index(v)->moved);
	pthread_mutex_unlock(&view_index(v)->lock);
}

/* Finds the extent of @g. *@whole: it may be freed, since nothing has pinned it and it lies in @s. */
static int evict_find(struct view *v, struct span s, uint64_t g, struct extent **ret, bool *whole)
{
	struct extent *e;
	bool busy;

	pthread_mutex_lock(&view_index(v)->lock);
	busy = acquired_overlaps_locked(v->map, v, s);
	e = view_extent_locked(v, g);
	*whole = e && !e->pins && e->first >= s.first && e->first + e->n <= s.end;
	pthread_mutex_unlock(&view_index(v)->lock);
	*ret = e;
	return busy ? -EBUSY : 0;
}

int extents_evict(struct view *v, struct span s)
{
	uint64_t g = s.first;
	int rc = 0;

	pthread_mutex_lock(&v->memory_lock);
	while (g < s.end && !rc) {
		struct extent *e;
		uint64_t end;
		bool whole;

		rc = evict_find(v, s, g, &e, &whole);
		end = e ? e->first + e->n : g + 1;
		if (!rc && e && whole)
			rc = extent_detach(v, e);
		else if (!rc && e)
			rc = walk_span(v->map, v, (struct span){ g, min_u64(end, s.end) }, GRANULE_EVICT, false);
		if (!rc && e && whole)
			extent_free(v, e);
		g = end;
	}
	pthread_mutex_unlock(&v->memory_lock);
	return rc;
}

int extent_adopt(struct view *v, struct span s, struct strait_region *data, struct extent **ret)
{
	struct extent *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	list_init(&e->node);
	e->first = s.first;
	e->n = s.end - s.first;
	e->data = data;
	e->pins = 1;
	account(v, extent_bytes(e), 0);
	pthread_mutex_lock(&view_index(v)->lock);
	list_add_tail(&v->extents, &e->node);
	pthread_mutex_unlock(&view_index(v)->lock);
	*ret = e;
	return 0;
}

void extent_twin(struct view *v, struct extent *e)
{
	struct strait_region *twin;

	pthread_mutex_lock(&v->memory_lock);
	if (!e->twin && !region_alloc(v->dev, extent_bytes(e), &twin)) {
		account(v, 0, extent_bytes(e));
		pthread_mutex_lock(&view_index(v)->lock);
		e->twin = twin;
		pthread_mutex_unlock(&view_index(v)->lock);
	}
	pthread_mutex_unlock(&v->memory_lock);
}
