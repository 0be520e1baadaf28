/* SPDX-License-Identifier: MIT */
#include "endpoint/nvme/endpoint.h"

static bool conflicts_locked(const struct namespace *n, const struct range_lock *h)
{
	list_for_each(it, &n->ranges) {
		const struct range_lock *o = list_entry(it, struct range_lock, node);

		if (o->start < h->end && h->start < o->end && (o->exclusive || h->exclusive))
			return true;
	}
	return false;
}

static bool take(struct namespace *n, struct range_lock *h, bool wait)
{
	bool taken;

	pthread_mutex_lock(&n->lock);
	/* The holder releases it when its commands complete, which have deadlines. */
	while (wait && conflicts_locked(n, h))
		pthread_cond_wait(&n->freed, &n->lock);
	taken = wait || !conflicts_locked(n, h);
	if (taken)
		list_add(&n->ranges, &h->node);
	pthread_mutex_unlock(&n->lock);
	return taken;
}

bool range_lock_try(struct namespace *n, struct range_lock *h, uint64_t off, uint64_t len)
{
	*h = (struct range_lock){ .start = off, .end = off + len };
	return take(n, h, false);
}

void range_lock_get(struct namespace *n, struct range_lock *h, uint64_t off, uint64_t len, bool exclusive)
{
	*h = (struct range_lock){ .start = off, .end = off + len, .exclusive = exclusive };
	take(n, h, true);
}

void range_lock_put(struct namespace *n, struct range_lock *h)
{
	pthread_mutex_lock(&n->lock);
	list_del(&h->node);
	pthread_cond_broadcast(&n->freed);
	pthread_mutex_unlock(&n->lock);
}
