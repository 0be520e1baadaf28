/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_QUEUE_INTERNAL_H
#define ENGINE_QUEUE_INTERNAL_H

/*
 * The inside of a queue: queue.c has the calls, kind.c says how a request is run, run.c decides which thread runs what and
 * runs it, async.c runs transfers of which one thread has many in flight.
 *
 * One lock, strait_queue.lock, protects all of it. It is never held over I/O, a copy, or a wait for either.
 *
 * Entries. Each is in one state:
 *
 *	FREE		on .free
 *	RESERVED	a submitter has taken it off .free and has not queued its request yet; on no list
 *	PENDING		on .pending, or on .async if its endpoint has asynchronous I/O; owned by the queue
 *	RUNNING		owned by one thread, or part of a batch
 *	DONE		on .done until its result is fetched
 *
 *	FREE -> RESERVED -> PENDING -> RUNNING -> DONE -> FREE
 *	        RESERVED -> FREE	the submission is refused
 *	        RESERVED -> RUNNING	the submitter has started it in place
 *	                    RUNNING -> PENDING	a waiter or a worker took it and cannot start it without waiting
 *
 * Canceling takes a PENDING entry, completes it, and sets a flag in a RUNNING one that its transfer may still see.
 *
 * Batches of small transfers (struct queue_batch). A worker has one of its own. Those of other threads are
 *
 *	idle	on .idle
 *	held	by one thread, which fills it, starts it or waits for the device
 *	started	on .started: the device works on it and no thread waits for it
 *
 *	idle -> held -> started -> held -> idle, or held -> idle where it is run at once or cannot be started
 *
 * A started batch holds its entries (RUNNING), a stream, registered windows and perhaps a chunk of the staging pool,
 * but never the last chunk: see coalesce_start().
 *
 * Threads. queue_decide() alone says what each does next:
 *
 *	submitter	starts small reads that lie in registered windows, and waits a moment for them
 *	waiter		finishes started batches; runs small transfers, or only starts them if its time is limited
 *	closer		finishes started batches; everything pending has been canceled
 *	worker		everything, until nothing is left. At most one per thread of the context, never more than is useful
 *
 * The invariant, checked wherever the lock is dropped (queue_check()): while a transfer is pending or a batch is
 * started, there is a worker (.workers: posted, or running and bound to look again before it ends) or a thread of the
 * application inside the queue that has yet to run queue_serve_locked() to its end (.obliged). queue_serve_locked() returns only when
 * a worker is there for all that is left. In particular:
 *
 *	- the deadline of a wait passes, or its minimum is met: a batch that the waiter has started goes on .started, what
 *	  it could not start goes back to .pending, and a worker is posted for both;
 *	- no thread can be created: the thread that would post the worker runs it, however long that takes;
 *	- there is no memory for another worker or batch: the first worker is allocated with the queue, so work waits for
 *	  that one;
 *	- the queue is closed: pending transfers are canceled, the closer finishes started batches, takes back workers that
 *	  no thread has begun to run, and waits for those that run and for threads inside the queue;
 *	- a region is revoked or closed: that waits for the transfers in flight, which have their threads;
 *	- fork(): the threads are the parent's, and so is the queue. In the child all calls fail before they take the lock.
 *
 * Waiting: submitters, waiters and closers wait for workers. A worker waits for files, drives, devices and
 * chunks of the staging pool, never for another thread of this queue. A posted worker needs a thread of the context; all
 * of these come free without it, because no work that they run waits for a started batch.
 */

#include "base/check.h"
#include "engine/p2p/batch.h"
#include "engine/queue/queue.h"

enum entry_state { ENTRY_FREE, ENTRY_RESERVED, ENTRY_PENDING, ENTRY_RUNNING, ENTRY_DONE };

/*
 * How a transfer is run: by itself, which may take long; coalesced with others; as a command on a ring; or as asynchronous
 * I/O of its endpoint.
 */
enum entry_kind { ENTRY_LARGE, ENTRY_SMALL, ENTRY_RING, ENTRY_ASYNC, ENTRY_KINDS };

struct entry {
	struct list node;
	enum entry_state state;
	enum entry_kind kind;
	atomic_bool cancel;
	struct strait_transfer t;
	struct strait_result r;
	struct p2p_item item;
};

/* Small transfers that are coalesced. */
struct queue_batch {
	struct list node; /* strait_queue.idle or .started */
	unsigned int n;
	struct entry *entry[COALESCE_MAX];
	struct coalesce coalesce;
};

/* A task that takes transfers off the queue until none is left. */
struct queue_worker {
	struct task task;
	struct strait_queue *queue;
	bool taken; /* counted in .workers */
	struct queue_batch batch;
	struct p2p_ring ring;
	struct list node; /* strait_queue.async_workers, while it has transfers of one endpoint in flight */
	struct p2p_batch async;
	struct p2p_item *completed[P2P_RING_MAX];
};

