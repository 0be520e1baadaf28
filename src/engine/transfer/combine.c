/* SPDX-License-Identifier: MIT */
#include "engine/transfer/combine.h"

#include "base/lock.h"
#include "base/util.h"
#include "engine/engine.h"

#define SPIN_NS 1000000u     /* a mark is polled for that long */
#define BRIEF_BYTES KIB(256) /* of a transfer that does not sleep */
#define SPINS_PER_YIELD 4000 /* with more threads than processors, the leader may need this one */

static unsigned int broken(const struct combiner *c)
{
	return atomic_load_explicit(&c->n_broken, memory_order_relaxed);
}

void combiner_init(struct combiner *c)
{
	mutex_init_brief(&c->lock);
	atomic_init(&c->pending, NULL);
	atomic_init(&c->n_broken, 0);
}

void combiner_fini(struct combiner *c, struct strait_device *dev)
{
	for (unsigned int i = 0; i < COMBINE_CONTEXTS; i++)
		for (unsigned int k = 0; k < COMBINE_STREAMS; k++)
			if (c->slot[i].ls[k])
				engine_stream_free(dev, c->slot[i].ls[k]);
	for (unsigned int i = 0; i < broken(c); i++)
		engine_stream_free(dev, c->broken[i]);
	pthread_mutex_destroy(&c->lock);
}

static struct combine_slot *slot_of_locked(struct combiner *c, uintptr_t context)
{
	for (unsigned int i = 0; i < COMBINE_CONTEXTS; i++)
		if (c->slot[i].context == context)
			return &c->slot[i];
	return NULL;
}

/* The streams of lists that failed. A waiter may still use them. */
static void retire_locked(struct combiner *c, struct lane_stream **ls)
{
	c->broken[broken(c)] = *ls;
	atomic_fetch_add_explicit(&c->n_broken, 1, memory_order_relaxed);
	*ls = NULL;
}

/* Empties a slot whose context was destroyed. */
static bool vacate_locked(struct strait_device *dev, struct combiner *c, struct combine_slot *slot)
{
	for (unsigned int i = 0; i < COMBINE_STREAMS; i++) {
		if (!slot->ls[i])
			continue;
		if (!dev->ops->stream_lost(slot->ls[i]->stream) || broken(c) == COMBINE_BROKEN)
			return false;
		retire_locked(c, &slot->ls[i]);
	}
	slot->context = 0;
	return true;
}

/* Reserves a slot for the context of @ls. */
static int reserve(struct strait_device *dev, const struct lane_stream *ls)
{
	struct combiner *c = &device_engine(dev)->combiner;
	struct combine_slot *slot;

	pthread_mutex_lock(&c->lock);
	slot = slot_of_locked(c, ls->context);
	if (!slot)
		slot = slot_of_locked(c, 0);
	for (unsigned int i = 0; !slot && i < COMBINE_CONTEXTS; i++)
		if (vacate_locked(dev, c, &c->slot[i]))
			slot = &c->slot[i];
	if (slot)
		slot->context = ls->context;
	pthread_mutex_unlock(&c->lock);
	return slot ? 0 : -EAGAIN;
}

/* The stream for the next list of the context. */
static int stream_locked(struct strait_device *dev, const struct lane_stream *of, struct lane_stream ***ret)
{
	struct combiner *c = &device_engine(dev)->combiner;
	const struct provider_mem m = { .context = of->context };
	struct combine_slot *slot = slot_of_locked(c, of->context);
	struct lane_stream **ls;
	int rc;

	if (!slot || broken(c) == COMBINE_BROKEN)
		return -ENODEV;
	ls = &slot->ls[slot->next++ % COMBINE_STREAMS];
	rc = *ls ? 0 : engine_stream_get(dev, &m, false, ls);
	if (rc)
		*ls = NULL;
	*ret = ls;
	return rc;
}

static int submit_locked(struct strait_device *dev, const struct lane_stream *of, const struct marked_copy *copies,
			 unsigned int n, int32_t *device_status)
{
	struct combiner *c = &device_engine(dev)->combiner;
	struct lane_stream **ls;
	int rc = stream_locked(dev, of, &ls);

	*device_status = 0;
	if (rc)
		return rc;
	rc = dev->ops->copy_marked((*ls)->stream, copies, n);
	if (rc) {
		*device_status = (*ls)->stream->status;
		retire_locked(c, ls);
	}
	return rc;
}

/* Submits a list of requests of one context. Returns what is left of @r. */
static struct copy_request *lead_list_locked(struct strait_device *dev, struct copy_request *r)
{
	struct marked_copy copies[MARKED_COPIES];
	struct copy_request *taken[MARKED_COPIES], *rest = NULL, *next;
	struct lane_stream *of = r->group->ls;
	unsigned int n = 0;
	int32_t device_status;
	int rc;

