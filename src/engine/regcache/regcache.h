/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_REGCACHE_REGCACHE_H
#define ENGINE_REGCACHE_REGCACHE_H

/*
 * Page-cache windows that stay registered between transfers, which is allowed only while it is known
 * that the file does not change: truncation, and direct writes by others, take pages out of the file
 * that a registration goes on reading. What vouches is the caller's promise, or a read lease.
 */

#include <pthread.h>
#include <stdint.h>

#include "device/provider.h"
#include "endpoint/endpoint.h"
#include "engine/stats.h"

#define REGCACHE_BUCKETS 1024
#define REGCACHE_HINT_BITS 4
#define REGCACHE_HINTS (1u << REGCACHE_HINT_BITS)

/* A window that is not there, and how many bytes of it were read otherwise, one near the other. */
struct admission_hint {
	uint64_t window;
	uint64_t off; /* of the last */
	uint64_t bytes;
};

struct reg_cache {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct list buckets[REGCACHE_BUCKETS];
	struct list lru; /* least recently used first */
	uint64_t budget;
	uint64_t bytes;
	struct admission_hint wish[REGCACHE_HINTS];
	uint64_t missed;   /* bytes read otherwise since a window was last tried to be made for such */
	uint64_t patience; /* as many must there be until the next try */
	bool trying;
	struct list leases; /* struct strait_endpoint.lease_node */
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
	unsigned int parked; /* of them */
	bool listed;	     /* found by others; false: goes with its last user */
};

int regcache_init(struct reg_cache *k, uint64_t budget, struct stats *stats, const struct log_sink *log);
void regcache_fini(struct reg_cache *k);

/*
 * The registered window that holds byte @off of the endpoint, whose length is @ep_len. NULL when the file may change, or the
 * window cannot be registered, or the budget is used up by windows in use.
 */
struct reg_window *regcache_get(struct reg_cache *k, struct strait_endpoint *ep, struct strait_device *dev,
				uint64_t off, uint64_t ep_len);
void regcache_put(struct reg_cache *k, struct reg_window *w);

/* May windows of the endpoint be kept at times? Whether they may right now its ops->unchanged says. */
static inline bool regcache_may_cache(const struct strait_endpoint *ep)
{
	return ep->facts.unchanging || ep->facts.wants_lease;
}

/* A place in a file, and the window that holds it. */
struct reg_ref {
	struct strait_endpoint *ep; /* NULL: not this one */
	struct strait_device *dev;
	uint64_t off, len; /* must lie in one window */
	uint64_t ep_len;
	struct reg_window *reg_window; /* NULL until it is found */
	struct reg_window *held;       /* the same, if it is this one that holds it, perhaps for others as well */
};

/*
 * A window takes as long to be registered as to be read: is it worth that for one of @need bytes that holds the place
 * and is not there? Where there is no room it is for who reads on and on, or if much was wanted of any: one does not
 * drive out another for each few bytes. Nor is it asked in vain each time, nor while somebody else is at it: who has only
 * a few bytes to read has read them sooner. Where it is, regcache_admitted() is told whether there was one.
 */
bool regcache_should_admit(struct reg_cache *k, const struct reg_ref *p, uint64_t need);
void regcache_admitted(struct reg_cache *k, uint64_t need, bool got);

/*
 * For many places at once, under one lock: fills in the windows that are registered already.
 * Whether the file may change is for the caller to have asked. Undone by regcache_put_many() for all of them together,
 * as several may stand on one's hold of a window.
 */
void regcache_find_many(struct reg_cache *k, struct reg_ref *p, unsigned int n);
void regcache_put_many(struct reg_cache *k, struct reg_ref *p, unsigned int n);

/*
 * Who has a window may keep it for long, and from that on must not take what was read out of it for good without
 * regcache_valid(): a lease is given back over his head. regcache_unpark() gives the window back as well.
 */
void regcache_park(struct reg_cache *k, struct reg_window *w);
bool regcache_valid(struct reg_cache *k, struct reg_window *w);
void regcache_unpark(struct reg_cache *k, struct reg_window *w);

/* Register one window of the page cache, kept or for one transfer; @off is page-aligned. */
int window_register(struct strait_endpoint *ep, struct strait_device *dev, uint64_t off, uint64_t len, void **map,
		    struct host_reg *reg);
void window_unregister(struct strait_device *dev, void *map, uint64_t len, struct host_reg *reg);

/* Try to take the lease an endpoint was opened for. Without one the file simply counts as changing. */
void regcache_take_lease(struct reg_cache *k, struct strait_endpoint *ep);
/* No transfer uses the endpoint any more: drop its windows and its lease. */
void regcache_drop_endpoint(struct reg_cache *k, struct strait_endpoint *ep);

#endif
