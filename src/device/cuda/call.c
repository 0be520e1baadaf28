/* SPDX-License-Identifier: MIT */
/*
 * Host functions and notices of streams. After an error in a context, or its destruction, the driver calls no further
 * host function, but their submitters wait for the call. So each stream lists its pending calls, and runs them itself
 * when it has failed: each function is called exactly once, in order. The driver does not know of notices, which are
 * listed as well.
 */
#include <stdlib.h>

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "os/os.h"

#define TICK_NS 50000u

enum { CALL_PENDING, CALL_RUNNING, CALL_TAKEN };

/* Calls of destroyed contexts: the driver may still have a pointer to them, so they are never freed. */
OS_FORK_LOCK(abandoned_lock, NULL)
static struct list abandoned = LIST_INIT(abandoned);

/* Changes the state from pending to @state. False: another thread has claimed the call. */
static bool call_claim(struct cuda_call *c, int state)
{
	int pending = CALL_PENDING;

	return atomic_compare_exchange_strong_explicit(&c->state, &pending, state, memory_order_acq_rel,
						       memory_order_relaxed);
}

static void call_free(struct cuda_call *c)
{
	struct cuda_stream *s = c->stream;

	pthread_mutex_lock(&s->lock);
	list_del(&c->node);
	pthread_mutex_unlock(&s->lock);
	free(c);
}

/* On the driver's thread. Of a call that another thread has claimed only the state may be accessed. */
static void call_run_by_driver(void *arg)
{
	struct cuda_call *c = arg;

	if (!call_claim(c, CALL_RUNNING))
		return;
	c->fn(c->arg);
	call_free(c);
}

cu_result cuda_call_put(struct cuda_stream *s, strait_stream_fn *fn, void *arg, bool notice)
{
	struct cuda_call *c = calloc(1, sizeof(*c));
	cu_result r;

	if (!c)
		return CU_OUT_OF_MEMORY;
	c->stream = s;
	c->fn = fn;
	c->arg = arg;
	c->notice = notice;
	atomic_init(&c->state, CALL_PENDING);
	pthread_mutex_lock(&s->lock);
	c->value = s->notify_value += notice;
	list_add_tail(&s->calls, &c->node);
	pthread_mutex_unlock(&s->lock);
	if (notice)
		r = cu.stream_write_value(s->handle, cuda_word_addr(s->ctx, s->notify_word), c->value, 0);
	else
		r = cu.stream_call(s->handle, call_run_by_driver, c);
	/* If another thread detected the failure and has claimed the call, it runs the function: report success. */
	if (r && !call_claim(c, CALL_TAKEN))
		return CU_OK;
	if (r)
		call_free(c);
	return r;
}

struct cuda_call *cuda_call_due(struct cuda_stream *s, bool *more)
{
	struct cuda_call *found = NULL;

	*more = false;
	pthread_mutex_lock(&s->lock);
	list_for_each(it, &s->calls) {
		struct cuda_call *c = list_entry(it, struct cuda_call, node);

		if (!c->notice || atomic_load_explicit(&c->state, memory_order_relaxed) != CALL_PENDING)
			continue;
		*more = true;
		/* Notices become due in order, so only the first pending one is checked. */
		if ((int32_t)(atomic_load_explicit(s->notify_word, memory_order_acquire) - c->value) >= 0 &&
		    call_claim(c, CALL_RUNNING)) {
			list_del(&c->node);
			found = c;
		}
		break;
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

/* Claims the next pending call from the driver. */
static struct cuda_call *claim_next_pending(struct cuda_stream *s)
{
	struct cuda_call *found = NULL;

	pthread_mutex_lock(&s->lock);
	list_for_each(it, &s->calls) {
		struct cuda_call *c = list_entry(it, struct cuda_call, node);

		if (call_claim(c, CALL_TAKEN)) {
			found = c;
			break;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

void cuda_calls_run_pending(struct cuda_stream *s)
{
	struct cuda_call *c;

	while ((c = claim_next_pending(s)))
		c->fn(c->arg);
}

static bool any_call_running(struct cuda_stream *s)
{
	bool any = false;

	pthread_mutex_lock(&s->lock);
	list_for_each(it, &s->calls)
		any |= atomic_load_explicit(&list_entry(it, struct cuda_call, node)->state, memory_order_acquire) ==
		       CALL_RUNNING;
	pthread_mutex_unlock(&s->lock);
	return any;
}

void cuda_calls_end(struct cuda_stream *s, bool alive)
{
	cuda_calls_run_pending(s);
	while (any_call_running(s))
		os_sleep_ns(TICK_NS);
	list_for_each_safe(it, tmp, &s->calls) {
		struct cuda_call *c = list_entry(it, struct cuda_call, node);

		list_del(&c->node);
		if (alive) {
			free(c);
			continue;
		}
		pthread_mutex_lock(&abandoned_lock);
		list_add_tail(&abandoned, &c->node);
		pthread_mutex_unlock(&abandoned_lock);
	}
}
