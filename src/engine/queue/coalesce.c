/* SPDX-License-Identifier: MIT */
#include "engine/queue/coalesce.h"

#include "base/util.h"
#include "engine/regcache/read.h"

bool coalesce_takes(const struct strait_transfer *t)
{
	struct route_decision decision;

	transfer_decide(t, &decision);
	return decision.plan.coalesced;
}

/* The length of the file if the item may be read out of cached registrations, 0 otherwise. */
static uint64_t registered_length(const struct strait_transfer *t)
{
	struct route_decision decision;
	uint64_t len;

	transfer_decide(t, &decision);
	return decision.plan.regcache && regcache_file_length(t->endpoint, &len) ? len : 0;
}

bool coalesce_fits(const struct strait_transfer *t)
{
	uint64_t room = device_engine(t->region->dev)->pool.chunk_bytes;

	return t->length && transfer_is_small(t) &&
	       align_up(small_span(t->endpoint, t->endpoint_offset, t->length), 64) <= room;
}

uint64_t coalesce_sure(const struct strait_transfer *t)
{
	uint64_t room = device_engine(t->region->dev)->pool.chunk_bytes;
	uint64_t rounding = 2ull * t->endpoint->facts.dio_align + 64;

	return room > rounding ? min_u64(room - rounding, t->region->dev->tuning.small_bytes) : 0;
}

/* One stream serves one address space. */
static bool go_together(const struct strait_transfer *a, const struct strait_transfer *b)
{
	return a->op == b->op && (a->region == b->region ||
				  (a->region->dev == b->region->dev && a->region->mem.space == b->region->mem.space));
}

bool coalesce_joins(struct coalesce *g, const struct strait_transfer *t)
{
	const struct endpoint_facts *facts = &t->endpoint->facts;

	if (g->n && !go_together(g->item[0].t, t))
		return false;
	g->room = device_engine(t->region->dev)->pool.chunk_bytes;
	/* Direct I/O wants its memory aligned as well. */
	g->align = facts->can_direct ? max_u64(facts->dio_mem_align, 64) : 64;
	return true;
}

/* Finds the registered windows of those items that can be read in place. @make: or makes them, which takes long. */
static void find_places(struct strait_context *ctx, struct coalesce *g, bool make)
{
	const struct strait_transfer *last = NULL;
	uint64_t len = 0;
	bool any = false;

	for (unsigned int i = 0; i < g->n; i++) {
		const struct strait_transfer *t = g->item[i].t;
		struct reg_ref *p = &g->place[i];

		/* The answer, which costs system calls, is mostly the one for the item before. */
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
		if (make) {
			/* It may be the second time. */
			g->item[i].skip = 0;
			g->item[i].n = 0;
			g->item[i].miss = false;
		}
	}
	if (!any)
		return;
	regcache_find_many(&ctx->reg_cache, g->place, g->n);
	for (unsigned int i = 0; i < g->n; i++) {
		struct reg_ref *p = &g->place[i];

		/* One that was found holds it all. */
		if (p->reg_window || (p->ep && make && reg_ref_find(&ctx->reg_cache, p))) {
			g->item[i].skip = p->off - p->reg_window->off;
			g->item[i].n = (ssize_t)p->len;
		}
	}
}

/* Read what is in memory: -EAGAIN if nothing is, or that does not count. */
static ssize_t read_in_memory(const struct coalesce_item *it, char *chunk)
{
	const struct strait_transfer *t = it->t;
	struct strait_endpoint *ep = t->endpoint;

	if (route_read_io(&ep->facts) == ROUTE_IO_DIRECT)
		return -EAGAIN;
	return ep->ops->read_cached(ep, chunk + it->slot, t->length, t->endpoint_offset);
}

/* The same; the rest is left for the ring. */
static void read_cached(struct strait_context *ctx, struct coalesce_item *it, char *chunk)
{
	const struct strait_transfer *t = it->t;

	it->n = read_in_memory(it, chunk);
	if (it->n == -EAGAIN)
		it->miss = true;
	else if (it->n != (ssize_t)t->length)
		it->n = small_read(ctx, t->endpoint, chunk + it->slot, t->endpoint_offset, t->length, &it->skip);
}

/* Start one request on the ring: the place of @it in the array travels with it. */
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
	/* Short, refused or failed: one request at a time tells what it is. */
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

static uint64_t item_addr(const struct coalesce_item *it)
{
	return it->t->region->mem.addr + it->t->region_offset;
}

static struct copy_seg item_seg(const struct coalesce *g, unsigned int i, const struct chunk *c)
{
	const struct coalesce_item *it = &g->item[i];
	const struct reg_window *reg_window = g->place[i].reg_window;

