/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_NVME_H
#define STRAIT_NVME_H

/*
 * NVMe drives driven from user space: a controller with its queue pairs and raw commands, for those who
 * want them, and its namespaces as endpoints of transfers. The drive moves bytes to and from regions
 * itself: device memory needs no stop in host memory.
 *
 * The drive belongs to the process: bind it first (strait bind). A status of the drive travels beside the
 * errno, as the specification has it: code in bits 0 to 7, type in 8 to 10, "do not retry" in 14.
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

/* How a controller is used. */
#define STRAIT_NVME_INTERRUPTS (1u << 0) /* endpoints sleep until the drive interrupts; they poll without */
#define STRAIT_NVME_NO_SHADOW (1u << 1)	 /* no shadow doorbells, even if offered */
#define STRAIT_NVME_NO_SGL (1u << 2)	 /* PRP lists only, even if SGLs are offered */
/*
 * Map device memory even by a backend that cannot take it away from the drive (vfio): if its owner frees it
 * or dies, the drive may write to memory that is another's by then. Close regions before their memory goes.
 */
#define STRAIT_NVME_UNREVOCABLE (1u << 3)

/**
 * struct strait_nvme_opts - How a controller is opened
 * @size: sizeof(struct strait_nvme_opts)
 * @backend: "strait" or "vfio", NULL for the driver it is bound to
 * @flags: STRAIT_NVME_INTERRUPTS and the like
 * @queues: I/O queue pairs that endpoints share; 0: one for each CPU, 8 at most
 * @entries: of each of those; 0: 256
 * @reserved: 0
 * @timeout_ns: how long a command may take before it is aborted; 0: 30 seconds
 * @queue_region: memory for the queue pairs of endpoints, NULL for host memory; must be CPU-mappable and
 *	stay open as long as the controller
 * @queue_offset: where in @queue_region, a multiple of 4096
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

/* What a controller offers. */
#define STRAIT_NVME_HAS_SGL (1u << 0)
#define STRAIT_NVME_HAS_SHADOW (1u << 1) /* shadow doorbells are in use */
#define STRAIT_NVME_HAS_CACHE (1u << 2)	 /* a volatile write cache: flush before you rely on it */
#define STRAIT_NVME_HAS_ZEROES (1u << 3) /* write zeroes */
#define STRAIT_NVME_HAS_DEALLOCATE (1u << 4)
#define STRAIT_NVME_HAS_INTERRUPTS (1u << 5)
#define STRAIT_NVME_REVOKES (1u << 6) /* the drive cannot reach memory that was given back */

/**
 * struct strait_nvme_info - What is known about a controller
 * @size: sizeof(struct strait_nvme_info), set by the caller
 * @name: its PCI address
 * @backend: who gives access to it
 * @serial: serial number
 * @model: model
 * @firmware: firmware revision
 * @vendor: PCI vendor
 * @device: PCI device
 * @version: of the specification: 0x10400 is 1.4
 * @controller_id: its number in the subsystem
 * @page_size: of its memory
 * @max_entries: of a queue
 * @max_queues: I/O queue pairs it grants
 * @queues: of those in use
 * @max_transfer: bytes of one command
 * @namespaces: that are active
 * @has: STRAIT_NVME_HAS_*
 * @node: NUMA, -1 if unknown
 * @reserved: 0
 * @commands: completed since it was opened, by endpoints and queues
 * @failed: of those with an error
 * @timeouts: commands that took too long
 * @aborts: of those asked back
 * @resets: of the controller, because it did not answer or answered nonsense
 * @events: asynchronous events it reported
 * @lost_interrupts: completions found without the interrupt that should have told of them
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
 * struct strait_nvme_namespace - What is known about a namespace
 * @size: sizeof(struct strait_nvme_namespace), set by the caller
 * @nsid: its number
 * @lba_bytes: of a block
 * @metadata_bytes: beside each block
 * @usable: 0, or the negative errno of opening it as an endpoint
 * @blocks: how many there are
 * @capacity: of those that can be allocated at one time
 * @utilization: of those allocated now
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
#define STRAIT_NVME_RAW_DATA (1u << 0) /* @prp is put into the command as it is; @map is not looked at */

