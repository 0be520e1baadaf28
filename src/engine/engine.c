/* SPDX-License-Identifier: MIT */
#include "engine/engine.h"

#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "engine/stream/readahead.h"

#define DEFAULT_BUDGET GIB(1)
#define DEFAULT_DEPTH 16
#define MAX_DEPTH 1024
#define DEFAULT_THREADS 12

static int check_opts(const struct strait_context_opts *o)
{
	if (o->flags & ~STRAIT_CONTEXT_NO_URING)
		return -EINVAL;
	if (o->threads > WORKERS_MAX || o->queue_depth > MAX_DEPTH || o->log_level > STRAIT_LOG_DEBUG)
		return -EINVAL;
	if (o->chunk_bytes && (!is_pow2(o->chunk_bytes) || o->chunk_bytes < KIB(64) || o->chunk_bytes > MIB(64)))
		return -EINVAL;
	if (o->pool_bytes > (uint64_t)1 << 40)
		return -EINVAL;
	return 0;
}

static uint32_t default_threads(void)
{
	uint32_t n = os_cpus();

	return n < 2 ? 2 : n > DEFAULT_THREADS ? DEFAULT_THREADS : n;
}

static int open_device(struct strait_context *ctx, struct strait_device *dev)
{
	struct device_engine *de = calloc(1, sizeof(*de));

	if (!de)
		return -ENOMEM;
	staging_init(&de->pool, dev, ctx->pool_bytes ? ctx->pool_bytes : dev->tuning.pool_bytes,
		     ctx->chunk_bytes ? ctx->chunk_bytes : dev->tuning.chunk_bytes);
	de->pool.workers = &ctx->workers;
	de->pool.stat_bytes = &ctx->stats.pool_bytes;
	de->pool.stat_waits = &ctx->stats.pool_waits;
	/* The buffers of small lanes are part of what the staging memory may take. */
	small_lanes_init(&de->small_lanes, dev, de->pool.want_bytes / 8);
	combiner_init(&de->combiner);
	mutex_init_brief(&de->lock);
	list_init(&de->streams);
	words_init(&de->words, dev);
	list_init(&de->slots);
	list_init(&de->broken_slots);
	dev->engine = de;
	return 0;
}

static void close_device(struct strait_device *dev)
{
	struct device_engine *de = dev->engine;

	if (!de)
		return;
	small_lanes_fini(&de->small_lanes, dev);
	combiner_fini(&de->combiner, dev);
	list_for_each_safe(it, tmp, &de->streams)
		engine_stream_free(dev, list_entry(it, struct lane_stream, node));
	readahead_free_slots(dev, &de->slots);
	readahead_free_slots(dev, &de->broken_slots);
	words_fini(&de->words);
	staging_fini(&de->pool);
	pthread_mutex_destroy(&de->lock);
	free(de);
	dev->engine = NULL;
}

static void destroy(struct strait_context *ctx)
{
	workers_fini(&ctx->workers);
	regcache_fini(&ctx->reg_cache);
	for (unsigned int i = 0; i < ctx->set.n_devices; i++)
		close_device(ctx->set.devices[i]);
	device_set_close(&ctx->set);
	p2p_fini(&ctx->p2p);
	for (unsigned int i = 0; i < ctx->n_rings; i++)
		os_ring_close(ctx->rings[i]);
	pthread_mutex_destroy(&ctx->ring_lock);
	stat_sub(&ctx->stats.pool_bytes, atomic_load(&ctx->stats.pool_bytes));
	stats_detach(&ctx->stats);
	free(ctx);
}

void engine_prepare_copy_lists(struct strait_context *ctx)
{
	for (unsigned int i = 0; i < ctx->set.n_devices; i++)
		ctx->set.devices[i]->ops->prepare_copy_lists(ctx->set.devices[i]);
}

int engine_open(const struct strait_context_opts *user, struct strait_context **ret)
{
	struct strait_context_opts o = { .size = sizeof(o) };
	struct strait_context *ctx;
	int rc = 0;

	if (user)
		rc = struct_in(&o, sizeof(o), user, STRAIT_CONTEXT_OPTS_SIZE_V1);
	if (!rc)
		rc = check_opts(&o);
	if (rc)
		return rc;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return -ENOMEM;
	atomic_init(&ctx->refs, 1);
	ctx->fork_generation = os_fork_generation();
	ctx->log = (struct log_sink){ o.log, o.log_arg, o.log_level ? o.log_level : STRAIT_LOG_WARN };
	ctx->threads = o.threads ? o.threads : default_threads();
	ctx->pool_bytes = o.pool_bytes;
	ctx->chunk_bytes = o.chunk_bytes;
	ctx->queue_depth = o.queue_depth ? o.queue_depth : DEFAULT_DEPTH;
	ctx->ring_error = o.flags & STRAIT_CONTEXT_NO_URING ? -EOPNOTSUPP : 0;
	pthread_mutex_init(&ctx->ring_lock, NULL);
	stats_attach(&ctx->stats);
	p2p_init(&ctx->p2p);
	rc = workers_init(&ctx->workers, ctx->threads);
	if (rc)
		goto free_ctx;
	regcache_init(&ctx->reg_cache, o.pinned_budget ? o.pinned_budget : DEFAULT_BUDGET, &ctx->stats, &ctx->log);
	rc = device_set_open(&ctx->set, &ctx->log, ctx);
	if (rc)
		goto fini_workers;
	ctx->set.drop_mappings = p2p_release_region;
	for (unsigned int i = 0; !rc && i < ctx->set.n_devices; i++)
		rc = open_device(ctx, ctx->set.devices[i]);
	if (rc) {
		destroy(ctx);
		return rc;
	}
	engine_prepare_copy_lists(ctx);
	*ret = ctx;
	return 0;
fini_workers:
	regcache_fini(&ctx->reg_cache);
	workers_fini(&ctx->workers);
free_ctx:
	p2p_fini(&ctx->p2p);
	stats_detach(&ctx->stats);
	pthread_mutex_destroy(&ctx->ring_lock);
	free(ctx);
	return rc;
}

void engine_ref(struct strait_context *ctx)
{
	atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);
}

void engine_unref(struct strait_context *ctx)
{
	/* In a forked child the threads to join are not there: leave everything to the parent. */
	if (engine_alive(ctx))
		return;
	if (atomic_fetch_sub_explicit(&ctx->refs, 1, memory_order_acq_rel) == 1)
		destroy(ctx);
}
