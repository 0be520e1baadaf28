/* SPDX-License-Identifier: MIT */
#include "endpoint/nvme/endpoint.h"

static bool meets(const struct namespace *n, const struct range_lock *h)
{
	list_for_each(it, &n->holds) {
		const struct range_lock *o = list_entry(it, struct range_lock, node);

		if (o->start < h->end && h->start < o->end && (o->alone || h->alone))
			return true;
	}
	return false;
}

static bool take(struct namespace *n, struct range_lock *h, bool wait)
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

bool range_lock_try(struct namespace *n, struct range_lock *h, uint64_t off, uint64_t len)
{
	*h = (struct range_lock){ .start = off, .end = off + len };
	return take(n, h, false);
}

void range_lock_get(struct namespace *n, struct range_lock *h, uint64_t off, uint64_t len, bool alone)
{
	*h = (struct range_lock){ .start = off, .end = off + len, .alone = alone };
	take(n, h, true);
}

void range_lock_put(struct namespace *n, struct range_lock *h)
{
	pthread_mutex_lock(&n->lock);
	list_del(&h->node);
	pthread_cond_broadcast(&n->freed);
	pthread_mutex_unlock(&n->lock);
}
