/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_NVME_H
#define STRAIT_NVME_H

/*
 * NVMe drives driven from user space: a controller, its queue pairs with raw commands, and its namespaces as endpoints
 * of transfers. The drive's DMA reads and writes the memory of regions, device memory included, without a copy in host
 * memory.
 *
 * The process owns the drive: bind it first (strait bind). The status of a command is reported beside the errno, in the
 * layout of the specification: status code in bits 0 to 7, status code type in 8 to 10, "do not retry" in 14.
 *
 * Experimental: not part of the stable interface (docs/abi.md), it may change with any version.
 */

#include <strait/reason.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_nvme;
struct strait_nvme_queue;
struct strait_nvme_map;

/* Flags of a controller. */
#define STRAIT_NVME_INTERRUPTS (1u << 0) /* endpoints sleep until the drive interrupts; without it they poll */
#define STRAIT_NVME_NO_SHADOW (1u << 1)	 /* no shadow doorbells, even if supported */
#define STRAIT_NVME_NO_SGL (1u << 2)	 /* PRP lists only, even if SGLs are supported */
/*
 * Map device memory even by a backend that cannot revoke it from the drive (vfio). If the memory is freed, or its owner
 * exits, the drive may write to memory that was since allocated to another process. Close regions before their memory
 * is freed.
 */
#define STRAIT_NVME_UNREVOCABLE (1u << 3)

/**
 * struct strait_nvme_opts - Options of a controller
 * @size: sizeof(struct strait_nvme_opts)
 * @backend: "strait" or "vfio", NULL for the driver it is bound to
 * @flags: STRAIT_NVME_INTERRUPTS, _NO_SHADOW, _NO_SGL, _UNREVOCABLE
 * @queues: I/O queue pairs that endpoints share; 0: one for each CPU, 8 at most
 * @entries: entries of each of these queues; 0: 256
 * @reserved: 0
 * @timeout_ns: timeout of a command, after which it is aborted; 0: 30 seconds
 * @queue_region: memory for the queue pairs of endpoints, NULL for host memory; must be CPU-mappable and
 *	stay open as long as the controller
 * @queue_offset: offset in @queue_region, a multiple of 4096
 */
struct strait_nvme_opts {
	size_t size;
	const char *backend;
	uint32_t flags;
	uint32_t queues;
	uint32_t entries;
	uint32_t reserved;
	uint64_t timeout_ns;
	struct strait_region *queue_region;
	uint64_t queue_offset;
};

#define STRAIT_NVME_OPTS_SIZE_V1 56

/* Capabilities of a controller. */
#define STRAIT_NVME_HAS_SGL (1u << 0)
#define STRAIT_NVME_HAS_SHADOW (1u << 1) /* shadow doorbells are in use */
#define STRAIT_NVME_HAS_CACHE (1u << 2)	 /* a volatile write cache: writes are durable after strait_endpoint_sync() */
#define STRAIT_NVME_HAS_ZEROES (1u << 3) /* write zeroes */
#define STRAIT_NVME_HAS_DEALLOCATE (1u << 4)
#define STRAIT_NVME_HAS_INTERRUPTS (1u << 5)
#define STRAIT_NVME_REVOKES (1u << 6) /* memory is unmapped from the drive before it is freed */

/**
 * struct strait_nvme_info - Properties and counters of a controller
 * @size: sizeof(struct strait_nvme_info), set by the caller
 * @name: its PCI address
 * @backend: the driver it is used through, "strait" or "vfio"
 * @serial: serial number
 * @model: model
 * @firmware: firmware revision
 * @vendor: PCI vendor ID
 * @device: PCI device ID
 * @version: version of the specification: 0x10400 is 1.4
 * @controller_id: controller ID in the subsystem
 * @page_size: memory page size in bytes
 * @max_entries: most entries of a queue
 * @max_queues: I/O queue pairs that it grants
 * @queues: I/O queue pairs in use
 * @max_transfer: most bytes of one command
 * @namespaces: active namespaces
 * @has: STRAIT_NVME_HAS_*, STRAIT_NVME_REVOKES
 * @node: NUMA node, -1 if unknown
 * @reserved: 0
 * @commands: commands completed since it was opened, by endpoints and queues
 * @failed: commands completed with an error
 * @timeouts: commands that timed out
 * @aborts: commands that were aborted
 * @resets: resets of the controller, because it did not answer or its answers were invalid
 * @events: asynchronous events reported
 * @lost_interrupts: completions found by polling after their interrupt did not arrive
 */
