/* SPDX-License-Identifier: MIT */
#include "engine/regcache/internal.h"

#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "os/os.h"

#define RECENT_BITS 6
#define RECENT (1u << RECENT_BITS) /* windows remembered while the references of a batch are looked up */

static struct list *bucket_of(struct reg_cache *k, const struct strait_endpoint *ep, const struct strait_device *dev,
			      uint64_t off)
{
	return &k->buckets[regcache_hash(regcache_key(ep, dev, off)) >> 54];
}

static struct reg_window *find_locked(struct reg_cache *k, const struct strait_endpoint *ep,
				      const struct strait_device *dev, uint64_t off)
{
	list_for_each(it, bucket_of(k, ep, dev, off)) {
		struct reg_window *w = list_entry(it, struct reg_window, bucket_node);

		if (w->ep == ep && w->dev == dev && w->off == off)
			return w;
	}
	return NULL;
}

static void unlist_locked(struct reg_cache *k, struct reg_window *w)
{
	list_del(&w->bucket_node);
	list_del(&w->lru_node);
	w->listed = false;
	k->bytes -= w->len;
	stat_sub(&k->stats->registered_bytes, w->len);
}

/* Evicts unused windows, least recently used first, to @out until @need bytes fit into the budget. */
static bool make_room_locked(struct reg_cache *k, uint64_t need, struct list *out)
{
	if (need > k->budget)
		return false;
	list_for_each_safe(it, tmp, &k->lru) {
		struct reg_window *w = list_entry(it, struct reg_window, lru_node);

		if (k->bytes + need <= k->budget)
			break;
		if (w->users)
			continue;
		unlist_locked(k, w);
		list_del(&w->ep_node);
		list_add_tail(out, &w->lru_node);
	}
	return k->bytes + need <= k->budget;
}

static void free_window(struct reg_window *w)
{
	window_unregister(w->dev, w->map, w->len, &w->reg);
	free(w);
}

void regcache_free_windows(struct list *out)
{
	list_for_each_safe(it, tmp, out) {
		struct reg_window *w = list_entry(it, struct reg_window, lru_node);

		list_del(&w->lru_node);
		free_window(w);
	}
}

/* May windows of the endpoint be cached? A lease that the kernel has broken meanwhile is seen by ops->unchanged. */
static bool may_cache_locked(const struct strait_endpoint *ep)
{
	return ep->facts.immutable || endpoint_engine(ep)->leased;
}

static struct reg_window *window_new(struct strait_endpoint *ep, struct strait_device *dev, uint64_t off, uint64_t len)
{
	struct reg_window *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	if (window_register(ep, dev, off, len, &w->map, &w->reg)) {
		free(w);
		return NULL;
	}
	list_init(&w->bucket_node);
	list_init(&w->lru_node);
	list_init(&w->ep_node);
	w->ep = ep;
	w->dev = dev;
	w->off = off;
	w->len = len;
	w->users = 1;
	return w;
}

struct reg_window *regcache_get(struct reg_cache *k, struct strait_endpoint *ep, struct strait_device *dev,
				uint64_t off, uint64_t ep_len)
{
	uint64_t size = dev->tuning.window_bytes, start = align_down(off, size), len;
	struct list out = LIST_INIT(out);
	struct reg_window *w, *other;
	bool room;

	if (off >= ep_len || !(dev->caps & STRAIT_DEVICE_REGISTER_FILE) || !ep->ops->unchanged(ep))
		return NULL;
	len = min_u64(size, align_up(ep_len - start, os_page_size()));
	pthread_mutex_lock(&k->lock);
	w = find_locked(k, ep, dev, start);
	if (w && w->len >= len) {
		w->users++;
		list_del(&w->lru_node);
		list_add_tail(&k->lru, &w->lru_node);
		pthread_mutex_unlock(&k->lock);
		stat_add(&k->stats->registration_hits, 1);
		return w;
	}
	room = may_cache_locked(ep) && !w && make_room_locked(k, len, &out);
	pthread_mutex_unlock(&k->lock);
	regcache_free_windows(&out);
	if (!room)
		return NULL;

	w = window_new(ep, dev, start, len);
	if (!w)
		return NULL;
	stat_add(&k->stats->registrations, 1);
	pthread_mutex_lock(&k->lock);
	other = find_locked(k, ep, dev, start);
	/* Another thread may have registered it first, or the lease may be broken: then the window serves this caller only. */
	if (!other && may_cache_locked(ep) && make_room_locked(k, len, &out)) {
		list_add_tail(bucket_of(k, ep, dev, start), &w->bucket_node);
		list_add_tail(&k->lru, &w->lru_node);
		w->listed = true;
		k->bytes += len;
		stat_add(&k->stats->registered_bytes, len);
	}
	list_add_tail(&endpoint_engine(ep)->reg_windows, &w->ep_node);
	pthread_mutex_unlock(&k->lock);
	regcache_free_windows(&out);
	return w;
}

