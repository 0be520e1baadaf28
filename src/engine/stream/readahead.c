/* SPDX-License-Identifier: MIT */
#include "engine/stream/readahead.h"

#include <stdlib.h>

#include "base/util.h"
#include "engine/regcache/read.h"

#define SLOTS_MAX 8 /* of one device */

static void slot_free(struct strait_device *dev, struct readahead_slot *slot)
{
	dev->ops->stream_close(slot->stream);
	free(slot);
}

void readahead_free_slots(struct strait_device *dev, struct list *slots)
{
	list_for_each_safe(it, tmp, slots) {
		list_del(it);
		slot_free(dev, list_entry(it, struct readahead_slot, node));
	}
}

static struct readahead_slot *slot_new(struct strait_device *dev, const struct provider_mem *m)
{
	struct readahead_slot *slot = calloc(1, sizeof(*slot));

	if (!slot)
		return NULL;
	list_init(&slot->node);
	if (dev->ops->stream_open_isolated(dev, m, &slot->stream)) {
		free(slot);
		return NULL;
	}
	if (dev->ops->stream_scratch(slot->stream, READAHEAD_BYTES, &slot->addr)) {
		slot_free(dev, slot);
		return NULL;
	}
	return slot;
}

static struct readahead_slot *slot_get(struct strait_device *dev, const struct provider_mem *m)
{
	struct device_engine *de = device_engine(dev);
	struct readahead_slot *slot = NULL;
	bool more;

	pthread_mutex_lock(&de->lock);
	if (!list_empty(&de->slots)) {
		slot = list_first(&de->slots, struct readahead_slot, node);
		list_del(&slot->node);
	}
	more = !slot && de->n_slots < SLOTS_MAX;
	de->n_slots += more;
	pthread_mutex_unlock(&de->lock);
	if (!more)
		return slot;
	slot = slot_new(dev, m);
	if (!slot) {
		/* No device memory, or no isolated streams. The slot still counts, so that this is not tried for ever. */
		log_debug(dev->provider->set->log, "%s: no memory to read ahead into", dev->name);
	}
	return slot;
}

/*
 * The memory of a slot whose stream failed cannot be freed here: that waits for all streams, one of which may wait for
 * the transfer that has the slot. It still counts, so a device on which all copies fail is not filled with such slots.
 */
static void slot_put(struct strait_device *dev, struct readahead_slot *slot, bool broken)
{
	struct device_engine *de = device_engine(dev);

	pthread_mutex_lock(&de->lock);
	list_add(broken ? &de->broken_slots : &de->slots, &slot->node);
	pthread_mutex_unlock(&de->lock);
}

bool readahead_begin(struct readahead *a, const struct strait_transfer *t, const struct route_plan *plan)
{
	struct strait_device *dev = t->region->dev;
	struct reg_cache *k = &device_context(dev)->reg_cache;
	int rc;

	a->slot = slot_get(dev, &t->region->mem);
	if (!a->slot)
		return false;
	rc = reg_ref_get(t, plan, &a->place) ? 0 : -ENOENT;
	if (!rc && a->place.len < t->length) {
		/* At the end of the file. */
		regcache_put(k, a->place.reg_window);
		rc = -ENOENT;
	}
	if (rc) {
		slot_put(dev, a->slot, false);
		a->slot = NULL;
		return false;
	}
	regcache_park(k, a->place.reg_window);
	rc = dev->ops->copy_in(a->slot->stream, a->slot->addr,
			       (char *)a->place.reg_window->map + (a->place.off - a->place.reg_window->off),
			       a->place.len);
	if (rc) {
		regcache_unpark(k, a->place.reg_window);
		slot_put(dev, a->slot, true);
		a->slot = NULL;
	}
	return !rc;
}

bool readahead_finish(struct readahead *a, const struct strait_transfer *t, struct strait_result *result)
{
	struct strait_device *dev = t->region->dev;
	struct strait_context *ctx = device_context(dev);
	int rc;

	/* The file has not changed since it was copied. */
	if (!a->slot || dev != a->place.dev || !regcache_valid(&ctx->reg_cache, a->place.reg_window))
		return false;
	rc = dev->ops->copy_within_now(a->slot->stream, t->region->mem.addr + t->region_offset, a->slot->addr,
				       a->place.len);
	regcache_unpark(&ctx->reg_cache, a->place.reg_window);
	slot_put(dev, a->slot, rc != 0);
	a->slot = NULL;
	if (rc)
		return false;
	memset(result, 0, sizeof(*result));
	result->user_data = t->user_data;
	reg_ref_result(&a->place, result);
	stats_transfer(&ctx->stats, t->op, result);
	return true;
}

void readahead_drop(struct readahead *a)
{
	struct strait_device *dev = a->place.dev;
	int rc;

	if (!a->slot)
		return;
	rc = dev->ops->stream_wait(a->slot->stream, STRAIT_FOREVER);
	regcache_unpark(&device_context(dev)->reg_cache, a->place.reg_window);
	slot_put(dev, a->slot, rc != 0);
	a->slot = NULL;
}