struct strait_nvme_info {
	size_t size;
	char name[16];
	char backend[16];
	char serial[24];
	char model[44];
	char firmware[12];
	uint16_t vendor;
	uint16_t device;
	uint32_t version;
	uint32_t controller_id;
	uint32_t page_size;
	uint32_t max_entries;
	uint32_t max_queues;
	uint32_t queues;
	uint32_t max_transfer;
	uint32_t namespaces;
	uint32_t has;
	int32_t node;
	uint32_t reserved;
	uint64_t commands;
	uint64_t failed;
	uint64_t timeouts;
	uint64_t aborts;
	uint64_t resets;
	uint64_t events;
	uint64_t lost_interrupts;
};

#define STRAIT_NVME_INFO_SIZE_V1 224

/**
 * struct strait_nvme_namespace - Properties of a namespace
 * @size: sizeof(struct strait_nvme_namespace), set by the caller
 * @nsid: namespace ID
 * @lba_bytes: bytes of a logical block
 * @metadata_bytes: bytes of metadata per block
 * @usable: 0, or the negative errno of strait_nvme_endpoint()
 * @blocks: size in blocks (NSZE)
 * @capacity: blocks that can be allocated at one time (NCAP)
 * @utilization: blocks allocated now (NUSE)
 * @reason: enum strait_reason: why it is not usable; STRAIT_WHY_NONE if it is
 * @protection: type of protection information, 0 for none
 */
struct strait_nvme_namespace {
	size_t size;
	uint32_t nsid;
	uint32_t lba_bytes;
	uint32_t metadata_bytes;
	int32_t usable;
	uint64_t blocks;
	uint64_t capacity;
	uint64_t utilization;
	uint32_t reason;
	uint32_t protection;
};

#define STRAIT_NVME_NAMESPACE_SIZE_V1 56

/* Flags of a command. */
#define STRAIT_NVME_RAW_DATA (1u << 0) /* @prp is used as it is; @map is ignored */

/**
 * struct strait_nvme_command - One command
 * @opcode: opcode of the specification
 * @flags: STRAIT_NVME_RAW_DATA
 * @reserved: 0
 * @nsid: namespace ID
 * @cdw2: dword 2
 * @cdw3: dword 3
 * @cdw10: dwords 10 to 15
 * @map: memory of the data; NULL for none
 * @offset: first byte in @map
 * @length: bytes of data; must agree with the fields of the command
 * @prp: both PRP entries, with STRAIT_NVME_RAW_DATA: addresses of strait_nvme_map_iova()
 * @timeout_ns: timeout; 0: that of the controller
 * @user_data: returned in the result
 */
struct strait_nvme_command {
	uint8_t opcode;
	uint8_t flags;
	uint16_t reserved;
	uint32_t nsid;
	uint32_t cdw2;
	uint32_t cdw3;
	uint32_t cdw10[6];
	struct strait_nvme_map *map;
	uint64_t offset;
	uint64_t length;
	uint64_t prp[2];
	uint64_t timeout_ns;
	uint64_t user_data;
};

/**
 * struct strait_nvme_result - Result of a command
 * @user_data: of the command
 * @status: 0 or a negative errno; -ETIMEDOUT for a command that timed out, -EIO for one that was ended by a reset of
 *	the controller
 * @nvme_status: status of the drive, 0 for success
 * @result: dword 0 of the completion
 * @reserved: 0
 */
struct strait_nvme_result {
	uint64_t user_data;
	int32_t status;
	uint32_t nvme_status;
	uint32_t result;
	uint32_t reserved;
};