/**
 * struct strait_nvme_command - One command
 * @opcode: as the specification has it
 * @flags: STRAIT_NVME_RAW_DATA
 * @reserved: 0
 * @nsid: namespace
 * @cdw2: dword 2
 * @cdw3: dword 3
 * @cdw10: dwords 10 to 15
 * @map: memory that data is moved to or from; NULL for none
 * @offset: first byte in @map
 * @length: bytes; what the command's own fields say must agree
 * @prp: both PRP entries, with STRAIT_NVME_RAW_DATA: bus addresses of strait_nvme_map_iova()
 * @timeout_ns: how long it may take; 0: as the controller was opened
 * @user_data: comes back in the result
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
 * struct strait_nvme_result - How a command went
 * @user_data: of the command
 * @status: 0 or a negative errno; -ETIMEDOUT for a command that took too long, -EIO for one that a reset of
 *	the controller ended
 * @nvme_status: the drive's own, 0 for success
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
 * struct strait_nvme_event - Something a controller reports by itself
 * @size: sizeof(struct strait_nvme_event), set by the caller
 * @type: 0 error, 1 health, 2 notice, as the specification has it
 * @info: what of that type
 * @log_page: where more is to be read
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
 * struct strait_nvme_queue_opts - How a queue pair is made
 * @size: sizeof(struct strait_nvme_queue_opts)
 * @entries: of both queues; 0: 256
 * @flags: STRAIT_NVME_INTERRUPTS
 * @region: memory for both queues, NULL for host memory; must be CPU-mappable and stay open
 * @offset: where in @region, a multiple of 4096
 */
struct strait_nvme_queue_opts {
	size_t size;
	uint32_t entries;
	uint32_t flags;
	struct strait_region *region;
	uint64_t offset;
};

#define STRAIT_NVME_QUEUE_OPTS_SIZE_V1 32

/* Flags of a namespace as an endpoint. */
#define STRAIT_NVME_READ_ONLY (1u << 0)
#define STRAIT_NVME_FUA (1u << 1) /* every write is durable when it is done */

/**
 * struct strait_nvme_endpoint_info - What is known about a namespace that is an endpoint
 * @size: sizeof(struct strait_nvme_endpoint_info), set by the caller
 * @nsid: the namespace
 * @lba_bytes: of a block
 * @length: bytes
 * @edge_reads: reads of a block of which only a part was wanted
 * @edge_writes: blocks that were read, changed and written, one at a time each
 * @direct_bytes: moved by the drive straight to or from regions
 * @bounced_bytes: moved through memory of the endpoint's own
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
 * strait_nvme_open() - Take a controller: reset it, enable it, find its namespaces
 * @ctx: the context
 * @name: its PCI address: "0000:01:00.0"
 * @opts: how, or NULL for the defaults
 * @ret: the controller
 *
 * Return: 0; -ENODEV: no such device; -EBUSY: bound to another driver, or open elsewhere; -EOPNOTSUPP:
 * cannot be driven from user space, and the log says what would have to change; -ETIMEDOUT: it does not
 * become ready; -EPROTO: it is no NVMe controller, or answers nonsense; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_nvme_open(struct strait_context *ctx, const char *name, const struct strait_nvme_opts *opts,
				struct strait_nvme **ret);

/**
 * strait_nvme_close() - Give a controller back
 * @nvme: the controller, or NULL
 *
 * Endpoints and queues keep it. With the last of them it is told to shut down, and waited for.
 */
STRAIT_API void strait_nvme_close(struct strait_nvme *nvme);

/**
 * strait_nvme_info() - What is known about a controller
 * @nvme: the controller
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_nvme_info(struct strait_nvme *nvme, struct strait_nvme_info *info);

/**
 * strait_nvme_namespace() - What is known about a namespace
 * @nvme: the controller
 * @index: 0, 1, 2, ... in the order of their numbers
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -ENOENT when there are not so many; -EINVAL.
 */
STRAIT_API int strait_nvme_namespace(struct strait_nvme *nvme, unsigned int index, struct strait_nvme_namespace *info);

