/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_PREPARE_H
#define STRAIT_PREPARE_H

/*
 * For programs whose first transfer matters.
 *
 * Experimental: not part of the stable interface (docs/abi.md), it may change with any version.
 */

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * strait_device_prepare() - Have a worker make what the first long transfer with a device needs
 * @dev: the device
 *
 * That is pinned staging memory and streams of the device. A transfer that starts meanwhile waits for what it needs of them, as
 * it would without this call. Returns at once; further calls do nothing. Where the driver has no context of the device yet, as
 * before an application's first use of CUDA, nothing is made, and a later call tries again.
 *
 * Return: 0; -EAGAIN when no thread can be created.
 */
STRAIT_API int strait_device_prepare(struct strait_device *dev);

#ifdef __cplusplus
}
#endif

#endif
