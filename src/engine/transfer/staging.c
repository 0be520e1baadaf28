/* SPDX-License-Identifier: MIT */
#include "engine/transfer/staging.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "engine/transfer/helpers.h"
#include "os/os.h"

/* Enough for a transfer at full speed while the rest is added. */
#define FIRST_BYTES MIB(32)
#define GROW_BYTES MIB(512) /* that transfers have moved before more memory pays */
#define PATIENCE_NS 2000000 /* or one has waited for a chunk */
#define TOUCH_BYTES MIB(4)  /* that a thread faults in at a time */
#define TOUCH_HELPERS 7

/*
 * The chunk that this thread held last. The cache of its processor still has it; a chunk that another thread filled
 * would have to be fetched from the cache of that thread's processor. The pool may be gone: it is only compared.
 */
static _Thread_local struct {
	const struct staging_pool *pool;
	unsigned int slab, index;
} last_held;

int staging_init(struct staging_pool *p, struct strait_device *dev, uint64_t bytes, uint64_t chunk_bytes)
{
	memset(p, 0, sizeof(*p));
	p->dev = dev;
	p->chunk_bytes = chunk_bytes;
	p->want_bytes = max_u64(align_down(bytes, chunk_bytes), chunk_bytes);
	list_init(&p->free);
	mutex_init_brief(&p->lock);
	cond_init_monotonic(&p->freed);
	return 0;
}

static void slab_free(struct staging_pool *p, struct staging_slab *slab)
{
	p->dev->ops->host_unregister(p->dev, &slab->reg);
	os_unmap(slab->reg.ptr, slab->bytes);
	free(slab->chunks);
}

void staging_fini(struct staging_pool *p)
{
	if (p->growing) {
		pthread_mutex_lock(&p->lock);
		p->stop = true;
		pthread_mutex_unlock(&p->lock);
		pthread_join(p->thread, NULL);
	}
	for (unsigned int i = 0; i < p->slabs; i++)
		slab_free(p, &p->slab[i]);
	pthread_cond_destroy(&p->freed);
	pthread_mutex_destroy(&p->lock);
}

struct touch {
	char *ptr;
	uint64_t bytes;
	_Atomic uint64_t next;
};

static void touch_pieces(void *arg)
{
	struct touch *t = arg;
	uint64_t at;

	while ((at = atomic_fetch_add_explicit(&t->next, TOUCH_BYTES, memory_order_relaxed)) < t->bytes)
		os_populate(t->ptr + at, min_u64(TOUCH_BYTES, t->bytes - at));
}

/*
 * Faults memory in before it is registered. Clearing its pages takes most of the time of pinning it; the driver would do it
 * on one thread and hold up the copies of all others meanwhile.
 */
static void slab_touch(struct staging_pool *p, struct workers *workers, void *ptr, uint64_t bytes)
{
	struct touch t = { .ptr = ptr, .bytes = bytes };
	struct helpers h;

	if (!p->dev->tuning.pins_host)
		return;
	if (!workers || bytes <= TOUCH_BYTES) {
		touch_pieces(&t);
		return;
	}
	helpers_begin(&h, workers, HELPERS_IDLE, (unsigned int)min_u64(bytes / TOUCH_BYTES - 1, TOUCH_HELPERS),
		      touch_pieces, &t);
	touch_pieces(&t);
	helpers_end(&h);
}

