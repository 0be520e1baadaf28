/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_MAPPING_H
#define STRAIT_MAPPING_H

/*
 * Coherent mappings: a file mapped once, for the CPU and for devices, of which only changed 4 KiB granules are copied.
 * This header is experimental and not part of the stable interface (docs/abi.md); docs/mapping.md is the guide.
 */

#include <strait/endpoint.h>
#include <strait/stream.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_mapping;

/* The unit of versions, changes and copies, in bytes. */
#define STRAIT_MAPPING_GRANULE 4096

/* Flags of a mapping. */
#define STRAIT_MAPPING_READ_ONLY (1u << 0) /* neither CPU nor devices write: acquire for writing is -EACCES */
#define STRAIT_MAPPING_PRIVATE (1u << 1)   /* changes stay in this process and never reach the file */
#define STRAIT_MAPPING_COMPARE (1u << 2) /* find stores of the CPU by comparison, also where the kernel reports them */
#define STRAIT_MAPPING_COPY (1u << 3) /* give the CPU memory of its own, filled by page faults: STRAIT_BACKING_COPY */

/* What the side that acquires a range does with it. */
enum strait_intent {
	STRAIT_INTENT_READ = 0,	     /* loads only */
	STRAIT_INTENT_WRITE = 1,     /* loads, and stores to any part */
	STRAIT_INTENT_OVERWRITE = 2, /* stores to every byte, so the old ones are not fetched */
};

/* How stores of the CPU are found. */
enum strait_tracking {
	STRAIT_TRACKING_NONE = 0,    /* a read-only mapping */
	STRAIT_TRACKING_SCAN = 1,    /* asynchronous write protection and a scan of the page tables, Linux 6.7 */
	STRAIT_TRACKING_COMPARE = 2, /* comparison with a copy taken at acquire */
};

/* What the CPU's address is. */
enum strait_backing {
	STRAIT_BACKING_SHARED = 0, /* the file's own mapping, or anonymous memory: no second copy */
	STRAIT_BACKING_COPY = 1,   /* anonymous memory with copies of the file's bytes, as devices have them */
};

/* How a range will be used, for strait_mapping_advise(). */
enum strait_advice {
	STRAIT_ADVICE_NORMAL = 0,
	STRAIT_ADVICE_SEQUENTIAL = 1, /* from start to end: an acquire starts a prefetch of as many bytes behind it */
	STRAIT_ADVICE_RANDOM = 2,     /* in no order: nothing is read ahead */
	STRAIT_ADVICE_ONCE = 3,	      /* not again: evicted first */
	STRAIT_ADVICE_KEEP = 4,	      /* often: evicted last */
};

/**
 * struct strait_mapping_opts - Options of a mapping
 * @size: sizeof(struct strait_mapping_opts)
 * @flags: STRAIT_MAPPING_READ_ONLY, STRAIT_MAPPING_PRIVATE, STRAIT_MAPPING_COMPARE, STRAIT_MAPPING_COPY
 * @reserved: 0
 * @device_budget: most bytes of memory of each device, twins included; 0: as much as the device has
 * @pinned_budget: most bytes of pinned host memory for copies to and from each device; 0: 32 MiB
 * @copy_budget: STRAIT_BACKING_COPY: bytes of the CPU's copies beyond which others are evicted; 0: no limit
 */
struct strait_mapping_opts {
	size_t size;
	uint32_t flags;
	uint32_t reserved;
	uint64_t device_budget;
	uint64_t pinned_budget;
	uint64_t copy_budget;
};

#define STRAIT_MAPPING_OPTS_SIZE_V1 32

