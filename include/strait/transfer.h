/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_TRANSFER_H
#define STRAIT_TRANSFER_H

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct strait_transfer - One request: (region, offset) <-> (endpoint, offset), length
 * @op: enum strait_op
 * @routes: mask of STRAIT_ROUTE_MASK() that may be used, STRAIT_ROUTE_ANY for the best there is;
 *	-EOPNOTSUPP when none of those asked for is possible
 * @endpoint: one side
 * @region: the other side
 * @endpoint_offset: first byte in the endpoint
 * @region_offset: first byte in the region
 * @length: bytes; may be 0
 * @flags: 0
 * @reserved: 0
 * @user_data: comes back in the result
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
 * struct strait_result - How a transfer went
 * @user_data: of the request
 * @bytes: good bytes, counted from the start of the transfer. Fewer than asked for with @status 0
 *	means the file ended there
 * @status: 0 or a negative errno; the @bytes before the failure are good all the same
 * @device_status: the device's own error code (a CUresult, an NVMe status), 0 if it gave none
 * @routes: mask of the routes that carried bytes
 * @reserved: 0
 * @route_bytes: bytes by route, indexed by enum strait_route; the sum can exceed @bytes after a failure
 * @reserved_end: 0
 *
 * A read that ends with @status 0 leaves the region untouched past @bytes, on every route and whatever
 * was asked for, also within the last block of the file. Only where the file is shortened while it is read,
 * bytes up to the length it had when the transfer began may have been written. A read that fails leaves the
 * region untouched past @bytes when the failure was the file's and the region is device memory: bytes
 * are copied to the device only when all before them have been read. On the host and p2p routes, and for a
 * device error, pieces in flight may have landed past it, but none past the end of the file. A write
 * that is buffered or extends the file puts nothing past @bytes into the file; direct overwrites in
 * place may have been in flight.
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
 * strait_read() - Read from an endpoint into a region and wait for it
 * @ep: from
 * @ep_offset: first byte in the endpoint
 * @region: to
 * @offset: first byte in the region
 * @len: bytes
 *
 * When it returns, the bytes are in device memory and visible to work started afterwards. Past the end
 * of the file the region keeps what it held.
 *
 * Return: bytes read, fewer than @len only at the end of the file; a negative errno as
 * strait_transfer_run() has them.
 */
STRAIT_API ssize_t strait_read(struct strait_endpoint *ep, uint64_t ep_offset, struct strait_region *region,
			       uint64_t offset, size_t len);

/**
 * strait_write() - Write from a region to an endpoint and wait for it
 * @ep: to
 * @ep_offset: first byte in the endpoint
 * @region: from
 * @offset: first byte in the region
 * @len: bytes
 *
 * When it returns, the file has the bytes as write(2) would have left them: strait_endpoint_sync()
 * makes them durable.
 *
 * Return: @len; a negative errno as strait_transfer_run() has them.
 */
STRAIT_API ssize_t strait_write(struct strait_endpoint *ep, uint64_t ep_offset, struct strait_region *region,
				uint64_t offset, size_t len);

/**
 * strait_transfer_run() - Run one transfer and wait for it
 * @t: the request
 * @timeout_ns: how long it may take; STRAIT_FOREVER, and nothing below it, for no limit
 * @result: filled whenever the request was well formed, also on failure
 *
 * When the time is up no further piece is started, the pieces in flight are waited for, and the
 * transfer fails with -ETIMEDOUT and the bytes moved so far.
 *
 * Return: 0, also when the file ended early; -EINVAL for a malformed request, offsets that overflow
 * or a range outside the region; -EOPNOTSUPP when a required route is not possible; -ENODEV and -ESTALE
 * when the memory is gone; -EBADF when the endpoint is not open for that direction; -EIO, -ENOSPC, ... from the file
 * or the device; -ETIMEDOUT; -ENOMEM.
 */
STRAIT_API int strait_transfer_run(const struct strait_transfer *t, int64_t timeout_ns, struct strait_result *result);

