/* SPDX-License-Identifier: MIT */
/*
 * Functions on streams. The driver calls none any more once work in the context has failed or the context is
 * gone, but who put a function on a stream waits for it to be called. So what the driver owes is kept here,
 * and called when a stream turns out to have failed: each function is called once, in order, whatever happens.
 */
#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"
#include "region/cuda.h"

#define TICK_NS 50000u

enum { OWED, RUNNING, CALLED_HERE };

struct call {
	struct list node; /* cuda_stream.calls */
	struct cuda_stream *stream;
	strait_stream_fn *fn;
	void *arg;
	atomic_int state;
};

/* What the driver may, for all we know, still hold after it has lost the context. */
static pthread_mutex_t lost_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list lost = LIST_INIT(lost);

static bool take(struct call *c, int state)
{
	int owed = OWED;

	return atomic_compare_exchange_strong_explicit(&c->state, &owed, state, memory_order_acq_rel,
						       memory_order_relaxed);
}

static void drop(struct call *c)
{
	struct cuda_stream *s = c->stream;

	pthread_mutex_lock(&s->lock);
	list_del(&c->node);
	pthread_mutex_unlock(&s->lock);
	free(c);
}

/* On the driver's thread. Of a call that was taken from it nothing but its state may be looked at. */
static void run(void *arg)
{
	struct call *c = arg;

	if (!take(c, RUNNING))
		return;
	c->fn(c->arg);
	drop(c);
}

cu_result cuda_call_put(struct cuda_stream *s, strait_stream_fn *fn, void *arg)
{
	struct call *c = calloc(1, sizeof(*c));
	cu_result r;

	if (!c)
		return CU_OUT_OF_MEMORY;
	c->stream = s;
	c->fn = fn;
	c->arg = arg;
	atomic_init(&c->state, OWED);
	pthread_mutex_lock(&s->lock);
	list_add_tail(&s->calls, &c->node);
	pthread_mutex_unlock(&s->lock);
	r = cu.stream_call(s->handle, run, c);
	/* Unless another thread has just noticed that the stream failed, and called it: then it was put there. */
	if (r && !take(c, CALLED_HERE))
		return CU_OK;
	if (r)
		drop(c);
	return r;
}

/* The next one the driver owes, taken from it. */
static struct call *next_owed(struct cuda_stream *s)
{
	struct call *found = NULL;

	pthread_mutex_lock(&s->lock);
	list_for_each(it, &s->calls) {
		struct call *c = list_entry(it, struct call, node);

		if (take(c, CALLED_HERE)) {
			found = c;
			break;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

void cuda_calls_failed(struct cuda_stream *s)
{
	struct call *c;

	while ((c = next_owed(s)))
		c->fn(c->arg);
}

static bool any_running(struct cuda_stream *s)
{
	bool any = false;

	pthread_mutex_lock(&s->lock);
	list_for_each(it, &s->calls)
		any |= atomic_load_explicit(&list_entry(it, struct call, node)->state, memory_order_acquire) == RUNNING;
	pthread_mutex_unlock(&s->lock);
	return any;
}

void cuda_calls_end(struct cuda_stream *s, bool alive)
{
	cuda_calls_failed(s);
	while (any_running(s))
		os_sleep_ns(TICK_NS);
	list_for_each_safe(it, tmp, &s->calls) {
		struct call *c = list_entry(it, struct call, node);

		list_del(&c->node);
		if (alive) {
			free(c);
			continue;
		}
		pthread_mutex_lock(&lost_lock);
		list_add_tail(&lost, &c->node);
		pthread_mutex_unlock(&lost_lock);
	}
}
