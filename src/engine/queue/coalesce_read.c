/* SPDX-License-Identifier: MIT */
/* Where the bytes of coalesced reads come from: registered windows, the page cache, the drive. */
#include "base/util.h"
#include "engine/queue/coalesce_internal.h"
#include "engine/regcache/read.h"

/* The length of the file if the item may be read out of cached registrations, 0 otherwise. */
static uint64_t registered_length(const struct strait_transfer *t)
{
	struct route_decision decision;
	uint64_t len;

	transfer_decide(t, &decision);
	return decision.plan.regcache && regcache_file_length(t->endpoint, &len) ? len : 0;
}

void coalesce_find_windows(struct strait_context *ctx, struct coalesce *g)
{
	const struct strait_transfer *last = NULL;
	uint64_t len = 0;
	bool any = false;

	for (unsigned int i = 0; i < g->n; i++) {
		const struct strait_transfer *t = g->item[i].t;
		struct reg_ref *p = &g->place[i];

		/* The answer costs system calls and is mostly that for the item before. */
		if (!last || last->endpoint != t->endpoint || last->region != t->region || last->routes != t->routes) {
			len = registered_length(t);
			any |= len != 0;
		}
		last = t;
		*p = (struct reg_ref){ .dev = t->region->dev, .off = t->endpoint_offset, .ep_len = len };
		if (t->endpoint_offset < len) {
			p->ep = t->endpoint;
			p->len = min_u64(t->length, len - p->off);
		}
		/* The items may have been tried before, by coalesce_start(). */
		g->item[i].skip = 0;
		g->item[i].n = 0;
		g->item[i].miss = false;
	}
	if (!any)
		return;
	regcache_find_many(&ctx->reg_cache, g->place, g->n);
	for (unsigned int i = 0; i < g->n; i++) {
		struct reg_ref *p = &g->place[i];

		/* A window that regcache_find_many() found holds the whole range. */
		if (p->reg_window) {
			g->item[i].skip = p->off - p->reg_window->off;
			g->item[i].n = (ssize_t)p->len;
		}
	}
}

ssize_t coalesce_read_cached(const struct coalesce_item *it, char *chunk)
{
	const struct strait_transfer *t = it->t;
	struct strait_endpoint *ep = t->endpoint;

	if (route_read_io(&ep->facts) == ROUTE_IO_DIRECT)
		return -EAGAIN;
	return ep->ops->read_cached(ep, chunk + it->slot, t->length, t->endpoint_offset);
}

/* Reads an item from the page cache, or marks it for the ring. */
static void read_cached_or_mark(struct strait_context *ctx, struct coalesce_item *it, char *chunk)
{
	const struct strait_transfer *t = it->t;

	it->n = coalesce_read_cached(it, chunk);
	if (it->n == -EAGAIN)
		it->miss = true;
	else if (it->n != (ssize_t)t->length)
		it->n = small_read(ctx, t->endpoint, chunk + it->slot, t->endpoint_offset, t->length, &it->skip);
}

/* Queues a read on the ring, with the item as its tag. */
static int queue_miss(struct os_ring *ring, struct coalesce_item *it, char *chunk)
{
	const struct strait_transfer *t = it->t;
	struct strait_endpoint *ep = t->endpoint;

	if (!ep->facts.can_direct)
		return os_ring_read(ring, ep->ops->fd(ep, IO_BUFFERED), chunk + it->slot, t->length, t->endpoint_offset,
				    it);
	it->skip = t->endpoint_offset - align_down(t->endpoint_offset, ep->facts.dio_align);
	return os_ring_read(ring, ep->ops->fd(ep, IO_DIRECT), chunk + it->slot,
			    small_span(ep, t->endpoint_offset, t->length), t->endpoint_offset - it->skip, it);
}

static void finish_miss(struct strait_context *ctx, struct coalesce_item *it, char *chunk, ssize_t res)
{
	const struct strait_transfer *t = it->t;

	it->miss = false;
	it->n = res < 0 ? res : res > (ssize_t)it->skip ? res - (ssize_t)it->skip : 0;
	if (it->n >= (ssize_t)t->length) {
		it->n = (ssize_t)t->length;
		if (t->endpoint->facts.can_direct)
			stat_add(&ctx->stats.direct_bytes, t->length);
		return;
	}
	/* Short, refused or failed: a read by itself tells which. */
	it->n = small_read(ctx, t->endpoint, chunk + it->slot, t->endpoint_offset, t->length, &it->skip);
}

static void read_misses(struct strait_context *ctx, struct coalesce *g, char *chunk)
{
	struct os_ring *ring = engine_ring_get(ctx);
	unsigned int next = 0, in_flight = 0, queued;
	bool broken = !ring;
	ssize_t res;
	void *tag;

	while (!broken) {
		queued = 0;
		for (; next < g->n; next++) {
			if (!g->item[next].miss)
				continue;
			if (in_flight + queued >= ctx->queue_depth || queue_miss(ring, &g->item[next], chunk))
				break;
			queued++;
		}
		if (queued) {
			int rc = os_ring_submit(ring);

			in_flight += rc > 0 ? (unsigned int)rc : 0;
			broken = rc != (int)queued;
		}
		if (!in_flight)
			break;
		if (os_ring_take(ring, STRAIT_FOREVER, &tag, &res)) {
			in_flight--;
			finish_miss(ctx, tag, chunk, res);
		}
	}
	while (in_flight)
		if (os_ring_take(ring, STRAIT_FOREVER, &tag, &res)) {
			in_flight--;
			finish_miss(ctx, tag, chunk, res);
		}
	if (ring)
		engine_ring_put(ctx, ring, broken);
	for (unsigned int i = 0; i < g->n; i++) {
		struct coalesce_item *it = &g->item[i];

		if (it->miss)
			it->n = small_read(ctx, it->t->endpoint, chunk + it->slot, it->t->endpoint_offset,
					   it->t->length, &it->skip);
	}
}

void coalesce_read_items(struct strait_context *ctx, struct coalesce *g, char *chunk)
{
	unsigned int misses = 0;

	for (unsigned int i = 0; i < g->n; i++) {
		if (g->place[i].reg_window)
			continue;
		read_cached_or_mark(ctx, &g->item[i], chunk);
		misses += g->item[i].miss;
		/* A window would not have saved reading the drive: no rent. */
		if (g->item[i].miss)
			g->place[i].ep = NULL;
	}
	if (misses)
		read_misses(ctx, g, chunk);
}
