/* SPDX-License-Identifier: MIT */
#include "device/soft/engine.h"

#include <time.h>

#include "os/os.h"

uint64_t soft_deadline(int64_t timeout_ns)
{
	uint64_t now;

	if (timeout_ns == STRAIT_FOREVER)
		return UINT64_MAX;
	now = os_now_ns();
	return timeout_ns > 0 ? now + (uint64_t)timeout_ns : now;
}

void soft_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* the clock of os_now_ns() */
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

int soft_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	struct timespec ts = { (time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u) };

	if (deadline_ns == UINT64_MAX)
		return pthread_cond_wait(cond, lock);
	return pthread_cond_timedwait(cond, lock, &ts);
}

void soft_engine_init(struct soft_engine *eng, struct strait_device *dev)
{
	eng->dev = dev;
	pthread_mutex_init(&eng->lock, NULL);
	soft_pool_init(&eng->in, eng, "strait-copy-in", 1);
	soft_pool_init(&eng->out, eng, "strait-copy-out", 1);
	soft_pool_init(&eng->compute, eng, "strait-compute", SOFT_POOL_MAX);
	soft_words_init(eng);
	soft_hostregs_init(&eng->regs);
}

void soft_engine_fini(struct soft_engine *eng)
{
	if (eng->default_stream) {
		soft_stream_drain(eng->default_stream);
		soft_stream_unref(eng->default_stream);
	}
	soft_words_fini(eng);
	soft_pool_fini(&eng->compute);
	soft_pool_fini(&eng->out);
	soft_pool_fini(&eng->in);
	soft_hostregs_fini(&eng->regs);
	pthread_mutex_destroy(&eng->lock);
}

void soft_engine_wake(struct soft_engine *eng)
{
	soft_pool_wake(&eng->in);
	soft_pool_wake(&eng->out);
}

int soft_flush_peer_writes(struct strait_device *dev)
{
	/* Memory is coherent here: all a peer's writes need is an order, which a full barrier gives. */
	atomic_fetch_add_explicit(&soft_engine(dev)->flushes, 1, memory_order_seq_cst);
	return 0;
}
