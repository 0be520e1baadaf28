/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_PREPARE_H
#define ENGINE_PREPARE_H

/*
 * What the first long transfer with a device needs, made by a worker: the first part of the staging memory, and a stream for
 * each lane. The rest of the staging memory comes when chunks run short for the first time. device_engine.preparing is
 *
 *	IDLE	nothing was made, because it was not asked for, or because the driver has no context of the device
 *	POSTED	a worker makes it, or will
 *	MADE
 *
 *	IDLE -> POSTED -> MADE, or POSTED -> IDLE
 *
 * The worker waits for the device's driver only. It has no reference on the context: closing that waits for all workers, and
 * the devices are closed after them.
 */

#include "device/provider.h"

/* Posts it to a worker, unless that was done. */
int prepare_start(struct strait_device *dev);

#endif