	return (struct copy_seg){ item_addr(it),
				  (reg_window ? reg_window->reg.dev_addr : c->dev_addr + it->slot) + it->skip,
				  (uint64_t)it->n };
}

static int copy_and_wait(struct lane_stream *ls, const struct copy_seg *segs, unsigned int n)
{
	struct dev_stream *s = ls->stream;
	int rc = n ? s->dev->ops->copy_list(s, segs, n) : 0;

	if (n && !rc)
		rc = s->dev->ops->stream_wait(s, STRAIT_FOREVER);
	ls->broken |= rc != 0;
	return rc;
}

/*
 * A file was cut under its registered pages, which fails the list as a whole: each item again by
 * itself, those of that file by reading them.
 */
static void copy_singly(struct strait_context *ctx, struct coalesce *g, struct chunk *c, struct lane_stream *ls)
{
	for (unsigned int i = 0; i < g->n; i++) {
		struct coalesce_item *it = &g->item[i];
		const struct strait_transfer *t = it->t;
		struct copy_seg seg = item_seg(g, i, c);
		int rc;

		if (it->n <= 0)
			continue;
		rc = copy_and_wait(ls, &seg, 1);
		if (rc == -EFAULT && g->place[i].reg_window) {
			g->place[i].reg_window = NULL;
			it->n = small_read(ctx, t->endpoint, (char *)c->ptr + it->slot, t->endpoint_offset, t->length,
					   &it->skip);
			seg = item_seg(g, i, c);
			rc = it->n > 0 ? copy_and_wait(ls, &seg, 1) : 0;
		}
		if (rc) {
			it->n = rc;
			it->result->device_status = ls->stream->status;
		}
	}
}

/* Fills the results; @rc is how the copies went. */
static void fill_results(struct coalesce *g, const struct lane_stream *ls, int rc)
{
	for (unsigned int i = 0; i < g->n; i++) {
		struct coalesce_item *it = &g->item[i];
		struct strait_result *r = it->result;
		int route = g->place[i].reg_window ? STRAIT_ROUTE_PAGECACHE : STRAIT_ROUTE_STAGED;

		if (it->n < 0) {
			r->status = (int)it->n;
		} else if (rc && it->n) {
			r->status = rc;
			r->device_status = ls->stream->status;
		} else if (it->n) {
			r->bytes = r->route_bytes[route] = (uint64_t)it->n;
			r->routes = STRAIT_ROUTE_MASK(route);
		}
	}
}

static void read_all(struct strait_context *ctx, struct coalesce *g, struct chunk *c, struct lane_stream *ls)
{
	unsigned int segs = 0, misses = 0;
	int rc;

	find_places(ctx, g, true);
	for (unsigned int i = 0; i < g->n; i++) {
		if (g->place[i].reg_window)
			continue;
		read_cached(ctx, &g->item[i], c->ptr);
		misses += g->item[i].miss;
	}
	if (misses)
		read_misses(ctx, g, c->ptr);
	for (unsigned int i = 0; i < g->n; i++)
		if (g->item[i].n > 0)
			g->seg[segs++] = item_seg(g, i, c);
	rc = copy_and_wait(ls, g->seg, segs);
	if (rc == -EFAULT) {
		copy_singly(ctx, g, c, ls);
		rc = 0;
	}
	fill_results(g, ls, rc);
	regcache_put_many(&ctx->reg_cache, g->place, g->n);
}

static void write_all(struct strait_context *ctx, struct coalesce *g, struct chunk *c, struct lane_stream *ls)
{
	int rc;

	for (unsigned int i = 0; i < g->n; i++)
		g->seg[i] = (struct copy_seg){ c->dev_addr + g->item[i].slot, item_addr(&g->item[i]),
					       g->item[i].t->length };
	rc = copy_and_wait(ls, g->seg, g->n);
	for (unsigned int i = 0; i < g->n; i++) {
		const struct strait_transfer *t = g->item[i].t;
		struct strait_result *r = g->item[i].result;

		if (rc) {
			r->status = rc;
			r->device_status = ls->stream->status;
			continue;
		}
		r->bytes = small_write(ctx, t->endpoint, (char *)c->ptr + g->item[i].slot, t->endpoint_offset,
				       t->length, &r->status);
		r->route_bytes[STRAIT_ROUTE_STAGED] = r->bytes;
		r->routes = r->bytes ? STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED) : 0;
	}
}

static void sum_up(struct coalesce *g)
{
	memset(&g->sum, 0, sizeof(g->sum));
	for (unsigned int i = 0; i < g->n; i++)
		stats_collect(&g->sum, g->item[i].result);
}

/* The counters are shared by all threads: touch them once for all. */
static void count(struct strait_context *ctx, const struct coalesce *g)
{
	stats_transfers(&ctx->stats, g->item[0].t->op, &g->sum);
}