/**
 * struct strait_queue_opts - How a queue is set up
 * @size: sizeof(struct strait_queue_opts)
 * @entries: transfers in flight at most, completed ones not yet fetched included; 0: 1024
 * @flags: 0
 */
struct strait_queue_opts {
	size_t size;
	uint32_t entries;
	uint32_t flags;
};

#define STRAIT_QUEUE_OPTS_SIZE_V1 16

/**
 * strait_queue_open() - Make a queue for many transfers at once
 * @ctx: the context
 * @opts: how, or NULL for the defaults
 * @ret: the queue
 *
 * Transfers of one queue run concurrently and complete in any order. Small ones are gathered: one
 * host buffer, one copy, one scatter on the device.
 *
 * Whatever is submitted makes progress without further calls, on threads of the context. Submitting and waiting may run
 * transfers in the calling thread where that is sooner; where no thread can be created, they run all of them.
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
 * All or nothing: if one request is malformed or the queue has not room for all of them, none
 * starts. The requests are copied. Regions and endpoints named in them stay in use until completion.
 *
 * Return: 0; -EAGAIN when there is not enough room: fetch results first; -EINVAL as
 * strait_transfer_run(); -ENODEV; -ESTALE; -ESHUTDOWN when the queue is closing.
 */
STRAIT_API int strait_queue_submit(struct strait_queue *queue, const struct strait_transfer *t, unsigned int n);

/**
 * strait_queue_wait() - Fetch results
 * @queue: the queue
 * @min: wait for at least that many, or for all that are in flight if there are fewer
 * @max: room in @results
 * @timeout_ns: how long to wait for @min; 0 to poll; STRAIT_FOREVER, and nothing below it, for no limit
 * @results: filled
 *
 * A timeout is no error: what is there is returned. Transfers that this call has started go on without it. It takes
 * longer than @timeout_ns only where no thread can be created to go on with them.
 *
 * Return: how many results were written, 0 to @max; -EINVAL if @min > @max.
 */
STRAIT_API int strait_queue_wait(struct strait_queue *queue, unsigned int min, unsigned int max, int64_t timeout_ns,
				 struct strait_result *results);

/**
 * strait_queue_fd() - A descriptor that is readable while results wait
 * @queue: the queue
 *
 * For poll(), select() and epoll, level-triggered and edge-triggered alike: readable (POLLIN) from when a transfer
 * completes until strait_queue_wait() has fetched the last result that is there, and not otherwise. Transfers make
 * progress without any thread in strait_queue_wait(), so an event loop can wait for the descriptor and then fetch
 * results with a timeout of 0. If several threads do so, some may find the results fetched.
 *
 * The descriptor is made by the first call, is close-on-exec, and belongs to the queue: all calls return the same one,
 * strait_queue_close() closes it. Do not read, write or close it. With it a completion that makes the queue non-empty
 * and a fetch that empties it cost a system call each.
 *
 * Return: the descriptor; -EMFILE, -ENFILE, -ENOMEM.
 */
STRAIT_API int strait_queue_fd(struct strait_queue *queue);

/**
 * strait_queue_cancel() - Cancel transfers
 * @queue: the queue
 * @user_data: those with this value
 *
 * Transfers that have not started complete with -ECANCELED, transfers under way stop at the next piece
 * and complete with -ECANCELED and the bytes moved so far. Every transfer still delivers its result.
 *
 * The call looks at every entry of the queue: it takes time in proportion to the entries it was opened with. To cancel
 * many transfers at once, give them the same value.
 *
 * Return: how many were found in flight; -ENOENT if none.
 */
STRAIT_API int strait_queue_cancel(struct strait_queue *queue, uint64_t user_data);

/**
 * strait_queue_close() - Cancel what is in flight, wait for it, free the queue
 * @queue: the queue, or NULL
 *
 * Results not fetched are lost. No other call on the queue may begin any more; calls of other threads that have begun
 * are waited for, and a wait among them returns once nothing is in flight.
 */
STRAIT_API void strait_queue_close(struct strait_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
