/* SPDX-License-Identifier: MIT */
#include "engine/queue_inside.h"

#include <stdlib.h>
#include <time.h>

#include "base/lock.h"
#include "base/util.h"
#include "os/os.h"

#define DEFAULT_ENTRIES 1024
#define START_NS 60000 /* how long who submits waits for what he has started */
#define MAX_ENTRIES (1u << 20)
#define SMALL_PER_PUMP 32 /* small transfers worth waking another thread for, if it has to copy them */
#define NEVER (UINT64_MAX / 4)

struct strait_context *queue_context(const struct strait_queue *q)
{
	return q->ctx;
}

static void pump_run(struct task *task);

static struct pump *pump_new(struct strait_queue *q)
{
	struct pump *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->queue = q;
	p->task.run = pump_run;
	list_init(&p->left);
	return p;
}

int queue_open(struct strait_context *ctx, const struct strait_queue_opts *user, struct strait_queue **ret)
{
	struct strait_queue_opts o = { .size = sizeof(o) };
	pthread_condattr_t attr;
	struct strait_queue *q;
	int rc = 0;

	if (user)
		rc = struct_in(&o, sizeof(o), user, STRAIT_QUEUE_OPTS_SIZE_V1);
	if (rc)
		return rc;
	if (o.flags || o.entries > MAX_ENTRIES)
		return -EINVAL;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->n_entries = q->n_free = o.entries ? o.entries : DEFAULT_ENTRIES;
	q->entries = calloc(q->n_entries, sizeof(*q->entries));
	q->pump[0] = pump_new(q); /* what was submitted must find one, even if there is no memory for more */
	if (!q->entries || !q->pump[0]) {
		free(q->pump[0]);
		free(q->entries);
		free(q);
		return -ENOMEM;
	}
	q->wake = -1;
	list_init(&q->free);
	list_init(&q->pending);
	list_init(&q->done);
	list_init(&q->batches);
	list_init(&q->left);
	list_init(&q->movers);
	for (unsigned int i = 0; i < q->n_entries; i++)
		list_add_tail(&q->free, &q->entries[i].node);
	mutex_init_brief(&q->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->done_cond, &attr);
	pthread_condattr_destroy(&attr);
	engine_ref(ctx);
	q->ctx = ctx;
	engine_expect_lists(ctx);
	*ret = q;
	return 0;
}

/* Called with the lock held. */
void queue_complete(struct strait_queue *q, struct entry *e)
{
	e->state = ENTRY_DONE;
	list_add_tail(&q->done, &e->node);
	q->n_done++;
}

void queue_take_entry(struct strait_queue *q, struct entry *e)
{
	q->n[e->kind]--;
	e->state = ENTRY_RUNNING;
	list_del(&e->node);
}

/* Takes the next transfer, and small ones that go with it. Called with the lock held. */
static unsigned int take_batch(struct strait_queue *q, struct pump *p)
{
	struct entry *e = list_first(&q->pending, struct entry, node);
	unsigned int n = 0, pumps = q->pumps - q->busy + q->helpers, share = (q->n[ENTRY_SMALL] + pumps - 1) / pumps;

	if (share < SMALL_PER_PUMP)
		share = SMALL_PER_PUMP;
	p->gather.n = 0;
	p->gather.used = 0;
	if (e->kind != ENTRY_SMALL) {
		queue_take_entry(q, e);
		p->batch[n++] = e;
		return n;
	}
	list_for_each_safe(it, tmp, &q->pending) {
		e = list_entry(it, struct entry, node);
		if (e->kind != ENTRY_SMALL)
			continue;
		if (n == share || !gather_add(&p->gather, &e->t, &e->r))
			break;
		queue_take_entry(q, e);
		p->batch[n++] = e;
	}
	return n;
}

static void end_batch(struct pump *p, unsigned int n)
{
	unsigned int run;

	for (unsigned int i = 0; i < n; i += run) {
		const struct strait_transfer *t = &p->batch[i]->t;

		for (run = 1; i + run < n && p->batch[i + run]->t.region == t->region &&
			      p->batch[i + run]->t.endpoint == t->endpoint;)
			run++;
		transfer_end(t, run);
	}
}

/* The batch is done. Takes the lock. */
static void batch_done(struct strait_queue *q, struct pump *p, unsigned int n)
{
	end_batch(p, n);
	pthread_mutex_lock(&q->lock);
	for (unsigned int i = 0; i < n; i++)
		queue_complete(q, p->batch[i]);
	if (q->waiters)
		pthread_cond_broadcast(&q->done_cond);
}

