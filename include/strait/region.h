/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_REGION_H
#define STRAIT_REGION_H

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Capabilities of a region. */
#define STRAIT_REGION_CPU_MAP (1u << 0)	 /* strait_region_map() works */
#define STRAIT_REGION_DMABUF (1u << 1)	 /* strait_region_export_dmabuf() works */
#define STRAIT_REGION_NOTICE (1u << 2)	 /* strait_region_on_revoke() works */
#define STRAIT_REGION_OWNED (1u << 3)	 /* allocated by Strait, freed by strait_region_close() */
#define STRAIT_REGION_IDENTITY (1u << 4) /* memory that is freed and reused under the region is detected */
#define STRAIT_REGION_PINNABLE (1u << 5) /* its CPU mapping can be pinned long-term: ibv_reg_mr() */
#define STRAIT_REGION_DMA_ONLY (1u << 6) /* only DMA of other devices reaches it, neither the CPU nor a copy engine */
/* The application mapped it into an address range it reserved, and may map more there: cuMemMap(). */
#define STRAIT_REGION_REMAPPABLE (1u << 7)

/**
 * struct strait_region_info - Properties of a region
 * @size: sizeof(struct strait_region_info), set by the caller
 * @device: the device that has the memory
 * @addr: address of the first byte in the device's address space
 * @length: bytes
 * @caps: STRAIT_REGION_*
 * @page_size: page size of the memory
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

/* Called once, on any thread. Must not call the library, except strait_region_info(). */
typedef void strait_revoke_fn(void *arg, struct strait_region *region);

/**
 * strait_region_alloc() - Allocate device memory
 * @dev: the device
 * @len: bytes, not 0
 * @ret: the region; its memory reads as zeros on emulated and host devices and is undefined on others
 *
 * Return: 0; -EINVAL for a length of 0; -EOVERFLOW; -ENOMEM when the device has too little memory;
 * -ENODEV when it was removed.
 */
STRAIT_API int strait_region_alloc(struct strait_device *dev, size_t len, struct strait_region **ret);

/**
 * strait_region_alloc_caps() - Allocate device memory with given capabilities
 * @dev: the device
 * @len: bytes, not 0
 * @caps: STRAIT_REGION_CPU_MAP, _DMABUF, _NOTICE, _IDENTITY, _PINNABLE: capabilities that the region must have
 * @ret: the region, as of strait_region_alloc()
 *
 * A device may have several kinds of memory. STRAIT_REGION_PINNABLE selects the kind whose CPU mapping the kernel can
 * pin long-term, as a software RDMA device does. A pin delays the reuse of the memory; it does not prevent the region
 * from being revoked.
 *
 * Return: 0; -EOPNOTSUPP when the device has no such memory; -EINVAL for another bit in @caps; otherwise as
 * strait_region_alloc().
 */
STRAIT_API int strait_region_alloc_caps(struct strait_device *dev, size_t len, uint32_t caps,
					struct strait_region **ret);

/**
 * strait_region_import() - Import memory that the application allocated
 * @ctx: the context
 * @dev: the device that has the memory, or NULL to find it. Ordinary host memory is not found: pass the device "host"
 * @addr: first byte
 * @len: bytes, not 0
 * @ret: the region
 *
 * The application still owns the memory and closes the region before it frees it. With STRAIT_REGION_IDENTITY, memory
 * that is freed earlier, and perhaps reused, is detected at the next use, which fails with -ESTALE.
 *
 * Return: 0; -ENOENT when @dev is NULL and no provider knows the memory; -EINVAL; -EOVERFLOW; -EFAULT when the
 * range is not wholly inside one allocation of @dev; -ENOMEM.
 */
STRAIT_API int strait_region_import(struct strait_context *ctx, struct strait_device *dev, void *addr, size_t len,
				    struct strait_region **ret);

