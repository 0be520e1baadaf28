/* SPDX-License-Identifier: MIT */
#ifndef MAPPING_MAPPING_H
#define MAPPING_MAPPING_H

/*
 * A coherent mapping: bytes of a file seen by the CPU and, as copies in device memory, by devices.
 *
 *	index	  the versions of a file's granules, one per (st_dev, st_ino) in the process, shared by all mappings of it
 *	mapping	  an address of the CPU, the acquired ranges, and a view for each device that has acquired one
 *	view	  extents of device memory that hold copies, and the state of each copy (granule.h)
 *	extent	  one allocation for a contiguous range of granules, and perhaps its twin
 *
 * The CPU's address is either the host's own mapping of the file, or memory with copies as a device has them (copy.h).
 *
 * Locks, outermost first: view.memory_lock (which extents exist), index.host_lock, index.lock (granules, copies, lists of extents and
 * acquired ranges), view.stage_lock. Neither of the last two is held while bytes move, and no thread that holds a mark of
 * granule.h takes memory_lock. A thread that holds host_lock waits for the file only.
 */

#include <pthread.h>
#include <stdatomic.h>

#include <strait/mapping.h>

#include "engine/engine.h"
#include "mapping/granule.h"
#include "os/os.h"

#define CHUNK_GRANULES 512u /* granules whose state is allocated together */
#define GROUP_GRANULES 64u  /* granules of a chunk that a walk skips together */
#define CHUNK_GROUPS (CHUNK_GRANULES / GROUP_GRANULES)
#define VIEWS_MAX 255u
#define STAGE_BYTES MIB(2)
#define STAGE_GRANULES (STAGE_BYTES / GRANULE_BYTES)
#define LONG_GRANULES CHUNK_GRANULES /* a run of a file that is fetched by one transfer, which has threads of its own */

struct view;

struct map_chunk {
	uint64_t changes; /* incremented whenever a version changes */
	uint64_t group_changes[CHUNK_GROUPS];
	uint32_t newer;	  /* granules whose newest bytes are not on the host */
	uint32_t storing; /* granules that are being stored */
	struct granule granules[CHUNK_GRANULES];
};

struct view_chunk {
	/* chunk.changes + 1 when all copies were current, and the same for each group; 0: not known */
	uint64_t current_at, group_current_at[CHUNK_GROUPS];
	struct granule_copy copies[CHUNK_GRANULES];
};

struct map_index {
	struct list node; /* in the table of the process, unless private */
	uint64_t dev, ino;
	unsigned int refs; /* under the lock of the table */
	pthread_mutex_t lock;
	pthread_cond_t moved;	   /* a mark was removed, or a view is no longer in use */
	struct map_chunk **chunks; /* by number; NULL: in no mapping so far */
	uint64_t n_chunks;
	struct list slabs;		   /* the memory of chunks */
	struct view *views[VIEWS_MAX + 1]; /* by number; [0] is the host and NULL */
	/*
	 * Keeps the library's stores from being taken for those of the CPU: held over a store and the update of twins, over
	 * a store to private memory, and over the comparison or scan that finds stores of the CPU.
	 */
	pthread_mutex_t host_lock;
	struct list mappings;	    /* struct strait_mapping.in_index; changed under both locks */
	unsigned int paged_writers; /* views of frames that are begun for writing */
};

/* Device memory for granules [first, first + n). */
struct extent {
	struct list node; /* in view.extents, in the order of the clock */
	uint64_t first, n;
	struct strait_region *data;
	struct strait_region *twin; /* NULL: none */
	unsigned int pins;	    /* acquired ranges and work in it; under the index's lock */
	unsigned int prefetching;   /* of these, prefetches, which end soon */
	bool referenced;	    /* acquired since the clock's hand passed */
};

/* Pinned host memory through which a batch is copied. */
struct stage {
	struct list node;
	char *ptr;
	struct host_reg reg;
	bool registered;
	uint64_t len;
};