/**
 * struct strait_nvme_event - An asynchronous event of a controller
 * @size: sizeof(struct strait_nvme_event), set by the caller
 * @type: event type of the specification: 0 error, 1 health, 2 notice
 * @info: event information of the specification
 * @log_page: log page that belongs to the event
 * @reserved: 0
 */
struct strait_nvme_event {
	size_t size;
	uint32_t type;
	uint32_t info;
	uint32_t log_page;
	uint32_t reserved;
};

#define STRAIT_NVME_EVENT_SIZE_V1 24

/**
 * struct strait_nvme_queue_opts - Options of a queue pair
 * @size: sizeof(struct strait_nvme_queue_opts)
 * @entries: entries of both queues; 0: 256
 * @flags: STRAIT_NVME_INTERRUPTS
 * @region: memory for both queues, NULL for host memory; must be CPU-mappable and stay open
 * @offset: offset in @region, a multiple of 4096
 */
struct strait_nvme_queue_opts {
	size_t size;
	uint32_t entries;
	uint32_t flags;
	struct strait_region *region;
	uint64_t offset;
};

#define STRAIT_NVME_QUEUE_OPTS_SIZE_V1 32

/* Flags of strait_nvme_endpoint(). */
#define STRAIT_NVME_READ_ONLY (1u << 0)
#define STRAIT_NVME_FUA (1u << 1) /* every write is durable on completion */

/**
 * struct strait_nvme_endpoint_info - Properties and counters of a namespace endpoint
 * @size: sizeof(struct strait_nvme_endpoint_info), set by the caller
 * @nsid: namespace ID
 * @lba_bytes: bytes of a logical block
 * @length: bytes of the namespace
 * @edge_reads: blocks read of which only a part was requested
 * @edge_writes: read-modify-write cycles of a block
 * @direct_bytes: bytes transferred by DMA to or from regions
 * @bounced_bytes: bytes transferred through a bounce buffer
 */
struct strait_nvme_endpoint_info {
	size_t size;
	uint32_t nsid;
	uint32_t lba_bytes;
	uint64_t length;
	uint64_t edge_reads;
	uint64_t edge_writes;
	uint64_t direct_bytes;
	uint64_t bounced_bytes;
};

#define STRAIT_NVME_ENDPOINT_INFO_SIZE_V1 56

/**
 * strait_nvme_open() - Open a controller: reset it, enable it, find its namespaces
 * @ctx: the context
 * @name: its PCI address: "0000:01:00.0"
 * @opts: options, or NULL for the defaults
 * @ret: the controller
 *
 * Return: 0; -ENODEV: no such device; -EBUSY: bound to another driver, or open in another process;
 * -EOPNOTSUPP: cannot be driven from user space: the log says why and what to do; -ETIMEDOUT: does not become ready;
 * -EPROTO: not an NVMe controller, or its answers are invalid; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_nvme_open(struct strait_context *ctx, const char *name, const struct strait_nvme_opts *opts,
				struct strait_nvme **ret);

/**
 * strait_nvme_close() - Close a controller
 * @nvme: the controller, or NULL
 *
 * Endpoints and queues reference the controller. When the last of them is closed it is shut down.
 */
STRAIT_API void strait_nvme_close(struct strait_nvme *nvme);

/**
 * strait_nvme_info() - Get the properties and counters of a controller
 * @nvme: the controller
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_nvme_info(struct strait_nvme *nvme, struct strait_nvme_info *info);

/**
 * strait_nvme_namespace() - Get the properties of a namespace
 * @nvme: the controller
 * @index: 0, 1, 2, ... in the order of namespace IDs
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -ENOENT past the last namespace; -EINVAL.
 */
STRAIT_API int strait_nvme_namespace(struct strait_nvme *nvme, unsigned int index, struct strait_nvme_namespace *info);

/**
 * strait_nvme_admin() - Run an admin command and wait
 * @nvme: the controller
 * @cmd: the command; its @map, @offset, @length and @prp are ignored
 * @data: host memory that the command reads or writes, as bits 0 and 1 of its opcode say; NULL for none
 * @len: bytes of @data, up to 64 KiB
 * @result: filled, also if the command fails
 *
 * Commands that create or delete queues, Abort and Asynchronous Event Request are reserved for the library.
 *
 * Return: 0; the status of the result; -EPERM for a reserved command; -EINVAL; -ENODEV.
 */
