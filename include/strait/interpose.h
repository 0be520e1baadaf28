/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_INTERPOSE_H
#define STRAIT_INTERPOSE_H

/*
 * For libraries that implement another interface on Strait, such as libcufile, and for programs that use both. Not part
 * of the stable interface (docs/abi.md): it may change with any version.
 */

#include <strait/stream.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * strait_context_share() - Share a context with the rest of the process
 * @ctx: the context
 *
 * Called by a library on Strait, so that programs get its context with strait_context_shared(). A process has at most
 * one shared context. It is referenced until strait_context_unshare().
 *
 * Return: 0; -EBUSY when a context is already shared; -EINVAL; -EOWNERDEAD after fork().
 */
STRAIT_API int strait_context_share(struct strait_context *ctx);

/**
 * strait_context_unshare() - Stop sharing a context
 * @ctx: the shared context
 *
 * References that strait_context_shared() has returned stay valid.
 *
 * Return: 0; -ENOENT when @ctx is not the shared context; -EINVAL; -EOWNERDEAD after fork().
 */
STRAIT_API int strait_context_unshare(struct strait_context *ctx);

/**
 * strait_context_shared() - Get the shared context of the process
 * @ret: the context, closed by the caller
 *
 * Memory of an emulated device must be allocated in this context to be used with cuFile calls. Its statistics and
 * routes are those of the library that shares it.
 *
 * Return: 0; -ENOENT when no context is shared; -EINVAL.
 */
STRAIT_API int strait_context_shared(struct strait_context **ret);

/**
 * strait_stream_detach() - Close an imported stream that may already be destroyed
 * @stream: the stream, or NULL
 *
 * For applications that do not report when they destroy their streams. Waits for the transfers on the stream, because
 * work on a destroyed stream still runs, and does not use the native stream. A stream of strait_stream_open() is closed
 * as by strait_stream_close().
 */
STRAIT_API void strait_stream_detach(struct strait_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
