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

struct reg_window *regcache_find_locked(struct reg_cache *k, const struct strait_endpoint *ep,
					const struct strait_device *dev, uint64_t off, uint64_t unit)
{
	list_for_each(it, bucket_of(k, ep, dev, off)) {
		struct reg_window *w = list_entry(it, struct reg_window, bucket_node);

		if (w->ep == ep && w->dev == dev && w->off == off && w->unit == unit)
			return w;
	}
	return NULL;
}

static void unlist_locked(struct reg_cache *k, struct reg_window *w)
{
	list_del(&w->bucket_node);
	list_del(&w->lru_node);
	w->listed = false;
	endpoint_engine(w->ep)->n_listed[w->unit != w->dev->tuning.window_bytes]--;
	k->bytes -= w->len;
	stat_sub(&k->stats->registered_bytes, w->len);
}

bool regcache_make_room_locked(struct reg_cache *k, uint64_t need, const struct admission_rate *rate, struct list *out)
{
	uint64_t now = os_now_ns();

	if (need > k->budget)
		return false;
	list_for_each_safe(it, tmp, &k->lru) {
		struct reg_window *w = list_entry(it, struct reg_window, lru_node);

		if (k->bytes + need <= k->budget)
			break;
		if (w->users)
			continue;
		if (rate && !admission_evicts(rate, &w->rate, now)) {
			admission_age(rate, &w->rate, now);
			continue;
		}
		unlist_locked(k, w);
		list_del(&w->ep_node);
		list_add_tail(out, &w->lru_node);
	}
	return k->bytes + need <= k->budget;
}

static void window_unregister_measured(struct reg_cache *k, struct reg_window *w)
{
	uint64_t began = os_now_ns(), took;

	window_unregister(w->dev, w->map, w->len, &w->reg);
	took = os_now_ns() - began;
	pthread_mutex_lock(&k->lock);
	admission_unregistered(&k->admission, w->dev->number, w->len, took);
	pthread_mutex_unlock(&k->lock);
}

void regcache_free_windows(struct reg_cache *k, struct list *out)
{
	list_for_each_safe(it, tmp, out) {
		struct reg_window *w = list_entry(it, struct reg_window, lru_node);

		list_del(&w->lru_node);
		window_unregister_measured(k, w);
		free(w);
	}
}

bool regcache_may_cache_locked(const struct strait_endpoint *ep)
{
	return ep->facts.immutable || endpoint_engine(ep)->leased;
}

struct reg_window *regcache_window_new(struct reg_cache *k, struct strait_endpoint *ep, struct strait_device *dev,
				       uint64_t off, uint64_t len, uint64_t unit)
{
	struct reg_window *w = calloc(1, sizeof(*w));
	uint64_t began = os_now_ns(), took;

	if (!w)
		return NULL;
	if (window_register(ep, dev, off, len, &w->map, &w->reg)) {
		free(w);
		return NULL;
	}
	took = os_now_ns() - began;
	list_init(&w->bucket_node);
	list_init(&w->lru_node);
	list_init(&w->ep_node);
	w->ep = ep;
	w->dev = dev;
	w->off = off;
	w->len = len;
	w->unit = unit;
	stat_add(&k->stats->registrations, 1);
	pthread_mutex_lock(&k->lock);
	admission_registered(&k->admission, dev->number, len, took);
	pthread_mutex_unlock(&k->lock);
	return w;
}

void regcache_list_locked(struct reg_cache *k, struct reg_window *w, const struct admission_rate *rate)
{
	list_add_tail(bucket_of(k, w->ep, w->dev, w->off), &w->bucket_node);
	list_add_tail(&k->lru, &w->lru_node);
	w->listed = true;
	w->rate = *rate;
	endpoint_engine(w->ep)->n_listed[w->unit != w->dev->tuning.window_bytes]++;
	k->bytes += w->len;
	stat_add(&k->stats->registered_bytes, w->len);
}