/* Called with the lock held, which is not held meanwhile. */
static void pump_once(struct strait_queue *q, struct pump *p)
{
	unsigned int n;
	bool large;

	if (queue_next_peer(q) && (queue_pump_peers(q, p) || list_empty(&q->pending)))
		return;
	n = take_batch(q, p);
	large = !p->gather.n;

	q->busy += large;
	pthread_mutex_unlock(&q->lock);
	if (!large)
		gather_run(&p->gather);
	else
		transfer_execute(&p->batch[0]->t, UINT64_MAX, &p->batch[0]->cancel, false, &p->batch[0]->r);
	batch_done(q, p, n);
	q->busy -= large;
}

/*
 * A batch that was left under way: wait for it. False if it was not done by @end, and is left again. Called with the lock
 * held, which is not held meanwhile.
 */
static bool finish_left(struct strait_queue *q, uint64_t end)
{
	struct pump *p = list_first(&q->left, struct pump, left);
	uint64_t now = end == NEVER ? 0 : os_now_ns();
	int64_t timeout = end == NEVER ? STRAIT_FOREVER : now < end ? (int64_t)(end - now) : 0;

	list_del(&p->left);
	pthread_mutex_unlock(&q->lock);
	if (!gather_finish(&p->gather, timeout)) {
		pthread_mutex_lock(&q->lock);
		list_add(&q->left, &p->left);
		return false;
	}
	batch_done(q, p, p->n);
	p->taken = false;
	return true;
}

/* Called with the lock held, as are the next four but pump_run(). */
static void pump_leave(struct strait_queue *q, struct pump *p)
{
	p->taken = false;
	q->pumps--;
	pthread_cond_broadcast(&q->done_cond);
}

static void pump_run(struct task *task)
{
	struct pump *p = container_of(task, struct pump, task);
	struct strait_queue *q = p->queue;

	pthread_mutex_lock(&q->lock);
	while (!list_empty(&q->left) || !list_empty(&q->pending) || queue_next_move(q)) {
		if (!list_empty(&q->left)) {
			q->busy++;
			finish_left(q, NEVER);
			q->busy--;
		}
		if (queue_next_move(q))
			queue_pump_moves(q, p, queue_next_move(q));
		if (!list_empty(&q->pending))
			pump_once(q, p);
	}
	pump_leave(q, p);
	pthread_mutex_unlock(&q->lock);
}

/* An idle pump, or NULL. The first is for tasks only: there must always be one to see to what others leave. */
static struct pump *take_pump(struct strait_queue *q, bool task)
{
	for (unsigned int i = !task; i < q->ctx->workers.max + !task && i < ARRAY_SIZE(q->pump); i++) {
		struct pump *p = q->pump[i];

		if (p && p->taken)
			continue;
		if (!p)
			p = q->pump[i] = pump_new(q);
		if (!p)
			return NULL;
		p->taken = true;
		return p;
	}
	return NULL;
}

/* A pump for work that no other one is there for, or NULL. */
static struct pump *find_pump(struct strait_queue *q)
{
	unsigned int want = q->n[ENTRY_LARGE] + (q->n[ENTRY_SMALL] + SMALL_PER_PUMP - 1) / SMALL_PER_PUMP +
			    (q->n[ENTRY_PEER] && !q->peering) + (queue_next_move(q) != NULL) + !list_empty(&q->left);
	struct pump *p = q->pumps - q->busy < want ? take_pump(q, true) : NULL;

	q->pumps += p != NULL;
	return p;
}

/* The batch of @p has been started: whoever comes first waits for it. Takes the lock. */
static void put_under_way(struct strait_queue *q, struct pump *p)
{
	gather_started(&p->gather);
	pthread_mutex_lock(&q->lock);
	for (unsigned int i = 0; i < p->n; i++)
		p->batch[i]->state = ENTRY_RUNNING;
	list_add_tail(&q->left, &p->left);
}

