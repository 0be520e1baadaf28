/* SPDX-License-Identifier: MIT */
#include "engine/regcache/read.h"

#include "base/util.h"

#define MAX_BYTES MIB(16) /* longer ones are worth several threads, and can be canceled */

bool place_allowed(const struct strait_transfer *t, uint64_t *len)
{
	struct strait_endpoint *ep = t->endpoint;

	return (t->region->dev->caps & STRAIT_DEVICE_REGISTER_FILE) && !ep->facts.force_direct &&
	       (!t->routes || (t->routes & STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE))) && ep->ops->unchanged(ep) &&
	       !ep->ops->length(ep, len);
}

/* Registering a window brings all of it into memory: not worth it where that is not so already. */
static bool window_cached(const struct keep_place *p, uint64_t start, uint64_t len)
{
	uint64_t bytes;

	return !p->ep->ops->cached(p->ep, start, len, &bytes) && bytes >= len / 8 * 7;
}

static void make_window(struct keeper *k, struct keep_place *p)
{
	uint64_t start = align_down(p->off, p->dev->tuning.window_bytes);
	uint64_t len = min_u64(p->dev->tuning.window_bytes, p->ep_len - start);

	if (!keep_worth(k, p, len))
		return;
	if (window_cached(p, start, len))
		p->kept = p->held = keep_get(k, p->ep, p->dev, p->off, p->ep_len);
	keep_tried(k, len, p->kept);
}

bool place_find(struct keeper *k, struct keep_place *p)
{
	if (!p->kept)
		make_window(k, p);
	if (p->kept && p->off + p->len > p->kept->off + p->kept->len) {
		/* It reaches into the next window. */
		keep_put(k, p->held);
		p->kept = p->held = NULL;
	}
	return p->kept;
}

void place_result(const struct keep_place *p, struct strait_result *result)
{
	result->bytes = result->route_bytes[STRAIT_ROUTE_PAGECACHE] = p->len;
	result->routes = STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE);
}

bool place_get(const struct strait_transfer *t, struct keep_place *p)
{
	struct strait_device *dev = t->region->dev;
	struct keeper *k = &device_context(dev)->keeper;

	*p = (struct keep_place){ .ep = t->endpoint, .dev = dev, .off = t->endpoint_offset };
	if (t->op != STRAIT_READ || t->length < PLACE_BYTES || t->length > MAX_BYTES || !place_allowed(t, &p->ep_len) ||
	    p->off >= p->ep_len)
		return false;
	p->len = min_u64(t->length, p->ep_len - p->off);
	if (p->len < PLACE_BYTES)
		return false;
	keep_find_many(k, p, 1);
	return place_find(k, p);
}

bool place_run(const struct strait_transfer *t, uint32_t mask, bool apart, struct strait_result *result)
{
	struct strait_device *dev = t->region->dev;
	struct keeper *k = &device_context(dev)->keeper;
	struct lane_stream *ls;
	struct keep_place p;
	int rc;

	if (!(mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE)) || !place_get(t, &p))
		return false;
	rc = engine_stream_get(dev, &t->region->mem, apart, &ls);
	if (!rc) {
		rc = dev->ops->copy_now(ls->stream, t->region->mem.addr + t->region_offset,
					(char *)p.kept->map + (p.off - p.kept->off), p.len, false);
		if (rc)
			result->device_status = ls->stream->status;
		engine_stream_put(dev, ls, rc != 0);
	}
	keep_put(k, p.kept);
	/* A promise that was not kept: what is left can be read. */
	if (rc == -EFAULT) {
		result->device_status = 0;
		return false;
	}
	result->status = rc;
	if (!rc)
		place_result(&p, result);
	return true;
}