struct reg_window *regcache_get(struct reg_cache *k, struct strait_endpoint *ep, struct strait_device *dev,
				uint64_t off, uint64_t ep_len, bool admit)
{
	uint64_t unit = dev->tuning.window_bytes, start = align_down(off, unit), len;
	struct list out = LIST_INIT(out);
	struct admission_rate rate = { .since = os_now_ns() };
	struct reg_window *w;
	bool room;

	if (off >= ep_len || !(dev->caps & STRAIT_DEVICE_REGISTER_FILE) || !ep->ops->unchanged(ep))
		return NULL;
	len = min_u64(unit, align_up(ep_len - start, os_page_size()));
	pthread_mutex_lock(&k->lock);
	w = regcache_find_locked(k, ep, dev, start, unit);
	if (w && w->len >= len) {
		w->users++;
		list_del(&w->lru_node);
		list_add_tail(&k->lru, &w->lru_node);
		pthread_mutex_unlock(&k->lock);
		stat_add(&k->stats->registration_hits, 1);
		return w;
	}
	room = admit && regcache_may_cache_locked(ep) && !w && regcache_make_room_locked(k, len, NULL, &out);
	pthread_mutex_unlock(&k->lock);
	regcache_free_windows(k, &out);
	if (!room)
		return NULL;

	w = regcache_window_new(k, ep, dev, start, len, unit);
	if (!w)
		return NULL;
	pthread_mutex_lock(&k->lock);
	w->users = 1;
	/* Another thread may have registered it first, or the lease may be broken: then the window serves this caller only. */
	if (!regcache_find_locked(k, ep, dev, start, unit) && regcache_may_cache_locked(ep) &&
	    regcache_make_room_locked(k, len, NULL, &out))
		regcache_list_locked(k, w, &rate);
	list_add_tail(&endpoint_engine(ep)->reg_windows, &w->ep_node);
	pthread_mutex_unlock(&k->lock);
	regcache_free_windows(k, &out);
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
	window_unregister_measured(k, w);
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

static bool window_holds(const struct reg_window *w, const struct reg_ref *p)
{
	return w->ep == p->ep && w->dev == p->dev && p->off >= w->off && p->off + p->len <= w->off + w->len;
}

/* The listed window that holds all of a reference. */
static struct reg_window *find_holder_locked(struct reg_cache *k, const struct reg_ref *p)
{
	const uint64_t unit[2] = { p->dev->tuning.window_bytes, regcache_small_unit(p->dev) };

	for (int i = 0; i < 2; i++) {
		struct reg_window *w;

		if (!endpoint_engine(p->ep)->n_listed[i])
			continue;
		w = regcache_find_locked(k, p->ep, p->dev, align_down(p->off, unit[i]), unit[i]);
		if (w && window_holds(w, p))
			return w;
	}
	return NULL;
}

void regcache_find_many(struct reg_cache *k, struct reg_ref *p, unsigned int n)
{
	struct reg_window *recent[RECENT] = { NULL }; /* each is referenced by one of @p already */
	uint64_t hits = 0;

	pthread_mutex_lock(&k->lock);
	for (unsigned int i = 0; i < n; i++) {
		struct reg_window **slot, *w;

		if (!p[i].ep)
			continue;
		slot = &recent[regcache_hash(align_down(p[i].off, regcache_small_unit(p[i].dev))) >> (64 - RECENT_BITS)];
		w = *slot;
		if (!w || !window_holds(w, &p[i]))
			w = find_holder_locked(k, &p[i]);
		if (!w)
			continue;
		p[i].reg_window = w;
		w->rate.ns += admission_rent(&k->admission, w->dev->number, admission_weight(p[i].len));
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
	regcache_unwant_endpoint_locked(k, ep);
	while (k->unregistering)
		pthread_cond_wait(&k->changed, &k->lock);
	leased = !list_empty(&endpoint_engine(ep)->lease_node);
	regcache_unlist_endpoint_locked(k, ep, &out);
	list_del(&endpoint_engine(ep)->lease_node);
	endpoint_engine(ep)->leased = false;
	pthread_mutex_unlock(&k->lock);
	regcache_free_windows(k, &out);
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
	cond_init_monotonic(&k->wanted_added);
	admission_init(&k->admission);
	return 0;
}

void regcache_fini(struct reg_cache *k)
{
	pthread_mutex_lock(&k->lock);
	k->stop = true;
	pthread_cond_broadcast(&k->changed);
	pthread_cond_broadcast(&k->wanted_added);
	pthread_mutex_unlock(&k->lock);
	if (k->started)
		pthread_join(k->thread, NULL);
	if (k->registrar_started)
		pthread_join(k->registrar, NULL);
	admission_fini(&k->admission);
	pthread_cond_destroy(&k->wanted_added);
	pthread_cond_destroy(&k->changed);
	pthread_mutex_destroy(&k->lock);
}
