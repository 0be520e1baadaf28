/* SPDX-License-Identifier: MIT */
#include "engine/prepare.h"

#include "base/util.h"
#include "engine/engine.h"
#include "os/os.h"

enum { IDLE, POSTED, MADE };

/* One for each lane. Lanes of a transfer that has begun meanwhile take them as they come. */
static void open_streams(struct strait_device *dev, const struct provider_mem *m)
{
	for (unsigned int i = 0; i < device_context(dev)->threads; i++)
		if (engine_stream_add(dev, m))
			break;
}

static void prepare_run(struct task *task)
{
	struct device_engine *de = container_of(task, struct device_engine, prepare);
	struct strait_device *dev = de->pool.dev;
	struct staging_user user;
	struct provider_mem m;
	uint64_t began = os_now_ns();

	if (dev->ops->context_get(dev, &m)) {
		atomic_store(&de->preparing, IDLE);
		return;
	}
	/* Failures are reported by the transfers that try again. */
	if (!staging_enter(&de->pool, &user))
		staging_leave(&de->pool, &user);
	staging_expect(&de->pool);
	open_streams(dev, &m);
	dev->ops->context_put(dev, &m);
	log_debug(dev->provider->set->log, "%s: prepared in %.1f ms", dev->name, (double)(os_now_ns() - began) / 1e6);
	atomic_store(&de->preparing, MADE);
}

int prepare_start(struct strait_device *dev)
{
	struct device_engine *de = device_engine(dev);
	int idle = IDLE, rc;

	if (dev->caps & STRAIT_DEVICE_HOST || !atomic_compare_exchange_strong(&de->preparing, &idle, POSTED))
		return 0;
	task_init(&de->prepare, prepare_run);
	rc = workers_post(&device_context(dev)->workers, &de->prepare);
	if (rc)
		atomic_store(&de->preparing, IDLE);
	return rc ? -EAGAIN : 0;
}
