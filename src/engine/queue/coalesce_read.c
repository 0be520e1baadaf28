/* SPDX-License-Identifier: MIT */
/* Where the bytes of coalesced reads come from: registered windows, the page cache, the drive. */
#include "base/util.h"
#include "engine/queue/coalesce_internal.h"
#include "engine/regcache/read.h"
#include "engine/transfer/helpers.h"
#include "os/os.h"

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

#define ITEMS_AT_ONCE 8
#define ITEMS_PER_HELPER 32 /* as long to read as waking a thread takes */
#define HELPERS_MOST 3

/* Items that several threads read. Each takes the next few of them, which no other thread accesses then. */
struct cached_read {
	struct coalesce *g;
	char *chunk;
	bool whole;
	atomic_uint next;
	atomic_bool short_one; /* not all of an item was read */
	_Atomic uint64_t helped_ns;
};

static ssize_t read_cached(const struct coalesce_item *it, char *chunk)
{
	const struct strait_transfer *t = it->t;
	struct strait_endpoint *ep = t->endpoint;

	if (route_read_io(&ep->facts) == ROUTE_IO_DIRECT)
		return -EAGAIN;
	return ep->ops->read_cached(ep, chunk + it->slot, t->length, t->endpoint_offset);
}

static void read_some(struct cached_read *c)
{
	struct coalesce *g = c->g;
	unsigned int i;

	while ((i = atomic_fetch_add(&c->next, ITEMS_AT_ONCE)) < g->n)
		for (unsigned int end = (unsigned int)min_u64(i + ITEMS_AT_ONCE, g->n); i < end; i++) {
			struct coalesce_item *it = &g->item[i];

			if (g->place[i].reg_window)
				continue;
			if (c->whole && atomic_load_explicit(&c->short_one, memory_order_relaxed))
				return;
			it->n = read_cached(it, c->chunk);
			if (it->n != (ssize_t)it->t->length)
				atomic_store_explicit(&c->short_one, true, memory_order_relaxed);
		}
}

static void help_to_read(void *arg)
{
	struct cached_read *c = arg;
	uint64_t began = os_now_ns();

	read_some(c);
	atomic_fetch_add(&c->helped_ns, os_now_ns() - began);
}

bool coalesce_read_cached(struct strait_context *ctx, struct coalesce *g, char *chunk, bool whole)
{
	struct cached_read c = { .g = g, .chunk = chunk, .whole = whole };
	struct helpers h;
	unsigned int n = 0;

	for (unsigned int i = 0; i < g->n; i++)
		n += !g->place[i].reg_window;
	if (!n)
		return true;
	helpers_begin(&h, &ctx->workers, HELPERS_IDLE, (unsigned int)min_u64((n - 1) / ITEMS_PER_HELPER, HELPERS_MOST),
		      help_to_read, &c);
	read_some(&c);
	helpers_end(&h);
	g->rent.ns += c.helped_ns;
	return !c.short_one;
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

	if (coalesce_read_cached(ctx, g, chunk, false))
		return;
	for (unsigned int i = 0; i < g->n; i++) {
		struct coalesce_item *it = &g->item[i];
		const struct strait_transfer *t = it->t;

		if (g->place[i].reg_window)
			continue;
		if (it->n == -EAGAIN) {
			it->miss = true;
			misses++;
			/* A window would not have saved reading the drive: no rent. */
			g->place[i].ep = NULL;
		} else if (it->n != (ssize_t)t->length) {
			it->n = small_read(ctx, t->endpoint, chunk + it->slot, t->endpoint_offset, t->length,
					   &it->skip);
		}
	}
	if (misses)
		read_misses(ctx, g, chunk);
}
