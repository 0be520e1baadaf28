/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_SCRATCH_H
#define DEVICE_SCRATCH_H

/*
 * Device memory with which DMA between a pair of devices is verified. The first transfer of a pair verifies it, and a
 * stream may wait for that transfer; freeing device memory waits for all such streams. So scratch memory is not freed
 * before its device is closed.
 */

#include "device/region.h"

#define SCRATCH_BYTES KIB(64)

/* A region of SCRATCH_BYTES for exclusive use until device_scratch_put(). Its contents are undefined. */
int device_scratch_get(struct strait_device *dev, struct strait_region **ret);
void device_scratch_put(struct strait_region *r);

/* All regions have been put. */
void device_scratch_free(struct strait_device *dev);

#endif