/* Allocates and registers a slab. @workers: those that help, or NULL. */
static int slab_new(struct staging_pool *p, struct workers *workers, uint64_t bytes, struct staging_slab *slab)
{
	unsigned int n = (unsigned int)(bytes / p->chunk_bytes);
	uint64_t began = os_now_ns(), touched;
	void *ptr;
	int rc;

	rc = os_map_anon(bytes, p->dev->numa_node, &ptr);
	if (rc)
		return rc;
	slab_touch(p, workers, ptr, bytes);
	touched = os_now_ns();
	rc = p->dev->ops->host_register(p->dev, ptr, bytes, 0, &slab->reg);
	if (rc) {
		os_unmap(ptr, bytes);
		return rc;
	}
	slab->bytes = bytes;
	slab->chunks = calloc(n, sizeof(*slab->chunks));
	if (!slab->chunks) {
		slab_free(p, slab);
		return -ENOMEM;
	}
	os_dont_fork(ptr, bytes);
	for (unsigned int i = 0; i < n; i++) {
		slab->chunks[i].ptr = (char *)ptr + i * p->chunk_bytes;
		slab->chunks[i].dev_addr = slab->reg.dev_addr + i * p->chunk_bytes;
		slab->chunks[i].index = i;
		list_init(&slab->chunks[i].node);
	}
	log_debug(p->dev->provider->set->log,
		  "%s: %" PRIu64 " MiB of staging memory pinned in %.1f ms, %.1f of it to fault it in", p->dev->name,
		  bytes >> 20, (double)(os_now_ns() - began) / 1e6, (double)(touched - began) / 1e6);
	return 0;
}

static void slab_add_locked(struct staging_pool *p, const struct staging_slab *slab)
{
	unsigned int n = (unsigned int)(slab->bytes / p->chunk_bytes);

	for (unsigned int i = n; i-- > 0;) {
		slab->chunks[i].slab = p->slabs;
		list_add(&p->free, &slab->chunks[i].node);
	}
	p->slab[p->slabs++] = *slab;
	p->n += n;
	atomic_fetch_add_explicit(p->stat_bytes, slab->bytes, memory_order_relaxed);
	if (p->waiters)
		pthread_cond_broadcast(&p->freed);
}

/* The length of the next slab: STAGING_SLABS of them suffice for any pool. */
static uint64_t slab_bytes(const struct staging_pool *p)
{
	uint64_t step = max_u64(FIRST_BYTES, align_up(p->want_bytes / (STAGING_SLABS - 2), p->chunk_bytes));

	return align_down(max_u64(min_u64(step, p->want_bytes - p->n * p->chunk_bytes), p->chunk_bytes),
			  p->chunk_bytes);
}

/* The first slab. Smaller if memory is short, one chunk at least. */
static int staging_fill_locked(struct staging_pool *p)
{
	struct staging_slab slab;
	bool less = false;
	uint64_t bytes;
	int rc = -ENOMEM;

	for (bytes = slab_bytes(p); bytes >= p->chunk_bytes; bytes = align_down(bytes / 2, p->chunk_bytes)) {
		rc = slab_new(p, p->workers, bytes, &slab);
		if (!rc || (rc != -ENOMEM && rc != -EAGAIN && rc != -EPERM))
			break;
		less = true;
	}
	if (!rc && less)
		p->want_bytes = bytes; /* no more is to be had */
	if (!rc)
		slab_add_locked(p, &slab);
	return rc;
}

