/* SPDX-License-Identifier: MIT */
/*
 * Eviction of the CPU's copies, by a clock over clusters with a second chance for those that are advised to be kept. Where
 * acquire fills the pages, those of acquired ranges stay; elsewhere a page that was evicted is filled again by a fault.
 */
#include "base/util.h"
#include "mapping/copy.h"
#include "os/os.h"

#define CLEAN_CLUSTERS 64u /* that the handler looks at for one fault */

static uint64_t clusters(const struct strait_mapping *m)
{
	return (m->end - m->first + CLUSTER_GRANULES - 1) / CLUSTER_GRANULES;
}

static bool over_budget_locked(const struct strait_mapping *m)
{
	return m->copy_budget && m->copy->view->present << GRANULE_SHIFT > m->copy_budget;
}

/* The cluster under the hand, which moves on. */
static struct span next_cluster_locked(struct strait_mapping *m)
{
	uint64_t n = m->copy->hand;

	m->copy->hand = (n + 1) % clusters(m);
	return (struct span){ m->first + n * CLUSTER_GRANULES, min_u64(m->first + (n + 1) * CLUSTER_GRANULES, m->end) };
}

static bool may_evict_locked(const struct strait_mapping *m, struct span s, bool any)
{
	if (!any && advice_at_locked(m, s.first) == STRAIT_ADVICE_KEEP)
		return false;
	return m->copy->view->faults || !acquired_overlaps_locked(m, NULL, s);
}

static int evict_span(struct strait_mapping *m, struct span s)
{
	return walk_span(m, m->copy->view, s, GRANULE_EVICT_PAGE, false);
}

int copy_evict(struct strait_mapping *m, struct span s)
{
	bool busy;
	int rc;

	pthread_rwlock_wrlock(&m->copy->evict_lock);
	pthread_mutex_lock(&m->index->lock);
	busy = acquired_overlaps_locked(m, NULL, s);
	pthread_mutex_unlock(&m->index->lock);
	rc = busy ? -EBUSY : evict_span(m, s);
	pthread_rwlock_unlock(&m->copy->evict_lock);
	return rc;
}

/* The next cluster to evict, empty if there is none. *@looked counts those that the hand has passed. */
static struct span victim_locked(struct strait_mapping *m, uint64_t *looked)
{
	uint64_t all = clusters(m);

	while (over_budget_locked(m) && *looked < 2 * all) {
		struct span s = next_cluster_locked(m);

		/* The second pass also takes what is to be kept. */
		if (may_evict_locked(m, s, (*looked)++ >= all))
			return s;
	}
	return (struct span){ 0, 0 };
}

/* Two passes at most: copies that are acquired for writing stay. */
void copy_trim(struct strait_mapping *m)
{
	uint64_t looked = 0;
	struct span s;
	int rc = 0;

	if (!m->copy_budget)
		return;
	do {
		pthread_rwlock_wrlock(&m->copy->evict_lock);
		pthread_mutex_lock(&m->index->lock);
		s = victim_locked(m, &looked);
		pthread_mutex_unlock(&m->index->lock);
		if (s.first < s.end)
			rc = evict_span(m, s);
		pthread_rwlock_unlock(&m->copy->evict_lock);
	} while (s.first < s.end && !rc);
}

/* Marks the clean pages of @s, or ends the marks. Returns how many there are. */
static unsigned int step_clean(struct strait_mapping *m, struct span s, bool marked[CLUSTER_GRANULES],
			       enum granule_event event)
{
	struct map_index *x = m->index;
	unsigned int n = 0;

	pthread_mutex_lock(&x->lock);
	for (uint64_t g = s.first; g < s.end; g++) {
		bool *mark = &marked[g - s.first];

		if (event == GRANULE_EVICT_CLEAN)
			*mark = index_event_locked(x, m->copy->view, g, event) == STEP_ZAP;
		else if (*mark)
			index_event_locked(x, m->copy->view, g, event);
		n += *mark;
	}
	if (event == GRANULE_ZAPPED)
		pthread_cond_broadcast(&x->moved);
	pthread_mutex_unlock(&x->lock);
	return n;
}

static void evict_clean(struct strait_mapping *m, struct span s)
{
	bool marked[CLUSTER_GRANULES];

	if (!step_clean(m, s, marked, GRANULE_EVICT_CLEAN))
		return;
	for (uint64_t g = s.first; g < s.end; g++)
		if (marked[g - s.first])
			os_discard(cpu_ptr(m, g), GRANULE_BYTES);
	step_clean(m, s, marked, GRANULE_ZAPPED);
	os_fault_wake(&m->track, cpu_ptr(m, s.first), (s.end - s.first) << GRANULE_SHIFT);
}

void copy_trim_clean(struct strait_mapping *m)
{
	for (unsigned int i = 0; i < CLEAN_CLUSTERS; i++) {
		struct span s;
		bool over, may = false;

		pthread_mutex_lock(&m->index->lock);
		over = over_budget_locked(m);
		if (over) {
			s = next_cluster_locked(m);
			may = may_evict_locked(m, s, false);
		}
		pthread_mutex_unlock(&m->index->lock);
		if (!over)
			return;
		if (may)
			evict_clean(m, s);
	}
}
