/* SPDX-License-Identifier: MIT */
#include "engine/transfer/combine.h"

#include "base/lock.h"
#include "base/util.h"
#include "engine/engine.h"

#define LIST_MAX 64	     /* requests in one list */
#define LEAD_MAX 4	     /* lists that a leader submits before it attends to its own transfer */
#define SPIN_NS 200000u	     /* a list is polled for that long before a member sleeps */
#define GATHER_NS 2000u	     /* a leader waits that long for callers that are about to start a copy */
#define SPINS_PER_YIELD 5000 /* with more threads than processors, the leader may need this one */

void combiner_init(struct combiner *c)
{
	mutex_init_brief(&c->lock);
	list_init(&c->pending);
	atomic_init(&c->leading, false);
}

void combiner_fini(struct combiner *c)
{
	pthread_mutex_destroy(&c->lock);
}

/* Takes pending requests that one stream can serve. */
static unsigned int take_locked(struct combiner *c, struct copy_request **out)
{
	unsigned int n = 0;

	list_for_each_safe(it, tmp, &c->pending) {
		struct copy_request *r = list_entry(it, struct copy_request, node);

		if (n == LIST_MAX)
			break;
		if (n && r->mem->context != out[0]->mem->context)
			continue;
		list_del(&r->node);
		atomic_fetch_sub_explicit(&c->n_pending, 1, memory_order_relaxed);
		atomic_store_explicit(&r->state, COPY_TAKEN, memory_order_relaxed);
		out[n++] = r;
	}
	return n;
}

static int start_list(struct strait_device *dev, struct copy_request **reqs, unsigned int n, struct lane_stream *ls)
{
	struct copy_seg segs[LIST_MAX];
	int rc;

	for (unsigned int i = 0; i < n; i++)
		segs[i] = reqs[i]->seg;
	rc = dev->ops->copy_list(ls->stream, segs, n);
	if (!rc) {
		rc = dev->ops->stream_mark(ls->stream);
		/* The list may be in flight, and its memory is free to be used again after an error. */
		if (rc)
			dev->ops->stream_wait(ls->stream, STRAIT_FOREVER);
	}
	return rc;
}

static void submit(struct strait_device *dev, struct copy_request **reqs, unsigned int n)
{
	struct combiner *c = &device_engine(dev)->combiner;
	struct lane_stream *ls = NULL;
	int32_t device_status = 0;
	int rc = engine_stream_get(dev, reqs[0]->mem, false, &ls);

	if (!rc) {
		atomic_store_explicit(&ls->batch.members, n, memory_order_relaxed);
		atomic_store_explicit(&ls->batch.done, false, memory_order_relaxed);
		ls->batch.rc = 0;
		atomic_fetch_add_explicit(&c->in_flight, n, memory_order_relaxed);
		rc = start_list(dev, reqs, n, ls);
		if (rc) {
			device_status = ls->stream->status;
			atomic_fetch_sub_explicit(&c->in_flight, n, memory_order_relaxed);
			engine_stream_put(dev, ls, true);
			ls = NULL;
		}
	}
	for (unsigned int i = 0; i < n; i++) {
		reqs[i]->ls = ls;
		reqs[i]->rc = rc;
		reqs[i]->device_status = device_status;
		/* From here on the request may be gone. */
		atomic_store_explicit(&reqs[i]->state, COPY_SUBMITTED, memory_order_release);
	}
}

/* A moment for the callers that are about to start a copy: one list of all costs less than two. */
static void wait_for_others(const struct device_engine *de)
{
	const struct combiner *c = &de->combiner;
	uint64_t end = os_now_ns() + GATHER_NS;

	while (atomic_load_explicit(&c->n_pending, memory_order_relaxed) +
			       atomic_load_explicit(&c->in_flight, memory_order_relaxed) <
		       atomic_load_explicit(&de->callers, memory_order_relaxed) &&
	       os_now_ns() < end)
		cpu_pause();
}

