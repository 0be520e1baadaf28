/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_STREAM_H
#define STRAIT_STREAM_H

#include <strait/transfer.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The parameters are what they will be when the stream reaches the transfer. */
#define STRAIT_STREAM_FIXED (1u << 0)

typedef void strait_stream_fn(void *arg);
typedef void strait_stream_done_fn(void *arg, const struct strait_result *result);

/**
 * struct strait_stream_transfer - A transfer ordered on a stream
 * @size: sizeof(struct strait_stream_transfer)
 * @op: enum strait_op
 * @routes: as in struct strait_transfer
 * @endpoint: one side
 * @region: the other side: memory of the stream's device, or of the host
 * @endpoint_offset: where the offset is found when the stream reaches the transfer
 * @region_offset: likewise; counted from @region_base on
 * @length: likewise
 * @result: where the bytes moved, or a negative errno, are stored before later work on the stream
 *	runs; may be NULL
 * @region_base: where in the region offsets are counted from
 * @done: called when the bytes have been moved, before @result is stored and later work on the stream runs, from
 *	any thread; must not call into the library; not called when strait_stream_transfer() has failed; may be
 *	NULL
 * @done_arg: first argument of @done
 * @flags: STRAIT_STREAM_FIXED if offsets and length do not change any more: what can be prepared is then prepared
 * @reserved: 0
 *
 * The four pointers must stay valid until the stream has passed the transfer.
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
 * strait_stream_open() - Make a stream: work on it runs in order
 * @dev: the device
 * @ret: the stream
 *
 * Return: 0; -EOPNOTSUPP when the device has no streams; -ENODEV; -ENOMEM.
 */
STRAIT_API int strait_stream_open(struct strait_device *dev, struct strait_stream **ret);

/**
 * strait_stream_import() - Use a stream the application made
 * @dev: the device
 * @native: the provider's own handle (a CUstream); NULL is the provider's default stream
 * @ret: the stream; the application keeps @native and destroys it after strait_stream_close()
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
 * strait_stream_call() - Put a host function on a stream
 * @stream: the stream
 * @fn: called when all earlier work is done; later work waits for it to return. On the emulated
 *	device this is what a kernel is
 * @arg: its argument
 *
 * @fn must not call into the library.
 *
 * Return: 0; -ENODEV; -EIO for a device error; -ENOMEM.
 */
STRAIT_API int strait_stream_call(struct strait_stream *stream, strait_stream_fn *fn, void *arg);

/**
 * strait_stream_transfer() - Put a transfer on a stream
 * @stream: the stream
 * @t: what, and where its parameters will be
 *
 * Returns at once. The transfer starts when all earlier work on the stream is done, reads its
 * parameters then, and later work on the stream sees its result and its bytes. A transfer that fails
 * stores its error in @t->result and the stream goes on.
 *
 * Return: 0; -EINVAL; -EXDEV when the region is the memory of another device; -ENODEV; -EOPNOTSUPP; -ENOMEM.
 */
STRAIT_API int strait_stream_transfer(struct strait_stream *stream, const struct strait_stream_transfer *t);

/**
 * strait_stream_wait() - Wait until all work put on a stream so far is done
 * @stream: the stream
 * @timeout_ns: how long; 0 to ask only; STRAIT_FOREVER
 *
 * Return: 0; -ETIMEDOUT; -EIO for a device error of work on the stream.
 */
STRAIT_API int strait_stream_wait(struct strait_stream *stream, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
