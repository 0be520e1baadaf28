/* SPDX-License-Identifier: MIT */
#include "engine/transfer/helpers.h"

#include "base/util.h"

static void helper_run(struct task *task)
{
	struct helpers *h = container_of(task, struct helper, task)->all;

	h->run(h->arg);
	pthread_mutex_lock(&h->lock);
	h->active--;
	pthread_cond_signal(&h->ended);
	pthread_mutex_unlock(&h->lock);
}

static void add_active(struct helpers *h, int n)
{
	pthread_mutex_lock(&h->lock);
	h->active += (unsigned int)n;
	pthread_mutex_unlock(&h->lock);
}

void helpers_begin(struct helpers *h, struct workers *w, enum helpers_from from, unsigned int n, void (*run)(void *arg),
		   void *arg)
{
	h->workers = w;
	h->run = run;
	h->arg = arg;
	h->n = 0;
	h->active = 0;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->ended, NULL);
	while (h->n < n && h->n < HELPERS_MAX) {
		struct helper *one = &h->helper[h->n];

		one->all = h;
		one->task.run = helper_run;
		list_init(&one->task.node);
		add_active(h, 1);
		if (from == HELPERS_ANY ? workers_post(w, &one->task) : workers_offer(w, &one->task)) {
			add_active(h, -1);
			break;
		}
		h->n++;
	}
}

void helpers_end(struct helpers *h)
{
	unsigned int withdrawn = 0;

	for (unsigned int i = 0; i < h->n; i++)
		withdrawn += workers_withdraw(h->workers, &h->helper[i].task);
	pthread_mutex_lock(&h->lock);
	h->active -= withdrawn;
	while (h->active)
		pthread_cond_wait(&h->ended, &h->lock);
	pthread_mutex_unlock(&h->lock);
	pthread_cond_destroy(&h->ended);
	pthread_mutex_destroy(&h->lock);
}
