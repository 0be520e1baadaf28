/* SPDX-License-Identifier: MIT */
/* Work on this thread and on workers that have nothing else to do. */
#include "base/util.h"
#include "mapping/mapping.h"

#define HELPERS 11u

struct parallel;

struct helper {
	struct task task;
	struct parallel *p;
	bool offered;
};

struct parallel {
	parallel_fn *fn;
	void *arg;
	unsigned int n;
	atomic_uint next;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned int running; /* helpers that were offered and have not ended; under @lock */
	struct helper helpers[HELPERS];
};

static void parallel_run(struct parallel *p)
{
	unsigned int i;

	while ((i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n)
		p->fn(p->arg, i);
}

static void helper_run(struct task *task)
{
	struct parallel *p = container_of(task, struct helper, task)->p;

	parallel_run(p);
	pthread_mutex_lock(&p->lock);
	p->running--;
	pthread_cond_signal(&p->ended);
	pthread_mutex_unlock(&p->lock);
}

static void helpers_offer(struct parallel *p, struct workers *w, unsigned int n)
{
	for (unsigned int i = 0; i < n && i < HELPERS; i++) {
		struct helper *h = &p->helpers[i];

		task_init(&h->task, helper_run);
		h->p = p;
		pthread_mutex_lock(&p->lock);
		p->running++;
		pthread_mutex_unlock(&p->lock);
		h->offered = !workers_offer(w, &h->task);
		if (h->offered)
			continue;
		pthread_mutex_lock(&p->lock);
		p->running--;
		pthread_mutex_unlock(&p->lock);
		return;
	}
}

/* A helper that has begun works on what this thread would wait for in any case. */
static void helpers_wait(struct parallel *p, struct workers *w)
{
	unsigned int withdrawn = 0;

	for (unsigned int i = 0; i < HELPERS; i++)
		withdrawn += p->helpers[i].offered && workers_withdraw(w, &p->helpers[i].task);
	pthread_mutex_lock(&p->lock);
	p->running -= withdrawn;
	while (p->running)
		pthread_cond_wait(&p->ended, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

void parallel_for(struct workers *w, unsigned int n, parallel_fn *fn, void *arg)
{
	struct parallel p = { .fn = fn, .arg = arg, .n = n };

	if (n < 2) {
		for (unsigned int i = 0; i < n; i++)
			fn(arg, i);
		return;
	}
	pthread_mutex_init(&p.lock, NULL);
	pthread_cond_init(&p.ended, NULL);
	helpers_offer(&p, w, n - 1);
	parallel_run(&p);
	helpers_wait(&p, w);
	pthread_cond_destroy(&p.ended);
	pthread_mutex_destroy(&p.lock);
}
