/* SPDX-License-Identifier: MIT */
#include "engine/transfer/helpers.h"

#include "base/util.h"
#include "os/os.h"

#define SPIN_NS 50000u /* what is left when the caller is done takes less time than waking the caller */

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
		task_init(&one->task, helper_run);
		one->task.linger = from == HELPERS_IDLE;
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
	uint64_t end;

	for (unsigned int i = 0; i < h->n; i++)
		withdrawn += workers_withdraw(h->workers, &h->helper[i].task);
	add_active(h, -(int)withdrawn);
	end = atomic_load(&h->active) ? os_now_ns() + SPIN_NS : 0;
	while (atomic_load_explicit(&h->active, memory_order_relaxed) && os_now_ns() < end)
		cpu_pause();
	/* With the lock, so that the last helper has left it. */
	pthread_mutex_lock(&h->lock);
	while (h->active)
		pthread_cond_wait(&h->ended, &h->lock);
	pthread_mutex_unlock(&h->lock);
	pthread_cond_destroy(&h->ended);
	pthread_mutex_destroy(&h->lock);
}
