/* SPDX-License-Identifier: MIT */
/* Decides which thread runs what of a queue, and runs it. States and owners are in internal.h. */
#include "engine/queue/internal.h"

#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"

/*
 * Small transfers that are worth another thread. Of short ones only many are: each thread has a copy of its own, which takes
 * the driver longer than reading them, and idle workers help to read them anyway.
 */
#define SMALL_PER_WORKER 32
#define SHORT_PER_WORKER 128
#define SHORT_BYTES KIB(8)

static void worker_main(struct task *task);

struct queue_worker *queue_worker_new(struct strait_queue *q)
{
	struct queue_worker *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->queue = q;
	task_init(&w->task, worker_main);
	return w;
}

static const struct entry *next_pending_locked(const struct strait_queue *q)
{
	return list_empty(&q->pending) ? NULL : list_first(&q->pending, struct entry, node);
}

/*
 * The one place that decides which thread runs what. Started batches come first, as they hold streams and windows. A
 * waiter runs small transfers itself because that is faster than waking a thread; with a finite deadline it only starts
 * those that need not wait for a file. A submitter runs nothing that was pending: it has just started what it could.
 */
enum queue_step queue_decide_locked(const struct strait_queue *q, const struct queue_thread *me)
{
	const struct entry *next = next_pending_locked(q);

	if (me->leaves || (me->role == QUEUE_WAITER && q->n_done >= me->min))
		return QUEUE_LEAVE;
	if (!list_empty(&q->started))
		return me->end ? QUEUE_FINISH : QUEUE_LEAVE;
	if (me->role == QUEUE_WAITER && next && next->kind == ENTRY_SMALL)
		return me->end == QUEUE_FOREVER ? QUEUE_RUN_SMALL : QUEUE_START_SMALL;
	if (me->role != QUEUE_WORKER)
		return QUEUE_LEAVE;
	/* Pending transfers and asynchronous endpoint I/O take turns. */
	if (queue_next_async_locked(q) && !(me->ran_async && next))
		return QUEUE_RUN_ASYNC;
	if (!next)
		return QUEUE_LEAVE;
	if (next->kind == ENTRY_RING)
		return QUEUE_RUN_RING;
	return next->kind == ENTRY_SMALL ? QUEUE_RUN_SMALL : QUEUE_RUN_LARGE;
}

/* A batch for a thread that is no worker. NULL: no memory, or as many are in use as there may be workers. */
static struct queue_batch *batch_get_locked(struct strait_queue *q)
{
	struct queue_batch *b = NULL;

	if (!list_empty(&q->idle)) {
		b = list_first(&q->idle, struct queue_batch, node);
		list_del(&b->node);
	} else if (q->n_batches < q->ctx->workers.max) {
		b = calloc(1, sizeof(*b));
		q->n_batches += b != NULL;
	}
	return b;
}

static void batch_put_locked(struct strait_queue *q, struct queue_batch *b)
{
	list_add(&q->idle, &b->node);
}

static void batch_clear(struct queue_batch *b)
{
	b->n = b->coalesce.n = 0;
	b->coalesce.used = 0;
}

/* How many of the pending small transfers one thread should take, at least. */
static unsigned int per_worker_locked(const struct strait_queue *q)
{
	const struct entry *next = next_pending_locked(q);

	return next && next->t.length <= SHORT_BYTES ? SHORT_PER_WORKER : SMALL_PER_WORKER;
}

/* Takes this thread's share of the pending small transfers, as far as they can be coalesced. */
static void take_small_locked(struct strait_queue *q, struct queue_batch *b)
{
	unsigned int threads = q->workers - q->busy + q->helpers, share = (q->n[ENTRY_SMALL] + threads - 1) / threads;

	if (share < per_worker_locked(q))
		share = per_worker_locked(q);
	batch_clear(b);
	list_for_each_safe(it, tmp, &q->pending) {
		struct entry *e = list_entry(it, struct entry, node);

		if (e->kind != ENTRY_SMALL)
			continue;
		if (b->n == share || !coalesce_add(&b->coalesce, &e->t, &e->r))
			break;
		queue_take_locked(q, e);
		b->entry[b->n++] = e;
	}
}

/* Undoes take_small_locked(). */
static void untake_small_locked(struct strait_queue *q, struct queue_batch *b)
{
	for (unsigned int i = b->n; i-- > 0;) {
		struct entry *e = b->entry[i];

		list_add(&q->pending, &e->node);
		e->state = ENTRY_PENDING;
		q->n[e->kind]++;
	}
}