/* Adds slabs until the pool is complete or memory is short. By itself: the workers may end before this thread does. */
static void *grow_main(void *arg)
{
	struct staging_pool *p = arg;
	struct staging_slab slab;

	pthread_mutex_lock(&p->lock);
	while (!p->stop && p->slabs < STAGING_SLABS && p->n * p->chunk_bytes < p->want_bytes) {
		uint64_t bytes = slab_bytes(p);
		int rc;

		pthread_mutex_unlock(&p->lock);
		rc = slab_new(p, NULL, bytes, &slab);
		pthread_mutex_lock(&p->lock);
		if (rc)
			break;
		slab_add_locked(p, &slab);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Chunks are short. @waited: for long. */
static void staging_grow_locked(struct staging_pool *p, bool waited)
{
	if ((!waited && p->moved < GROW_BYTES) || p->growing || p->n * p->chunk_bytes >= p->want_bytes)
		return;
	p->growing = !os_thread("strait-staging", grow_main, p, &p->thread);
	if (!p->growing)
		p->want_bytes = p->n * p->chunk_bytes; /* without a thread the pool stays as it is */
}

int staging_enter(struct staging_pool *p, struct staging_user *u)
{
	int rc = 0;

	u->held = 0;
	pthread_mutex_lock(&p->lock);
	if (!p->n)
		rc = staging_fill_locked(p);
	if (!rc)
		p->users++;
	pthread_mutex_unlock(&p->lock);
	return rc;
}

void staging_count(struct staging_pool *p, uint64_t bytes)
{
	pthread_mutex_lock(&p->lock);
	p->moved += bytes;
	pthread_mutex_unlock(&p->lock);
}

void staging_expect(struct staging_pool *p)
{
	staging_count(p, GROW_BYTES);
}

void staging_leave(struct staging_pool *p, struct staging_user *u)
{
	(void)u;
	pthread_mutex_lock(&p->lock);
	p->users--;
	if (p->waiters)
		pthread_cond_broadcast(&p->freed); /* every user's share has grown */
	pthread_mutex_unlock(&p->lock);
}

/* The chunk that this thread held last, if it is free; else any. One must be. */
static struct chunk *pick(const struct staging_pool *p)
{
	const struct staging_slab *slab;

	if (last_held.pool == p && last_held.slab < p->slabs) {
		slab = &p->slab[last_held.slab];
		if (last_held.index < slab->bytes / p->chunk_bytes && !list_empty(&slab->chunks[last_held.index].node))
			return &slab->chunks[last_held.index];
	}
	return list_first(&p->free, struct chunk, node);
}

static struct chunk *take(struct staging_pool *p, struct staging_user *u)
{
	struct chunk *c;

	if (p->free.next == p->free.prev)
		staging_grow_locked(p, false);
	if (list_empty(&p->free))
		return NULL;
	c = pick(p);
	/* A share is at least one chunk: a user without any gets a free one. */
	if (u->held && u->held >= p->n / p->users)
		return NULL;
	list_del(&c->node);
	last_held.pool = p;
	last_held.slab = c->slab;
	last_held.index = c->index;
	u->held++;
	return c;
}

struct chunk *staging_try(struct staging_pool *p, struct staging_user *u)
{
	struct chunk *c;

	pthread_mutex_lock(&p->lock);
	c = take(p, u);
	pthread_mutex_unlock(&p->lock);
	return c;
}

struct chunk *staging_try_spare(struct staging_pool *p, struct staging_user *u)
{
	struct chunk *c;

	pthread_mutex_lock(&p->lock);
	if (p->free.next == p->free.prev)
		staging_grow_locked(p, false);
	c = p->free.next != p->free.prev ? take(p, u) : NULL;
	pthread_mutex_unlock(&p->lock);
	return c;
}

struct chunk *staging_wait(struct staging_pool *p, struct staging_user *u, int64_t timeout_ns)
{
	uint64_t end = os_deadline(timeout_ns), patience = os_deadline(PATIENCE_NS);
	struct chunk *c;

	pthread_mutex_lock(&p->lock);
	p->waiters++;
	while (!(c = take(p, u))) {
		atomic_fetch_add_explicit(p->stat_waits, 1, memory_order_relaxed);
		if (!cond_wait_until(&p->freed, &p->lock, min_u64(end, patience)))
			continue;
		if (end <= patience)
			break;
		patience = UINT64_MAX;
		staging_grow_locked(p, true);
	}
	p->waiters--;
	pthread_mutex_unlock(&p->lock);
	return c;
}

void staging_put(struct staging_pool *p, struct staging_user *u, struct chunk *c)
{
	pthread_mutex_lock(&p->lock);
	list_add(&p->free, &c->node);
	u->held--;
	if (p->waiters)
		pthread_cond_broadcast(&p->freed);
	pthread_mutex_unlock(&p->lock);
}