/* Submits what is pending, if no other thread does. */
static void lead(struct strait_device *dev)
{
	struct combiner *c = &device_engine(dev)->combiner;
	struct copy_request *reqs[LIST_MAX];
	unsigned int n;

	pthread_mutex_lock(&c->lock);
	if (atomic_load_explicit(&c->leading, memory_order_relaxed)) {
		pthread_mutex_unlock(&c->lock);
		return;
	}
	atomic_store_explicit(&c->leading, true, memory_order_relaxed);
	pthread_mutex_unlock(&c->lock);
	wait_for_others(device_engine(dev));
	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < LEAD_MAX && (n = take_locked(c, reqs)); i++) {
		pthread_mutex_unlock(&c->lock);
		submit(dev, reqs, n);
		pthread_mutex_lock(&c->lock);
	}
	atomic_store_explicit(&c->leading, false, memory_order_release);
	pthread_mutex_unlock(&c->lock);
}

void combine_start(struct strait_device *dev, struct copy_request *r)
{
	struct combiner *c = &device_engine(dev)->combiner;
	bool led;

	r->ls = NULL;
	r->rc = r->device_status = 0;
	list_init(&r->node);
	atomic_init(&r->state, COPY_PENDING);
	pthread_mutex_lock(&c->lock);
	list_add_tail(&c->pending, &r->node);
	atomic_fetch_add_explicit(&c->n_pending, 1, memory_order_relaxed);
	led = atomic_load_explicit(&c->leading, memory_order_relaxed);
	pthread_mutex_unlock(&c->lock);
	if (!led)
		lead(dev);
}

/* Waits until the request is part of a list. */
static void wait_submitted(struct strait_device *dev, struct copy_request *r)
{
	struct combiner *c = &device_engine(dev)->combiner;
	unsigned int spins = 0;
	int state;

	while ((state = atomic_load_explicit(&r->state, memory_order_acquire)) != COPY_SUBMITTED) {
		if (state == COPY_PENDING && !atomic_load_explicit(&c->leading, memory_order_acquire))
			lead(dev);
		else if (++spins % SPINS_PER_YIELD)
			cpu_pause();
		else
			os_yield();
	}
}

/*
 * Waits for the list. One member at a time asks the driver, the others poll what it found: they would only queue for a
 * lock of the driver.
 */
static void wait_list(struct strait_device *dev, struct lane_stream *ls)
{
	struct copy_batch *b = &ls->batch;
	uint64_t end = 0;
	unsigned int spins = 0;
	int rc;

	while (!atomic_load_explicit(&b->done, memory_order_acquire)) {
		if (!pthread_mutex_trylock(&b->lock)) {
			if (!atomic_load_explicit(&b->done, memory_order_relaxed)) {
				rc = dev->ops->stream_mark_passed(ls->stream);
				if (rc < 0 || (end && os_now_ns() >= end)) {
					b->rc = dev->ops->stream_wait_soon(ls->stream);
					rc = 1;
				}
				atomic_store_explicit(&b->done, rc > 0, memory_order_release);
			}
			pthread_mutex_unlock(&b->lock);
			if (!end)
				end = os_now_ns() + SPIN_NS;
		}
		if (++spins % SPINS_PER_YIELD)
			cpu_pause();
		else
			os_yield();
	}
}

int combine_wait(struct strait_device *dev, struct copy_request *r)
{
	struct lane_stream *ls;

	wait_submitted(dev, r);
	ls = r->ls;
	if (!ls)
		return r->rc;
	wait_list(dev, ls);
	r->rc = ls->batch.rc;
	if (r->rc)
		r->device_status = ls->stream->status;
	atomic_fetch_sub_explicit(&device_engine(dev)->combiner.in_flight, 1, memory_order_relaxed);
	if (atomic_fetch_sub_explicit(&ls->batch.members, 1, memory_order_acq_rel) == 1)
		engine_stream_put(dev, ls, r->rc != 0);
	return r->rc;
}
