/* SPDX-License-Identifier: MIT */
#include "endpoint/nvme/endpoint.h"

static bool meets(const struct namespace *n, const struct hold *h)
{
	list_for_each(it, &n->holds) {
		const struct hold *o = list_entry(it, struct hold, node);

		if (o->start < h->end && h->start < o->end && (o->alone || h->alone))
			return true;
	}
	return false;
}

bool hold_try(struct namespace *n, struct hold *h, uint64_t off, uint64_t len)
{
	bool free;

	*h = (struct hold){ .start = off, .end = off + len };
	pthread_mutex_lock(&n->lock);
	free = !meets(n, h);
	if (free)
		list_add(&n->holds, &h->node);
	pthread_mutex_unlock(&n->lock);
	return free;
}

void hold_take(struct namespace *n, struct hold *h, uint64_t off, uint64_t len, bool alone)
{
	h->start = off;
	h->end = off + len;
	h->alone = alone;
	pthread_mutex_lock(&n->lock);
	/* Who has it lets go when its commands have ended, which have deadlines. */
	while (meets(n, h))
		pthread_cond_wait(&n->freed, &n->lock);
	list_add(&n->holds, &h->node);
	pthread_mutex_unlock(&n->lock);
}

void hold_drop(struct namespace *n, struct hold *h)
{
	pthread_mutex_lock(&n->lock);
	list_del(&h->node);
	pthread_cond_broadcast(&n->freed);
	pthread_mutex_unlock(&n->lock);
}