static void results_clear(struct coalesce *g)
{
	for (unsigned int i = 0; i < g->n; i++) {
		memset(g->item[i].result, 0, sizeof(*g->item[i].result));
		g->item[i].result->user_data = g->item[i].t->user_data;
	}
}

/* A chunk, if one can be had at once. The batch may be left to a worker. */
static bool take_chunk(struct coalesce *g, struct staging_pool *pool)
{
	if (staging_enter(pool, &g->user))
		return false;
	g->chunk = staging_try_spare(pool, &g->user);
	if (!g->chunk)
		staging_leave(pool, &g->user);
	return g->chunk;
}

static void drop_chunk(struct coalesce *g, struct staging_pool *pool)
{
	if (!g->chunk)
		return;
	staging_put(pool, &g->user, g->chunk);
	staging_leave(pool, &g->user);
	g->chunk = NULL;
}

/* An item that is in no window, all of it, if that is in memory. */
static bool read_now(struct coalesce *g, struct coalesce_item *it, struct staging_pool *pool)
{
	if (!g->chunk && !take_chunk(g, pool))
		return false;
	it->n = read_in_memory(it, g->chunk->ptr);
	return it->n == (ssize_t)it->t->length;
}

bool coalesce_start(struct coalesce *g, bool read)
{
	const struct strait_transfer *first = g->item[0].t;
	struct strait_device *dev = first->region->dev;
	struct strait_context *ctx = first->endpoint->owner;
	struct staging_pool *pool = &device_engine(dev)->pool;
	bool all = true;

	g->chunk = NULL;
	if (first->op != STRAIT_READ)
		return false;
	find_places(ctx, g, false);
	for (unsigned int i = 0; i < g->n && all; i++) {
		all = g->place[i].reg_window || (read && read_now(g, &g->item[i], pool));
		if (all)
			g->seg[i] = item_seg(g, i, g->chunk);
	}
	if (!all || engine_stream_get(dev, &first->region->mem, false, &g->started)) {
		regcache_put_many(&ctx->reg_cache, g->place, g->n);
		drop_chunk(g, pool);
		return false;
	}
	g->rc = dev->ops->copy_list(g->started->stream, g->seg, g->n);
	return true;
}

/* While the device works: it will be as hoped for. */
void coalesce_started(struct coalesce *g)
{
	results_clear(g);
	fill_results(g, g->started, g->rc);
	sum_up(g);
}

bool coalesce_finish(struct coalesce *g, int64_t timeout_ns)
{
	const struct strait_transfer *first = g->item[0].t;
	struct strait_device *dev = first->region->dev;
	struct strait_context *ctx = first->endpoint->owner;
	int rc = g->rc;

	if (!rc)
		rc = dev->ops->stream_wait(g->started->stream, timeout_ns);
	if (rc == -ETIMEDOUT)
		return false;
	drop_chunk(g, &device_engine(dev)->pool);
	if (rc == -EFAULT) {
		/* A promise that was not kept. */
		engine_stream_put(dev, g->started, true);
		regcache_put_many(&ctx->reg_cache, g->place, g->n);
		coalesce_run(g);
		return true;
	}
	if (rc != g->rc) {
		results_clear(g);
		fill_results(g, g->started, rc);
		sum_up(g);
	}
	regcache_put_many(&ctx->reg_cache, g->place, g->n);
	engine_stream_put(dev, g->started, rc != 0);
	stat_add(&ctx->stats.gathers, 1);
	stat_add(&ctx->stats.gathered, g->n);
	count(ctx, g);
	return true;
}

void coalesce_run(struct coalesce *g)
{
	const struct strait_transfer *first = g->item[0].t;
	struct strait_device *dev = first->region->dev;
	struct strait_context *ctx = first->endpoint->owner;
	struct staging_pool *pool = &device_engine(dev)->pool;
	struct lane_stream *ls = NULL;
	struct chunk *c = NULL;
	struct staging_user user;
	int rc;

	results_clear(g);
	rc = engine_stream_get(dev, &first->region->mem, false, &ls);
	if (!rc)
		rc = staging_enter(pool, &user);
	if (!rc) {
		while (!c)
			c = staging_wait(pool, &user, STRAIT_FOREVER / 2);
		if (first->op == STRAIT_READ)
			read_all(ctx, g, c, ls);
		else
			write_all(ctx, g, c, ls);
		staging_put(pool, &user, c);
		staging_leave(pool, &user);
		stat_add(&ctx->stats.gathers, 1);
		stat_add(&ctx->stats.gathered, g->n);
	}
	if (ls)
		engine_stream_put(dev, ls, ls->broken);
	for (unsigned int i = 0; rc && i < g->n; i++)
		g->item[i].result->status = rc;
	sum_up(g);
	count(ctx, g);
}