void regcache_put(struct reg_cache *k, struct reg_window *w)
{
	bool gone;

	pthread_mutex_lock(&k->lock);
	gone = !--w->users && !w->listed;
	pthread_mutex_unlock(&k->lock);
	if (!gone)
		return;
	window_unregister(w->dev, w->map, w->len, &w->reg);
	/* Off the endpoint's list only now: the lease is held until the last window is unregistered. */
	pthread_mutex_lock(&k->lock);
	list_del(&w->ep_node);
	pthread_mutex_unlock(&k->lock);
	free(w);
}

void regcache_park(struct reg_cache *k, struct reg_window *w)
{
	pthread_mutex_lock(&k->lock);
	w->parked++;
	pthread_mutex_unlock(&k->lock);
}

bool regcache_valid(struct reg_cache *k, struct reg_window *w)
{
	bool listed;

	pthread_mutex_lock(&k->lock);
	listed = w->listed;
	pthread_mutex_unlock(&k->lock);
	return listed && w->ep->ops->unchanged(w->ep);
}

void regcache_unpark(struct reg_cache *k, struct reg_window *w)
{
	pthread_mutex_lock(&k->lock);
	w->parked--;
	pthread_mutex_unlock(&k->lock);
	regcache_put(k, w);
}

void regcache_find_many(struct reg_cache *k, struct reg_ref *p, unsigned int n)
{
	struct reg_window *recent[RECENT] = { NULL }; /* each is referenced by one of @p already */
	uint64_t hits = 0;

	pthread_mutex_lock(&k->lock);
	for (unsigned int i = 0; i < n; i++) {
		struct reg_window **slot, *w;
		uint64_t start;

		if (!p[i].ep)
			continue;
		start = align_down(p[i].off, p[i].dev->tuning.window_bytes);
		slot = &recent[regcache_hash(start) >> (64 - RECENT_BITS)];
		w = *slot;
		if (!w || w->ep != p[i].ep || w->dev != p[i].dev || w->off != start)
			w = find_locked(k, p[i].ep, p[i].dev, start);
		if (!w || p[i].off + p[i].len > w->off + w->len)
			continue;
		p[i].reg_window = w;
		hits++;
		if (w == *slot)
			continue;
		p[i].held = *slot = w;
		w->users++;
	}
	pthread_mutex_unlock(&k->lock);
	stat_add(&k->stats->registration_hits, hits);
}

void regcache_put_many(struct reg_cache *k, struct reg_ref *p, unsigned int n)
{
	bool evicted = false;

	pthread_mutex_lock(&k->lock);
	for (unsigned int i = 0; i < n; i++) {
		struct reg_window *w = p[i].held;

		if (w && (w->users > 1 || w->listed)) {
			w->users--;
			p[i].held = NULL;
		}
		evicted |= p[i].held != NULL;
	}
	pthread_mutex_unlock(&k->lock);
	/* Windows that were evicted while in use go with their last reference. That is rare: one by one. */
	for (unsigned int i = 0; evicted && i < n; i++)
		if (p[i].held)
			regcache_put(k, p[i].held);
}

void regcache_unlist_endpoint_locked(struct reg_cache *k, struct strait_endpoint *ep, struct list *out)
{
	list_for_each_safe(it, tmp, &endpoint_engine(ep)->reg_windows) {
		struct reg_window *w = list_entry(it, struct reg_window, ep_node);

		if (!w->listed)
			continue;
		unlist_locked(k, w);
		if (!w->users) {
			list_del(&w->ep_node);
			list_add_tail(out, &w->lru_node);
		}
	}
}

void regcache_drop_endpoint(struct reg_cache *k, struct strait_endpoint *ep)
{
	struct list out = LIST_INIT(out);
	bool leased;

	pthread_mutex_lock(&k->lock);
	while (k->unregistering)
		pthread_cond_wait(&k->changed, &k->lock);
	leased = !list_empty(&endpoint_engine(ep)->lease_node);
	regcache_unlist_endpoint_locked(k, ep, &out);
	list_del(&endpoint_engine(ep)->lease_node);
	endpoint_engine(ep)->leased = false;
	pthread_mutex_unlock(&k->lock);
	regcache_free_windows(&out);
	if (leased)
		ep->ops->unlease(ep);
}

int regcache_init(struct reg_cache *k, uint64_t budget, struct stats *stats, const struct log_sink *log)
{
	memset(k, 0, sizeof(*k));
	for (int i = 0; i < REGCACHE_BUCKETS; i++)
		list_init(&k->buckets[i]);
	list_init(&k->lru);
	list_init(&k->leases);
	k->budget = budget;
	k->stats = stats;
	k->log = log;
	mutex_init_brief(&k->lock);
	pthread_cond_init(&k->changed, NULL);
	return 0;
}

void regcache_fini(struct reg_cache *k)
{
	if (k->started) {
		pthread_mutex_lock(&k->lock);
		k->stop = true;
		pthread_cond_broadcast(&k->changed);
		pthread_mutex_unlock(&k->lock);
		pthread_join(k->thread, NULL);
	}
	pthread_cond_destroy(&k->changed);
	pthread_mutex_destroy(&k->lock);
}
