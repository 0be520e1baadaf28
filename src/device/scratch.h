/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_SCRATCH_H
#define DEVICE_SCRATCH_H

/*
 * Device memory to verify with that a peer reaches the device. A transfer verifies the pair that it is the first to use,
 * and a stream may be waiting for that transfer; freeing device memory waits for all such streams. So this memory is
 * freed with its device only.
 */

#include "device/region.h"

#define SCRATCH_BYTES KIB(64)

/* A region of SCRATCH_BYTES for the caller alone until device_scratch_put(). Its contents are undefined. */
int device_scratch_get(struct strait_device *dev, struct strait_region **ret);
void device_scratch_put(struct strait_region *r);

/* No caller has any of it. */
void device_scratch_free(struct strait_device *dev);

#endif