/* Flags of strait_region_import_flags(). */
#define STRAIT_REGION_IMPORT_ORDERED                                                                                   \
	(1u << 0) /* the application waits for its own copies to the memory before transfers */

/**
 * strait_region_import_flags() - Import memory that the application allocated, with flags
 * @ctx: the context
 * @dev: as of strait_region_import()
 * @addr: first byte
 * @len: bytes, not 0
 * @flags: STRAIT_REGION_IMPORT_ORDERED or 0
 * @ret: the region
 *
 * A copy of the application from pageable memory may be in flight when the call that made it returns. Importing CUDA
 * memory therefore sets its attribute SYNC_MEMOPS, which makes later copies complete before they return, and waits a
 * moment for earlier ones. With STRAIT_REGION_IMPORT_ORDERED neither is done, and the memory is left as it is: for the
 * allocators of frameworks, whose callers wait for the stream on which the memory is used.
 *
 * Return: as strait_region_import(); -EINVAL for an unknown flag.
 */
STRAIT_API int strait_region_import_flags(struct strait_context *ctx, struct strait_device *dev, void *addr, size_t len,
					  uint32_t flags, struct strait_region **ret);

/* Flags of strait_region_import_dmabuf(). */
#define STRAIT_DMABUF_NO_CPU_MAP (1u << 0) /* do not map it for the CPU, even if its exporter allows that */

/**
 * strait_region_import_dmabuf() - Import a dma-buf
 * @ctx: the context
 * @fd: the dma-buf. The library takes its own reference: the caller may close @fd
 * @offset: first byte in it, a multiple of 4096
 * @len: bytes, a multiple of 4096; 0: to the end of the dma-buf
 * @flags: STRAIT_DMABUF_NO_CPU_MAP or 0
 * @ret: the region; its device is "dmabuf"
 *
 * Endpoints that transfer by their own DMA map the dma-buf for their device: strait_nvme_endpoint(),
 * strait_dma_endpoint(). File I/O needs a CPU mapping. If the exporter does not allow one, the region has
 * STRAIT_REGION_DMA_ONLY, and every call that needs the CPU fails with -EOPNOTSUPP.
 *
 * Peer-to-peer DMA into imported memory cannot be verified beforehand, as it is for memory that Strait allocates. The
 * p2p route is therefore taken only if it is requested, or the only one possible.
 *
 * The application brackets accesses through strait_region_map() with DMA_BUF_IOCTL_SYNC itself. The exporter may
 * revoke the memory: it is unmapped from devices then, and transfers fail.
 *
 * Return: 0; -EBADF; -EINVAL when @fd is not a dma-buf, or for a range that is misaligned or outside it; -EOVERFLOW;
 * -ENOMEM.
 */
STRAIT_API int strait_region_import_dmabuf(struct strait_context *ctx, int fd, uint64_t offset, uint64_t len,
					   uint32_t flags, struct strait_region **ret);

/**
 * strait_region_extent() - Find the device and the extent of an allocation
 * @ctx: the context
 * @addr: an address in memory of a device
 * @dev: set to the device; may be NULL
 * @len: set to the number of bytes from @addr that can be imported as one region
 *
 * Return: 0; -ENOENT when no provider knows the memory, as for host memory; -EFAULT when it belongs to a device that
 * this context does not have; -EINVAL.
 */
STRAIT_API int strait_region_extent(struct strait_context *ctx, const void *addr, struct strait_device **dev,
				    uint64_t *len);

/**
 * strait_region_close() - Close a handle of a region
 * @region: the region, or NULL
 *
 * Closing the last handle, including those of strait_region_lookup(), revokes the region: the call waits for its
 * transfers in flight, without a deadline, because their memory cannot be freed. Memory that Strait allocated is then
 * freed. Freeing CUDA memory waits for all streams of the device, hence for every transfer ordered on one; transfers
 * that are ordered meanwhile wait for it.
 */
STRAIT_API void strait_region_close(struct strait_region *region);

