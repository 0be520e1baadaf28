/* SPDX-License-Identifier: MIT */
#include "engine/regcache/read.h"

#include "base/util.h"

#define MAX_BYTES MIB(16) /* longer ones are worth several threads, and can be canceled */

bool regcache_file_length(struct strait_endpoint *ep, uint64_t *len)
{
	return ep->ops->unchanged(ep) && !ep->ops->length(ep, len);
}

/* Registering a window brings all of it into memory: not worth it where that is not so already. */
static bool window_cached(const struct reg_ref *p, uint64_t start, uint64_t len)
{
	uint64_t bytes;

	return !p->ep->ops->cached(p->ep, start, len, &bytes) && bytes >= len / 8 * 7;
}

static void make_window(struct reg_cache *k, struct reg_ref *p)
{
	uint64_t start = align_down(p->off, p->dev->tuning.window_bytes);
	uint64_t len = min_u64(p->dev->tuning.window_bytes, p->ep_len - start);

	if (!regcache_should_admit(k, p, len))
		return;
	if (window_cached(p, start, len))
		p->reg_window = p->held = regcache_get(k, p->ep, p->dev, p->off, p->ep_len);
	regcache_admitted(k, len, p->reg_window);
}

bool reg_ref_find(struct reg_cache *k, struct reg_ref *p)
{
	if (!p->reg_window)
		make_window(k, p);
	if (p->reg_window && p->off + p->len > p->reg_window->off + p->reg_window->len) {
		/* It reaches into the next window. */
		regcache_put(k, p->held);
		p->reg_window = p->held = NULL;
	}
	return p->reg_window;
}

void reg_ref_result(const struct reg_ref *p, struct strait_result *result)
{
	result->bytes = result->route_bytes[STRAIT_ROUTE_PAGECACHE] = p->len;
	result->routes = STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE);
}

bool reg_ref_get(const struct strait_transfer *t, const struct route_plan *plan, struct reg_ref *p)
{
	struct strait_device *dev = t->region->dev;
	struct reg_cache *k = &device_context(dev)->reg_cache;

	*p = (struct reg_ref){ .ep = t->endpoint, .dev = dev, .off = t->endpoint_offset };
	if (!plan->regcache || t->length < REGCACHE_READ_MIN || t->length > MAX_BYTES ||
	    !regcache_file_length(t->endpoint, &p->ep_len) || p->off >= p->ep_len)
		return false;
	p->len = min_u64(t->length, p->ep_len - p->off);
	if (p->len < REGCACHE_READ_MIN)
		return false;
	regcache_find_many(k, p, 1);
	return reg_ref_find(k, p);
}

bool regcache_read(const struct strait_transfer *t, const struct route_plan *plan, bool isolated,
		   struct strait_result *result)
{
	struct strait_device *dev = t->region->dev;
	struct reg_cache *k = &device_context(dev)->reg_cache;
	struct lane_stream *ls;
	struct reg_ref p;
	int rc;

	if (!(plan->mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE)) || !reg_ref_get(t, plan, &p))
		return false;
	rc = engine_stream_get(dev, &t->region->mem, isolated, &ls);
	if (!rc) {
		rc = dev->ops->copy_now(ls->stream, t->region->mem.addr + t->region_offset,
					(char *)p.reg_window->map + (p.off - p.reg_window->off), p.len, false);
		if (rc)
			result->device_status = ls->stream->status;
		engine_stream_put(dev, ls, rc != 0);
	}
	regcache_put(k, p.reg_window);
	/* The application broke its promise that the file does not change: read what is left of it. */
	if (rc == -EFAULT) {
		result->device_status = 0;
		return false;
	}
	result->status = rc;
	if (!rc)
		reg_ref_result(&p, result);
	return true;
}