/* Some small transfers are put under way, or left as they are if that cannot be done without waiting for the file. */
static bool begin_small(struct strait_queue *q, struct pump *p)
{
	p->n = take_batch(q, p);
	pthread_mutex_unlock(&q->lock);
	if (gather_start(&p->gather, true)) {
		put_under_way(q, p);
		return true;
	}
	pthread_mutex_lock(&q->lock);
	for (unsigned int i = p->n; i-- > 0;) {
		struct entry *e = p->batch[i];

		list_add(&q->pending, &e->node);
		e->state = ENTRY_PENDING;
		q->n[e->kind]++;
	}
	p->taken = false;
	return false;
}

/*
 * Who waits for small transfers that nobody else sees to does that himself: it is sooner than to wake a thread. Who waits
 * for a time only does nothing that may take longer. False if somebody else has to see to what is left.
 */
static bool help(struct strait_queue *q, unsigned int min, uint64_t end)
{
	bool rest = true;

	while (rest && q->n_done < min) {
		struct pump *p = NULL;

		if (!list_empty(&q->left)) {
			rest = finish_left(q, end);
			continue;
		}
		if (!list_empty(&q->pending) && list_first(&q->pending, struct entry, node)->kind == ENTRY_SMALL)
			p = take_pump(q, false);
		if (!p)
			break;
		q->helpers++;
		if (end == NEVER) {
			pump_once(q, p);
			p->taken = false;
		} else {
			rest = begin_small(q, p);
		}
		q->helpers--;
	}
	/* A batch may be in flight that this call started and does not wait for any more: a worker has to. */
	return rest && list_empty(&q->left);
}

void queue_start_pumps(struct strait_queue *q)
{
	struct pump *p;
	bool more;

	for (;;) {
		pthread_mutex_lock(&q->lock);
		p = find_pump(q);
		more = !q->n[ENTRY_LARGE] && q->pumps - q->busy > 1;
		pthread_mutex_unlock(&q->lock);
		if (!p)
			break;
		/* One there must be; more only where a thread has nothing else to do. */
		if (more && workers_offer(&q->ctx->workers, &p->task)) {
			pthread_mutex_lock(&q->lock);
			pump_leave(q, p);
			pthread_mutex_unlock(&q->lock);
			break;
		}
		/* Where no thread can be had at all, the submitter does the work. */
		if (!more && workers_post(&q->ctx->workers, &p->task))
			pump_run(&p->task);
	}
}

/* How requests of one kind between the same two travel: mostly the answer is the one for the request before. */
struct kinds {
	const struct strait_transfer *last;
	bool gathers, peers;
	uint64_t sure; /* how long one may be to be sure to be gathered */
};

static bool same_kind(const struct kinds *k, const struct strait_transfer *t)
{
	const struct strait_transfer *last = k->last;

	return last && last->endpoint == t->endpoint && last->region == t->region && last->op == t->op &&
	       last->routes == t->routes;
}

static bool is_sure(const struct kinds *k, const struct strait_transfer *t)
{
	return t->length && t->length <= k->sure;
}

static enum entry_kind find_kind(struct kinds *k, const struct strait_transfer *t)
{
	if (!same_kind(k, t)) {
		k->peers = p2p_commands(t);
		k->gathers = gather_takes(t);
		k->sure = k->gathers && !k->peers && !t->endpoint->facts.flight_bytes ? gather_sure(t) : 0;
	}
	k->last = t;
	if (is_sure(k, t))
		return ENTRY_SMALL;
	if (t->endpoint->facts.flight_bytes)
		return p2p_batch_takes(t) ? ENTRY_BATCH : ENTRY_LARGE;
	if (k->peers) {
		if (p2p_ring_takes(t))
			return ENTRY_PEER;
		/* Where some of it may go by p2p it depends on each. */
		k->gathers = gather_takes(t);
	}
	return k->gathers && gather_fits(t) ? ENTRY_SMALL : ENTRY_LARGE;
}

static inline enum entry_kind kind_of(struct kinds *k, const struct strait_transfer *t)
{
	return same_kind(k, t) && is_sure(k, t) ? ENTRY_SMALL : find_kind(k, t);
}

/* The first of @t that go together are started, if they are read in place; how many that is, into @p. */
static unsigned int start_some(struct pump *p, struct list *batch, const struct strait_transfer *t, unsigned int n)
{
	p->n = p->gather.n = 0;
	p->gather.used = 0;
	list_for_each(it, batch) {
		struct entry *e = list_entry(it, struct entry, node);

		if (p->n == n || !gather_add(&p->gather, &t[p->n], &e->r))
			break;
		p->batch[p->n++] = e;
	}
	return p->n && gather_start(&p->gather, false) ? p->n : 0;
}

