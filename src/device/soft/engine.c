/* SPDX-License-Identifier: MIT */
#include "device/soft/engine.h"

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
	/* CPU memory is coherent: a full barrier orders the writes of a peer before later reads. */
	atomic_fetch_add_explicit(&soft_engine(dev)->flushes, 1, memory_order_seq_cst);
	return 0;
}
