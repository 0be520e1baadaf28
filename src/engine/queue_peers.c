/* SPDX-License-Identifier: MIT */
/* Transfers that one thread has many of under way: as commands on a ring, or as moves of an endpoint. */
#include "base/util.h"
#include "engine/queue_inside.h"
#include "os/os.h"

/* The next transfer, if it is one for a ring. Called with the lock held. */
struct entry *queue_next_peer(struct strait_queue *q)
{
	struct entry *e = list_empty(&q->pending) ? NULL : list_first(&q->pending, struct entry, node);

	return e && e->kind == ENTRY_PEER ? e : NULL;
}

static void finish_peers(struct strait_queue *q, struct pump *p, unsigned int n, void (*finish)(struct p2p_item *))
{
	struct entry *e;

	for (unsigned int i = 0; i < n; i++) {
		e = container_of(p->over[i], struct entry, peer);
		finish(&e->peer);
		transfer_end(&e->t, 1);
	}
	pthread_mutex_lock(&q->lock);
	for (unsigned int i = 0; i < n; i++)
		queue_complete(q, container_of(p->over[i], struct entry, peer));
	if (n && q->waiters)
		pthread_cond_broadcast(&q->done_cond);
	pthread_mutex_unlock(&q->lock);
}

/* Called with the lock held. */
static unsigned int add_peers(struct strait_queue *q, struct p2p_ring *ring)
{
	unsigned int n = 0;
	struct entry *e;

	for (; p2p_ring_room(ring) && (e = queue_next_peer(q)); n++) {
		queue_take_entry(q, e);
		e->peer = (struct p2p_item){ .t = &e->t, .result = &e->r, .cancel = &e->cancel };
		p2p_ring_add(ring, &e->peer);
	}
	return n;
}

/* Until nothing is on the ring and the next transfer, if there is one, is none for it. */
static void drive_peers(struct strait_queue *q, struct pump *p)
{
	unsigned int flying = 0, n;

	do {
		pthread_mutex_lock(&q->lock);
		flying += add_peers(q, &p->ring);
		pthread_mutex_unlock(&q->lock);
		n = p2p_ring_step(&p->ring, p->over);
		finish_peers(q, p, n, p2p_ring_finish);
		flying -= n;
	} while (flying);
}

/*
 * Puts transfers on a ring and sees them to their end. False: there is no ring. Called with the lock held, which is
 * not held meanwhile.
 */
bool queue_pump_peers(struct strait_queue *q, struct pump *p)
{
	bool first;
	int rc;

	if (q->wake < 0 && os_event_fd(&q->wake))
		q->wake = -1;
	first = !q->peering && q->wake >= 0;
	q->peering |= first;
	q->busy++;
	pthread_mutex_unlock(&q->lock);
	rc = p2p_ring_open(&p->ring, q->ctx, first ? q->wake : -1);
	if (!rc) {
		drive_peers(q, p);
		p2p_ring_close(&p->ring);
	}
	pthread_mutex_lock(&q->lock);
	q->busy--;
	if (first)
		q->peering = false;
	return !rc;
}

/* The pump that moves bytes of this endpoint. Called with the lock held, as the next two. */
static struct pump *mover_of(const struct strait_queue *q, const struct strait_endpoint *ep)
{
	list_for_each(it, &q->movers) {
		struct pump *p = list_entry(it, struct pump, node);

		if (p->moves.ep == ep)
			return p;
	}
	return NULL;
}

/* The next transfer for a batch, of an endpoint that nobody moves bytes of yet; or NULL. */
struct entry *queue_next_move(const struct strait_queue *q)
{
	struct entry *e = list_empty(&q->batches) ? NULL : list_first(&q->batches, struct entry, node);

	return e && !mover_of(q, e->t.endpoint) ? e : NULL;
}

/* What there is room for, onto @out. None where other work waits and nobody else is there to do it. */
static void take_moves(struct strait_queue *q, struct pump *p, struct list *out)
{
	unsigned int n = p->moves.flying;

	if (!list_empty(&q->pending) && q->pumps == q->busy)
		return;
	list_for_each_safe(it, tmp, &q->batches) {
		struct entry *e = list_entry(it, struct entry, node);

		if (n >= p->moves.room)
			break;
		if (e->t.endpoint != p->moves.ep)
			continue;
		queue_take_entry(q, e);
		list_add_tail(out, &e->node);
		n++;
	}
}

/* Back to where they came from, in their order. Called with the lock held. */
static void untake_moves(struct strait_queue *q, struct list *out)
{
	while (!list_empty(out)) {
		struct entry *e = list_entry(out->prev, struct entry, node);

		list_del(&e->node);
		list_add(&q->batches, &e->node);
		e->state = ENTRY_PENDING;
		q->n[ENTRY_BATCH]++;
	}
}

/* Those that could be started; the others stay on @out. */
static unsigned int start_moves(struct pump *p, struct list *out)
{
	unsigned int n = 0;

	list_for_each_safe(it, tmp, out) {
		struct entry *e = list_entry(it, struct entry, node);

		e->peer = (struct p2p_item){ .t = &e->t, .result = &e->r, .cancel = &e->cancel };
		if (!p2p_batch_add(&p->moves, &e->peer))
			break;
		list_del(&e->node);
		n++;
	}
	return n;
}

/* Until nothing is under way and nothing of the endpoint is waiting. */
static void drive_moves(struct strait_queue *q, struct pump *p)
{
	struct list out = LIST_INIT(out);
	unsigned int flying = 0, n;
	bool others;

	for (;;) {
		pthread_mutex_lock(&q->lock);
		untake_moves(q, &out);
		take_moves(q, p, &out);
		others = queue_next_move(q);
		if (!flying && list_empty(&out))
			list_del(&p->node);
		pthread_mutex_unlock(&q->lock);
		if (!flying && list_empty(&out))
			return;
		if (others)
			queue_start_pumps(q);
		flying += start_moves(p, &out);
		n = p2p_batch_step(&p->moves, p->over);
		finish_peers(q, p, n, p2p_batch_finish);
		flying -= n;
	}
}

/* Sees all transfers of the next one's endpoint to their end. Called with the lock held, which is not held meanwhile. */
void queue_pump_moves(struct strait_queue *q, struct pump *p, struct entry *e)
{
	if (p2p_batch_open(&p->moves, e->t.endpoint)) { /* no memory: one at a time */
		q->n[ENTRY_BATCH]--;
		q->n[ENTRY_LARGE]++;
		e->kind = ENTRY_LARGE;
		list_del(&e->node);
		list_add(&q->pending, &e->node);
		return;
	}
	endpoint_ref(e->t.endpoint, 1);
	list_add_tail(&q->movers, &p->node);
	q->busy++;
	pthread_mutex_unlock(&q->lock);
	drive_moves(q, p);
	p2p_batch_close(&p->moves);
	endpoint_unref(p->moves.ep, 1);
	pthread_mutex_lock(&q->lock);
	q->busy--;
}

/* Called with the lock held. */
void queue_wake_movers(struct strait_queue *q)
{
	list_for_each(it, &q->movers)
		p2p_batch_wake(&list_entry(it, struct pump, node)->moves);
}
