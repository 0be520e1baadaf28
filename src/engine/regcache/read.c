/* SPDX-License-Identifier: MIT */
#include "engine/regcache/read.h"

#include "base/util.h"

#define MAX_BYTES MIB(16) /* longer ones are worth several threads, and can be canceled */

bool regcache_file_length(struct strait_endpoint *ep, uint64_t *len)
{
	return ep->ops->unchanged(ep) && !ep->ops->length(ep, len);
}

void reg_ref_result(const struct reg_ref *p, struct strait_result *result)
{
	result->bytes = result->route_bytes[STRAIT_ROUTE_PAGECACHE] = p->len;
	result->routes = STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE);
}

bool reg_ref_get(const struct strait_transfer *t, const struct route_plan *plan, struct reg_ref *p)
{
	struct strait_device *dev = t->region->dev;

	*p = (struct reg_ref){ .dev = dev, .off = t->endpoint_offset };
	if (!plan->regcache || t->length < REGCACHE_READ_MIN || t->length > MAX_BYTES ||
	    !regcache_file_length(t->endpoint, &p->ep_len) || p->off >= p->ep_len)
		return false;
	p->len = min_u64(t->length, p->ep_len - p->off);
	if (p->len < REGCACHE_READ_MIN)
		return false;
	p->ep = t->endpoint;
	regcache_find_many(&device_context(dev)->reg_cache, p, 1);
	return p->reg_window;
}

bool regcache_read(const struct strait_transfer *t, const struct route_plan *plan, bool isolated,
		   struct strait_result *result, struct regcache_miss *miss)
{
	struct strait_device *dev = t->region->dev;
	struct reg_cache *k = &device_context(dev)->reg_cache;
	struct reg_ref *p = &miss->place;
	struct lane_stream *ls;
	int rc;

	memset(miss, 0, sizeof(*miss));
	if (!(plan->mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE)))
		return false;
	if (!reg_ref_get(t, plan, p)) {
		if (p->ep)
			regcache_rent_begin(k, &miss->rent);
		return false;
	}
	rc = engine_stream_get(dev, &t->region->mem, isolated, &ls);
	if (!rc) {
		rc = dev->ops->copy_now(ls->stream, t->region->mem.addr + t->region_offset,
					(char *)p->reg_window->map + (p->off - p->reg_window->off), p->len, false);
		if (rc)
			result->device_status = ls->stream->status;
		engine_stream_put(dev, ls, rc != 0);
	}
	regcache_put(k, p->reg_window);
	/* The application broke its promise that the file does not change: read what is left of it. */
	if (rc == -EFAULT) {
		result->device_status = 0;
		p->ep = NULL;
		return false;
	}
	result->status = rc;
	if (!rc)
		reg_ref_result(p, result);
	return true;
}

void regcache_missed(const struct strait_transfer *t, struct regcache_miss *miss)
{
	struct reg_cache *k = &device_context(t->region->dev)->reg_cache;

	if (!miss->place.ep)
		return;
	regcache_rent_end(k, &miss->rent);
	regcache_pay(k, &miss->place, 1, &miss->rent);
}
