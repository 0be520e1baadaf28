/* SPDX-License-Identifier: MIT */
/* The public calls of the emulated device, which stand for those of a driver. */
#include <strait/emu.h>

#include "base/util.h"
#include "device/emu/emu.h"
#include "os/os.h"

/* -EINVAL: a device of another provider, -EOWNERDEAD: a forked child. */
static int emu_check_device(struct strait_device *dev)
{
	if (!dev || dev->ops->open != emu_provider_ops.open)
		return -EINVAL;
	return emu_device(dev)->fork_generation == os_fork_generation() ? 0 : -EOWNERDEAD;
}

int strait_emu_set_model(struct strait_device *dev, const struct strait_emu_model *user)
{
	struct strait_emu_model model;
	struct soft_engine *eng;
	int rc;

	rc = emu_check_device(dev);
	if (rc)
		return rc;
	if (!user)
		return -EINVAL;
	rc = struct_in(&model, sizeof(model), user, STRAIT_EMU_MODEL_SIZE_V1);
	if (rc)
		return rc;
	eng = soft_engine(dev);
	atomic_store_explicit(&eng->bytes_per_second, model.bytes_per_second, memory_order_relaxed);
	atomic_store_explicit(&eng->latency_ns, model.latency_ns, memory_order_relaxed);
	return 0;
}

int strait_emu_malloc(struct strait_device *dev, size_t len, void **ret)
{
	struct emu_alloc *a;
	int rc;

	rc = emu_check_device(dev);
	if (rc)
		return rc;
	if (!len || !ret)
		return -EINVAL;
	rc = emu_alloc_new(dev, len, true, &a);
	if (rc)
		return rc;
	*ret = (void *)(uintptr_t)a->node.start;
	return 0;
}

int strait_emu_free(struct strait_device *dev, void *addr)
{
	struct emu_alloc *a;
	int rc;

	rc = emu_check_device(dev);
	if (rc)
		return rc;
	if (!addr)
		return 0;
	rc = emu_alloc_claim(emu_device(dev), (uint64_t)(uintptr_t)addr, &a);
	if (rc)
		return rc;
	emu_alloc_free(a);
	return 0;
}

int strait_emu_remove(struct strait_device *dev)
{
	int rc;

	rc = emu_check_device(dev);
	if (rc)
		return rc;
	if (atomic_exchange_explicit(&dev->removed, true, memory_order_acq_rel))
		return -EALREADY;
	log_info(dev->provider->set->log, "%s: removed", dev->name);
	soft_engine_wake(soft_engine(dev));
	device_set_revoke_device(dev);
	return 0;
}
