/* SPDX-License-Identifier: MIT */
#include "engine/regcache/regcache.h"

#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "os/os.h"

#define NEAR_BITS 6
#define NEAR (1u << NEAR_BITS) /* windows of a batch that are remembered while it is looked through */
#define IN_VAIN 32	       /* part of a window that is read otherwise until it is tried again */
#define SOME 16		       /* part of a window that who reads on and on has read before it is worth it */

int window_register(struct strait_endpoint *ep, struct strait_device *dev, uint64_t off, uint64_t len, void **map,
		    struct host_reg *reg)
{
	int rc = ep->ops->map(ep, off, len, map);

	if (rc)
		return rc;
	rc = dev->ops->host_register(dev, *map, len, HOST_REG_READ_ONLY | HOST_REG_FILE, reg);
	if (rc)
		os_unmap(*map, len);
	return rc;
}

void window_unregister(struct strait_device *dev, void *map, uint64_t len, struct host_reg *reg)
{
	dev->ops->host_unregister(dev, reg);
	os_unmap(map, len);
}

static uint64_t hash(uint64_t key)
{
	return key * 0x9e3779b97f4a7c15u;
}

static uint64_t key(const struct strait_endpoint *ep, const struct strait_device *dev, uint64_t off)
{
	return ((uint64_t)(uintptr_t)ep >> 5) ^ ((uint64_t)(uintptr_t)dev >> 7) ^ (off >> 12);
}

static struct list *bucket_of(struct reg_cache *k, const struct strait_endpoint *ep, const struct strait_device *dev,
			      uint64_t off)
{
	return &k->buckets[hash(key(ep, dev, off)) >> 54];
}

/* All of these are called with the lock held. */

static struct reg_window *find(struct reg_cache *k, const struct strait_endpoint *ep, const struct strait_device *dev,
			       uint64_t off)
{
	list_for_each(it, bucket_of(k, ep, dev, off)) {
		struct reg_window *w = list_entry(it, struct reg_window, bucket_node);

		if (w->ep == ep && w->dev == dev && w->off == off)
			return w;
	}
	return NULL;
}

static void unlist(struct reg_cache *k, struct reg_window *w)
{
	list_del(&w->bucket_node);
	list_del(&w->lru_node);
	w->listed = false;
	k->bytes -= w->len;
	stat_sub(&k->stats->kept_bytes, w->len);
}

