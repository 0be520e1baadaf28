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

static bool take(struct namespace *n, struct hold *h, bool wait)
{
	bool mine;

	pthread_mutex_lock(&n->lock);
	/* Who has it lets go when its commands have ended, which have deadlines. */
	while (wait && meets(n, h))
		pthread_cond_wait(&n->freed, &n->lock);
	mine = wait || !meets(n, h);
	if (mine)
		list_add(&n->holds, &h->node);
	pthread_mutex_unlock(&n->lock);
	return mine;
}

bool hold_try(struct namespace *n, struct hold *h, uint64_t off, uint64_t len)
{
	*h = (struct hold){ .start = off, .end = off + len };
	return take(n, h, false);
}

void hold_take(struct namespace *n, struct hold *h, uint64_t off, uint64_t len, bool alone)
{
	*h = (struct hold){ .start = off, .end = off + len, .alone = alone };
	take(n, h, true);
}

void hold_drop(struct namespace *n, struct hold *h)
{
	pthread_mutex_lock(&n->lock);
	list_del(&h->node);
	pthread_cond_broadcast(&n->freed);
	pthread_mutex_unlock(&n->lock);
}
