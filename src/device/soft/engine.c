/* SPDX-License-Identifier: MIT */
#include "device/soft/engine.h"

#include <time.h>

#include "os/os.h"

uint64_t emu_deadline(int64_t timeout_ns)
{
	uint64_t now;

	if (timeout_ns == STRAIT_FOREVER)
		return UINT64_MAX;
	now = os_now_ns();
	return timeout_ns > 0 ? now + (uint64_t)timeout_ns : now;
}

void emu_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* the clock of os_now_ns() */
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

int emu_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	struct timespec ts = { (time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u) };

	if (deadline_ns == UINT64_MAX)
		return pthread_cond_wait(cond, lock);
	return pthread_cond_timedwait(cond, lock, &ts);
}

void emu_engine_init(struct emu_engine *eng, struct strait_device *dev)
{
	eng->dev = dev;
	pthread_mutex_init(&eng->lock, NULL);
	emu_pool_init(&eng->in, eng, "strait-copy-in", 1);
	emu_pool_init(&eng->out, eng, "strait-copy-out", 1);
	emu_pool_init(&eng->compute, eng, "strait-compute", EMU_POOL_MAX);
	emu_words_init(eng);
	emu_hostregs_init(&eng->regs);
}

void emu_engine_fini(struct emu_engine *eng)
{
	if (eng->default_stream) {
		emu_stream_drain(eng->default_stream);
		emu_stream_unref(eng->default_stream);
	}
	emu_words_fini(eng);
	emu_pool_fini(&eng->compute);
	emu_pool_fini(&eng->out);
	emu_pool_fini(&eng->in);
	emu_hostregs_fini(&eng->regs);
	pthread_mutex_destroy(&eng->lock);
}

void emu_engine_wake(struct emu_engine *eng)
{
	emu_pool_wake(&eng->in);
	emu_pool_wake(&eng->out);
}

int emu_flush_peer_writes(struct strait_device *dev)
{
	/* Memory is coherent here: all a peer's writes need is an order, which a full barrier gives. */
	atomic_fetch_add_explicit(&emu_engine(dev)->flushes, 1, memory_order_seq_cst);
	return 0;
}
