/* SPDX-License-Identifier: MIT */
#ifndef MAPPING_COPY_H
#define MAPPING_COPY_H

/*
 * The backing `copy`: the CPU has a view of its own (mapping.h), as a device has, with anonymous memory for its copies. The
 * host's bytes are those of the endpoint, or of a private or anonymous mapping. Three kinds:
 *
 *	faults	 files, where the process may handle faults of the kernel too. A page is missing until it is touched: a load
 *		 or store of any thread, or of a system call, faults, and the handler thread fills it. Acquire removes pages
 *		 that are not current.
 *	filled	 endpoints that are no files, and unprivileged processes. Acquire fills pages that are missing or not current.
 *		 A fault means that a page was touched outside an acquired range: the handler fills it with zeros.
 *	plain	 without userfaultfd. Acquire fills pages, and release compares with a twin.
 *
 * In the first two, pages are filled write-protected. The kernel resolves the fault of the first store by itself
 * (asynchronous write protection), and a scan of the page tables at release finds the pages that were stored to.
 *
 * States of a page of `faults`, by the copy's state in granule.h:
 *
 *	version  state	     page
 *	0	 -	     missing
 *	0	 FILLING     (never)
 *	any	 FAULTING    missing or there: the handler is filling it
 *	not 0	 FILLING     there or missing: an acquirer removes it (STEP_ZAP)
 *	not 0	 -	     there, or missing if it is acquired for overwriting and was not touched: its bytes are undefined
 *
 *	missing --- GRANULE_FAULT ---> FAULTING --- GRANULE_FAULTED, _FAILED ---> there	    by the handler
 *	there ----- GRANULE_READ_FAULTS, not current ---> FILLING --- GRANULE_ZAPPED ---> missing	  by an acquirer
 *
 * Which thread may wait for which:
 *
 *	- A thread that touches a page waits for the handler, or for the acquirer that removes the page and then wakes it.
 *	- The handler waits for the index's lock, and for the kernel to read the file's page cache through m->host. It waits
 *	  for no mark: a page that an acquirer is removing is left to that acquirer's wake. It neither loads from nor stores
 *	  to a mapping, allocates nothing, and calls no provider, endpoint or log sink.
 *	- A thread that holds the index's lock touches no page of a mapping and no memory of the application.
 *	- A thread that has a mark may wait for the handler only if it touches a page that is missing. Stores read pages of
 *	  the view that has the newest bytes, which are there: a page is removed or dropped only if its bytes are not newest.
 *
 *	- The handler evicts copies beyond the budget only if their bytes are not newest. Others are written back by the
 *	  thread that acquires or releases.
 *
 * So the handler waits for no thread that can be waiting for a fault. Every fault ends in a wake: by the page that is filled
 * (with zeros and m->fault_error if its bytes cannot be read), by an explicit wake if it was there already, or by the
 * acquirer that had marked it.
 */

#include "mapping/mapping.h"

#define CLUSTER_GRANULES 16u /* filled by one fault, 64 KiB aligned */
#define CLUSTER_BYTES (CLUSTER_GRANULES << GRANULE_SHIFT)

struct cpu_copy {
	struct view *view; /* NULL until copy_start() */
	struct extent *extent;
	bool faulting; /* has a handler */
	bool filled;   /* acquire fills pages */
	int stop_fd;
	unsigned long thread;
	/*
	 * For reading while a range is being acquired, until it is in the mapping's list; for writing over an eviction, which
	 * leaves acquired ranges alone. Outermost of all locks, and not taken by the handler.
	 */
	pthread_rwlock_t evict_lock;
	uint64_t hand; /* the cluster that the clock looks at next; under the index's lock */
	char *bytes;   /* of the handler: CLUSTER_BYTES */
	char *zeros;   /* GRANULE_BYTES */
};

/* Memory for the CPU's copies in m->addr. @must: there is no other backing, so `plain` will do. */
int copy_map(struct strait_mapping *m, bool must);
/* Begins to handle faults, once the mapping has its index. */
int copy_start(struct strait_mapping *m);
void copy_stop(struct strait_mapping *m);
void copy_unmap(struct strait_mapping *m);

/* Acquire, of a range that is added to the mapping's list, and release by the CPU. */
int copy_acquire(struct strait_mapping *m, struct acquired *a);
int copy_release(struct strait_mapping *m, struct acquired *a);
/* Makes copies current, and their pages present. */
int copy_prefetch(struct strait_mapping *m, uint64_t offset, uint64_t length);

/* trim.c: evicts copies of @s, -EBUSY: a part of it is acquired; and others while there are more than the budget allows. */
int copy_evict(struct strait_mapping *m, struct span s);
void copy_trim(struct strait_mapping *m);
/* For the handler: only such as need no store. */
void copy_trim_clean(struct strait_mapping *m);

/* Parts of batch_move(). */
void copy_zap(struct view *v, const struct batch *b);
void copy_wake(struct view *v, const struct batch *b);
/* Fills [g, g + n), which are marked COPY_FILLING. */
int copy_fill(struct view *v, uint64_t g, uint64_t n, const char *from);

/* fault.c: the handler thread. */
void *copy_handler(void *arg);

#endif
