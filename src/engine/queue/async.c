/* SPDX-License-Identifier: MIT */
/* Transfers of which one thread has many in flight: io_uring commands, or asynchronous I/O of an endpoint. */
#include "base/util.h"
#include "engine/queue/internal.h"
#include "os/os.h"

/* The next pending transfer, if it is one for a ring. */
struct entry *queue_next_ring_locked(const struct strait_queue *q)
{
	struct entry *e = list_empty(&q->pending) ? NULL : list_first(&q->pending, struct entry, node);

	return e && e->kind == ENTRY_RING ? e : NULL;
}

static void finish_items(struct strait_queue *q, struct queue_worker *w, unsigned int n,
			 void (*finish)(struct p2p_item *))
{
	struct entry *e;

	for (unsigned int i = 0; i < n; i++) {
		e = container_of(w->completed[i], struct entry, item);
		finish(&e->item);
		transfer_end(&e->t, 1);
	}
	if (!n)
		return;
	queue_lock(q);
	for (unsigned int i = 0; i < n; i++)
		queue_complete_locked(q, container_of(w->completed[i], struct entry, item));
	queue_announce_locked(q);
	queue_unlock(q);
}

static unsigned int ring_fill_locked(struct strait_queue *q, struct p2p_ring *ring)
{
	unsigned int n = 0;
	struct entry *e;

	for (; p2p_ring_room(ring) && (e = queue_next_ring_locked(q)); n++) {
		queue_take_locked(q, e);
		e->item = (struct p2p_item){ .t = &e->t, .result = &e->r, .cancel = &e->cancel };
		p2p_ring_add(ring, &e->item);
	}
	return n;
}

/* Runs until nothing is on the ring and the next pending transfer is not for it. */
static void ring_drive(struct strait_queue *q, struct queue_worker *w)
{
	unsigned int in_flight = 0, n;

	do {
		queue_lock(q);
		in_flight += ring_fill_locked(q, &w->ring);
		queue_unlock(q);
		n = p2p_ring_step(&w->ring, w->completed);
		finish_items(q, w, n, p2p_ring_finish);
		in_flight -= n;
	} while (in_flight);
}

bool queue_run_ring(struct strait_queue *q, struct queue_worker *w)
{
	bool first;
	int rc;

	if (q->wake < 0 && os_event_fd(&q->wake))
		q->wake = -1;
	first = !q->has_ring && q->wake >= 0;
	q->has_ring |= first;
	q->busy++;
	queue_unlock(q);
	rc = p2p_ring_open(&w->ring, q->ctx, first ? q->wake : -1);
	if (!rc) {
		ring_drive(q, w);
		p2p_ring_close(&w->ring);
	}
	queue_lock(q);
	q->busy--;
	if (first)
		q->has_ring = false;
	return !rc;
}

/* The worker that has transfers of this endpoint in flight. */
static struct queue_worker *async_worker_of_locked(const struct strait_queue *q, const struct strait_endpoint *ep)
{
	list_for_each(it, &q->async_workers) {
		struct queue_worker *w = list_entry(it, struct queue_worker, node);

		if (w->async.ep == ep)
			return w;
	}
	return NULL;
}

/*
 * The next transfer for an endpoint to execute, if no worker has any of that endpoint in flight; or NULL. Transfers start
 * in the order of their submission, so only the first is looked at: those of another endpoint behind it wait until the
 * worker of its endpoint has room for it. That worker takes the first as soon as one of its transfers has completed, and
 * later submissions go to the end, so each transfer becomes the first after as many starts as there were before it.
 */
struct entry *queue_next_async_locked(const struct strait_queue *q)
{
	struct entry *e = list_empty(&q->async) ? NULL : list_first(&q->async, struct entry, node);

	return e && !async_worker_of_locked(q, e->t.endpoint) ? e : NULL;
}

/* Takes as many as there is room for, onto @out. None while other transfers are pending and all workers are busy. */
static void async_take_locked(struct strait_queue *q, struct queue_worker *w, struct list *out)
{
	unsigned int n = w->async.in_flight;

	if (!list_empty(&q->pending) && q->workers == q->busy)
		return;
	list_for_each_safe(it, tmp, &q->async) {
		struct entry *e = list_entry(it, struct entry, node);

		if (n >= w->async.room)
			break;
		if (e->t.endpoint != w->async.ep)
			continue;
		queue_take_locked(q, e);
		list_add_tail(out, &e->node);
		n++;
	}
}

/* Puts those that were not started back, in their order. */
static void async_untake_locked(struct strait_queue *q, struct list *out)
{
	while (!list_empty(out)) {
		struct entry *e = list_entry(out->prev, struct entry, node);

		list_del(&e->node);
		list_add(&q->async, &e->node);
		e->state = ENTRY_PENDING;
		q->n[ENTRY_ASYNC]++;
	}
}

/* Starts transfers of @out; those that cannot be started stay there. Returns how many were started. */
static unsigned int async_start(struct queue_worker *w, struct list *out)
{
	unsigned int n = 0;

	list_for_each_safe(it, tmp, out) {
		struct entry *e = list_entry(it, struct entry, node);

		e->item = (struct p2p_item){ .t = &e->t, .result = &e->r, .cancel = &e->cancel };
		if (!p2p_batch_add(&w->async, &e->item))
			break;
		list_del(&e->node);
		n++;
	}
	return n;
}

/* Runs until nothing of the endpoint is in flight or pending. */
static void async_drive(struct strait_queue *q, struct queue_worker *w)
{
	struct list out = LIST_INIT(out);
	unsigned int in_flight = 0, n;
	bool others;

	for (;;) {
		queue_lock(q);
		async_untake_locked(q, &out);
		async_take_locked(q, w, &out);
		others = queue_next_async_locked(q);
		if (!in_flight && list_empty(&out)) {
			list_del(&w->node);
			queue_unlock(q);
			return;
		}
		if (others)
			queue_call_workers_locked(q);
		queue_unlock(q);
		in_flight += async_start(w, &out);
		n = p2p_batch_step(&w->async, w->completed);
		finish_items(q, w, n, p2p_batch_finish);
		in_flight -= n;
	}
}

/* Runs the transfers of the endpoint that is next. */
void queue_run_async(struct strait_queue *q, struct queue_worker *w)
{
	struct entry *e = queue_next_async_locked(q);

	if (p2p_batch_open(&w->async, e->t.endpoint)) { /* no memory: one at a time */
		q->n[ENTRY_ASYNC]--;
		q->n[ENTRY_LARGE]++;
		e->kind = ENTRY_LARGE;
		list_del(&e->node);
		list_add(&q->pending, &e->node);
		return;
	}
	endpoint_ref(e->t.endpoint, 1);
	list_add_tail(&q->async_workers, &w->node);
	q->busy++;
	queue_unlock(q);
	async_drive(q, w);
	p2p_batch_close(&w->async);
	endpoint_unref(w->async.ep, 1);
	queue_lock(q);
	q->busy--;
}

void queue_wake_async_locked(struct strait_queue *q)
{
	list_for_each(it, &q->async_workers)
		p2p_batch_wake(&list_entry(it, struct queue_worker, node)->async);
}
