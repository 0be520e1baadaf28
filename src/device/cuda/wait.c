/* SPDX-License-Identifier: MIT */
/*
 * Waiting for streams and events: polls for a short time, which has the lowest latency, then sleeps.
 */
#include "base/util.h"
#include "device/cuda/cuda.h"
#include "os/os.h"

#define SPIN_STREAM_NS 50000u
#define SPIN_EVENT_NS 20000u
#define NAP_NS 20000u
#define LONG_NAP_NS 500000u
#define MOMENT_NS 500000u

typedef cu_result query_fn(void *what);

static cu_result query_event(void *e)
{
	return cu.event_query(e);
}

static cu_result query_stream(void *s)
{
	return cu.stream_query(s);
}

/* Queries @what until it is ready: spins for @spin_ns, then sleeps between queries. CU_NOT_READY on timeout. */
static cu_result poll_until_ready(query_fn *query, void *what, uint64_t spin_ns, int64_t timeout_ns)
{
	cu_result r = query(what);
	uint64_t start, past = 0, nap;

	if (r != CU_NOT_READY || timeout_ns <= 0)
		return r;
	start = os_now_ns();
	while (r == CU_NOT_READY && past < (uint64_t)timeout_ns) {
		if (past >= spin_ns) {
			/* Sleep an eighth of the time waited so far, within limits. */
			nap = min_u64(max_u64(past / 8, NAP_NS), LONG_NAP_NS);
			os_sleep_ns(min_u64(nap, (uint64_t)timeout_ns - past));
		}
		r = query(what);
		past = os_now_ns() - start;
	}
	return r;
}

/* Polls: a blocking event would raise an interrupt and wake a thread of the driver each time. */
cu_result cuda_wait_event(cu_event e, int64_t timeout_ns)
{
	return poll_until_ready(query_event, e, SPIN_EVENT_NS, timeout_ns);
}

static cu_event wait_event_get(struct cuda_ctx *cc)
{
	cu_event e = NULL;

	pthread_mutex_lock(&cc->lock);
	if (cc->n_wait_events)
		e = cc->wait_events[--cc->n_wait_events];
	pthread_mutex_unlock(&cc->lock);
	if (!e && cu.event_create(&e, CU_EVENT_BLOCKING_SYNC | CU_EVENT_NO_TIMING))
		e = NULL;
	return e;
}

static void wait_event_put(struct cuda_ctx *cc, cu_event e)
{
	pthread_mutex_lock(&cc->lock);
	if (cc->n_wait_events < ARRAY_SIZE(cc->wait_events)) {
		cc->wait_events[cc->n_wait_events++] = e;
		e = NULL;
	}
	pthread_mutex_unlock(&cc->lock);
	if (e)
		cu.event_destroy(e);
}

/* cuStreamSynchronize() spins in most contexts; cuEventSynchronize() on a blocking event sleeps. */
static cu_result sleep_for_stream(struct cuda_stream *s)
{
	cu_event e = wait_event_get(s->ctx);
	cu_result r;

	if (!e)
		return cu.stream_sync(s->handle);
	r = cu.event_record(e, s->handle);
	if (!r)
		r = cu.event_sync(e);
	wait_event_put(s->ctx, e);
	return r;
}

cu_result cuda_wait_stream(struct cuda_stream *s, int64_t timeout_ns)
{
	bool forever = timeout_ns == STRAIT_FOREVER;
	cu_result r = poll_until_ready(query_stream, s->handle, SPIN_STREAM_NS, forever ? SPIN_STREAM_NS : timeout_ns);

	return r == CU_NOT_READY && forever ? sleep_for_stream(s) : r;
}

void cuda_wait_moment(cu_stream s)
{
	poll_until_ready(query_stream, s, MOMENT_NS, MOMENT_NS);
}

cu_result cuda_drain_on_error(struct cuda_stream *s, cu_result r)
{
	/*
	 * A stream under capture must not be waited for, and has no work of a transfer. A stream of a destroyed
	 * context no longer exists.
	 */
	if (r && r != CU_NOT_READY && cuda_errno(r) != -EOPNOTSUPP && cuda_valid_after_error(s->ctx, r))
		cu.stream_sync(s->handle);
	return r;
}
