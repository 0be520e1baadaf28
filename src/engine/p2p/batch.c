/* SPDX-License-Identifier: MIT */
#include "engine/p2p/batch.h"

#include "base/util.h"

/* The route of a transfer that the drive moves: named host where the region is host memory. */
static int route_of(const struct strait_transfer *t)
{
	return t->region->dev->caps & STRAIT_DEVICE_HOST ? STRAIT_ROUTE_HOST : STRAIT_ROUTE_P2P;
}

bool p2p_batch_takes(const struct strait_transfer *t)
{
	struct route_decision decision;
	uint64_t start, end;

	if (!t->length || t->length > t->endpoint->facts.async_bytes)
		return false;
	transfer_decide(t, &decision);
	return !decision.code && decision.plan.self_dma && p2p_part(t, &start, &end) && start == t->endpoint_offset &&
	       end - start == t->length;
}

int p2p_batch_open(struct p2p_batch *b, struct strait_endpoint *ep)
{
	int rc;

	*b = (struct p2p_batch){ .ep = ep };
	list_init(&b->leftovers);
	rc = ep->ops->batch_open(ep, &b->room, &b->batch);
	b->room = (unsigned int)min_u64(b->room, P2P_RING_MAX);
	return rc;
}

void p2p_batch_close(struct p2p_batch *b)
{
	b->ep->ops->batch_close(b->batch);
}

void p2p_batch_wake(struct p2p_batch *b)
{
	b->ep->ops->batch_wake(b->batch);
}

bool p2p_batch_add(struct p2p_batch *b, struct p2p_item *item)
{
	const struct strait_transfer *t = item->t;
	int rc = -EAGAIN;

	/* Leftovers are run one by one when nothing else is in flight. */
	if (!list_empty(&b->leftovers))
		return false;
	if (atomic_load_explicit(item->cancel, memory_order_relaxed)) {
		rc = -ECANCELED;
	} else if (b->in_flight < b->room) {
		item->io_async = (struct endpoint_io_async){ .m = { .write = t->op == STRAIT_WRITE,
								    .region = t->region,
								    .region_offset = t->region_offset,
								    .offset = t->endpoint_offset,
								    .length = t->length,
								    .deadline = UINT64_MAX } };
		rc = b->ep->ops->batch_start(b->batch, &item->io_async);
	}
	if (rc == -EAGAIN && b->in_flight)
		return false;
	item->done = 0;
	item->fallback = rc;
	memset(item->result, 0, sizeof(*item->result));
	item->result->user_data = t->user_data;
	if (rc)
		list_add_tail(&b->leftovers, &item->node);
	else
		b->in_flight++;
	return true;
}

static void arrived(struct p2p_item *item)
{
	const struct endpoint_io *m = &item->io_async.m;

	item->done = item->io_async.done;
	item->fallback = m->err == -EAGAIN || m->err == -EOPNOTSUPP;
	if (item->fallback)
		return;
	item->result->status = m->err;
	item->result->device_status = m->device_status;
}

/*
 * Leftovers are returned only when nothing is in flight: the route that runs them may wait for a range of the endpoint
 * that a transfer in flight has locked.
 */
static unsigned int take_left(struct p2p_batch *b, struct p2p_item *completed[P2P_RING_MAX])
{
	unsigned int n = 0;

	while (n < P2P_RING_MAX && !list_empty(&b->leftovers)) {
		completed[n] = list_first(&b->leftovers, struct p2p_item, node);
		list_del(&completed[n++]->node);
	}
	return n;
}

unsigned int p2p_batch_step(struct p2p_batch *b, struct p2p_item *completed[P2P_RING_MAX])
{
	struct endpoint_io_async *ios[P2P_RING_MAX];
	unsigned int n, good = 0;

	if (!b->in_flight)
		return take_left(b, completed);
	n = b->ep->ops->batch_reap(b->batch, ios, P2P_RING_MAX);
	b->in_flight -= n;
	for (unsigned int i = 0; i < n; i++) {
		completed[i] = container_of(ios[i], struct p2p_item, io_async);
		arrived(completed[i]);
	}
	p2p_items_flush(completed, n);
	for (unsigned int i = 0; i < n; i++) {
		if (completed[i]->fallback)
			list_add_tail(&b->leftovers, &completed[i]->node);
		else
			completed[good++] = completed[i];
	}
	return good;
}

void p2p_batch_finish(struct p2p_item *item)
{
	struct strait_context *ctx = item->t->endpoint->owner;
	struct strait_result *result = item->result;
	int route = route_of(item->t);

	result->bytes = result->route_bytes[route] = item->done;
	result->routes = item->done ? STRAIT_ROUTE_MASK(route) : 0;
	if (item->fallback)
		transfer_resume(item->t, item->done, item->cancel, result);
	else if (transfer_is_small(item->t))
		stat_add(&ctx->stats.small, 1);
	stats_transfer(&ctx->stats, item->t->op, result);
}