STRAIT_API int strait_nvme_admin(struct strait_nvme *nvme, const struct strait_nvme_command *cmd, void *data,
				 size_t len, struct strait_nvme_result *result);

/**
 * strait_nvme_log() - Read a log page
 * @nvme: the controller
 * @nsid: namespace ID, 0xffffffff for the controller
 * @page: log page identifier: 1 errors, 2 health, 3 firmware, ...
 * @offset: first byte, a multiple of 4
 * @buf: filled
 * @len: bytes, a multiple of 4
 *
 * Return: 0; -EINVAL; -EIO or another errno for the status of the drive.
 */
STRAIT_API int strait_nvme_log(struct strait_nvme *nvme, uint32_t nsid, uint32_t page, uint64_t offset, void *buf,
			       size_t len);

/**
 * strait_nvme_event() - Get the next asynchronous event
 * @nvme: the controller
 * @event: filled; @event->size must be set before
 *
 * The library has already updated its list of namespaces.
 *
 * Return: 0; -EAGAIN when there is none; -ENODEV.
 */
STRAIT_API int strait_nvme_event(struct strait_nvme *nvme, struct strait_nvme_event *event);

/**
 * strait_nvme_reset() - Reset and re-enable a controller
 * @nvme: the controller
 *
 * Commands in flight complete with -EIO. Queues and endpoints stay usable.
 *
 * Return: 0; -ETIMEDOUT or -ENODEV when it cannot be re-enabled: every later call fails.
 */
STRAIT_API int strait_nvme_reset(struct strait_nvme *nvme);

/**
 * strait_nvme_map() - Map a part of a region for a controller
 * @nvme: the controller
 * @region: the region: device memory or host memory
 * @offset: first byte
 * @len: bytes, not 0
 * @ret: the mapping
 *
 * Revoking or closing the region waits for commands that use the mapping and unmaps it; later commands fail with
 * -ENODEV.
 *
 * Return: 0; -EOPNOTSUPP when the backend cannot map such memory: the log says why; -EINVAL; -ENODEV;
 * -ESTALE; -ENOMEM.
 */
STRAIT_API int strait_nvme_map(struct strait_nvme *nvme, struct strait_region *region, uint64_t offset, uint64_t len,
			       struct strait_nvme_map **ret);

/**
 * strait_nvme_unmap() - Unmap memory
 * @map: the mapping, or NULL
 *
 * Waits for commands that use the mapping, except those with STRAIT_NVME_RAW_DATA. On return the drive cannot access
 * the memory.
 */
STRAIT_API void strait_nvme_unmap(struct strait_nvme_map *map);

/**
 * strait_nvme_map_iova() - Get the address by which the drive accesses a byte of a mapping
 * @map: the mapping
 * @offset: offset of the byte
 * @bus: set to its I/O virtual address
 * @run: set to the number of contiguous bytes from there
 *
 * Return: 0; -EINVAL outside the mapping; -ENODEV when the memory was revoked.
 */
STRAIT_API int strait_nvme_map_iova(struct strait_nvme_map *map, uint64_t offset, uint64_t *bus, uint64_t *run);

/**
 * strait_nvme_queue_open() - Create a queue pair
 * @nvme: the controller
 * @opts: options, or NULL for the defaults
 * @ret: the queue pair
 *
 * Return: 0; -ENOSPC when the controller grants no more; -EOPNOTSUPP for memory that cannot hold queues, or when there
 * are no interrupts; -EINVAL; -ENODEV; -ENOMEM.
 */
STRAIT_API int strait_nvme_queue_open(struct strait_nvme *nvme, const struct strait_nvme_queue_opts *opts,
				      struct strait_nvme_queue **ret);

/**
 * strait_nvme_queue_close() - Delete a queue pair
 * @queue: the queue pair, or NULL
 *
 * Waits for commands in flight, up to their timeouts. Results that were not fetched are lost.
 */