/**
 * strait_nvme_admin() - Run one admin command and wait for it
 * @nvme: the controller
 * @cmd: the command; its @map, @offset, @length and @prp are not looked at
 * @data: host memory that it fills or takes, as bits 0 and 1 of its opcode say; NULL for none
 * @len: bytes of that, up to 64 KiB
 * @result: filled, also on failure of the command
 *
 * Commands that make or delete queues, abort, or wait for events are the library's own.
 *
 * Return: 0; the result's status; -EPERM for a command that is the library's own; -EINVAL; -ENODEV.
 */
STRAIT_API int strait_nvme_admin(struct strait_nvme *nvme, const struct strait_nvme_command *cmd, void *data,
				 size_t len, struct strait_nvme_result *result);

/**
 * strait_nvme_log() - Read a log page
 * @nvme: the controller
 * @nsid: of the namespace, 0xffffffff for the controller
 * @page: its number: 1 errors, 2 health, 3 firmware, ...
 * @offset: first byte, a multiple of 4
 * @buf: filled
 * @len: bytes, a multiple of 4
 *
 * Return: 0; -EINVAL; -EIO and the like as the drive says.
 */
STRAIT_API int strait_nvme_log(struct strait_nvme *nvme, uint32_t nsid, uint32_t page, uint64_t offset, void *buf,
			       size_t len);

/**
 * strait_nvme_event() - The next thing a controller has reported by itself
 * @nvme: the controller
 * @event: filled; @event->size must be set before
 *
 * Changes of namespaces have been looked at by then.
 *
 * Return: 0; -EAGAIN when there is none; -ENODEV.
 */
STRAIT_API int strait_nvme_event(struct strait_nvme *nvme, struct strait_nvme_event *event);

/**
 * strait_nvme_reset() - Reset a controller and bring it back
 * @nvme: the controller
 *
 * Commands in flight end with -EIO. Queues and endpoints stay usable.
 *
 * Return: 0; -ETIMEDOUT and -ENODEV when it does not come back: nothing on it works any more.
 */
STRAIT_API int strait_nvme_reset(struct strait_nvme *nvme);

/**
 * strait_nvme_map() - Make a part of a region reachable for a controller
 * @nvme: the controller
 * @region: the region: device memory or host memory
 * @offset: first byte
 * @len: bytes, not 0
 * @ret: the mapping
 *
 * It dies with the region: commands that use it are waited for then, later ones get -ENODEV.
 *
 * Return: 0; -EOPNOTSUPP when the backend cannot map such memory: the log says why; -EINVAL; -ENODEV;
 * -ESTALE; -ENOMEM.
 */
STRAIT_API int strait_nvme_map(struct strait_nvme *nvme, struct strait_region *region, uint64_t offset, uint64_t len,
			       struct strait_nvme_map **ret);

/**
 * strait_nvme_unmap() - Undo a mapping
 * @map: the mapping, or NULL
 *
 * Commands of the library that use it are waited for. When it returns the drive reaches the memory no more.
 */
STRAIT_API void strait_nvme_unmap(struct strait_nvme_map *map);

/**
 * strait_nvme_map_iova() - Where the drive sees a byte of a mapping
 * @map: the mapping
 * @offset: of the byte
 * @bus: its address
 * @run: how many bytes from there on are contiguous
 *
 * Return: 0; -EINVAL outside the mapping; -ENODEV when the memory is gone.
 */
STRAIT_API int strait_nvme_map_iova(struct strait_nvme_map *map, uint64_t offset, uint64_t *bus, uint64_t *run);

/**
 * strait_nvme_queue_open() - Make a queue pair
 * @nvme: the controller
 * @opts: how, or NULL for the defaults
 * @ret: the queue pair
 *
 * Return: 0; -ENOSPC when the controller grants no more; -EOPNOTSUPP for memory it cannot be put into, or
 * without interrupts; -EINVAL; -ENODEV; -ENOMEM.
 */
STRAIT_API int strait_nvme_queue_open(struct strait_nvme *nvme, const struct strait_nvme_queue_opts *opts,
				      struct strait_nvme_queue **ret);

