/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DEVICE_H
#define STRAIT_DEVICE_H

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Capabilities of a device. */
#define STRAIT_DEVICE_HOST (1u << 0)	      /* its memory is ordinary host memory */
#define STRAIT_DEVICE_CPU_MAP (1u << 1)	      /* regions can be mapped for the CPU */
#define STRAIT_DEVICE_DMABUF (1u << 2)	      /* regions can be exported as dma-buf */
#define STRAIT_DEVICE_REGISTER (1u << 3)      /* host memory can be registered for its copy engine */
#define STRAIT_DEVICE_REGISTER_FILE (1u << 4) /* read-only file mappings too: the pagecache route */
#define STRAIT_DEVICE_STREAMS (1u << 5)	      /* streams, and transfers ordered on them */
#define STRAIT_DEVICE_REVOKE_NOTICE (1u << 6) /* reports when memory is revoked */
#define STRAIT_DEVICE_MMIO (1u << 7)	      /* can map the MMIO of another device */
#define STRAIT_DEVICE_EMULATED (1u << 8)      /* no hardware behind it */
#define STRAIT_DEVICE_IMPORT_ONLY (1u << 9)   /* for imported memory only, nothing can be allocated: dmabuf */

/**
 * struct strait_device_info - Properties of a device
 * @size: sizeof(struct strait_device_info), set by the caller
 * @name: "emu:0", "cuda:1", "host": the name that calls and commands take
 * @provider: "emu", "cuda", ...
 * @model: model name, as the driver reports it
 * @pci: PCI address "0000:17:00.0", empty if it has none
 * @caps: STRAIT_DEVICE_*
 * @index: the device's number within its provider
 * @numa_node: -1 if unknown
 * @mem_total: bytes of memory
 * @mem_free: bytes free at the time of the call
 * @page_size: page size of the device's memory in bytes
 */
struct strait_device_info {
	size_t size;
	char name[32];
	char provider[16];
	char model[96];
	char pci[16];
	uint32_t caps;
	uint32_t index;
	int32_t numa_node;
	uint32_t page_size;
	uint64_t mem_total;
	uint64_t mem_free;
};

#define STRAIT_DEVICE_INFO_SIZE_V1 200

/**
 * struct strait_provider_info - A kind of device, whether present or not
 * @size: sizeof(struct strait_provider_info), set by the caller
 * @name: "cuda", "emu", ...
 * @devices: number of devices found
 * @status: 0, or a negative errno if the provider cannot be used; strait_device_missing_reason() with the provider's
 *	name tells why and what to do
 */
struct strait_provider_info {
	size_t size;
	char name[16];
	uint32_t devices;
	int32_t status;
};

#define STRAIT_PROVIDER_INFO_SIZE_V1 32

/**
 * strait_device_count() - Number of devices of a context
 * @ctx: the context
 *
 * The number is fixed when the context is opened. Devices with STRAIT_DEVICE_IMPORT_ONLY are not counted, but found by
 * strait_device_find().
 *
 * Return: the number, or -EOWNERDEAD after fork().
 */
STRAIT_API int strait_device_count(struct strait_context *ctx);

/**
 * strait_device_at() - Get a device by index
 * @ctx: the context
 * @index: 0 to strait_device_count() - 1; the best device comes first
 * @ret: the device; valid as long as the context, never closed
 *
 * Return: 0; -ENODEV when @index is out of range.
 */
STRAIT_API int strait_device_at(struct strait_context *ctx, unsigned int index, struct strait_device **ret);

/**
 * strait_device_find() - Get a device by name
 * @ctx: the context
 * @name: "emu:0", "cuda:0", "host"; a provider's name alone means its device 0
 * @ret: the device; valid as long as the context, never closed
 *
 * Return: 0; -ENODEV when there is no such device: strait_device_missing_reason() tells why; -EINVAL for a malformed
 * name.
 */
STRAIT_API int strait_device_find(struct strait_context *ctx, const char *name, struct strait_device **ret);

/**
 * strait_device_missing_reason() - Tell why a device is missing
 * @ctx: the context
 * @name: the name that strait_device_find() did not find
 * @text: filled with the reason and what to do, NUL-terminated
 * @len: size of @text
 *
 * Return: 0; -EEXIST if the device exists; -EINVAL for a malformed name: @text lists the valid ones.
 */
STRAIT_API int strait_device_missing_reason(struct strait_context *ctx, const char *name, char *text, size_t len);

/**
 * strait_device_info() - Get the properties of a device
 * @dev: the device
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL if @info->size is smaller than the first published struct; -ENODEV if the
 * device was removed.
 */
STRAIT_API int strait_device_info(struct strait_device *dev, struct strait_device_info *info);

/**
 * strait_provider_info() - Get a kind of device, whether present or not
 * @ctx: the context
 * @index: 0, 1, ... until -ENOENT
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -ENOENT past the last provider; -EINVAL.
 */
STRAIT_API int strait_provider_info(struct strait_context *ctx, unsigned int index, struct strait_provider_info *info);

#ifdef __cplusplus
}
#endif

#endif
