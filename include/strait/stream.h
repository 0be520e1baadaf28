/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_STREAM_H
#define STRAIT_STREAM_H

#include <strait/transfer.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The parameters of the transfer already have their final values when it is enqueued. */
#define STRAIT_STREAM_FIXED (1u << 0)

typedef void strait_stream_fn(void *arg);
typedef void strait_stream_done_fn(void *arg, const struct strait_result *result);

/**
 * struct strait_stream_transfer - A transfer ordered on a stream
 * @size: sizeof(struct strait_stream_transfer)
 * @op: enum strait_op
 * @routes: as in struct strait_transfer
 * @endpoint: the file, namespace or card
 * @region: memory of the stream's device, or host memory
 * @endpoint_offset: points to the offset in the endpoint, which is read when the stream reaches the transfer
 * @region_offset: points to the offset in the region from @region_base, read when the stream reaches the transfer
 * @length: points to the length, read when the stream reaches the transfer
 * @result: set to the bytes transferred, or a negative errno, before later work on the stream runs; may be NULL
 * @region_base: offset in the region that @region_offset is relative to
 * @done: called on any thread when the transfer is complete, before @result is set and later work on the stream runs.
 *	Must not call the library. Not called if strait_stream_transfer() fails; may be NULL
 * @done_arg: first argument of @done
 * @flags: STRAIT_STREAM_FIXED if offsets and length have their final values: they may be read at once, and the transfer
 *	be prepared ahead of the stream
 * @reserved: 0
 *
 * @endpoint_offset, @region_offset, @length and @result must stay valid until the stream has passed the transfer.
 */
struct strait_stream_transfer {
	size_t size;
	uint32_t op;
	uint32_t routes;
	struct strait_endpoint *endpoint;
	struct strait_region *region;
	const uint64_t *endpoint_offset;
	const uint64_t *region_offset;
	const uint64_t *length;
	int64_t *result;
	uint64_t region_base;
	strait_stream_done_fn *done;
	void *done_arg;
	uint32_t flags;
	uint32_t reserved;
};

#define STRAIT_STREAM_TRANSFER_SIZE_V1 96

/**
 * strait_stream_open() - Create a stream: work on it runs in order
 * @dev: the device
 * @ret: the stream
 *
 * Return: 0; -EOPNOTSUPP when the device has no streams; -ENODEV; -ENOMEM.
 */
STRAIT_API int strait_stream_open(struct strait_device *dev, struct strait_stream **ret);

/**
 * strait_stream_import() - Use a stream that the application created
 * @dev: the device
 * @native: the provider's handle (a CUstream); NULL is the provider's default stream
 * @ret: the stream; the application still owns @native and destroys it after strait_stream_close()
 *
 * Return: 0; -EOPNOTSUPP when the provider has no streams of its own; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_stream_import(struct strait_device *dev, void *native, struct strait_stream **ret);

/**
 * strait_stream_close() - Wait for the work on a stream and free it
 * @stream: the stream, or NULL
 */
STRAIT_API void strait_stream_close(struct strait_stream *stream);

/**
 * strait_stream_call() - Enqueue a host function on a stream
 * @stream: the stream
 * @fn: called when all earlier work is complete; later work waits until it returns. On the emulated device it takes
 *	the place of a kernel
 * @arg: argument of @fn
 *
 * @fn must not call the library.
 *
 * Return: 0; -ENODEV; -EIO for a device error; -ENOMEM.
 */
STRAIT_API int strait_stream_call(struct strait_stream *stream, strait_stream_fn *fn, void *arg);

/**
 * strait_stream_transfer() - Enqueue a transfer on a stream
 * @stream: the stream
 * @t: the transfer
 *
 * Does not wait for the transfer. It starts when all earlier work on the stream is complete and reads its parameters
 * then; later work on the stream sees its result and its bytes. A transfer that fails stores its error in @t->result,
 * and the stream continues.
 *
 * Return: 0; -EINVAL; -EXDEV when the region is the memory of another device; -ENODEV; -EOPNOTSUPP; -ENOMEM.
 */
STRAIT_API int strait_stream_transfer(struct strait_stream *stream, const struct strait_stream_transfer *t);

/**
 * strait_stream_wait() - Wait until all work enqueued on a stream is complete
 * @stream: the stream
 * @timeout_ns: how long to wait; 0 polls; STRAIT_FOREVER
 *
 * Return: 0; -ETIMEDOUT; -EIO when work on the stream failed with a device error.
 */
STRAIT_API int strait_stream_wait(struct strait_stream *stream, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