/* The device is at work: now is the time to note down what they are. */
static void note_started(struct pump *p)
{
	for (unsigned int i = 0; i < p->n; i++) {
		struct entry *e = p->batch[i];

		list_del(&e->node);
		e->t = *p->gather.item[i].t;
		p->gather.item[i].t = &e->t;
		e->kind = ENTRY_SMALL;
		atomic_store_explicit(&e->cancel, false, memory_order_relaxed);
	}
}

/*
 * Small transfers that are read in place are started by who submits them: that takes less time than to wake a thread.
 * The device does several batches at once; what it has not done soon is left to who waits, or to a thread, as the caller
 * may have to do something for it to get on. Takes what it has started off @batch: how many.
 */
static unsigned int start_here(struct strait_queue *q, struct list *batch, const struct strait_transfer *t,
			       unsigned int n)
{
	unsigned int done = 0, some = 1;
	uint64_t end;

	pthread_mutex_lock(&q->lock);
	while (some && done < n) {
		struct pump *p = take_pump(q, false);

		if (!p)
			break;
		pthread_mutex_unlock(&q->lock);
		some = start_some(p, batch, t + done, n - done);
		done += some;
		if (some) {
			note_started(p);
			put_under_way(q, p);
		} else {
			pthread_mutex_lock(&q->lock);
			p->taken = false;
		}
	}
	end = os_now_ns() + START_NS;
	while (done && !list_empty(&q->left) && finish_left(q, end))
		;
	pthread_mutex_unlock(&q->lock);
	return done;
}

/* Copies the requests into their entries; how many there are of each kind. */
static void fill_entries(struct list *batch, const struct strait_transfer *t, unsigned int n[ENTRY_KINDS])
{
	struct kinds k = { 0 };

	list_for_each(it, batch) {
		struct entry *e = list_entry(it, struct entry, node);

		e->t = *t;
		e->kind = kind_of(&k, t);
		atomic_store_explicit(&e->cancel, false, memory_order_relaxed);
		n[e->kind]++;
		t++;
	}
}

/* Can they perhaps all be read where they are, which takes the CPU no time? */
static bool all_in_place(const struct strait_transfer *t, unsigned int n)
{
	struct kinds k = { 0 };

	if (t->op != STRAIT_READ || !keep_wanted(t->endpoint))
		return false;
	for (unsigned int i = 0; i < n; i++)
		if (kind_of(&k, &t[i]) != ENTRY_SMALL)
			return false;
	return true;
}

int queue_submit(struct strait_queue *q, const struct strait_transfer *t, unsigned int n)
{
	struct list batch = LIST_INIT(batch);
	unsigned int kinds[ENTRY_KINDS] = { 0 };
	bool wake = false;
	int rc = 0;

	pthread_mutex_lock(&q->lock);
	if (q->closing)
		rc = -ESHUTDOWN;
	else if (n > q->n_free)
		rc = -EAGAIN;
	if (!rc && n) {
		struct list *last = &q->free;

		for (unsigned int i = 0; i < n; i++)
			last = last->next;
		list_move_front(&batch, &q->free, last);
		q->n_free -= n;
	}
	pthread_mutex_unlock(&q->lock);
	if (rc)
		return rc;

	rc = transfer_begin_all(q->ctx, t, n);
	if (!rc && n) {
		unsigned int started = 0;

		if (all_in_place(t, n))
			started = start_here(q, &batch, t, n);
		fill_entries(&batch, t + started, kinds);
	}

	pthread_mutex_lock(&q->lock);
	list_for_each_safe(it, tmp, &batch) {
		struct entry *e = list_entry(it, struct entry, node);

		list_del(&e->node);
		list_add_tail(rc ? &q->free : e->kind == ENTRY_BATCH ? &q->batches : &q->pending, &e->node);
		e->state = rc ? ENTRY_FREE : ENTRY_PENDING;
	}
	if (rc) {
		q->n_free += n;
		pthread_cond_broadcast(&q->done_cond); /* they looked as if in flight */
	} else {
		for (int i = 0; i < ENTRY_KINDS; i++)
			q->n[i] += kinds[i];
		wake = kinds[ENTRY_PEER] && q->peering;
		if (kinds[ENTRY_BATCH])
			queue_wake_movers(q);
	}
	pthread_mutex_unlock(&q->lock);
	if (wake)
		os_event_signal(q->wake);
	if (!rc)
		queue_start_pumps(q);
	return rc;
}