struct strait_queue {
	struct strait_context *ctx;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* results, or a thread has left a queue that closes */
	struct entry *entries;
	unsigned int n_entries;
	struct list free, pending, async, done;
	unsigned int n_free, n_done;
	unsigned int n[ENTRY_KINDS]; /* pending, on either list */
	struct list idle, started;   /* struct queue_batch */
	unsigned int n_batches;	     /* allocated */
	unsigned int workers;	     /* posted or running */
	unsigned int busy;	     /* workers that run something that may take long */
	unsigned int helpers;	     /* waiters that run or start small transfers */
	unsigned int waiters;	     /* threads that wait for results */
	unsigned int obliged;	     /* threads that have not run queue_serve_locked() to its end */
	int fd;			     /* strait_queue_fd(), -1 until it is asked for */
	bool fd_readable;
	bool has_ring; /* a worker has a ring and can be woken to submit more */
	int wake;      /* event that wakes it; -1 until it is needed */
	struct list
		async_workers; /* workers with transfers of one endpoint in flight, which can be woken to start more */
	bool closing;
	struct queue_worker *worker[WORKERS_MAX];
};

/* A thread inside the queue. */
enum queue_role { QUEUE_SUBMITTER, QUEUE_WAITER, QUEUE_CLOSER, QUEUE_WORKER };

struct queue_thread {
	enum queue_role role;
	unsigned int min;	     /* results that a waiter needs */
	uint64_t end;		     /* its deadline in os_now_ns() time, or QUEUE_FOREVER */
	struct queue_worker *worker; /* of a worker */
	bool leaves;		     /* it leaves work to a worker */
	bool ran_async;		     /* the worker's last step was QUEUE_RUN_ASYNC */
};

#define QUEUE_FOREVER UINT64_MAX

enum queue_step {
	QUEUE_LEAVE,	   /* nothing for this thread */
	QUEUE_FINISH,	   /* wait for the oldest started batch */
	QUEUE_START_SMALL, /* start small transfers that need not wait for a file */
	QUEUE_RUN_SMALL,   /* run small transfers to their end */
	QUEUE_RUN_LARGE,   /* run the next transfer to its end */
	QUEUE_RUN_RING,	   /* run transfers as commands on a ring */
	QUEUE_RUN_ASYNC,   /* run asynchronous I/O of an endpoint */
};

/* The lock is held where the name ends in _locked, and is not dropped. Where a comment says so it is dropped meanwhile. */

static inline bool queue_has_work_locked(const struct strait_queue *q)
{
	return !list_empty(&q->started) || !list_empty(&q->pending) || !list_empty(&q->async);
}

static inline void queue_check_locked(const struct strait_queue *q)
{
	CHECK(!queue_has_work_locked(q) || q->workers || q->obliged);
	CHECK(q->busy <= q->workers);
	CHECK(q->n_free + q->n_done <= q->n_entries);
	CHECK(q->fd < 0 || q->fd_readable == (q->n_done != 0));
	(void)q;
}

static inline void queue_lock(struct strait_queue *q)
{
	pthread_mutex_lock(&q->lock);
}

static inline void queue_unlock(struct strait_queue *q)
{
	queue_check_locked(q);
	pthread_mutex_unlock(&q->lock);
}

static inline void queue_take_locked(struct strait_queue *q, struct entry *e)
{
	q->n[e->kind]--;
	e->state = ENTRY_RUNNING;
	list_del(&e->node);
}

static inline void queue_complete_locked(struct strait_queue *q, struct entry *e)
{
	CHECK(e->state == ENTRY_RUNNING);
	e->state = ENTRY_DONE;
	list_add_tail(&q->done, &e->node);
	q->n_done++;
}

/* queue.c */

/* Tells waiters after transfers were completed. */
void queue_announce_locked(struct strait_queue *q);

/* kind.c */

static inline void entry_fill(struct entry *e, const struct strait_transfer *t)
{
	e->t = *t;
	atomic_store_explicit(&e->cancel, false, memory_order_relaxed);
}

/*
 * The kind of each request, and how many there are of each. @fill: the requests are copied as well. Otherwise they may
 * be started before that, see queue_start_in_place().
 */
void queue_classify(struct list *entries, const struct strait_transfer *t, bool fill, unsigned int n[ENTRY_KINDS]);

/* run.c */

struct queue_worker *queue_worker_new(struct strait_queue *q);
enum queue_step queue_decide_locked(const struct strait_queue *q, const struct queue_thread *me);
/*
 * Runs what queue_decide_locked() gives to this thread, then has a worker for what is left. The lock is dropped
 * meanwhile; an obliged thread calls it before it leaves.
 */
void queue_serve_locked(struct strait_queue *q, struct queue_thread *me);
/* Posts workers for what no thread is there to do. The lock is dropped meanwhile. By a worker. */
void queue_call_workers_locked(struct strait_queue *q);
/*
 * Starts the first of @n requests, whose reserved entries are on @entries, that lie in registered windows, and takes
 * their entries off the list: how many. The lock is not held before and is held after, if any was started.
 */
unsigned int queue_start_in_place(struct strait_queue *q, struct list *entries, const struct strait_transfer *t,
				  unsigned int n);
/* Takes back workers that are posted and have not begun to run. */
void queue_withdraw_workers_locked(struct strait_queue *q);

/* async.c: with the lock held, which is dropped while transfers are in flight. */

struct entry *queue_next_ring_locked(const struct strait_queue *q);
struct entry *queue_next_async_locked(const struct strait_queue *q);
/* False: there is no ring. */
bool queue_run_ring(struct strait_queue *q, struct queue_worker *w);
void queue_run_async(struct strait_queue *q, struct queue_worker *w);
void queue_wake_async_locked(struct strait_queue *q);

#endif