/**
 * struct strait_mapping_info - State and counters of a mapping
 * @size: sizeof(struct strait_mapping_info), set by the caller
 * @addr: address of the first byte for the CPU
 * @length: bytes
 * @offset: of the first byte in the file
 * @tracking: enum strait_tracking
 * @flags: STRAIT_MAPPING_* it was opened with
 * @acquired: ranges that are acquired and not released
 * @error: error of the last write-back that failed, 0 since strait_mapping_sync() succeeded; the bytes are kept. With
 *	STRAIT_BACKING_COPY also of a page that could not be read and holds zeros, until strait_mapping_sync() returned it
 * @to_device_bytes: bytes copied to devices
 * @to_host_bytes: bytes copied back from devices
 * @copies: batches of copies to or from a device; all granules of a batch are copied at once
 * @conflicts: granules that two sides changed without an acquire in between
 * @declared: granules that counted as changed because no twin fitted the budget, or the range was to be overwritten
 * @evictions: parts of device memory that were given to another range of the file, or freed
 * @device_bytes: device memory of the mapping now
 * @twin_bytes: of these, copies with which the device's memory is compared at release
 * @pinned_bytes: pinned host memory now
 * @backing: enum strait_backing
 * @reserved: 0
 * @copy_bytes: STRAIT_BACKING_COPY: memory of the CPU's copies now
 * @faults: STRAIT_BACKING_COPY: page faults that were handled
 * @copy_evictions: STRAIT_BACKING_COPY: copies of the CPU, 4 KiB each, that were evicted
 * @protect_ns: nanoseconds that acquires and releases of the CPU spent on write protection, or on copies to compare with
 * @scan_ns: that its releases spent on finding what was stored
 * @walk_ns: that was spent on the states of granules, summed over threads, as are those that follow
 * @stage_ns: on reading the file into pinned memory, and writing it from there
 * @device_ns: on copies between pinned memory and a device, or two devices, and waiting for them
 * @between_bytes: bytes copied from one device to another, without the host
 */
struct strait_mapping_info {
	size_t size;
	void *addr;
	uint64_t length;
	uint64_t offset;
	uint32_t tracking;
	uint32_t flags;
	uint32_t acquired;
	int32_t error;
	uint64_t to_device_bytes;
	uint64_t to_host_bytes;
	uint64_t copies;
	uint64_t conflicts;
	uint64_t declared;
	uint64_t evictions;
	uint64_t device_bytes;
	uint64_t twin_bytes;
	uint64_t pinned_bytes;
	uint32_t backing;
	uint32_t reserved;
	uint64_t copy_bytes;
	uint64_t faults;
	uint64_t copy_evictions;
	uint64_t protect_ns;
	uint64_t scan_ns;
	uint64_t walk_ns;
	uint64_t stage_ns;
	uint64_t device_ns;
	uint64_t between_bytes;
};

#define STRAIT_MAPPING_INFO_SIZE_V1 120

/**
 * strait_mapping_open() - Map a file for the CPU and for devices
 * @ctx: the context
 * @ep: a file or other endpoint open for reading, and for writing unless the mapping is read-only or private; NULL:
 *	anonymous memory, zeros at first
 * @offset: first byte in the file, a multiple of the page size
 * @length: bytes; 0: to the end of the file
 * @opts: options, or NULL for the defaults
 * @ret: the mapping
 *
 * The CPU's address (strait_mapping_info()) is the file's own mapping, as of mmap(2): there is one page cache, and no
 * second copy in host memory. A load or store past the end of a file that was truncated raises SIGBUS. Device memory is
 * allocated when a device first acquires a range.
 *
 * With STRAIT_MAPPING_COPY, and for endpoints that are no files, the address is memory with copies of the bytes instead,
 * which are written back as those of devices are. Pages past the end of a truncated file, or that cannot be read, hold
 * zeros. Where the kernel does not allow it, a file gets its own mapping: strait_mapping_info() has the @backing.
 *
 * Mappings of the same file, or other endpoint, in this process share their versions: what one of them publishes, all others see.
 *
 * Return: 0; -EINVAL for options, an offset or a range that is past the end of the file; -EACCES when the file is not open
 * for writing; -EOPNOTSUPP for an endpoint that cannot be mapped, or not privately; -E2BIG; -ENOMEM.
 */
