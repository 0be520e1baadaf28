/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_REGCACHE_INTERNAL_H
#define ENGINE_REGCACHE_INTERNAL_H

#include "engine/regcache/regcache.h"

static inline uint64_t regcache_hash(uint64_t key)
{
	return key * 0x9e3779b97f4a7c15u;
}

static inline uint64_t regcache_key(const struct strait_endpoint *ep, const struct strait_device *dev, uint64_t off)
{
	return ((uint64_t)(uintptr_t)ep >> 5) ^ ((uint64_t)(uintptr_t)dev >> 7) ^ (off >> 12);
}

/* The length of the short windows of a device. */
static inline uint64_t regcache_small_unit(const struct strait_device *dev)
{
	return dev->tuning.cache_window ? dev->tuning.cache_window : dev->tuning.window_bytes;
}

struct reg_window *regcache_find_locked(struct reg_cache *k, const struct strait_endpoint *ep,
					const struct strait_device *dev, uint64_t off, uint64_t unit);
/* May windows of the endpoint be cached? A lease that the kernel has broken meanwhile is seen by ops->unchanged. */
bool regcache_may_cache_locked(const struct strait_endpoint *ep);
/*
 * Evicts unused windows to @out until @need bytes fit into the budget. @rate: only those that a window with this rate may
 * evict; NULL: the next ones in turn.
 */
bool regcache_make_room_locked(struct reg_cache *k, uint64_t need, const struct admission_rate *rate, struct list *out);
/* Maps and registers a window, and measures it. NULL on failure. The cache's lock must not be held. */
struct reg_window *regcache_window_new(struct reg_cache *k, struct strait_endpoint *ep, struct strait_device *dev,
				       uint64_t off, uint64_t len, uint64_t unit);
/* Lists a window that regcache_find_locked() does not find. There is room for it. @rate: of its reads until now. */
void regcache_list_locked(struct reg_cache *k, struct reg_window *w, const struct admission_rate *rate);
/* Evicts all windows of an endpoint. Those that are not in use go to @out, the others with their last reference. */
void regcache_unlist_endpoint_locked(struct reg_cache *k, struct strait_endpoint *ep, struct list *out);
/* Unregisters the windows on @out, which may wait for the device. The cache's lock must not be held. */
void regcache_free_windows(struct reg_cache *k, struct list *out);

/* registrar.c */
/* Adds a window that has paid its price, and starts the registrar if it does not run. */
void regcache_want_locked(struct reg_cache *k, const struct reg_wanted *w);
/* Drops the wanted windows of an endpoint, and waits until none of its windows is being registered. */
void regcache_unwant_endpoint_locked(struct reg_cache *k, const struct strait_endpoint *ep);

#endif
