/* SPDX-License-Identifier: MIT */
#include "engine/p2p/ring.h"

#include "base/util.h"

bool p2p_ring_takes(const struct strait_transfer *t)
{
	struct route_decision decision;
	uint64_t start, end;

	if (!t->length || !p2p_commands(t))
		return false;
	transfer_decide(t, &decision);
	return (decision.mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P)) && p2p_part(t, &start, &end) &&
	       start == t->endpoint_offset && end - start == t->length;
}

int p2p_ring_open(struct p2p_ring *r, struct strait_context *ctx, int wake)
{
	*r = (struct p2p_ring){ .ctx = ctx, .wake = wake };
	list_init(&r->fresh);
	/* One entry is for the read of the wake-up event. */
	r->room = (unsigned int)min_u64(ctx->queue_depth - (wake >= 0), P2P_RING_MAX);
	r->ring = r->room ? engine_ring_get(ctx) : NULL;
	return r->ring ? 0 : -EOPNOTSUPP;
}

/* Takes one completion. False: none came within the timeout. */
static bool take(struct p2p_ring *r, int64_t timeout_ns, struct p2p_item **item, ssize_t *res)
{
	void *tag;

	if (!os_ring_take(r->ring, timeout_ns, &tag, res))
		return false;
	*item = tag;
	if (tag)
		r->in_flight--;
	else
		r->waiting = false;
	return true;
}

void p2p_ring_close(struct p2p_ring *r)
{
	struct p2p_item *item;
	ssize_t res;

	/* Closing a ring ends the read of the wake-up event; before a ring is reused, the read must have completed. */
	if (r->waiting && !r->broken)
		os_event_signal(r->wake);
	while (r->waiting && !r->broken)
		take(r, STRAIT_FOREVER, &item, &res);
	engine_ring_put(r->ctx, r->ring, r->broken);
}

bool p2p_ring_room(const struct p2p_ring *r)
{
	return !r->broken && r->in_flight + r->n_fresh < r->room;
}

/* Queues the next command of an item. */
static void ask(struct p2p_ring *r, struct p2p_item *item)
{
	if (p2p_command(item->t, r->ring, item->done, item, &item->asked)) {
		item->asked = 0;
		item->fallback = true;
	}
	list_add_tail(&r->fresh, &item->node);
	r->n_fresh++;
}

void p2p_ring_add(struct p2p_ring *r, struct p2p_item *item)
{
	item->done = 0;
	item->fallback = false;
	memset(item->result, 0, sizeof(*item->result));
	item->result->user_data = item->t->user_data;
	ask(r, item);
}

/*
 * Submits queued commands; those that the kernel does not take are returned in @completed. Such a ring is not used
 * again: closing it drops what it still has queued.
 */
static unsigned int hand_over(struct p2p_ring *r, struct p2p_item **completed)
{
	bool wait = !r->broken && r->wake >= 0 && !r->waiting &&
		    !os_ring_read(r->ring, r->wake, &r->woken, sizeof(r->woken), 0, NULL);
	int rc = !r->broken && (r->n_fresh || wait) ? os_ring_submit(r->ring) : 0;
	unsigned int n = 0;

	list_for_each_safe(it, tmp, &r->fresh) {
		struct p2p_item *item = list_entry(it, struct p2p_item, node);

		list_del(it);
		r->n_fresh--;
		if (!item->fallback && rc > 0) {
			rc--;
			r->in_flight++;
			continue;
		}
		r->broken |= !item->fallback;
		item->fallback = true;
		completed[n++] = item;
	}
	r->waiting |= wait && rc > 0;
	r->broken |= wait && rc <= 0;
	return n;
}

/* Takes the result of a command. True: the item is complete. */
static bool arrived(struct p2p_item *item, ssize_t res)
{
	item->done += res > 0 ? (uint64_t)res : 0;
	item->fallback = res != (ssize_t)item->asked ||
			 (item->done < item->t->length && atomic_load_explicit(item->cancel, memory_order_relaxed));
	return item->fallback || item->done == item->t->length;
}

void p2p_items_flush(struct p2p_item **completed, unsigned int n)
{
	struct strait_device *last = NULL;

	for (unsigned int i = 0; i < n; i++) {
		struct strait_device *dev = completed[i]->t->region->dev;
		int rc = 0;

		if (completed[i]->t->op != STRAIT_READ || dev == last)
			continue;
		rc = dev->ops->flush_peer_writes(dev);
		/* It is not known whether the bytes have arrived: run these items again by another route. */
		if (rc && rc != -EOPNOTSUPP) {
			completed[i]->done = 0;
			completed[i]->fallback = true;
			continue;
		}
		last = dev;
	}
}

unsigned int p2p_ring_step(struct p2p_ring *r, struct p2p_item *completed[P2P_RING_MAX])
{
	unsigned int n = hand_over(r, completed);
	int64_t timeout = n ? 0 : STRAIT_FOREVER;
	struct p2p_item *item;
	ssize_t res;

	while (r->in_flight && take(r, timeout, &item, &res)) {
		timeout = 0;
		if (!item)
			continue;
		if (arrived(item, res))
			completed[n++] = item;
		else
			ask(r, item);
	}
	p2p_items_flush(completed, n);
	return n;
}

void p2p_ring_finish(struct p2p_item *item)
{
	struct strait_context *ctx = item->t->endpoint->owner;
	struct strait_result *result = item->result;

	result->bytes = result->route_bytes[STRAIT_ROUTE_P2P] = item->done;
	result->routes = item->done ? STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P) : 0;
	stat_add(&ctx->stats.direct_bytes, item->done);
	if (item->fallback)
		transfer_resume(item->t, item->done, item->cancel, result);
	else if (transfer_is_small(item->t))
		stat_add(&ctx->stats.small, 1);
	stats_transfer(&ctx->stats, item->t->op, result);
}