STRAIT_API int strait_mapping_open(struct strait_context *ctx, struct strait_endpoint *ep, uint64_t offset,
				   uint64_t length, const struct strait_mapping_opts *opts,
				   struct strait_mapping **ret);

/**
 * strait_mapping_close() - Write back what devices have published and unmap
 * @mapping: the mapping, or NULL
 *
 * Waits for work ordered on streams that uses the mapping. Changes that were not released are lost, as are bytes that
 * cannot be written: strait_mapping_sync() reports those.
 */
STRAIT_API void strait_mapping_close(struct strait_mapping *mapping);

/**
 * strait_mapping_info() - Get state and counters of a mapping
 * @mapping: the mapping
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_mapping_info(struct strait_mapping *mapping, struct strait_mapping_info *info);

/**
 * strait_mapping_acquire() - Make the latest bytes of a range visible to one side, and wait
 * @mapping: the mapping
 * @dev: the device, or NULL for the CPU
 * @offset: first byte, in the mapping
 * @length: bytes, at least 1
 * @intent: enum strait_intent
 * @addr: set to the address of the range: on the device one contiguous range, valid until the range is released; may be
 *	NULL
 *
 * On return the side sees everything that any side has published by release before. Only granules that are stale are
 * copied. Ranges may overlap and be acquired several times; nothing is excluded: two sides that write to different
 * granules keep both changes. A granule that this side has acquired for writing is not updated before it is released.
 *
 * Return: 0; -EINVAL for a range outside the mapping; -EACCES for writing to a read-only mapping; -EFAULT when the file
 * was truncated before the end of the range; -ENOSPC when the range does not fit the device's budget beside what is
 * acquired; -EBUSY when a part of it is acquired at another address; -EIO, -ENOSPC, ... of the file; -ENODEV; -ENOMEM.
 */
STRAIT_API int strait_mapping_acquire(struct strait_mapping *mapping, struct strait_device *dev, uint64_t offset,
				      uint64_t length, uint32_t intent, void **addr);

/**
 * strait_mapping_release() - Publish what one side has changed in a range, and wait
 * @mapping: the mapping
 * @dev: the device, or NULL for the CPU
 * @offset: as acquired
 * @length: as acquired
 * @intent: as acquired
 *
 * For STRAIT_INTENT_WRITE the changed granules are found: of the CPU by the kernel or by comparison, of a device by
 * comparison with a twin in device memory. If no twin fits the budget, all granules of the range count as changed, as
 * they do for STRAIT_INTENT_OVERWRITE. Nothing is copied: that happens when another side acquires the range.
 *
 * Return: 0; -ENOENT when no such range is acquired; -ENODEV, -EIO for a device error: all granules of the range count as
 * changed then.
 */
STRAIT_API int strait_mapping_release(struct strait_mapping *mapping, struct strait_device *dev, uint64_t offset,
				      uint64_t length, uint32_t intent);

/**
 * strait_mapping_acquire_on() - Acquire a range for a device, in stream order
 * @mapping: the mapping
 * @stream: a stream of the device
 * @offset: first byte, in the mapping
 * @length: bytes, at least 1
 * @intent: enum strait_intent
 * @addr: set at once to the device address; may be NULL
 * @status: set to 0 or a negative errno before later work on the stream runs; may be NULL; valid until then
 *
 * Does not wait for the stream. The range is made current when the stream gets there, and later work sees it. Memory is
 * allocated by the call itself.
 *
 * Return: 0; -EOPNOTSUPP for a stream that is being captured; otherwise as strait_mapping_acquire().
 */
STRAIT_API int strait_mapping_acquire_on(struct strait_mapping *mapping, struct strait_stream *stream, uint64_t offset,
					 uint64_t length, uint32_t intent, void **addr, int *status);

