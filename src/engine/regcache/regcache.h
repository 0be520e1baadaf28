/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_REGCACHE_REGCACHE_H
#define ENGINE_REGCACHE_REGCACHE_H

/*
 * The registration cache: windows of the page cache that stay registered with a device between transfers. That is
 * allowed only while the file is known not to change, because truncation and direct writes by other processes take pages
 * out of the file that a registration goes on reading. Either the application has promised it (the file is immutable), or
 * the endpoint holds a read lease.
 *
 * A window is listed (found by lookups, counted in the budget) or evicted (freed with its last reference). One lock
 * protects all of it. It is never held while a window is registered or unregistered, which may wait for the device.
 *
 * Threads: transfers look up, admit and put windows. The lease thread evicts the windows of a broken lease and gives
 * the lease up when their last users are gone: a transfer never waits for it, and it waits for transfers at most by
 * looking again later. Closing an endpoint waits until the lease thread has unregistered what it is unregistering.
 */

#include <pthread.h>
#include <stdint.h>

#include "device/provider.h"
#include "engine/endpoint.h"
#include "engine/stats.h"

#define REGCACHE_BUCKETS 1024
#define REGCACHE_HINT_BITS 4
#define REGCACHE_HINTS (1u << REGCACHE_HINT_BITS)

/* A window that is not registered, and how many of its bytes were read in order by other routes. */
struct admission_hint {
	uint64_t window;
	uint64_t off; /* of the last read */
	uint64_t bytes;
};

struct reg_cache {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct list buckets[REGCACHE_BUCKETS];
	struct list lru; /* least recently used first */
	uint64_t budget;
	uint64_t bytes;
	struct admission_hint hint[REGCACHE_HINTS];
	uint64_t missed;      /* bytes read by other routes since the last admission */
	uint64_t retry_bytes; /* that many must be missed before the next one */
	bool admitting;	      /* a thread registers a window */
	struct list leases;   /* struct endpoint_engine.lease_node */
	unsigned long thread;
	int tid;	    /* of the thread that watches leases, 0 until it runs */
	bool unregistering; /* that thread, windows of broken leases */
	bool started;
	bool stop;
	struct stats *stats;
	const struct log_sink *log;
};

struct reg_window {
	struct list bucket_node, lru_node, ep_node;
	struct strait_endpoint *ep;
	struct strait_device *dev;
	uint64_t off, len;
	void *map;
	struct host_reg reg;
	unsigned int users;
	unsigned int parked; /* users that do not hold up a lease break: see regcache_park() */
	bool listed;	     /* lookups find it; false: evicted, freed with its last user */
};

int regcache_init(struct reg_cache *k, uint64_t budget, struct stats *stats, const struct log_sink *log);
void regcache_fini(struct reg_cache *k);

/*
 * References the registered window that holds byte @off of the endpoint, whose length is @ep_len, and registers it if need
 * be. NULL when the file may change, the window cannot be registered, or the budget is taken by windows in use.
 */
struct reg_window *regcache_get(struct reg_cache *k, struct strait_endpoint *ep, struct strait_device *dev,
				uint64_t off, uint64_t ep_len);
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

/*
 * The admission policy: is a window of @need bytes to be registered for a read that no window holds? Registering costs
 * about as much as reading the window once. While the budget has room a miss admits, unless the last attempt failed and
 * few bytes were missed since. When the budget is full, only a sequential reader admits (1/16 of the window read in
 * order), or a whole window's worth of misses. One thread admits at a time. After true, report the outcome with
 * regcache_admitted().
 */
bool regcache_should_admit(struct reg_cache *k, const struct reg_ref *p, uint64_t need);
void regcache_admitted(struct reg_cache *k, uint64_t need, bool got);

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
