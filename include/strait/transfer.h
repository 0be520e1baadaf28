/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_TRANSFER_H
#define STRAIT_TRANSFER_H

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct strait_transfer - One transfer between a region and an endpoint
 * @op: enum strait_op
 * @routes: mask of STRAIT_ROUTE_MASK(): routes that may be used. STRAIT_ROUTE_ANY: the best route that is possible. The
 *	transfer fails with -EOPNOTSUPP when none of them is possible
 * @endpoint: the file, namespace or card
 * @region: the memory
 * @endpoint_offset: first byte in the endpoint
 * @region_offset: first byte in the region
 * @length: bytes; may be 0
 * @flags: 0
 * @reserved: 0
 * @user_data: returned in the result
 * @reserved_end: 0
 */
struct strait_transfer {
	uint32_t op;
	uint32_t routes;
	struct strait_endpoint *endpoint;
	struct strait_region *region;
	uint64_t endpoint_offset;
	uint64_t region_offset;
	uint64_t length;
	uint32_t flags;
	uint32_t reserved;
	uint64_t user_data;
	uint64_t reserved_end[2];
};

/**
 * struct strait_result - Result of a transfer
 * @user_data: of the request
 * @bytes: bytes transferred, contiguous from the start of the transfer. Fewer than requested with @status 0
 *	means that the file ends there
 * @status: 0 or a negative errno; @bytes were transferred before the failure
 * @device_status: the device's own error code (a CUresult, an NVMe status), 0 if it gave none
 * @routes: mask of the routes that transferred bytes
 * @reserved: 0
 * @route_bytes: bytes by route, indexed by enum strait_route; the sum can exceed @bytes after a failure
 * @reserved_end: 0
 *
 * A read with @status 0 does not modify the region past @bytes, on any route, also within the last block of the file.
 * If the file is truncated during the read, bytes up to its length at the start may have been written.
 *
 * A read that fails with an error of the file does not modify device memory past @bytes: bytes are copied to the device
 * only after all bytes before them have been read. On the host and p2p routes, and after a device error, pieces in
 * flight may have been written past @bytes, but never past the end of the file.
 *
 * A write that is buffered, or that extends the file, writes nothing past @bytes. Direct I/O that overwrites in place
 * may have been in flight past it.
 */
struct strait_result {
	uint64_t user_data;
	uint64_t bytes;
	int32_t status;
	int32_t device_status;
	uint32_t routes;
	uint32_t reserved;
	uint64_t route_bytes[STRAIT_ROUTES_MAX];
	uint64_t reserved_end[2];
};

/**
 * strait_read() - Read from an endpoint into a region and wait
 * @ep: the endpoint to read from
 * @ep_offset: first byte in the endpoint
 * @region: the region to read into
 * @offset: first byte in the region
 * @len: bytes
 *
 * On return the bytes are in device memory and visible to work that is started afterwards. The region is not modified
 * past the end of the file.
 *
 * Return: bytes read, fewer than @len only at the end of the file; a negative errno as of
 * strait_transfer_run().
 */
STRAIT_API ssize_t strait_read(struct strait_endpoint *ep, uint64_t ep_offset, struct strait_region *region,
			       uint64_t offset, size_t len);

/**
 * strait_write() - Write from a region to an endpoint and wait
 * @ep: the endpoint to write to
 * @ep_offset: first byte in the endpoint
 * @region: the region to write from
 * @offset: first byte in the region
 * @len: bytes
 *
 * On return the bytes are in the file as after write(2): strait_endpoint_sync() makes them durable.
 *
 * Return: @len; a negative errno as of strait_transfer_run().
 */
STRAIT_API ssize_t strait_write(struct strait_endpoint *ep, uint64_t ep_offset, struct strait_region *region,
				uint64_t offset, size_t len);

/**
 * strait_transfer_run() - Run one transfer and wait
 * @t: the request
 * @timeout_ns: deadline in nanoseconds from now; STRAIT_FOREVER for none
 * @result: filled if the request is valid, also on failure
 *
 * Past the deadline no further piece is started; the call waits for the pieces in flight and fails with -ETIMEDOUT
 * and the bytes transferred so far.
 *
 * Return: 0, also if the file ends early; -EINVAL for an invalid request, offsets that overflow or a range outside the
 * region; -EOPNOTSUPP when none of the requested routes is possible; -ENODEV or -ESTALE when the memory was revoked or
 * freed; -EBADF when the endpoint is not open for that direction; -EIO, -ENOSPC, ... of the file or the device;
 * -ETIMEDOUT; -ENOMEM.
 */