/**
 * strait_mapping_release_on() - Release a range of a device, in stream order
 * @mapping: the mapping
 * @stream: a stream of the device
 * @offset: as acquired
 * @length: as acquired
 * @intent: as acquired
 * @status: set to 0 or a negative errno before later work on the stream runs; may be NULL; valid until then
 *
 * The changes are published when the stream gets there. Another side that acquires the range sees them if it does so after
 * it has waited for the stream, or on a stream that waits for this one.
 *
 * Return: 0; -EOPNOTSUPP for a stream that is being captured; otherwise as strait_mapping_release().
 */
STRAIT_API int strait_mapping_release_on(struct strait_mapping *mapping, struct strait_stream *stream, uint64_t offset,
					 uint64_t length, uint32_t intent, int *status);

/**
 * strait_mapping_refresh() - See changes that other processes, or write(2), made to the file
 * @mapping: the mapping
 * @offset: first byte, in the mapping
 * @length: bytes
 *
 * The CPU sees such changes by itself. Devices see them at their next acquire after this call.
 *
 * Return: 0; -EBUSY, with nothing done, when a device has bytes in the range that are not written to the file, or the
 * range is acquired for writing; -EINVAL for a range outside the mapping, or a mapping without a file.
 */
STRAIT_API int strait_mapping_refresh(struct strait_mapping *mapping, uint64_t offset, uint64_t length);

/**
 * strait_mapping_flush() - Write bytes that devices have published to the file
 * @mapping: the mapping
 * @offset: first byte, in the mapping
 * @length: bytes
 *
 * Never extends the file: what lies past its end is dropped, as for a mapping of mmap(2).
 *
 * Return: 0; -ENOSPC, -EIO, ... of the file or the device: the bytes stay on the device; -EINVAL.
 */
STRAIT_API int strait_mapping_flush(struct strait_mapping *mapping, uint64_t offset, uint64_t length);

/**
 * strait_mapping_sync() - Flush, then make the file durable
 * @mapping: the mapping
 * @offset: first byte, in the mapping
 * @length: bytes
 *
 * Return: 0; as of strait_mapping_flush() and strait_endpoint_sync().
 */
STRAIT_API int strait_mapping_sync(struct strait_mapping *mapping, uint64_t offset, uint64_t length);

/**
 * strait_mapping_prefetch() - Start to make a range current for one side
 * @mapping: the mapping
 * @dev: the device, or NULL for the CPU
 * @offset: first byte, in the mapping
 * @length: bytes, at least 1
 *
 * A hint: runs on a worker thread, and a failure shows at the acquire that follows.
 *
 * Return: 0; -EINVAL for a range outside the mapping; -ENOMEM.
 */
STRAIT_API int strait_mapping_prefetch(struct strait_mapping *mapping, struct strait_device *dev, uint64_t offset,
				       uint64_t length);

/**
 * strait_mapping_advise() - Say how a range will be used
 * @mapping: the mapping
 * @offset: first byte, in the mapping
 * @length: bytes
 * @advice: enum strait_advice; it applies to all 64 KiB that the range touches, and replaces the advice before
 *
 * A hint, for the CPU and for devices: what any side sees does not depend on it.
 *
 * Return: 0; -EINVAL for a range outside the mapping, or unknown advice; -ENOMEM.
 */
STRAIT_API int strait_mapping_advise(struct strait_mapping *mapping, uint64_t offset, uint64_t length, uint32_t advice);

/**
 * strait_mapping_evict() - Write back and give up the copies that one side has of a range
 * @mapping: the mapping
 * @dev: the device, or NULL for the CPU
 * @offset: first byte, in the mapping
 * @length: bytes
 *
 * Device memory is freed where it holds nothing else. The page cache belongs to the kernel: for the CPU this does something
 * with STRAIT_BACKING_COPY only.
 *
 * Return: 0; -EBUSY when a part of the range is acquired by that side; -EINVAL for a range outside the mapping; -EIO,
 * -ENOSPC, ... of the file or the device: the bytes are kept.
 */
STRAIT_API int strait_mapping_evict(struct strait_mapping *mapping, struct strait_device *dev, uint64_t offset,
				    uint64_t length);

#ifdef __cplusplus
}
#endif

#endif
