/* SPDX-License-Identifier: MIT */
#include "base/util.h"
#include "engine/queue/coalesce_internal.h"

bool coalesce_takes(const struct strait_transfer *t)
{
	struct route_decision decision;

	transfer_decide(t, &decision);
	return decision.plan.coalesced;
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
static bool same_stream(const struct strait_transfer *a, const struct strait_transfer *b)
{
	return a->op == b->op && (a->region == b->region || (a->region->dev == b->region->dev &&
							     a->region->mem.context == b->region->mem.context));
}

bool coalesce_joins(struct coalesce *g, const struct strait_transfer *t)
{
	const struct endpoint_facts *facts = &t->endpoint->facts;

	if (g->n && !same_stream(g->item[0].t, t))
		return false;
	g->room = device_engine(t->region->dev)->pool.chunk_bytes;
	/* Direct I/O needs aligned memory as well as aligned offsets. */
	g->align = facts->can_direct ? max_u64(facts->dio_mem_align, 64) : 64;
	return true;
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
 * A file was truncated while its pages were registered, which fails the whole list. Copies each item again by itself, and
 * reads those of that file.
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

/* Fills the results. @rc is the status of the copies. */
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
	unsigned int segs = 0;
	int rc;

	g->rent = (struct reg_rent){ 0 };
	regcache_rent_begin(&ctx->reg_cache, &g->rent);
	coalesce_find_windows(ctx, g);
	coalesce_read_items(ctx, g, c->ptr);
	for (unsigned int i = 0; i < g->n; i++)
		if (g->item[i].n > 0)
			g->seg[segs++] = item_seg(g, i, c);
	rc = copy_and_wait(ls, g->seg, segs);
	regcache_rent_end(&ctx->reg_cache, &g->rent);
	if (!rc)
		regcache_pay(&ctx->reg_cache, g->place, g->n, &g->rent);
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

/* All threads share the counters: add the whole batch at once. */
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

/* Takes a chunk without waiting, unless it is the last one: the batch may be left to a worker. */
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

/* Reads the items that no window holds, if the page cache holds all of them. */
static bool read_now(struct strait_context *ctx, struct coalesce *g, struct staging_pool *pool)
{
	return take_chunk(g, pool) && coalesce_read_cached(ctx, g, g->chunk->ptr, true);
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
	g->rent = (struct reg_rent){ 0 };
	regcache_rent_begin(&ctx->reg_cache, &g->rent);
	coalesce_find_windows(ctx, g);
	for (unsigned int i = 0; i < g->n && all; i++)
		all = g->place[i].reg_window;
	if (!all && read)
		all = read_now(ctx, g, pool);
	for (unsigned int i = 0; i < g->n && all; i++)
		g->seg[i] = item_seg(g, i, g->chunk);
	if (!all || engine_stream_get(dev, &first->region->mem, false, &g->started)) {
		regcache_put_many(&ctx->reg_cache, g->place, g->n);
		drop_chunk(g, pool);
		return false;
	}
	g->rc = dev->ops->copy_list(g->started->stream, g->seg, g->n);
	regcache_rent_end(&ctx->reg_cache, &g->rent);
	return true;
}

/* Fills in success while the device copies; coalesce_finish() corrects it on error. */
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

	regcache_rent_begin(&ctx->reg_cache, &g->rent);
	if (!rc)
		rc = dev->ops->stream_wait(g->started->stream, timeout_ns);
	regcache_rent_end(&ctx->reg_cache, &g->rent);
	if (rc == -ETIMEDOUT)
		return false;
	if (!rc && g->chunk)
		regcache_pay(&ctx->reg_cache, g->place, g->n, &g->rent);
	drop_chunk(g, &device_engine(dev)->pool);
	if (rc == -EFAULT) {
		/* The file changed although it was promised or leased not to: read it. */
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
	stat_add(&ctx->stats.coalesced_copies, 1);
	stat_add(&ctx->stats.coalesced, g->n);
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
			c = staging_wait(pool, &user, STRAIT_FOREVER);
		if (first->op == STRAIT_READ)
			read_all(ctx, g, c, ls);
		else
			write_all(ctx, g, c, ls);
		staging_put(pool, &user, c);
		staging_leave(pool, &user);
		stat_add(&ctx->stats.coalesced_copies, 1);
		stat_add(&ctx->stats.coalesced, g->n);
	}
	if (ls)
		engine_stream_put(dev, ls, ls->broken);
	for (unsigned int i = 0; rc && i < g->n; i++)
		g->item[i].result->status = rc;
	sum_up(g);
	count(ctx, g);
}
