/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_WORKERS_H
#define ENGINE_WORKERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"

/* Work for a worker, embedded in the object it belongs to, which it may free. */
struct task {
	struct list node;
	void (*run)(struct task *task);
	bool linger; /* more of its kind will follow soon: the worker spins for the next one before it sleeps */
};

static inline void task_init(struct task *task, void (*run)(struct task *task))
{
	list_init(&task->node);
	task->run = run;
	task->linger = false;
}

#define WORKERS_MAX 64

/*
 * A pool of threads, started on demand up to a limit, that run tasks in the order of their arrival.
 *
 * A worker runs a task, lingers, or sleeps. Waking one that sleeps takes longer than reading a few hundred KiB, so after a
 * task that says so it lingers: it polls for another one for a moment. A task wakes a sleeping worker only if more tasks
 * wait than workers linger. A lingering worker looks at the list once more, with the lock, before it sleeps: so no task is
 * left to a worker that has stopped lingering.
 */
struct workers {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list tasks;
	unsigned int max;
	unsigned int n;
	unsigned int idle;	/* workers that linger or sleep */
	unsigned int lingering; /* of these */
	atomic_uint waiting;	/* tasks not yet taken; changed with the lock held */
	bool stop;
	unsigned long threads[WORKERS_MAX];
};

int workers_init(struct workers *w, unsigned int max);
/* Waits for the tasks that were posted. None may be posted from now on. */
void workers_fini(struct workers *w);

/*
 * Posts a task. Fails only if there is no thread and none can be created: the caller then runs the task itself or gives
 * up. It cannot fail after workers_ensure().
 */
int workers_post(struct workers *w, struct task *task);
/* Posts a task if a thread is idle. -EAGAIN otherwise. */
int workers_offer(struct workers *w, struct task *task);
/* Withdraws a task that no thread has begun to run. False: there is no such task. */
bool workers_withdraw(struct workers *w, struct task *task);
int workers_ensure(struct workers *w);

#endif
