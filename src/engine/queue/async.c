/* SPDX-License-Identifier: MIT */
/* Transfers of which one thread has many in flight: as commands on a ring, or as moves of an endpoint. */
#include "base/util.h"
#include "engine/queue/internal.h"
#include "os/os.h"

/* The next transfer, if it is one for a ring. */
struct entry *queue_next_peer_locked(const struct strait_queue *q)
{
	struct entry *e = list_empty(&q->pending) ? NULL : list_first(&q->pending, struct entry, node);

	return e && e->kind == ENTRY_PEER ? e : NULL;
}

static void finish_peers(struct strait_queue *q, struct queue_worker *w, unsigned int n,
			 void (*finish)(struct p2p_item *))
{
	struct entry *e;

	for (unsigned int i = 0; i < n; i++) {
		e = container_of(w->over[i], struct entry, peer);
		finish(&e->peer);
		transfer_end(&e->t, 1);
	}
	if (!n)
		return;
	queue_lock(q);
	for (unsigned int i = 0; i < n; i++)
		queue_complete_locked(q, container_of(w->over[i], struct entry, peer));
	queue_announce_locked(q);
	queue_unlock(q);
}

static unsigned int add_peers_locked(struct strait_queue *q, struct p2p_ring *ring)
{
	unsigned int n = 0;
	struct entry *e;

	for (; p2p_ring_room(ring) && (e = queue_next_peer_locked(q)); n++) {
		queue_take_locked(q, e);
		e->peer = (struct p2p_item){ .t = &e->t, .result = &e->r, .cancel = &e->cancel };
		p2p_ring_add(ring, &e->peer);
	}
	return n;
}

/* Until nothing is on the ring and the next transfer, if there is one, is none for it. */
static void drive_peers(struct strait_queue *q, struct queue_worker *w)
{
	unsigned int flying = 0, n;

	do {
		queue_lock(q);
		flying += add_peers_locked(q, &w->ring);
		queue_unlock(q);
		n = p2p_ring_step(&w->ring, w->over);
		finish_peers(q, w, n, p2p_ring_finish);
		flying -= n;
	} while (flying);
}

bool queue_run_peers(struct strait_queue *q, struct queue_worker *w)
{
	bool first;
	int rc;

	if (q->wake < 0 && os_event_fd(&q->wake))
		q->wake = -1;
	first = !q->peering && q->wake >= 0;
	q->peering |= first;
	q->busy++;
	queue_unlock(q);
	rc = p2p_ring_open(&w->ring, q->ctx, first ? q->wake : -1);
	if (!rc) {
		drive_peers(q, w);
		p2p_ring_close(&w->ring);
	}
	queue_lock(q);
	q->busy--;
	if (first)
		q->peering = false;
	return !rc;
}

/* The worker that has transfers of this endpoint in flight. */
static struct queue_worker *mover_of_locked(const struct strait_queue *q, const struct strait_endpoint *ep)
{
	list_for_each(it, &q->movers) {
		struct queue_worker *w = list_entry(it, struct queue_worker, node);

		if (w->moves.ep == ep)
			return w;
	}
	return NULL;
}

/* The next transfer for an endpoint to move, if no worker has any of that endpoint in flight; or NULL. */
struct entry *queue_next_move_locked(const struct strait_queue *q)
{
	struct entry *e = list_empty(&q->moves) ? NULL : list_first(&q->moves, struct entry, node);

	return e && !mover_of_locked(q, e->t.endpoint) ? e : NULL;
}

/* What there is room for, onto @out. None where other transfers are pending and all workers are busy. */
static void take_moves_locked(struct strait_queue *q, struct queue_worker *w, struct list *out)
{
	unsigned int n = w->moves.flying;

	if (!list_empty(&q->pending) && q->workers == q->busy)
		return;
	list_for_each_safe(it, tmp, &q->moves) {
		struct entry *e = list_entry(it, struct entry, node);

		if (n >= w->moves.room)
			break;
		if (e->t.endpoint != w->moves.ep)
			continue;
		queue_take_locked(q, e);
		list_add_tail(out, &e->node);
		n++;
	}
}

/* Back to where they came from, in their order. */
static void untake_moves_locked(struct strait_queue *q, struct list *out)
{
	while (!list_empty(out)) {
		struct entry *e = list_entry(out->prev, struct entry, node);

		list_del(&e->node);
		list_add(&q->moves, &e->node);
		e->state = ENTRY_PENDING;
		q->n[ENTRY_MOVE]++;
	}
}

/* Those that could be started; the others stay on @out. */
static unsigned int start_moves(struct queue_worker *w, struct list *out)
{
	unsigned int n = 0;

	list_for_each_safe(it, tmp, out) {
		struct entry *e = list_entry(it, struct entry, node);

		e->peer = (struct p2p_item){ .t = &e->t, .result = &e->r, .cancel = &e->cancel };
		if (!p2p_batch_add(&w->moves, &e->peer))
			break;
		list_del(&e->node);
		n++;
	}
	return n;
}

/* Until nothing of the endpoint is in flight or pending. */
static void drive_moves(struct strait_queue *q, struct queue_worker *w)
{
	struct list out = LIST_INIT(out);
	unsigned int flying = 0, n;
	bool others;

	for (;;) {
		queue_lock(q);
		untake_moves_locked(q, &out);
		take_moves_locked(q, w, &out);
		others = queue_next_move_locked(q);
		if (!flying && list_empty(&out)) {
			list_del(&w->node);
			queue_unlock(q);
			return;
		}
		if (others)
			queue_call_workers(q);
		queue_unlock(q);
		flying += start_moves(w, &out);
		n = p2p_batch_step(&w->moves, w->over);
		finish_peers(q, w, n, p2p_batch_finish);
		flying -= n;
	}
}

/* All transfers of the next one's endpoint. */
void queue_run_moves(struct strait_queue *q, struct queue_worker *w)
{
	struct entry *e = queue_next_move_locked(q);

	if (p2p_batch_open(&w->moves, e->t.endpoint)) { /* no memory: one at a time */
		q->n[ENTRY_MOVE]--;
		q->n[ENTRY_LARGE]++;
		e->kind = ENTRY_LARGE;
		list_del(&e->node);
		list_add(&q->pending, &e->node);
		return;
	}
	endpoint_ref(e->t.endpoint, 1);
	list_add_tail(&q->movers, &w->node);
	q->busy++;
	queue_unlock(q);
	drive_moves(q, w);
	p2p_batch_close(&w->moves);
	endpoint_unref(w->moves.ep, 1);
	queue_lock(q);
	q->busy--;
}

void queue_wake_movers_locked(struct strait_queue *q)
{
	list_for_each(it, &q->movers)
		p2p_batch_wake(&list_entry(it, struct queue_worker, node)->moves);
}
