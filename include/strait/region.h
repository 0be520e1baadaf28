/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_REGION_H
#define STRAIT_REGION_H

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What can be done with a region. */
#define STRAIT_REGION_CPU_MAP (1u << 0)	 /* strait_region_map() works */
#define STRAIT_REGION_DMABUF (1u << 1)	 /* strait_region_export_dmabuf() works */
#define STRAIT_REGION_NOTICE (1u << 2)	 /* strait_region_on_revoke() is called when the memory goes */
#define STRAIT_REGION_OWNED (1u << 3)	 /* allocated by Strait, freed by strait_region_close() */
#define STRAIT_REGION_IDENTITY (1u << 4) /* memory freed and reused under the region is noticed */
#define STRAIT_REGION_PINNABLE (1u << 5) /* its pages, mapped for the CPU, can be pinned for long: ibv_reg_mr() */
#define STRAIT_REGION_DMA_ONLY (1u << 6) /* only devices reach it, neither the CPU nor a copy engine */
/* The application mapped it into an address range of its own, and may map more there: cuMemMap(). */
#define STRAIT_REGION_REMAPPABLE (1u << 7)

/**
 * struct strait_region_info - What is known about a region
 * @size: sizeof(struct strait_region_info), set by the caller
 * @device: where the memory is
 * @addr: address of the first byte in the device's address space
 * @length: bytes
 * @caps: STRAIT_REGION_*
 * @page_size: granularity of the memory behind it
 * @identity: number of the allocation, 0 if the provider has none; another allocation at the same
 *	address has another number
 */
struct strait_region_info {
	size_t size;
	struct strait_device *device;
	uint64_t addr;
	uint64_t length;
	uint32_t caps;
	uint32_t page_size;
	uint64_t identity;
};

#define STRAIT_REGION_INFO_SIZE_V1 48

/* Called once, from any thread. Must not call into the library, except strait_region_info(). */
typedef void strait_revoke_fn(void *arg, struct strait_region *region);

/**
 * strait_region_alloc() - Allocate device memory
 * @dev: where
 * @len: bytes, not 0
 * @ret: the region; its memory reads as zeros on emulated and host devices and is undefined on others
 *
 * Return: 0; -EINVAL for a length of 0; -EOVERFLOW; -ENOMEM when the device has not enough;
 * -ENODEV when it was removed.
 */
STRAIT_API int strait_region_alloc(struct strait_device *dev, size_t len, struct strait_region **ret);

/**
 * strait_region_alloc_caps() - Allocate device memory that can do what is needed
 * @dev: where
 * @len: bytes, not 0
 * @caps: STRAIT_REGION_CPU_MAP, _DMABUF, _NOTICE, _IDENTITY, _PINNABLE: all that the region must have
 * @ret: the region, as of strait_region_alloc()
 *
 * A device may have memory of more than one kind. STRAIT_REGION_PINNABLE asks for the one that a network card in
 * software, or whoever else pins user memory for long, can be given by its CPU address; whoever pins it keeps it from
 * being used again until the pin is gone, not from being revoked for everybody else.
 *
 * Return: 0; -EOPNOTSUPP when the device has no such memory; -EINVAL for another bit in @caps; otherwise as
 * strait_region_alloc().
 */
STRAIT_API int strait_region_alloc_caps(struct strait_device *dev, size_t len, uint32_t caps,
					struct strait_region **ret);

/**
 * strait_region_import() - Make a region of memory the application allocated
 * @ctx: the context
 * @dev: where the memory is, or NULL to ask every provider for its device. No provider knows ordinary host
 *	memory: it is imported with the device "host"
 * @addr: first byte
 * @len: bytes, not 0
 * @ret: the region
 *
 * The memory stays the application's, which closes the region before freeing it. Where the provider
 * has allocation identity, memory that is freed (and perhaps reused) all the same is noticed at the
 * next use and answered with -ESTALE.
 *
 * Return: 0; -ENOENT when @dev is NULL and no provider knows the memory; -EINVAL; -EOVERFLOW; -EFAULT when the
 * range is not wholly inside one allocation of @dev; -ENOMEM.
 */
STRAIT_API int strait_region_import(struct strait_context *ctx, struct strait_device *dev, void *addr, size_t len,
				    struct strait_region **ret);

