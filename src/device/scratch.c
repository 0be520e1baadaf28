/* SPDX-License-Identifier: MIT */
#include "device/scratch.h"

/* Skips regions whose memory is gone, as after a device reset; they stay on the list. */
static struct strait_region *scratch_take_idle(struct strait_device *dev)
{
	struct strait_region *found = NULL;

	pthread_mutex_lock(&dev->scratch_lock);
	list_for_each(it, &dev->scratch) {
		struct strait_region *r = list_entry(it, struct strait_region, scratch);

		if (region_check(r))
			continue;
		list_del(&r->scratch);
		found = r;
		break;
	}
	pthread_mutex_unlock(&dev->scratch_lock);
	return found;
}

int device_scratch_get(struct strait_device *dev, struct strait_region **ret)
{
	struct strait_region *r = scratch_take_idle(dev);
	int rc;

	if (!r) {
		rc = region_alloc(dev, SCRATCH_BYTES, &r);
		if (rc)
			return rc;
	}
	*ret = r;
	return 0;
}

void device_scratch_put(struct strait_region *r)
{
	struct strait_device *dev = r->dev;

	pthread_mutex_lock(&dev->scratch_lock);
	list_add(&dev->scratch, &r->scratch);
	pthread_mutex_unlock(&dev->scratch_lock);
}

void device_scratch_free(struct strait_device *dev)
{
	list_for_each_safe(it, tmp, &dev->scratch) {
		list_del(it);
		region_put(list_entry(it, struct strait_region, scratch));
	}
}