struct view {
	struct strait_mapping *map;
	bool faults;  /* pages that are missing are filled by faults: GRANULE_READ_FAULTS (copy.h) */
	bool scanned; /* stores are found by a scan, not by comparison with a twin */
	struct strait_device *dev;
	unsigned int number;
	unsigned int users; /* threads that store its bytes for another side, or copy them; under the index's lock */
	bool peer_refused[VIEWS_MAX + 1]; /* by view: its memory could not be read directly; under the index's lock */
	pthread_mutex_t memory_lock;
	struct list extents;
	uint64_t device_bytes, twin_bytes; /* under the index's lock */
	uint64_t present;		   /* copies with a version; under the index's lock */
	struct view_chunk *chunks;	   /* from the mapping's first chunk on */
	size_t chunks_len;		   /* bytes */
	pthread_mutex_t stage_lock;
	pthread_cond_t stage_free;
	struct list stages;  /* idle ones of STAGE_BYTES */
	struct list results; /* idle ones of other lengths, for the results of comparisons */
	uint64_t staged_bytes, result_bytes;
};

/* An acquired range. */
struct acquired {
	struct list node;
	struct view *view; /* NULL: the CPU */
	uint64_t offset, length;
	uint32_t intent;
	/* Set by acquired_claim() for the one thread that releases the range, and cleared only if that release fails. */
	bool releasing;
	/* The stream on which the acquire is queued, NULL once it is done. Only a release on that stream may claim it. */
	const struct strait_stream *queued;
	struct extent *extent;
	uint32_t *changed; /* CPU with a view that is scanned: room for the result at release, a bit for each granule */
	int status;	   /* of an acquire ordered on a stream that failed: there is nothing to release */
};

struct strait_mapping {
	struct strait_context *ctx;
	struct strait_endpoint *ep; /* NULL: anonymous */
	struct map_index *index;
	struct list in_index;
	uint32_t flags;
	uint32_t tracking;
	uint64_t offset, length;
	uint64_t first, end; /* granules of the index */
	uint64_t device_budget, pinned_budget, copy_budget;
	/* What was last asked to be read ahead, for the CPU and each device; an older request is dropped. Under the lock. */
	uint64_t ahead[DEVICES_MAX + 1];
	uint8_t *advice; /* enum strait_advice, by 64 KiB; NULL: none so far. Under the index's lock */
	char *addr;	 /* of the CPU */
	char *host;	 /* where the host's bytes are mapped; NULL: they have no address */
	size_t map_len;
	struct os_track track; /* of @addr */
	struct cpu_copy *copy; /* NULL: @addr is @host */
	uint8_t *armed;	       /* by chunk: protected, so that stores are found; under the index's lock */
	/* STRAIT_TRACKING_COMPARE: copies of what is acquired for writing; under the index's host_lock. */
	char *twin;
	uint16_t *twin_writers;
	struct view *views[DEVICES_MAX]; /* by strait_device.number; under the index's lock */
	struct list acquired;
	unsigned int n_acquired;
	unsigned int in_background; /* work on streams and prefetches; under the index's lock */
	/* Counters, and the error of the last write-back that failed. */
	_Atomic uint64_t to_device, to_host, between, copies, conflicts, declared, evictions;
	atomic_int error;
	atomic_int fault_error; /* of the last page that could not be filled, until strait_mapping_sync() returned it */
	_Atomic uint64_t faults, copy_evictions;
	/* Time, summed over threads: strait_mapping_info. */
	_Atomic uint64_t scan_ns, protect_ns, walk_ns, stage_ns, device_ns;
};

/* A range of granules. */
struct span {
	uint64_t first, end;
};

/* Granules of one kind of step, marked by this thread, in ascending runs. */
#define BATCH_RUNS 2048u
struct batch {
	enum granule_step step;
	struct view *from; /* STEP_STORE, STEP_PEER: the view whose bytes are stored, or copied */
	struct span runs[BATCH_RUNS];
	unsigned int n;
	uint64_t granules;
};

static inline bool map_is_private(const struct strait_mapping *m)
{
	return !m->ep || m->flags & STRAIT_MAPPING_PRIVATE;
}

/* Is it a file, whose page cache can be mapped? Other endpoints are mapped by copies. */
static inline bool endpoint_has_file(const struct strait_endpoint *ep)
{
	return ep->facts.can_map && !ep->facts.self_dma;
}