/* Flags of strait_region_import_dmabuf(). */
#define STRAIT_DMABUF_NO_CPU_MAP (1u << 0) /* do not map it for the CPU, even if its exporter lets one */

/**
 * strait_region_import_dmabuf() - Make a region of a dma-buf
 * @ctx: the context
 * @fd: the dma-buf; the library has its own reference: the caller may close it at once
 * @offset: first byte in it, a multiple of 4096
 * @len: bytes, likewise; 0: all from @offset on
 * @flags: STRAIT_DMABUF_NO_CPU_MAP or 0
 * @ret: the region; its device is "dmabuf"
 *
 * Endpoints that map memory for a device take it by its dma-buf: namespaces of strait_nvme_endpoint(), cards of
 * strait_dma_endpoint(). Files reach it through the CPU, where its exporter lets the CPU map it; otherwise the region
 * has STRAIT_REGION_DMA_ONLY, and every call that would need the CPU fails with -EOPNOTSUPP.
 *
 * Whether bytes of a device arrive in such memory cannot be tried beforehand, as it is with memory that Strait
 * allocates. So the p2p route is taken when it is the only one, or is asked for.
 *
 * A program that uses the mapping of strait_region_map() brackets its accesses with DMA_BUF_IOCTL_SYNC itself. An
 * exporter may take the memory away: devices are kept from it then, and transfers fail.
 *
 * Return: 0; -EBADF; -EINVAL when @fd is not a dma-buf, or for a range that is misaligned or outside it; -EOVERFLOW;
 * -ENOMEM.
 */
STRAIT_API int strait_region_import_dmabuf(struct strait_context *ctx, int fd, uint64_t offset, uint64_t len,
					   uint32_t flags, struct strait_region **ret);

/**
 * strait_region_extent() - Whose memory an address is, and how far it goes
 * @ctx: the context
 * @addr: an address in memory of a device
 * @dev: set to the device; may be NULL
 * @len: set to the number of bytes from @addr on that can be imported as one region
 *
 * Return: 0; -ENOENT when no provider knows the memory, as for host memory; -EFAULT when it is a device's that this
 * context does not have; -EINVAL.
 */
STRAIT_API int strait_region_extent(struct strait_context *ctx, const void *addr, struct strait_device **dev,
				    uint64_t *len);

/**
 * strait_region_close() - Give a handle on a region back
 * @region: the region, or NULL
 *
 * With the last handle (those of strait_region_lookup() count) the region is revoked: transfers in
 * flight on it are waited for, without a deadline, because memory that a transfer still writes
 * cannot be given back. Then memory that Strait allocated is freed. CUDA frees memory when all streams are
 * done: on such a device that waits for every transfer that is ordered on a stream, and transfers that are put on a
 * stream meanwhile wait for it.
 */
STRAIT_API void strait_region_close(struct strait_region *region);

/**
 * strait_region_info() - What is known about a region
 * @region: the region
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_region_info(struct strait_region *region, struct strait_region_info *info);

/**
 * strait_region_lookup() - The region a pointer lies in
 * @ctx: where to look
 * @addr: any address inside a region
 * @offset: how far @addr lies from the region's first byte; may be NULL
 * @ret: a new handle on the region, closed by the caller
 *
 * Where regions overlap, the one that starts nearest before @addr is found.
 *
 * Return: 0; -ENOENT when no region holds @addr.
 */
STRAIT_API int strait_region_lookup(struct strait_context *ctx, const void *addr, uint64_t *offset,
				    struct strait_region **ret);

/**
 * strait_region_check() - Is the memory behind a region still there?
 * @region: the region
 *
 * Every transfer asks this by itself when it starts.
 *
 * Return: 0; -ENODEV when the region was revoked or its device removed; -ESTALE when the allocation
 * was freed under it.
 */
STRAIT_API int strait_region_check(struct strait_region *region);

/**
 * strait_region_revoke() - Stop all use of a region
 * @region: the region
 *
 * From now on transfers on it are refused with -ENODEV. Transfers in flight are waited for, without a
 * deadline. The handle stays and is closed as usual. Must not be called from a revocation notice
 * or a function on a stream.
 *
 * Return: 0; -EALREADY when it was revoked before.
 */