STRAIT_API void strait_nvme_queue_close(struct strait_nvme_queue *queue);

/**
 * strait_nvme_queue_submit() - Submit commands
 * @queue: the queue pair
 * @cmds: an array of commands
 * @n: how many
 *
 * The commands are copied and submitted with one doorbell write.
 *
 * Return: number of commands submitted, less than @n when the queue is full or a command is invalid. An errno of the
 * first command if none was submitted: -EINVAL for data outside its mapping, longer than the controller supports or not
 * aligned; -EAGAIN when the queue is full; -ENODEV when the controller failed or the memory was revoked.
 */
STRAIT_API int strait_nvme_queue_submit(struct strait_nvme_queue *queue, const struct strait_nvme_command *cmds,
					unsigned int n);

/**
 * strait_nvme_queue_wait() - Fetch results
 * @queue: the queue pair
 * @min: wait for at least this many results, or for all commands in flight if there are fewer
 * @max: room in @results
 * @timeout_ns: how long to wait for @min; 0 polls; STRAIT_FOREVER
 * @results: filled
 *
 * A command that times out is aborted, and if the abort fails the controller is reset: every command completes.
 *
 * Return: number of results written; -EINVAL if @min > @max.
 */
STRAIT_API int strait_nvme_queue_wait(struct strait_nvme_queue *queue, unsigned int min, unsigned int max,
				      int64_t timeout_ns, struct strait_nvme_result *results);

/**
 * strait_nvme_status_name() - Get the name of an NVMe status
 * @nvme_status: the status
 *
 * Return: "Success", "Unrecovered Read Error", ...; the name of the status code type for an unknown code.
 */
STRAIT_API const char *strait_nvme_status_name(uint32_t nvme_status);

/**
 * strait_nvme_endpoint() - Open a namespace as an endpoint of transfers
 * @nvme: the controller
 * @nsid: namespace ID
 * @flags: STRAIT_NVME_READ_ONLY, STRAIT_NVME_FUA
 * @ret: the endpoint; closed by strait_endpoint_close()
 *
 * Transfers may have any byte offset and length: partial writes of a block are read-modify-write cycles, one writer at
 * a time. strait_endpoint_sync() flushes the drive's write cache.
 *
 * Return: 0; -ENOENT: no such namespace; -EOPNOTSUPP for metadata, protection information or a
 * block size other than 512 and 4096 bytes; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_nvme_endpoint(struct strait_nvme *nvme, uint32_t nsid, uint32_t flags,
				    struct strait_endpoint **ret);

/**
 * strait_nvme_endpoint_info() - Get the properties and counters of a namespace endpoint
 * @ep: the endpoint
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL when @ep is not an endpoint of strait_nvme_endpoint(); -ENODEV when the namespace was removed.
 */
STRAIT_API int strait_nvme_endpoint_info(struct strait_endpoint *ep, struct strait_nvme_endpoint_info *info);

/**
 * strait_nvme_write_zeroes() - Set a range of a namespace to zeros without transferring data
 * @ep: the endpoint
 * @offset: first byte, a multiple of the block size
 * @len: bytes, a multiple of the block size
 *
 * Return: 0; -EINVAL; -EOPNOTSUPP when the drive does not support it; -EBADF when @ep is read-only; an errno for
 * the status of the drive.
 */
STRAIT_API int strait_nvme_write_zeroes(struct strait_endpoint *ep, uint64_t offset, uint64_t len);

/**
 * strait_nvme_deallocate() - Deallocate a range of a namespace
 * @ep: the endpoint
 * @offset: first byte, a multiple of the block size
 * @len: bytes, a multiple of the block size
 *
 * What later reads of the range return depends on the drive.
 *
 * Return: 0; -EINVAL; -EOPNOTSUPP when the drive does not support it; -EBADF when @ep is read-only; an errno for
 * the status of the drive.
 */
STRAIT_API int strait_nvme_deallocate(struct strait_endpoint *ep, uint64_t offset, uint64_t len);

#ifdef __cplusplus
}
#endif

#endif
