/* SPDX-License-Identifier: MIT */
/* The thread that watches read leases. While a lease stands, windows of its file may stay registered. */
#include "engine/regcache/internal.h"

#include "os/os.h"

/*
 * Is a window registered under the lease, being registered, or in use by a transfer that does not check it with
 * regcache_valid()?
 */
static bool lease_needed_locked(const struct reg_cache *k, const struct strait_endpoint *ep)
{
	if (k->registering == ep)
		return true;
	list_for_each(it, &endpoint_engine(ep)->reg_windows) {
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
		struct endpoint_engine *ee = list_entry(it, struct endpoint_engine, lease_node);
		struct strait_endpoint *ep = ee->ep;

		if (ee->leased && ep->ops->unchanged(ep))
			continue;
		ee->leased = false;
		regcache_unlist_endpoint_locked(k, ep, &out);
	}
	if (!list_empty(&out)) {
		k->unregistering = true;
		pthread_mutex_unlock(&k->lock);
		regcache_free_windows(k, &out);
		pthread_mutex_lock(&k->lock);
		k->unregistering = false;
		pthread_cond_broadcast(&k->changed);
	}
	list_for_each_safe(it, tmp, &k->leases) {
		struct endpoint_engine *ee = list_entry(it, struct endpoint_engine, lease_node);
		struct strait_endpoint *ep = ee->ep;

		if (ee->leased)
			continue;
		if (lease_needed_locked(k, ep)) {
			busy = true;
			continue;
		}
		list_del(&ee->lease_node);
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
		endpoint_engine(ep)->leased = true;
		list_add_tail(&k->leases, &endpoint_engine(ep)->lease_node);
		pthread_cond_broadcast(&k->changed);
	}
	pthread_mutex_unlock(&k->lock);
	if (rc)
		log_info(k->log, "no read lease (%s): registrations are not cached", strerror(-rc));
}