/* Completes a batch that has been run. Takes the lock. */
static void batch_done(struct strait_queue *q, struct queue_batch *b)
{
	unsigned int run;

	for (unsigned int i = 0; i < b->n; i += run) {
		const struct strait_transfer *t = &b->entry[i]->t;

		for (run = 1; i + run < b->n && b->entry[i + run]->t.region == t->region &&
			      b->entry[i + run]->t.endpoint == t->endpoint;)
			run++;
		transfer_end(t, run);
	}
	queue_lock(q);
	for (unsigned int i = 0; i < b->n; i++)
		queue_complete_locked(q, b->entry[i]);
	queue_announce_locked(q);
}

/* Lists a batch that the device works on. Takes the lock. */
static void batch_started(struct strait_queue *q, struct queue_batch *b)
{
	coalesce_started(&b->coalesce);
	queue_lock(q);
	for (unsigned int i = 0; i < b->n; i++)
		b->entry[i]->state = ENTRY_RUNNING;
	list_add_tail(&q->started, &b->node);
}

/* Waits for a started batch until @end. False: it is on .started again. The lock is dropped meanwhile. */
static bool finish_started_locked(struct strait_queue *q, uint64_t end)
{
	struct queue_batch *b = list_first(&q->started, struct queue_batch, node);
	bool done;

	list_del(&b->node);
	queue_unlock(q);
	done = coalesce_finish(&b->coalesce, os_time_left(end));
	if (done) {
		batch_done(q, b);
		batch_put_locked(q, b);
	} else {
		queue_lock(q);
		list_add(&q->started, &b->node);
	}
	return done;
}

/* The lock is dropped meanwhile. */
static void run_small_locked(struct strait_queue *q, struct queue_batch *b)
{
	take_small_locked(q, b);
	queue_unlock(q);
	coalesce_run(&b->coalesce);
	batch_done(q, b);
}

/* Starts a batch. False: some items would block, and all are pending again. The lock is dropped meanwhile. */
static bool start_small_locked(struct strait_queue *q, struct queue_batch *b)
{
	bool started;

	take_small_locked(q, b);
	queue_unlock(q);
	started = coalesce_start(&b->coalesce, true);
	if (started) {
		batch_started(q, b);
	} else {
		queue_lock(q);
		untake_small_locked(q, b);
		batch_put_locked(q, b);
	}
	return started;
}

/* Runs or starts small transfers for a waiter. False: it can do no more. The lock is dropped meanwhile. */
static bool help_locked(struct strait_queue *q, struct queue_thread *me, bool run)
{
	struct queue_batch *b = batch_get_locked(q);

	if (!b)
		return false;
	q->helpers++;
	if (run) {
		run_small_locked(q, b);
		batch_put_locked(q, b);
	} else {
		me->leaves = !start_small_locked(q, b);
	}
	q->helpers--;
	return true;
}

/* Runs the next pending transfer to its end. The lock is dropped meanwhile. */
static void run_one_locked(struct strait_queue *q)
{
	struct entry *e = list_first(&q->pending, struct entry, node);

	queue_take_locked(q, e);
	q->busy++;
	queue_unlock(q);
	transfer_execute(&e->t, UINT64_MAX, &e->cancel, false, &e->r);
	transfer_end(&e->t, 1);
	queue_lock(q);
	q->busy--;
	queue_complete_locked(q, e);
	queue_announce_locked(q);
}

/* Runs one step. False: the thread can do no more. The lock is dropped meanwhile. */
static bool run_step_locked(struct strait_queue *q, struct queue_thread *me, enum queue_step step)
{
	bool worker = me->role == QUEUE_WORKER;

	me->ran_async = step == QUEUE_RUN_ASYNC;
	switch (step) {
	case QUEUE_LEAVE:
		return false;
	case QUEUE_FINISH:
		q->busy += worker;
		me->leaves = !finish_started_locked(q, me->end);
		q->busy -= worker;
		return true;
	case QUEUE_START_SMALL:
		return help_locked(q, me, false);
	case QUEUE_RUN_SMALL:
		if (!worker)
			return help_locked(q, me, true);
		run_small_locked(q, &me->worker->batch);
		return true;
	case QUEUE_RUN_RING:
		if (!queue_run_ring(q, me->worker) && !list_empty(&q->pending))
			run_one_locked(q);
		return true;
	case QUEUE_RUN_ASYNC:
		queue_run_async(q, me->worker);
		return true;
	case QUEUE_RUN_LARGE:
		run_one_locked(q);
		return true;
	}
	return false;
}

static void worker_leave_locked(struct strait_queue *q, struct queue_worker *w)
{
	w->taken = false;
	q->workers--;
	if (q->closing)
		pthread_cond_broadcast(&q->changed);
}