/**
 * strait_region_info() - Get the properties of a region
 * @region: the region
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_region_info(struct strait_region *region, struct strait_region_info *info);

/**
 * strait_region_lookup() - Find the region that contains an address
 * @ctx: the context
 * @addr: any address inside a region
 * @offset: set to the offset of @addr in the region; may be NULL
 * @ret: a new handle of the region, closed by the caller
 *
 * Of overlapping regions, the one that starts nearest before @addr is found.
 *
 * Return: 0; -ENOENT when no region contains @addr.
 */
STRAIT_API int strait_region_lookup(struct strait_context *ctx, const void *addr, uint64_t *offset,
				    struct strait_region **ret);

/**
 * strait_region_check() - Check that the memory of a region still exists
 * @region: the region
 *
 * Every transfer makes this check when it starts.
 *
 * Return: 0; -ENODEV when the region was revoked or its device removed; -ESTALE when the allocation
 * was freed.
 */
STRAIT_API int strait_region_check(struct strait_region *region);

/**
 * strait_region_revoke() - Stop all use of a region
 * @region: the region
 *
 * New transfers fail with -ENODEV. The call waits for transfers in flight, without a deadline. The handle remains and
 * is closed as usual. Must not be called from a revocation callback or from a host function on a stream.
 *
 * Return: 0; -EALREADY when it was already revoked.
 */
STRAIT_API int strait_region_revoke(struct strait_region *region);

/**
 * strait_region_on_revoke() - Set the callback for the revocation of a region
 * @region: the region
 * @fn: called once when the region is revoked or its device removed; NULL removes the callback
 * @arg: first argument of @fn
 *
 * Return: 0; -EOPNOTSUPP without STRAIT_REGION_NOTICE; -ENODEV when the region was already revoked: @fn is not called.
 */
STRAIT_API int strait_region_on_revoke(struct strait_region *region, strait_revoke_fn *fn, void *arg);

/**
 * strait_region_export_dmabuf() - Export a part of a region as a dma-buf
 * @region: the region
 * @offset: first byte, a multiple of the region's page size
 * @len: bytes, a multiple of the page size
 * @ret: a file descriptor, closed by the caller; it references the memory, not the region
 *
 * A region of strait_region_import_dmabuf() can only be exported as a whole, and only if it is the whole dma-buf.
 *
 * Return: 0; -EOPNOTSUPP when the provider, the allocation or the kernel does not support it; -EINVAL for a range
 * that is misaligned or outside the region; -ENODEV; -ESTALE.
 */
STRAIT_API int strait_region_export_dmabuf(struct strait_region *region, uint64_t offset, size_t len, int *ret);

/**
 * strait_region_map() - Get a CPU mapping of a region
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
 * On return the bytes are in device memory.
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
 * strait_region_compare() - Compare two ranges on the device
 * @a: a region
 * @a_offset: first byte in @a
 * @b: another or the same region, on the same device
 * @b_offset: first byte in @b
 * @len: bytes
 * @where: offset in the ranges of the first byte that differs; @len if they are equal
 *
 * Return: 0; -EXDEV when the regions are on different devices; -EINVAL; -ENODEV; -ESTALE; -EIO.
 */
STRAIT_API int strait_region_compare(struct strait_region *a, uint64_t a_offset, struct strait_region *b,
				     uint64_t b_offset, size_t len, uint64_t *where);

/**
 * strait_region_crc32c() - Compute the CRC-32C (Castagnoli) of a range on the device
 * @region: the region
 * @offset: first byte
 * @len: bytes
 * @crc: in: checksum of the preceding bytes, 0 to start; out: checksum including this range
 *
 * Return: 0; -EINVAL for a range outside the region; -ENODEV; -ESTALE; -EIO.
 */
STRAIT_API int strait_region_crc32c(struct strait_region *region, uint64_t offset, size_t len, uint32_t *crc);

#ifdef __cplusplus
}
#endif

#endif
