/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_EMU_H
#define STRAIT_EMU_H

/*
 * The emulated device's own driver interface: what an application uses to allocate memory that
 * Strait did not allocate, and what a test uses to make the device slow, or gone. For tests; not part of the stable
 * interface (docs/abi.md).
 */

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct strait_emu_model - How fast the emulated device is
 * @size: sizeof(struct strait_emu_model)
 * @bytes_per_second: rate of the copy engine; 0: as fast as the CPU copies
 * @latency_ns: time each copy takes on top
 */
struct strait_emu_model {
	size_t size;
	uint64_t bytes_per_second;
	uint64_t latency_ns;
};

#define STRAIT_EMU_MODEL_SIZE_V1 24

/**
 * strait_emu_set_model() - Make the emulated device as slow as a real one
 * @dev: an emulated device
 * @model: how fast; holds for copies started from now on
 *
 * Return: 0; -EINVAL if @dev is not emulated.
 */
STRAIT_API int strait_emu_set_model(struct strait_device *dev, const struct strait_emu_model *model);

/**
 * strait_emu_malloc() - Allocate emulated device memory as an application would
 * @dev: an emulated device
 * @len: bytes
 * @ret: the address
 *
 * Return: 0; -EINVAL; -ENOMEM; -ENODEV when the device was removed.
 */
STRAIT_API int strait_emu_malloc(struct strait_device *dev, size_t len, void **ret);

/**
 * strait_emu_free() - Free memory of strait_emu_malloc()
 * @dev: the device
 * @addr: the address, or NULL
 *
 * Regions imported over it become stale; those with a revocation notice get it. Transfers in flight
 * on the memory are waited for.
 *
 * Return: 0; -EINVAL when @addr is no such address.
 */
STRAIT_API int strait_emu_free(struct strait_device *dev, void *addr);

/**
 * strait_emu_remove() - Pull the emulated device out
 * @dev: an emulated device
 *
 * All its regions are revoked and give their notices; copies in flight end or fail with -ENODEV; every
 * later use gets -ENODEV. The device stays in the list of its context.
 *
 * Return: 0; -EINVAL if @dev is not emulated; -EALREADY.
 */
STRAIT_API int strait_emu_remove(struct strait_device *dev);

#ifdef __cplusplus
}
#endif

#endif
