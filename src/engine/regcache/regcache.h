/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_REGCACHE_REGCACHE_H
#define ENGINE_REGCACHE_REGCACHE_H

/*
 * The registration cache: windows of the page cache that stay registered with a device between transfers. That is
 * allowed only while the file is known not to change, because truncation and direct writes by other processes take pages
 * out of the file that a registration goes on reading. Either the application has promised it (the file is immutable), or
 * the endpoint holds a read lease.
 *
 * Windows have one of two lengths, both aligned to themselves: device_tuning.window_bytes for long reads, which must lie
 * in one window, and cache_window for reads up to 1/REGCACHE_SMALL_PART of that. A lookup tries both.
 *
 * States of a window, all changes under reg_cache.lock:
 *	absent		reads of it pay rent (admission.h)
 *	wanted		it has paid its price, and is in reg_cache.wanted
 *	registering	the registrar, or a lane of a job, registers it
 *	listed		lookups find it, and it counts in the budget
 *	evicted		no lookup finds it; freed with its last reference
 * A window that is wanted is dropped if its file may change by then, is mostly not in the page cache, or would evict
 * windows that are read more often. In all these cases it is absent again and earns its price anew.
 *
 * Threads:
 *	readers		(callers, workers) look up and put windows, pay rent, and add to the wanted windows. They
 *			register none, with one exception: a lane of a job that reads at least half of a window, or
 *			that may use no other route, registers what it reads anyway, and leaves it in the cache.
 *	registrar	the one background thread that registers wanted windows. It waits for no transfer.
 *	lease thread	evicts the windows of a broken lease and gives the lease up when their last users are gone and
 *			the registrar registers none of the file's. It waits for transfers at most by looking again later.
 * One lock protects all of it. It is never held while a window is registered or unregistered, which may wait for the
 * device. Closing an endpoint drops its wanted windows, and waits until the registrar and the lease thread have finished
 * what they register or unregister at that moment: one window, and the windows of broken leases.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "device/provider.h"
#include "engine/endpoint.h"
#include "engine/regcache/admission.h"
#include "engine/stats.h"

#define REGCACHE_BUCKETS 1024
#define REGCACHE_WANTED 64
/* A read of at most this part of a short window earns a short window. A longer one would often lie in two. */
#define REGCACHE_SMALL_PART 16

/* A window that has paid its price. */
struct reg_wanted {
	struct strait_endpoint *ep; /* NULL: unused */
	struct strait_device *dev;
	uint64_t off, unit;
	struct admission_rate rate;
};

struct reg_cache {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct list buckets[REGCACHE_BUCKETS];
	struct list lru; /* the window to consider next for eviction first */
	uint64_t budget;
	uint64_t bytes;
	struct admission admission;
	struct list leases; /* struct endpoint_engine.lease_node */
	unsigned long thread;
	int tid;	    /* of the thread that watches leases, 0 until it runs */
	bool unregistering; /* that thread, windows of broken leases */
	bool started;
	bool stop;
	/* The registrar, registrar.c. */
	pthread_cond_t wanted_added;
	struct reg_wanted wanted[REGCACHE_WANTED]; /* in order of arrival; unused ones last */
	unsigned int n_wanted;
	const struct strait_endpoint *registering; /* the endpoint a window of which it registers now */
	const struct strait_endpoint *served;	   /* the endpoint served last; compared only */
	atomic_uint turns;			   /* odd while it registers or unregisters */
	unsigned long registrar;
	bool registrar_started;
	bool registrar_failed; /* it could not be started: windows are not registered in the background */
	struct stats *stats;
	const struct log_sink *log;
};

struct reg_window {
	struct list bucket_node, lru_node, ep_node;
	struct strait_endpoint *ep;
	struct strait_device *dev;
	uint64_t off, len;
	uint64_t unit; /* its length unless the file ends before */
	void *map;
	struct host_reg reg;
	struct admission_rate rate; /* of its reads, while it is listed */
	unsigned int users;
	unsigned int parked; /* users that do not hold up a lease break: see regcache_park() */
	bool listed;	     /* lookups find it; false: evicted, freed with its last user */
};

int regcache_init(struct reg_cache *k, uint64_t budget, struct stats *stats, const struct log_sink *log);
void regcache_fini(struct reg_cache *k);

/*
 * References the registered long window that holds byte @off of the endpoint, whose length is @ep_len. @admit: registers
 * it if need be. NULL when the file may change, the window is not registered or cannot be, or the budget is taken by
 * windows in use.
 */
struct reg_window *regcache_get(struct reg_cache *k, struct strait_endpoint *ep, struct strait_device *dev,
				uint64_t off, uint64_t ep_len, bool admit);
void regcache_put(struct reg_cache *k, struct reg_window *w);

/* May windows of the endpoint be cached at all? Whether they may right now is for ops->unchanged to say. */
static inline bool regcache_may_cache(const struct strait_endpoint *ep)
{
	return ep->facts.immutable || ep->facts.wants_lease;
}

/* A range of a file, and a reference to the window that holds it. */
struct reg_ref {
	struct strait_endpoint *ep; /* NULL: unused */
	struct strait_device *dev;
	uint64_t off, len; /* must lie in one window */
	uint64_t ep_len;
	struct reg_window *reg_window; /* NULL until it is found */
	struct reg_window *held; /* the same if this struct owns the reference: others of its array may share it */
};

/* The time a reader spends, as rent of the windows that do not hold what it reads. */
struct reg_rent {
	uint64_t ns;
	uint64_t began;	    /* os_now_ns(), 0: not running */
	unsigned int turns; /* reg_cache.turns when it began */
	bool beside;	    /* the registrar was at work for part of the time */
};

void regcache_rent_begin(struct reg_cache *k, struct reg_rent *rent);
void regcache_rent_end(struct reg_cache *k, struct reg_rent *rent);
/*
 * Pays the rent of a batch that is over: for each reference that has an endpoint but no window, by its weight. All are of
 * one device. Adds windows that have paid their price to the wanted ones.
 */
void regcache_pay(struct reg_cache *k, const struct reg_ref *p, unsigned int n, const struct reg_rent *rent);

/*
 * Looks up the windows of many references under one lock; does not register any. The caller has asked whether the file
 * is unchanged. Undone by regcache_put_many() for the whole array, whose members may share references.
 */
void regcache_find_many(struct reg_cache *k, struct reg_ref *p, unsigned int n);
void regcache_put_many(struct reg_cache *k, struct reg_ref *p, unsigned int n);

/*
 * Parks a reference that will be held for long. A parked user does not hold up a lease break, so what was read through the
 * window must be checked with regcache_valid() before it is used. regcache_unpark() puts the reference as well.
 */
void regcache_park(struct reg_cache *k, struct reg_window *w);
bool regcache_valid(struct reg_cache *k, struct reg_window *w);
void regcache_unpark(struct reg_cache *k, struct reg_window *w);

/* Maps and registers one window of the page cache, to be cached or for one transfer. @off is page-aligned. */
int window_register(struct strait_endpoint *ep, struct strait_device *dev, uint64_t off, uint64_t len, void **map,
		    struct host_reg *reg);
void window_unregister(struct strait_device *dev, void *map, uint64_t len, struct host_reg *reg);

/* Tries to take the lease that the endpoint was opened with. Without it the file counts as changing. */
void regcache_take_lease(struct reg_cache *k, struct strait_endpoint *ep);
/* Drops the windows and the lease of an endpoint that no transfer uses any more. */
void regcache_drop_endpoint(struct reg_cache *k, struct strait_endpoint *ep);

#endif