/**
 * strait_nvme_queue_close() - Delete a queue pair
 * @queue: the queue pair, or NULL
 *
 * Commands in flight are waited for, as long as they may take. Results not fetched are lost.
 */
STRAIT_API void strait_nvme_queue_close(struct strait_nvme_queue *queue);

/**
 * strait_nvme_queue_submit() - Start commands
 * @queue: the queue pair
 * @cmds: an array of commands
 * @n: how many
 *
 * They are copied. One doorbell tells the drive of them all.
 *
 * Return: how many were started, less than @n when the queue is full; what is wrong with the first one
 * otherwise: -EINVAL for data outside its mapping, longer than a command may move, or aligned as the
 * controller cannot take it; -EAGAIN when there is no room; -ENODEV when controller or memory is gone.
 */
STRAIT_API int strait_nvme_queue_submit(struct strait_nvme_queue *queue, const struct strait_nvme_command *cmds,
					unsigned int n);

/**
 * strait_nvme_queue_wait() - Fetch results
 * @queue: the queue pair
 * @min: wait for at least that many, or for all that are in flight if there are fewer
 * @max: room in @results
 * @timeout_ns: how long to wait for @min; 0 to poll; STRAIT_FOREVER
 * @results: filled
 *
 * A command that took too long is aborted here, and if that does not help the controller reset: so all
 * commands end.
 *
 * Return: how many results were written; -EINVAL if @min > @max.
 */
STRAIT_API int strait_nvme_queue_wait(struct strait_nvme_queue *queue, unsigned int min, unsigned int max,
				      int64_t timeout_ns, struct strait_nvme_result *results);

/**
 * strait_nvme_status_name() - The name of a drive's status
 * @nvme_status: the status
 *
 * Return: "Success", "Unrecovered Read Error", ...; the name of its type where the code is not known.
 */
STRAIT_API const char *strait_nvme_status_name(uint32_t nvme_status);

/**
 * strait_nvme_endpoint() - A namespace as an endpoint of transfers
 * @nvme: the controller
 * @nsid: the namespace
 * @flags: STRAIT_NVME_READ_ONLY, STRAIT_NVME_FUA
 * @ret: the endpoint; closed by strait_endpoint_close()
 *
 * Any byte offset and length can be moved: blocks of which only a part is written are read, changed and
 * written back, one writer at a time. strait_endpoint_sync() flushes the drive's cache.
 *
 * Return: 0; -ENOENT: no such namespace; -EOPNOTSUPP for metadata, protection information or blocks of
 * another size than 512 and 4096 bytes; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_nvme_endpoint(struct strait_nvme *nvme, uint32_t nsid, uint32_t flags,
				    struct strait_endpoint **ret);

/**
 * strait_nvme_endpoint_info() - What is known about a namespace that is an endpoint
 * @ep: the endpoint
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL when it is not of strait_nvme_endpoint(); -ENODEV when the namespace is gone.
 */
STRAIT_API int strait_nvme_endpoint_info(struct strait_endpoint *ep, struct strait_nvme_endpoint_info *info);

/**
 * strait_nvme_write_zeroes() - Fill a part of a namespace with zeros, without moving any
 * @ep: the endpoint
 * @offset: first byte, a multiple of the block
 * @len: bytes, likewise
 *
 * Return: 0; -EINVAL; -EOPNOTSUPP when the drive cannot; -EBADF when it is read-only; what the drive says.
 */
STRAIT_API int strait_nvme_write_zeroes(struct strait_endpoint *ep, uint64_t offset, uint64_t len);

/**
 * strait_nvme_deallocate() - Tell the drive that a part of a namespace is not needed
 * @ep: the endpoint
 * @offset: first byte, a multiple of the block
 * @len: bytes, likewise
 *
 * What it reads as afterwards is the drive's choice.
 *
 * Return: 0; -EINVAL; -EOPNOTSUPP when the drive cannot; -EBADF when it is read-only; what the drive says.
 */
STRAIT_API int strait_nvme_deallocate(struct strait_endpoint *ep, uint64_t offset, uint64_t len);

#ifdef __cplusplus
}
#endif

#endif