/* The lock is dropped meanwhile. */
static void worker_run_locked(struct strait_queue *q, struct queue_worker *w)
{
	struct queue_thread me = { .role = QUEUE_WORKER, .end = QUEUE_FOREVER, .worker = w };

	while (run_step_locked(q, &me, queue_decide_locked(q, &me)))
		;
	CHECK(!queue_has_work_locked(q) || q->workers > 1);
	worker_leave_locked(q, w);
}

static void worker_main(struct task *task)
{
	struct queue_worker *w = container_of(task, struct queue_worker, task);
	struct strait_queue *q = w->queue;

	queue_lock(q);
	worker_run_locked(q, w);
	queue_unlock(q);
}

/*
 * A worker to post for work that no posted or running worker covers, or NULL. @must: it has to run; otherwise it is
 * posted only if a thread of the context is idle.
 */
static struct queue_worker *worker_get_locked(struct strait_queue *q, bool *must)
{
	unsigned int each = per_worker_locked(q);
	unsigned int want = q->n[ENTRY_LARGE] + (q->n[ENTRY_SMALL] + each - 1) / each +
			    (q->n[ENTRY_RING] && !q->has_ring) + (queue_next_async_locked(q) != NULL) +
			    !list_empty(&q->started);

	*must = q->n[ENTRY_LARGE] || q->workers == q->busy;
	if (q->workers - q->busy >= want)
		return NULL;
	for (unsigned int i = 0; i < q->ctx->workers.max; i++) {
		struct queue_worker *w = q->worker[i];

		if (w && w->taken)
			continue;
		if (!w)
			w = q->worker[i] = queue_worker_new(q);
		if (!w)
			return NULL;
		w->taken = true;
		q->workers++;
		return w;
	}
	return NULL;
}

static void call_workers(struct strait_queue *q, bool by_worker)
{
	struct queue_worker *w;
	bool must;

	while ((w = worker_get_locked(q, &must))) {
		int rc;

		queue_unlock(q);
		rc = must ? workers_post(&q->ctx->workers, &w->task) : workers_offer(&q->ctx->workers, &w->task);
		queue_lock(q);
		if (!rc)
			continue;
		/* No thread can be created: this one runs the worker, unless it is a worker and will look again anyway. */
		if (must && !by_worker) {
			worker_run_locked(q, w);
			continue;
		}
		worker_leave_locked(q, w);
		/*
		 * While the lock was dropped, the idle worker that made this one optional may have left, and another thread
		 * may have counted on this one: then there is work without a worker, so look again.
		 */
		if (must || q->workers > q->busy)
			break;
	}
}

void queue_call_workers_locked(struct strait_queue *q)
{
	call_workers(q, true);
}

void queue_serve_locked(struct strait_queue *q, struct queue_thread *me)
{
	CHECK(q->obliged);
	while (run_step_locked(q, me, queue_decide_locked(q, me)))
		;
	/* Transfers that were pending when the waiter came have had their workers since their submission. */
	if (me->role == QUEUE_SUBMITTER || me->leaves || !list_empty(&q->started))
		call_workers(q, false);
}

void queue_withdraw_workers_locked(struct strait_queue *q)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(q->worker); i++) {
		struct queue_worker *w = q->worker[i];

		if (w && w->taken && workers_withdraw(&q->ctx->workers, &w->task))
			worker_leave_locked(q, w);
	}
}

/* Starts the first of @t that can be coalesced. Returns how many. */
static unsigned int start_some(struct queue_batch *b, struct list *entries, const struct strait_transfer *t,
			       unsigned int n)
{
	batch_clear(b);
	list_for_each(it, entries) {
		struct entry *e = list_entry(it, struct entry, node);

		if (b->n == n || !coalesce_add(&b->coalesce, &t[b->n], &e->r))
			break;
		b->entry[b->n++] = e;
	}
	return b->n && coalesce_start(&b->coalesce, false) ? b->n : 0;
}

/* Copies the requests into their entries after the launch, off the critical path. */
static void copy_started(struct queue_batch *b)
{
	for (unsigned int i = 0; i < b->n; i++) {
		struct entry *e = b->entry[i];

		list_del(&e->node);
		entry_fill(e, b->coalesce.item[i].t);
		b->coalesce.item[i].t = &e->t;
	}
}

unsigned int queue_start_in_place(struct strait_queue *q, struct list *entries, const struct strait_transfer *t,
				  unsigned int n)
{
	unsigned int done = 0, some;

	queue_lock(q);
	while (done < n) {
		struct queue_batch *b = batch_get_locked(q);

		if (!b)
			break;
		queue_unlock(q);
		some = start_some(b, entries, t + done, n - done);
		done += some;
		if (!some) {
			queue_lock(q);
			batch_put_locked(q, b);
			break;
		}
		copy_started(b);
		batch_started(q, b);
	}
	if (!done)
		queue_unlock(q);
	return done;
}