STRAIT_API int strait_transfer_run(const struct strait_transfer *t, int64_t timeout_ns, struct strait_result *result);

/**
 * struct strait_queue_opts - Options of a queue
 * @size: sizeof(struct strait_queue_opts)
 * @entries: most transfers in flight, including completed ones whose result was not fetched; 0: 1024
 * @flags: 0
 */
struct strait_queue_opts {
	size_t size;
	uint32_t entries;
	uint32_t flags;
};

#define STRAIT_QUEUE_OPTS_SIZE_V1 16

/**
 * strait_queue_open() - Open a queue for many concurrent transfers
 * @ctx: the context
 * @opts: options, or NULL for the defaults
 * @ret: the queue
 *
 * Transfers of a queue run concurrently and complete in any order. Small transfers are coalesced: read into one host
 * buffer, copied once, and scattered on the device.
 *
 * Submitted transfers make progress on worker threads of the context without further calls. strait_queue_submit() and
 * strait_queue_wait() may run transfers on the calling thread where that is faster; if no worker thread can be created,
 * they run all of them.
 *
 * Return: 0; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_queue_open(struct strait_context *ctx, const struct strait_queue_opts *opts,
				 struct strait_queue **ret);

/**
 * strait_queue_submit() - Start transfers
 * @queue: the queue
 * @t: an array of requests
 * @n: how many
 *
 * All or nothing: if a request is invalid, or the queue has no room for all of them, none is started. The requests
 * are copied. Their regions and endpoints stay referenced until completion.
 *
 * Return: 0; -EAGAIN when the queue is full: fetch results first; -EINVAL as of
 * strait_transfer_run(); -ENODEV; -ESTALE; -ESHUTDOWN when the queue is closing.
 */
STRAIT_API int strait_queue_submit(struct strait_queue *queue, const struct strait_transfer *t, unsigned int n);

/**
 * strait_queue_wait() - Fetch results
 * @queue: the queue
 * @min: wait for at least this many results, or for all in-flight transfers if there are fewer
 * @max: room in @results
 * @timeout_ns: how long to wait for @min; 0 polls; STRAIT_FOREVER waits without a limit
 * @results: filled
 *
 * A timeout is not an error: the results available are returned. Transfers that this call started continue on worker
 * threads. The call exceeds @timeout_ns only if no worker thread can be created.
 *
 * Return: number of results written, 0 to @max; -EINVAL if @min > @max.
 */
STRAIT_API int strait_queue_wait(struct strait_queue *queue, unsigned int min, unsigned int max, int64_t timeout_ns,
				 struct strait_result *results);

/**
 * strait_queue_fd() - Get a descriptor that is readable while results are available
 * @queue: the queue
 *
 * For poll(), select() and epoll, level-triggered or edge-triggered. The descriptor is readable (POLLIN) exactly while
 * a completed transfer's result has not been fetched by strait_queue_wait(). Transfers make progress without a thread
 * in strait_queue_wait(), so an event loop can wait for the descriptor and then fetch results with a timeout of 0. If
 * several threads do so, some may find that another thread has fetched the results.
 *
 * The first call creates the descriptor, which is close-on-exec and owned by the queue: later calls return the same
 * one, and strait_queue_close() closes it. Do not read, write or close it. Once it exists, a completion that makes the
 * queue non-empty and a fetch that empties it cost one system call each.
 *
 * Return: the descriptor; -EMFILE, -ENFILE, -ENOMEM.
 */
STRAIT_API int strait_queue_fd(struct strait_queue *queue);

/**
 * strait_queue_cancel() - Cancel transfers
 * @queue: the queue
 * @user_data: cancel the transfers with this value
 *
 * Transfers that have not started complete with -ECANCELED. Transfers in progress stop after the pieces in flight and
 * complete with -ECANCELED and the bytes transferred so far. Every transfer still delivers its result.
 *
 * The call visits every entry of the queue. To cancel many transfers at once, give them the same value.
 *
 * Return: number of transfers found in flight; -ENOENT if none.
 */
STRAIT_API int strait_queue_cancel(struct strait_queue *queue, uint64_t user_data);

/**
 * strait_queue_close() - Cancel in-flight transfers, wait for them, free the queue
 * @queue: the queue, or NULL
 *
 * Results that were not fetched are lost. No thread may start another call on the queue. Calls that other threads have
 * started are waited for; strait_queue_wait() among them returns once nothing is in flight.
 */
STRAIT_API void strait_queue_close(struct strait_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
