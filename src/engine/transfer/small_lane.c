/* SPDX-License-Identifier: MIT */
#include "engine/transfer/small_lane.h"

#include "base/util.h"
#include "engine/engine.h"

#define ROUNDING KIB(8) /* direct I/O rounds a range outwards, to at most 4 KiB on each side */

static atomic_uint next_hint;
static _Thread_local unsigned int hint; /* 1 + the number of the lane that this thread used last */

void small_lanes_init(struct small_lanes *l, struct strait_device *dev, uint64_t max_bytes)
{
	pthread_mutex_init(&l->lock, NULL);
	l->buf_bytes = align_up(dev->tuning.small_bytes + ROUNDING, os_page_size());
	l->max_bytes = max_bytes;
}

void small_lanes_fini(struct small_lanes *l, struct strait_device *dev)
{
	unsigned int n = atomic_load_explicit(&l->n, memory_order_relaxed);

	for (unsigned int i = 0; i < n; i++)
		if (l->lane[i].ls)
			engine_stream_free(dev, l->lane[i].ls);
	if (n) {
		dev->ops->host_unregister(dev, &l->reg);
		os_unmap(l->reg.ptr, n * l->buf_bytes);
	}
	pthread_mutex_destroy(&l->lock);
}

static unsigned int lanes_fill_locked(struct small_lanes *l, struct strait_device *dev)
{
	unsigned int n = (unsigned int)min_u64(SMALL_LANES, l->max_bytes / l->buf_bytes);
	uint64_t bytes = n * l->buf_bytes;
	void *ptr;

	l->tried = true;
	if (!n || os_map_anon(bytes, dev->numa_node, &ptr))
		return 0;
	if (dev->ops->host_register(dev, ptr, bytes, 0, &l->reg)) {
		os_unmap(ptr, bytes);
		return 0;
	}
	os_dont_fork(ptr, bytes);
	for (unsigned int i = 0; i < n; i++) {
		l->lane[i].buf = (char *)ptr + i * l->buf_bytes;
		l->lane[i].dev_addr = l->reg.dev_addr + i * l->buf_bytes;
	}
	stat_add(&device_context(dev)->stats.pool_bytes, bytes);
	return n;
}

/* The number of lanes, after their buffers are registered. */
static unsigned int lanes_ready(struct small_lanes *l, struct strait_device *dev)
{
	unsigned int n = atomic_load_explicit(&l->n, memory_order_acquire);

	if (n)
		return n;
	pthread_mutex_lock(&l->lock);
	n = atomic_load_explicit(&l->n, memory_order_relaxed);
	if (!n && !l->tried) {
		n = lanes_fill_locked(l, dev);
		atomic_store_explicit(&l->n, n, memory_order_release);
	}
	pthread_mutex_unlock(&l->lock);
	return n;
}

static struct small_lane *claim(struct small_lanes *l, unsigned int n)
{
	if (!hint)
		hint = 1 + atomic_fetch_add_explicit(&next_hint, 1, memory_order_relaxed) % SMALL_LANES;
	for (unsigned int i = 0; i < n; i++) {
		unsigned int at = (hint - 1 + i) % n;
		struct small_lane *lane = &l->lane[at];

		if (atomic_load_explicit(&lane->busy, memory_order_relaxed) ||
		    atomic_exchange_explicit(&lane->busy, true, memory_order_acquire))
			continue;
		hint = 1 + at;
		return lane;
	}
	return NULL;
}

static void release(struct small_lane *lane)
{
	atomic_store_explicit(&lane->busy, false, memory_order_release);
}

int small_lane_get(struct strait_device *dev, const struct provider_mem *m, bool isolated, struct small_lane **ret)
{
	struct small_lanes *l = &device_engine(dev)->small_lanes;
	unsigned int n = lanes_ready(l, dev);
	struct small_lane *lane = n ? claim(l, n) : NULL;
	int rc;

	if (!lane)
		return -EAGAIN;
	if (lane->ls && (lane->ls->context != m->context || lane->ls->isolated != isolated)) {
		engine_stream_put(dev, lane->ls, false);
		lane->ls = NULL;
	}
	if (!lane->ls) {
		rc = engine_stream_get(dev, m, isolated, &lane->ls);
		if (rc) {
			lane->ls = NULL;
			release(lane);
			return rc;
		}
	}
	*ret = lane;
	return 0;
}

void small_lane_put(struct strait_device *dev, struct small_lane *lane, bool broken)
{
	if (broken) {
		engine_stream_put(dev, lane->ls, true);
		lane->ls = NULL;
	}
	release(lane);
}
