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

/* Evicts all windows of an endpoint. Those that are not in use go to @out, the others with their last reference. */
void regcache_unlist_endpoint_locked(struct reg_cache *k, struct strait_endpoint *ep, struct list *out);
/* Unregisters the windows on @out, which may wait for the device. The cache's lock must not be held. */
void regcache_free_windows(struct list *out);

#endif