	for (; r; r = next) {
		next = r->next;
		if (n == MARKED_COPIES || r->group->ls->context != of->context) {
			r->next = rest;
			rest = r;
			continue;
		}
		copies[n] = (struct marked_copy){ r->seg, &r->group->ls->stream->mark, r->group->total, r->filler };
		taken[n++] = r;
	}
	rc = submit_locked(dev, of, copies, n, &device_status);
	/* A request that was submitted may be gone by now. */
	for (unsigned int i = 0; rc && i < n; i++) {
		taken[i]->group->device_status = device_status;
		atomic_store_explicit(&taken[i]->group->err, rc, memory_order_release);
	}
	return rest;
}

static void lock(struct combiner *c, bool brief)
{
	unsigned int spins = 0;

	if (!brief) {
		pthread_mutex_lock(&c->lock);
		return;
	}
	while (pthread_mutex_trylock(&c->lock))
		if (++spins % SPINS_PER_YIELD)
			cpu_pause();
		else
			os_yield();
}

/* Submits what is pending. */
static void lead(struct strait_device *dev, bool brief)
{
	struct combiner *c = &device_engine(dev)->combiner;
	struct copy_request *r;

	lock(c, brief);
	r = atomic_exchange_explicit(&c->pending, NULL, memory_order_acquire);
	while (r)
		r = lead_list_locked(dev, r);
	pthread_mutex_unlock(&c->lock);
}

int combine_begin(struct strait_device *dev, struct lane_stream *ls, uint64_t total, struct copy_group *g)
{
	struct dev_mark *mark = &ls->stream->mark;

	if (broken(&device_engine(dev)->combiner) == COMBINE_BROKEN)
		return -EAGAIN;
	if (!mark->word && (reserve(dev, ls) || dev->ops->mark_open(ls->stream)))
		return -EAGAIN;
	mark->value++;
	*g = (struct copy_group){ .ls = ls, .total = (uint32_t)total };
	atomic_init(&g->err, 0);
	return 0;
}

static void start(struct strait_device *dev, struct copy_group *g, struct copy_request *r)
{
	struct combiner *c = &device_engine(dev)->combiner;
	struct copy_request *first = atomic_load_explicit(&c->pending, memory_order_relaxed);

	r->group = g;
	do {
		r->next = first;
	} while (!atomic_compare_exchange_weak_explicit(&c->pending, &first, r, memory_order_acq_rel,
							memory_order_relaxed));
	/* From here on the request may be gone, unless this thread leads. */
	if (!first)
		lead(dev, g->total <= BRIEF_BYTES);
}

void combine_start(struct strait_device *dev, struct copy_group *g, struct copy_request *r, struct copy_seg seg)
{
	r->seg = seg;
	r->filler = 0;
	g->started += (uint32_t)seg.len;
	start(dev, g, r);
}

/* False: not within SPIN_NS, or never. */
static bool poll_mark(const struct copy_group *g)
{
	const struct dev_mark *m = &g->ls->stream->mark;
	unsigned int spins = 0;
	uint64_t end = 0;

	while (atomic_load_explicit(m->word, memory_order_acquire) != m->value) {
		cpu_pause();
		if (++spins % SPINS_PER_YIELD)
			continue;
		if (atomic_load_explicit(&g->err, memory_order_relaxed))
			return false;
		if (!end)
			end = os_now_ns() + SPIN_NS;
		else if (os_now_ns() >= end)
			return false;
		os_yield();
	}
	return true;
}

/* Waits for all lists of the group's context. */
static int wait_for_streams(struct strait_device *dev, struct copy_group *g)
{
	struct combiner *c = &device_engine(dev)->combiner;
	struct lane_stream *ls[COMBINE_STREAMS + COMBINE_BROKEN];
	const struct combine_slot *slot;
	unsigned int n = 0;
	int rc = 0, err;

	lead(dev, false);
	pthread_mutex_lock(&c->lock);
	slot = slot_of_locked(c, g->ls->context);
	for (unsigned int i = 0; slot && i < COMBINE_STREAMS; i++)
		if (slot->ls[i])
			ls[n++] = slot->ls[i];
	for (unsigned int i = 0; i < broken(c); i++)
		if (c->broken[i]->context == g->ls->context)
			ls[n++] = c->broken[i];
	pthread_mutex_unlock(&c->lock);
	for (unsigned int i = 0; i < n; i++) {
		err = dev->ops->stream_wait_soon(ls[i]->stream);
		if (err && !rc) {
			rc = err;
			g->device_status = ls[i]->stream->status;
		}
	}
	return rc;
}

int combine_wait(struct strait_device *dev, struct copy_group *g, struct copy_request *r)
{
	const struct dev_mark *m = &g->ls->stream->mark;
	int rc, err;

	if (g->started < g->total) {
		r->seg = (struct copy_seg){ 0 };
		r->filler = g->total - g->started;
		start(dev, g, r);
	}
	if (poll_mark(g))
		return 0;
	rc = wait_for_streams(dev, g);
	err = atomic_load_explicit(&g->err, memory_order_acquire);
	if (err)
		return err;
	/* Other transfers' errors of a stream do not concern this one if its bytes are there. */
	if (atomic_load_explicit(m->word, memory_order_acquire) == m->value)
		return 0;
	return rc ? rc : -EIO;
}