int queue_wait(struct strait_queue *q, unsigned int min, unsigned int max, int64_t timeout_ns,
	       struct strait_result *results)
{
	uint64_t end = timeout_ns >= STRAIT_FOREVER / 2 ? NEVER : os_now_ns() + (uint64_t)timeout_ns;
	struct timespec ts = { (time_t)(end / 1000000000u), (long)(end % 1000000000u) };
	struct list *last = &q->done;
	unsigned int n = 0;
	int rc = 0;

	if (min > max || timeout_ns < 0)
		return -EINVAL;
	pthread_mutex_lock(&q->lock);
	q->waiters++;
	if (timeout_ns && !help(q, min, end)) {
		pthread_mutex_unlock(&q->lock);
		queue_start_pumps(q);
		pthread_mutex_lock(&q->lock);
	}
	/* All in flight is what can still come. */
	while (!rc && timeout_ns && q->n_done < min && q->n_done < q->n_entries - q->n_free)
		rc = pthread_cond_timedwait(&q->done_cond, &q->lock, &ts);
	q->waiters--;
	max = (unsigned int)min_u64(max, q->n_done);
	for (; n < max; n++) {
		struct entry *e = list_first(last, struct entry, node);

		results[n] = e->r;
		e->state = ENTRY_FREE;
		last = &e->node;
	}
	if (n)
		list_move_front(&q->free, &q->done, last); /* next to be taken, while they are in the cache */
	q->n_done -= n;
	q->n_free += n;
	pthread_mutex_unlock(&q->lock);
	return (int)n;
}

/* Called with the lock held. True if the entry was pending and is now canceled; its transfer must be ended. */
static bool cancel_entry(struct strait_queue *q, struct entry *e, struct list *out)
{
	if (e->state == ENTRY_RUNNING) {
		atomic_store_explicit(&e->cancel, true, memory_order_relaxed);
		return true;
	}
	if (e->state != ENTRY_PENDING)
		return false;
	queue_take_entry(q, e);
	list_add_tail(out, &e->node);
	return true;
}

static int cancel_where(struct strait_queue *q, bool all, uint64_t user_data)
{
	struct list out = LIST_INIT(out);
	int found = 0;

	pthread_mutex_lock(&q->lock);
	for (unsigned int i = 0; i < q->n_entries; i++) {
		struct entry *e = &q->entries[i];

		if (e->state != ENTRY_FREE && (all || e->t.user_data == user_data))
			found += cancel_entry(q, e, &out);
	}
	pthread_mutex_unlock(&q->lock);
	list_for_each(it, &out) {
		struct entry *e = list_entry(it, struct entry, node);

		memset(&e->r, 0, sizeof(e->r));
		e->r.user_data = e->t.user_data;
		e->r.status = -ECANCELED;
		stats_transfer(&q->ctx->stats, e->t.op, &e->r);
		transfer_end(&e->t, 1);
	}
	pthread_mutex_lock(&q->lock);
	list_for_each_safe(it, tmp, &out) {
		list_del(it);
		queue_complete(q, list_entry(it, struct entry, node));
	}
	pthread_cond_broadcast(&q->done_cond);
	pthread_mutex_unlock(&q->lock);
	return found;
}

int queue_cancel(struct strait_queue *q, uint64_t user_data)
{
	int found = cancel_where(q, false, user_data);

	return found ? found : -ENOENT;
}

void queue_close(struct strait_queue *q)
{
	struct strait_context *ctx = q->ctx;

	pthread_mutex_lock(&q->lock);
	q->closing = true;
	pthread_mutex_unlock(&q->lock);
	cancel_where(q, true, 0);
	pthread_mutex_lock(&q->lock);
	while (q->pumps || q->n_done + q->n_free < q->n_entries)
		pthread_cond_wait(&q->done_cond, &q->lock);
	pthread_mutex_unlock(&q->lock);
	for (unsigned int i = 0; i < ARRAY_SIZE(q->pump); i++)
		free(q->pump[i]);
	if (q->wake >= 0)
		os_close(q->wake);
	pthread_cond_destroy(&q->done_cond);
	pthread_mutex_destroy(&q->lock);
	free(q->entries);
	free(q);
	engine_unref(ctx);
}
