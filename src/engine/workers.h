/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_WORKERS_H
#define ENGINE_WORKERS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"

/* Something to run on a worker. It lives in whatever it belongs to and may free that when run. */
struct task {
	struct list node;
	void (*run)(struct task *task);
};

#define WORKERS_MAX 64

/* Threads started when first needed, up to a limit, that run tasks in the order they came. */
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
 * Run a task on a thread. Fails only when there is no thread at all and none can be started; the
 * caller then runs it itself or gives up. After workers_ensure() it does not fail.
 */
int workers_post(struct workers *w, struct task *task);
/* The same, but only if a thread would take the task at once: -EAGAIN otherwise. */
int workers_offer(struct workers *w, struct task *task);
/* Takes back a task, whose node was initialised, that no thread has begun to run: false if there is none such. */
bool workers_withdraw(struct workers *w, struct task *task);
int workers_ensure(struct workers *w);

#endif
