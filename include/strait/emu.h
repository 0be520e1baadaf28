/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_EMU_H
#define STRAIT_EMU_H

/*
 * The driver interface of the emulated device: allocate memory as an application would with the driver of a GPU, make
 * the device slow, remove it. For tests; not part of the stable interface (docs/abi.md).
 */

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct strait_emu_model - Speed of an emulated device
 * @size: sizeof(struct strait_emu_model)
 * @bytes_per_second: rate of the copy engine; 0: as fast as the CPU copies
 * @latency_ns: latency added to each copy
 */
struct strait_emu_model {
	size_t size;
	uint64_t bytes_per_second;
	uint64_t latency_ns;
};

#define STRAIT_EMU_MODEL_SIZE_V1 24

/**
 * strait_emu_set_model() - Set the speed of an emulated device
 * @dev: an emulated device
 * @model: the speed of copies that are started from now on
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
 * Regions that were imported from it become stale, and their revocation callbacks are called. Waits for transfers in
 * flight on the memory.
 *
 * Return: 0; -EINVAL when @addr is not an address of strait_emu_malloc().
 */
STRAIT_API int strait_emu_free(struct strait_device *dev, void *addr);

/**
 * strait_emu_remove() - Remove an emulated device
 * @dev: an emulated device
 *
 * All its regions are revoked and their callbacks are called. Copies in flight complete or fail with -ENODEV; every
 * later use fails with -ENODEV. The device stays in the list of its context.
 *
 * Return: 0; -EINVAL if @dev is not emulated; -EALREADY.
 */
STRAIT_API int strait_emu_remove(struct strait_device *dev);

#ifdef __cplusplus
}
#endif

#endif