/* Moves windows nobody uses to @out until @need bytes fit into the budget. */
static bool make_room(struct reg_cache *k, uint64_t need, struct list *out)
{
	if (need > k->budget)
		return false;
	list_for_each_safe(it, tmp, &k->lru) {
		struct reg_window *w = list_entry(it, struct reg_window, lru_node);

		if (k->bytes + need <= k->budget)
			break;
		if (w->users)
			continue;
		unlist(k, w);
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

/* Called without the lock. */
static void free_windows(struct list *out)
{
	list_for_each_safe(it, tmp, out) {
		struct reg_window *w = list_entry(it, struct reg_window, lru_node);

		list_del(&w->lru_node);
		free_window(w);
	}
}

/* Does something vouch for the endpoint, as far as this side knows? The kernel is asked by ops->unchanged. */
static bool vouched(const struct strait_endpoint *ep)
{
	return ep->facts.unchanging || ep->leased;
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
	w = find(k, ep, dev, start);
	if (w && w->len >= len) {
		w->users++;
		list_del(&w->lru_node);
		list_add_tail(&k->lru, &w->lru_node);
		pthread_mutex_unlock(&k->lock);
		stat_add(&k->stats->registration_hits, 1);
		return w;
	}
	room = vouched(ep) && !w && make_room(k, len, &out);
	pthread_mutex_unlock(&k->lock);
	free_windows(&out);
	if (!room)
		return NULL;

	w = window_new(ep, dev, start, len);
	if (!w)
		return NULL;
	stat_add(&k->stats->registrations, 1);
	pthread_mutex_lock(&k->lock);
	other = find(k, ep, dev, start);
	/* Others may have been faster, or the lease may be gone: then the window serves this once. */
	if (!other && vouched(ep) && make_room(k, len, &out)) {
		list_add_tail(bucket_of(k, ep, dev, start), &w->bucket_node);
		list_add_tail(&k->lru, &w->lru_node);
		w->listed = true;
		k->bytes += len;
		stat_add(&k->stats->kept_bytes, len);
	}
	list_add_tail(&ep->reg_windows, &w->ep_node);
	pthread_mutex_unlock(&k->lock);
	free_windows(&out);
	return w;
}

bool regcache_should_admit(struct reg_cache *k, const struct reg_ref *p, uint64_t need)
{
	uint64_t window = key(p->ep, p->dev, align_down(p->off, p->dev->tuning.window_bytes));
	struct admission_hint *wish = &k->wish[hash(window) >> (64 - REGCACHE_HINT_BITS)];
	bool worth;

	pthread_mutex_lock(&k->lock);
	if (wish->window != window || p->off + need / SOME < wish->off || p->off > wish->off + need / SOME)
		*wish = (struct admission_hint){ .window = window };
	wish->off = p->off;
	wish->bytes += p->len;
	k->missed += p->len;
	if (k->bytes + need <= k->budget)
		worth = k->missed >= k->patience;
	else
		worth = wish->bytes >= need / SOME || k->missed >= need;
	worth = worth && !k->trying;
	if (worth) {
		wish->bytes = k->missed = 0;
		k->trying = true;
	}
	pthread_mutex_unlock(&k->lock);
	return worth;
}

void regcache_admitted(struct reg_cache *k, uint64_t need, bool got)
{
	pthread_mutex_lock(&k->lock);
	k->trying = false;
	k->patience = got ? 0 : need / IN_VAIN;
	pthread_mutex_unlock(&k->lock);
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
	/* Off the endpoint's list only now: the lease is held until its last window is gone. */
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
	struct reg_window *near[NEAR] = { NULL }; /* windows that one of the places holds already */
	uint64_t hits = 0;

	pthread_mutex_lock(&k->lock);
	for (unsigned int i = 0; i < n; i++) {
		struct reg_window **slot, *w;
		uint64_t start;

		if (!p[i].ep)
			continue;
		start = align_down(p[i].off, p[i].dev->tuning.window_bytes);
		slot = &near[hash(start) >> (64 - NEAR_BITS)];
		w = *slot;
		if (!w || w->ep != p[i].ep || w->dev != p[i].dev || w->off != start)
			w = find(k, p[i].ep, p[i].dev, start);
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
	bool rest = false;

	pthread_mutex_lock(&k->lock);
	for (unsigned int i = 0; i < n; i++) {
		struct reg_window *w = p[i].held;

		if (w && (w->users > 1 || w->listed)) {
			w->users--;
			p[i].held = NULL;
		}
		rest |= p[i].held != NULL;
	}
	pthread_mutex_unlock(&k->lock);
	/* Windows that went out of use meanwhile are rare and let go one by one. */
	for (unsigned int i = 0; rest && i < n; i++)
		if (p[i].held)
			regcache_put(k, p[i].held);
}

/* Takes all windows of an endpoint out of use; those nobody uses go to @out. Called with the lock held. */
static void unlist_endpoint(struct reg_cache *k, struct strait_endpoint *ep, struct list *out)
{
	list_for_each_safe(it, tmp, &ep->reg_windows) {
		struct reg_window *w = list_entry(it, struct reg_window, ep_node);

		if (!w->listed)
			continue;
		unlist(k, w);
		if (!w->users) {
			list_del(&w->ep_node);
			list_add_tail(out, &w->lru_node);
		}
	}
}

/* Does anybody rely on the lease? */
static bool relied_on(const struct strait_endpoint *ep)
{
	list_for_each(it, &ep->reg_windows) {
		const struct reg_window *w = list_entry(it, struct reg_window, ep_node);

		if (w->users > w->parked || !w->users)
			return true;
	}
	return false;
}

/*
 * Unregisters the idle windows of endpoints whose lease was broken, then gives up the leases that no window relies on.
 * True while windows of a broken lease are in use. The lock is dropped while windows are unregistered, which may wait
 * for the device; regcache_drop_endpoint() waits until that is over, as an endpoint holds its lease longer than its windows.
 */
static bool check_leases_locked(struct reg_cache *k)
{
	struct list out = LIST_INIT(out);
	bool busy = false;

	list_for_each(it, &k->leases) {
		struct strait_endpoint *ep = list_entry(it, struct strait_endpoint, lease_node);

		if (ep->leased && ep->ops->unchanged(ep))
			continue;
		ep->leased = false;
		unlist_endpoint(k, ep, &out);
	}
	if (!list_empty(&out)) {
		k->unregistering = true;
		pthread_mutex_unlock(&k->lock);
		free_windows(&out);
		pthread_mutex_lock(&k->lock);
		k->unregistering = false;
		pthread_cond_broadcast(&k->changed);
	}
	list_for_each_safe(it, tmp, &k->leases) {
		struct strait_endpoint *ep = list_entry(it, struct strait_endpoint, lease_node);

		if (ep->leased)
			continue;
		if (relied_on(ep)) {
			busy = true;
			continue;
		}
		list_del(&ep->lease_node);
		ep->ops->unlease(ep);
		log_info(k->log, "a read lease was broken: the file is about to change");
	}
	return busy;
}

static void *watch_leases(void *arg)
{
	struct reg_cache *k = arg;
	bool busy;

	pthread_mutex_lock(&k->lock);
	k->tid = os_tid();
	pthread_cond_broadcast(&k->changed);
	while (!k->stop) {
		if (list_empty(&k->leases)) {
			pthread_cond_wait(&k->changed, &k->lock);
			continue;
		}
		busy = check_leases_locked(k);
		pthread_mutex_unlock(&k->lock);
		os_lease_wait(busy ? 1000000 : 100000000);
		pthread_mutex_lock(&k->lock);
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

void regcache_take_lease(struct reg_cache *k, struct strait_endpoint *ep)
{
	int rc = 0;

	pthread_mutex_lock(&k->lock);
	if (!k->started) {
		rc = os_thread("strait-lease", watch_leases, k, &k->thread);
		k->started = !rc;
	}
	while (!rc && !k->tid)
		pthread_cond_wait(&k->changed, &k->lock);
	if (!rc)
		rc = ep->ops->lease(ep, k->tid);
	if (!rc) {
		ep->leased = true;
		list_add_tail(&k->leases, &ep->lease_node);
		pthread_cond_broadcast(&k->changed);
	}
	pthread_mutex_unlock(&k->lock);
	if (rc)
		log_info(k->log, "no read lease (%s): registrations are not kept", strerror(-rc));
}

void regcache_drop_endpoint(struct reg_cache *k, struct strait_endpoint *ep)
{
	struct list out = LIST_INIT(out);
	bool leased;

	pthread_mutex_lock(&k->lock);
	while (k->unregistering)
		pthread_cond_wait(&k->changed, &k->lock);
	leased = !list_empty(&ep->lease_node);
	unlist_endpoint(k, ep, &out);
	list_del(&ep->lease_node);
	ep->leased = false;
	pthread_mutex_unlock(&k->lock);
	free_windows(&out);
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