STRAIT_API int strait_region_revoke(struct strait_region *region);

/**
 * strait_region_on_revoke() - Ask to be told when a region's memory goes away
 * @region: the region
 * @fn: called once when the region is revoked or its device removed; NULL takes the wish back
 * @arg: first argument of @fn
 *
 * Return: 0; -EOPNOTSUPP when the provider cannot tell (no STRAIT_REGION_NOTICE); -ENODEV when it
 * has gone already: @fn is not called then.
 */
STRAIT_API int strait_region_on_revoke(struct strait_region *region, strait_revoke_fn *fn, void *arg);

/**
 * strait_region_export_dmabuf() - A dma-buf for a part of a region
 * @region: the region
 * @offset: first byte, a multiple of the region's page size
 * @len: bytes, a multiple of the page size
 * @ret: a file descriptor, closed by the caller; it keeps the memory alive, not the region
 *
 * A region of strait_region_import_dmabuf() can be exported as a whole only, and if it is all of the dma-buf.
 *
 * Return: 0; -EOPNOTSUPP when provider, allocation or kernel cannot; -EINVAL for a range that is
 * misaligned or outside the region; -ENODEV; -ESTALE.
 */
STRAIT_API int strait_region_export_dmabuf(struct strait_region *region, uint64_t offset, size_t len, int *ret);

/**
 * strait_region_map() - The region's memory as the CPU sees it
 * @region: the region
 * @ret: the first byte; valid until the region is closed or revoked
 *
 * Return: 0; -EOPNOTSUPP without STRAIT_REGION_CPU_MAP; -ENODEV; -ESTALE.
 */
STRAIT_API int strait_region_map(struct strait_region *region, void **ret);

/**
 * strait_region_copy_in() - Copy from host memory into a region
 * @region: the region
 * @offset: first byte in the region
 * @src: host memory
 * @len: bytes
 *
 * When it returns the bytes are in device memory.
 *
 * Return: 0; -EINVAL for a range outside the region; -ENODEV; -ESTALE; -EIO for a device error.
 */
STRAIT_API int strait_region_copy_in(struct strait_region *region, uint64_t offset, const void *src, size_t len);

/**
 * strait_region_copy_out() - Copy from a region into host memory
 * @region: the region
 * @offset: first byte in the region
 * @dst: host memory
 * @len: bytes
 *
 * Return: 0; -EINVAL for a range outside the region; -ENODEV; -ESTALE; -EIO for a device error.
 */
STRAIT_API int strait_region_copy_out(struct strait_region *region, uint64_t offset, void *dst, size_t len);

/**
 * strait_region_fill() - Set a range of a region to one byte value
 * @region: the region
 * @offset: first byte
 * @value: the byte
 * @len: bytes
 *
 * Return: 0; -EINVAL for a range outside the region; -ENODEV; -ESTALE; -EIO.
 */
STRAIT_API int strait_region_fill(struct strait_region *region, uint64_t offset, uint8_t value, size_t len);

/**
 * strait_region_compare() - Compare two ranges where they are, on the device
 * @a: a region
 * @a_offset: first byte in @a
 * @b: another or the same region, on the same device
 * @b_offset: first byte in @b
 * @len: bytes
 * @where: offset of the first byte that differs, counted from the start of the ranges; @len if none does
 *
 * Return: 0; -EXDEV when the regions are on different devices; -EINVAL; -ENODEV; -ESTALE; -EIO.
 */
STRAIT_API int strait_region_compare(struct strait_region *a, uint64_t a_offset, struct strait_region *b,
				     uint64_t b_offset, size_t len, uint64_t *where);

/**
 * strait_region_crc32c() - CRC-32C (Castagnoli) of the bytes as they are in device memory
 * @region: the region
 * @offset: first byte
 * @len: bytes
 * @crc: in: the checksum of what went before, 0 to start; out: of that and this range
 *
 * Return: 0; -EINVAL for a range outside the region; -ENODEV; -ESTALE; -EIO.
 */
STRAIT_API int strait_region_crc32c(struct strait_region *region, uint64_t offset, size_t len, uint32_t *crc);

#ifdef __cplusplus
}
#endif

#endif
