/* SPDX-License-Identifier: MIT */
#include "queue_model_world.h"

struct group *group_get(struct model_thread *t)
{
	unsigned int first = (unsigned int)any(t, GROUPS);

	for (unsigned int i = 0; i < GROUPS; i++) {
		struct group *g = &t->w->group[(first + i) % GROUPS];

		pthread_mutex_lock(&g->lock);
		if (!g->used)
			return g;
		pthread_mutex_unlock(&g->lock);
	}
	return NULL;
}

uint64_t group_number(const struct world *w, const struct group *g)
{
	return (uint64_t)(g - w->group);
}

uint64_t transfer_id(const struct world *w, const struct group *g, unsigned int i)
{
	return group_number(w, g) | (g->shared ? SHARED_ID : i) << 8 | g->generation << 16;
}

/* The group of a result. Locked. The result must be one that is to come. */
static struct group *group_of_result(struct world *w, const struct strait_result *res)
{
	unsigned int i = res->user_data >> 8 & 0xff;
	struct group *g = &w->group[res->user_data & 0xff];

	ASSERT_LT(res->user_data & 0xff, GROUPS);
	pthread_mutex_lock(&g->lock);
	ASSERT_TRUE(g->used);
	ASSERT_EQ(res->user_data >> 16, g->generation);
	ASSERT_GT(g->left, 0);
	if (g->shared) {
		ASSERT_EQ(i, SHARED_ID);
	} else {
		ASSERT_LT(i, g->n);
		ASSERT_EQ(g->delivered >> i & 1, 0);
		g->delivered |= UINT64_C(1) << i;
	}
	return g;
}

/* Compares the file, or the region, after all transfers of the group succeeded. */
static void expect_bytes(struct world *w, struct group *g)
{
	uint64_t at = group_number(w, g) * UNIT;
	struct place *p = &w->region[g->region];

	if (g->status || g->canceled)
		return;
	if (g->op == STRAIT_WRITE) {
		file_expect(w->out, g->off, w->want + g->off % MIB(1), g->n * g->len);
		return;
	}
	pthread_rwlock_rdlock(&p->lock);
	if (p->made == g->made && !p->gone)
		region_expect(p->r, at, w->want + g->off, (g->n - 1) * g->len + g->bytes);
	pthread_rwlock_unlock(&p->lock);
}

void take_result(struct world *w, const struct strait_queue *q, const struct strait_result *res)
{
	struct group *g = group_of_result(w, res);

	ASSERT_TRUE(g->q == q);
	if (res->status == -ECANCELED) {
		ASSERT_TRUE(g->canceled);
		ASSERT_LE(res->bytes, g->len);
	} else {
		ASSERT_EQ(res->status, g->status);
		/* Only the last one can reach the end of the file. */
		if (res->bytes != g->len)
			ASSERT_EQ(res->bytes, g->bytes);
	}
	atomic_fetch_add(&w->delivered, 1);
	if (!--g->left) {
		expect_bytes(w, g);
		g->used = false;
	}
	pthread_mutex_unlock(&g->lock);
}

struct group *group_of(struct model_thread *t, const struct strait_queue *q, uint64_t *generation)
{
	unsigned int first = (unsigned int)any(t, GROUPS);

	for (unsigned int i = 0; i < GROUPS; i++) {
		struct group *g = &t->w->group[(first + i) % GROUPS];
		bool found;

		pthread_mutex_lock(&g->lock);
		found = g->used && g->q == q;
		*generation = g->generation;
		pthread_mutex_unlock(&g->lock);
		if (found)
			return g;
	}
	return NULL;
}