/* The file offset of a granule; private mappings count from their first byte. */
static inline uint64_t granule_offset(uint64_t g)
{
	return g << GRANULE_SHIFT;
}

/* Where the CPU has a granule; and where the host's bytes of it are mapped, if they have an address. */
static inline char *cpu_ptr(const struct strait_mapping *m, uint64_t g)
{
	return m->addr + ((g - m->first) << GRANULE_SHIFT);
}

static inline char *host_ptr(const struct strait_mapping *m, uint64_t g)
{
	return m->host + ((g - m->first) << GRANULE_SHIFT);
}

static inline void count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* Adds the time since @began to a counter of the mapping. */
static inline void count_since(_Atomic uint64_t *counter, uint64_t began)
{
	count(counter, os_now_ns() - began);
}

/* index.c */
int index_get(struct strait_mapping *m);
void index_put(struct strait_mapping *m);
struct map_chunk *index_chunk(struct map_index *x, uint64_t g);
/* granule_event() that keeps the chunk's counts. @v: the view of the event, NULL for events of the host. */
enum granule_step index_event_locked(struct map_index *x, struct view *v, uint64_t g, enum granule_event event);

/* The view of the CPU's copies, NULL: it has none. */
struct view *copy_view(const struct strait_mapping *m);

/* host.c: the host's copy of granules. */
int host_map(struct strait_mapping *m);
void host_unmap(struct strait_mapping *m);
/*
 * Copies [g, g + n) to @buf. *@good: granules before the first that cannot be read, if that is an error: -EFAULT for one
 * past the end of the file. Past the end in the last granule of the file are zeros.
 */
int host_read(struct strait_mapping *m, uint64_t g, uint64_t n, char *buf, uint64_t *good);
/* Writes [g, g + n), except what lies past the end of the file. */
int host_write(struct strait_mapping *m, uint64_t g, uint64_t n, const char *buf);
/* host_write() of bytes of a view, which are not taken for stores of the CPU. */
int host_store(struct strait_mapping *m, uint64_t g, uint64_t n, const char *buf);
/* CPU acquires for writing: from now on stores are found. */
int host_track_begin(struct strait_mapping *m, struct span s);
/* CPU releases @s: publishes what was stored, and all of @over. */
void host_track_end(struct strait_mapping *m, struct span s, struct span over);
/* Undoes host_track_begin() without a publication. */
void host_track_cancel(struct strait_mapping *m, struct span s);

/* parallel.c: calls @fn for each number below @n, on this thread and on idle workers, and waits for all. */
typedef void parallel_fn(void *arg, unsigned int i);
void parallel_for(struct workers *w, unsigned int n, parallel_fn *fn, void *arg);

/* stage.c */
int stage_get(struct view *v, uint64_t len, struct stage **ret);
void stage_put(struct view *v, struct stage *st);
void stages_free(struct view *v);

/* view.c */
int view_get(struct strait_mapping *m, struct strait_device *dev, struct view **ret);
/* A view that is not found by view_get(). */
int view_open(struct strait_mapping *m, struct strait_device *dev, struct view **ret);
void view_close(struct view *v);
struct view_chunk *view_chunk(struct view *v, uint64_t g);
struct extent *view_extent_locked(struct view *v, uint64_t g);
static inline uint64_t extent_addr(const struct strait_region *r, const struct extent *e, uint64_t g)
{
	return r->mem.addr + ((g - e->first) << GRANULE_SHIFT);
}

/*
 * extent.c: finds or makes the extent for @s and pins it, with a twin if @twin and the budget allow. May write back and drop
 * other extents. -ENOSPC: does not fit; -EBUSY: overlaps a pinned extent that does not contain it.
 */
int extent_get(struct view *v, struct span s, bool twin, bool prefetch, struct extent **ret);
void extent_put(struct view *v, struct extent *e, bool prefetch);
/* Stores and drops the copies of @s, and frees extents that lie in it. -EBUSY: a part of it is acquired. */
int extents_evict(struct view *v, struct span s);
void extents_free(struct view *v);
/* An extent of memory that the caller has, pinned for good; and its twin, if there is memory for it. */
int extent_adopt(struct view *v, struct span s, struct strait_region *data, struct extent **ret);
void extent_twin(struct view *v, struct extent *e);

