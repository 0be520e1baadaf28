/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_WORKERS_H
#define ENGINE_WORKERS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"

/* Work for a worker, embedded in the object it belongs to, which it may free. */
struct task {
	struct list node;
	void (*run)(struct task *task);
};

#define WORKERS_MAX 64

/* A pool of threads, started on demand up to a limit, that run tasks in the order of their arrival. */
struct workers {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list tasks;
	unsigned int max;
	unsigned int n;
	unsigned int idle;
	unsigned int waiting; /* tasks not yet taken */
	bool stop;
	unsigned long threads[WORKERS_MAX];
};

int workers_init(struct workers *w, unsigned int max);
/* All tasks must have run. */
void workers_fini(struct workers *w);

/*
 * Posts a task. Fails only if there is no thread and none can be created: the caller then runs the task itself or gives
 * up. It cannot fail after workers_ensure().
 */
int workers_post(struct workers *w, struct task *task);
/* Posts a task if a thread is idle. -EAGAIN otherwise. */
int workers_offer(struct workers *w, struct task *task);
/* Withdraws a task, whose node was initialised, that no thread has begun to run. False: there is no such task. */
bool workers_withdraw(struct workers *w, struct task *task);
int workers_ensure(struct workers *w);

#endif
