/* SPDX-License-Identifier: MIT */
#include "engine/workers.h"

#include "base/util.h"
#include "os/os.h"

#define LINGER_NS 60000u
#define LINGER_MOST 4u

/* Called with the lock held, which is released meanwhile. */
static void linger(struct workers *w)
{
	uint64_t end;

	w->idle++;
	w->lingering++;
	pthread_mutex_unlock(&w->lock);
	end = os_now_ns() + LINGER_NS;
	do
		cpu_pause();
	while (!atomic_load_explicit(&w->waiting, memory_order_relaxed) && os_now_ns() < end);
	pthread_mutex_lock(&w->lock);
	w->lingering--;
	w->idle--;
}

static void *worker(void *arg)
{
	struct workers *w = arg;
	bool lingers;

	os_thread_sleeps_briefly(); /* lanes that wait for copies sleep for 20 us at a time */
	pthread_mutex_lock(&w->lock);
	for (;;) {
		if (!list_empty(&w->tasks)) {
			struct task *task = list_first(&w->tasks, struct task, node);

			list_del(&task->node);
			w->waiting--;
			lingers = task->linger;
			pthread_mutex_unlock(&w->lock);
			task->run(task);
			pthread_mutex_lock(&w->lock);
			if (lingers && w->lingering < LINGER_MOST && list_empty(&w->tasks) && !w->stop)
				linger(w);
			continue;
		}
		if (w->stop)
			break;
		w->idle++;
		pthread_cond_wait(&w->wake, &w->lock);
		w->idle--;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int workers_init(struct workers *w, unsigned int max)
{
	int rc;

	memset(w, 0, sizeof(*w));
	list_init(&w->tasks);
	w->max = max < WORKERS_MAX ? max : WORKERS_MAX;
	rc = pthread_mutex_init(&w->lock, NULL);
	if (rc)
		return -rc;
	rc = pthread_cond_init(&w->wake, NULL);
	if (rc)
		pthread_mutex_destroy(&w->lock);
	return -rc;
}

void workers_fini(struct workers *w)
{
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->wake);
	pthread_mutex_unlock(&w->lock);
	for (unsigned int i = 0; i < w->n; i++)
		pthread_join(w->threads[i], NULL);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
}

/* Called with the lock held. */
static int start_one(struct workers *w)
{
	int rc;

	if (w->n == w->max)
		return -EAGAIN;
	rc = os_thread("strait", worker, w, &w->threads[w->n]);
	if (!rc)
		w->n++;
	return rc;
}

static void push(struct workers *w, struct task *task)
{
	list_add_tail(&w->tasks, &task->node);
	if (++w->waiting > w->lingering)
		pthread_cond_signal(&w->wake);
}

int workers_post(struct workers *w, struct task *task)
{
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	if (w->idle <= w->waiting)
		rc = start_one(w);
	if (w->n) {
		push(w, task);
		rc = 0;
	}
	pthread_mutex_unlock(&w->lock);
	return rc;
}

int workers_offer(struct workers *w, struct task *task)
{
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	if (w->idle <= w->waiting)
		rc = start_one(w);
	if (!rc)
		push(w, task);
	pthread_mutex_unlock(&w->lock);
	return rc;
}

bool workers_withdraw(struct workers *w, struct task *task)
{
	bool waits;

	pthread_mutex_lock(&w->lock);
	waits = !list_empty(&task->node);
	if (waits) {
		list_del(&task->node);
		w->waiting--;
	}
	pthread_mutex_unlock(&w->lock);
	return waits;
}

int workers_ensure(struct workers *w)
{
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	if (!w->n)
		rc = start_one(w);
	pthread_mutex_unlock(&w->lock);
	return rc;
}
