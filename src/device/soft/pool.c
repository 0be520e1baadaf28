/* SPDX-License-Identifier: MIT */
#include "base/lock.h"
#include "device/soft/engine.h"
#include "os/os.h"

void soft_pool_init(struct soft_pool *p, struct soft_engine *eng, const char *name, unsigned int max)
{
	p->eng = eng;
	p->name = name;
	p->max = max;
	list_init(&p->ready);
	pthread_mutex_init(&p->lock, NULL);
	cond_init_monotonic(&p->cond);
}

/*
 * The timing model: a copy occupies the only thread of its pool for op->cost_ns, from when it was ready and the thread
 * was free. The end is computed from modelled times, so that late wakeups do not accumulate. Sleeps until the end and
 * returns it.
 */
static uint64_t pool_wait_model_end(struct soft_pool *p, const struct soft_op *op, int *rc)
{
	uint64_t end = max_u64(p->free_at, op->ready_ns) + op->cost_ns;

	pthread_mutex_lock(&p->lock);
	while (!soft_removed(p->eng) && os_now_ns() < end)
		cond_wait_until(&p->cond, &p->lock, end);
	pthread_mutex_unlock(&p->lock);
	p->free_at = end;
	if (!*rc && soft_removed(p->eng))
		*rc = -ENODEV;
	return end;
}

static void pool_run_op(struct soft_pool *p, struct soft_op *op)
{
	uint64_t end = 0;
	int rc;

	rc = soft_op_run(op);
	if (op->cost_ns)
		end = pool_wait_model_end(p, op, &rc);
	soft_stream_done(op->stream, op, rc, end);
}

static void *pool_main(void *arg)
{
	struct soft_pool *p = arg;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct soft_op *op;

		if (list_empty(&p->ready)) {
			if (p->stop)
				break;
			p->n_idle++;
			pthread_cond_wait(&p->cond, &p->lock);
			p->n_idle--;
			continue;
		}
		op = list_first(&p->ready, struct soft_op, node);
		list_del(&op->node);
		p->n_ready--;
		pthread_mutex_unlock(&p->lock);
		pool_run_op(p, op);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static int pool_start_thread_locked(struct soft_pool *p)
{
	int rc = os_thread(p->name, pool_main, p, &p->threads[p->n_threads]);

	if (!rc)
		p->n_threads++;
	return rc;
}

int soft_pool_ensure_thread(struct soft_pool *p)
{
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	if (!p->n_threads)
		rc = pool_start_thread_locked(p);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

void soft_pool_submit(struct soft_pool *p, struct soft_op *op)
{
	pthread_mutex_lock(&p->lock);
	list_add_tail(&p->ready, &op->node);
	p->n_ready++;
	/*
	 * A host function may block without limit, also on another host function, so each gets its own thread. At
	 * the limit, or if a thread cannot be started, it waits for an existing one.
	 */
	if (p->n_ready > p->n_idle && p->n_threads < p->max)
		pool_start_thread_locked(p);
	pthread_cond_signal(&p->cond);
	pthread_mutex_unlock(&p->lock);
}

void soft_pool_wake(struct soft_pool *p)
{
	pthread_mutex_lock(&p->lock);
	pthread_cond_broadcast(&p->cond);
	pthread_mutex_unlock(&p->lock);
}

void soft_pool_fini(struct soft_pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->cond);
	pthread_mutex_unlock(&p->lock);
	for (unsigned int i = 0; i < p->n_threads; i++)
		pthread_join((pthread_t)p->threads[i], NULL);
	pthread_cond_destroy(&p->cond);
	pthread_mutex_destroy(&p->lock);
}