/*
 * move.c: moves the bytes of a batch and ends its marks. @v: the view that is filled, or whose twin is taken. @isolated: a
 * stream of the application waits for it.
 */
int batch_move(struct strait_mapping *m, struct view *v, struct batch *b, bool isolated);

/*
 * peer.c: the same of STEP_PEER. If it fails, b->granules is 0 and @v gets such bytes through the host from now on, where an
 * error of the device shows.
 */
void batch_peer(struct strait_mapping *m, struct view *v, struct batch *b);

/*
 * walk.c: steps every granule of @s with @event, one that may be repeated (GRANULE_READ_*, GRANULE_OVERWRITE_HOST,
 * GRANULE_DROP, GRANULE_EVICT*), moves what the steps ask for, and waits for what other threads move. Stops at the first error.
 */
int walk_span(struct strait_mapping *m, struct view *v, struct span s, enum granule_event event, bool isolated);
/* Has the view what was published last, or will it, by a fault? */
bool copy_current_locked(struct view *v, uint64_t g);
/* Makes the copies of @s current, or removes the pages of those that are not. */
static inline int walk_read(struct view *v, struct span s, bool isolated)
{
	return walk_span(v->map, v, s, v->faults ? GRANULE_READ_FAULTS : GRANULE_READ_COPY, isolated);
}

/* acquire.c: the parts of acquire and release of a device, once there is memory. */
int view_acquire(struct view *v, struct extent *e, uint64_t offset, uint64_t length, uint32_t intent, bool isolated);
/* @changed: results of compare_pages for all granules of the range; NULL: all count as changed. */
int view_release(struct view *v, uint64_t offset, uint64_t length, uint32_t intent, const uint32_t *changed,
		 bool isolated);
/* The granules that contain [offset, offset + length) of the mapping; and those that lie wholly inside it. */
struct span span_around(const struct strait_mapping *m, uint64_t offset, uint64_t length);
struct span span_inside(const struct strait_mapping *m, uint64_t offset, uint64_t length);

/* range.c: has the view, NULL for the CPU, acquired a part of @s? */
bool acquired_overlaps_locked(const struct strait_mapping *m, const struct view *v, struct span s);

/* advice.c */
#define ADVICE_GRANULES 16u
enum strait_advice advice_at_locked(const struct strait_mapping *m, uint64_t g);
/* A side has acquired the range: reads ahead if that is advised. */
void advice_acquired(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length);

/* ordered.c: work that strait_mapping_close() waits for. */
void mapping_background_begin(struct strait_mapping *m);
void mapping_background_end(struct strait_mapping *m);

/* mapping.c, range.c, ordered.c, advice.c: the public calls. */
int mapping_advise(struct strait_mapping *m, uint64_t offset, uint64_t length, uint32_t advice);
int mapping_evict(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length);
int mapping_open(struct strait_context *ctx, struct strait_endpoint *ep, uint64_t offset, uint64_t length,
		 const struct strait_mapping_opts *opts, struct strait_mapping **ret);
void mapping_close(struct strait_mapping *m);
void mapping_info(struct strait_mapping *m, struct strait_mapping_info *info);
int mapping_acquire(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length,
		    uint32_t intent, void **addr);
int mapping_release(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length,
		    uint32_t intent);
int mapping_acquire_on(struct strait_mapping *m, struct strait_stream *s, uint64_t offset, uint64_t length,
		       uint32_t intent, void **addr, int *status);
int mapping_release_on(struct strait_mapping *m, struct strait_stream *s, uint64_t offset, uint64_t length,
		       uint32_t intent, int *status);
int mapping_refresh(struct strait_mapping *m, uint64_t offset, uint64_t length);
int mapping_flush(struct strait_mapping *m, uint64_t offset, uint64_t length);
int mapping_sync(struct strait_mapping *m, uint64_t offset, uint64_t length);
int mapping_prefetch(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length);
/* A prefetch that is dropped if another one is requested before it begins. */
int mapping_read_ahead(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length);

#endif
