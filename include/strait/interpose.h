/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_INTERPOSE_H
#define STRAIT_INTERPOSE_H

/*
 * For libraries that serve another interface by Strait, such as libcufile, and for programs that use both. Not part of
 * the stable interface (docs/abi.md): it may change with any version.
 */

#include <strait/stream.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * strait_context_share() - Let the rest of the process have a context
 * @ctx: the context
 *
 * For a library on top of Strait: programs get its context with strait_context_shared(). A process has one shared
 * context; it keeps a reference until strait_context_unshare().
 *
 * Return: 0; -EBUSY when a context is shared already; -EINVAL; -EOWNERDEAD after fork().
 */
STRAIT_API int strait_context_share(struct strait_context *ctx);

/**
 * strait_context_unshare() - Take the offer of a context back
 * @ctx: the context that was shared
 *
 * Programs that have got it keep it.
 *
 * Return: 0; -ENOENT when it is not the one that is shared; -EINVAL; -EOWNERDEAD after fork().
 */
STRAIT_API int strait_context_unshare(struct strait_context *ctx);

/**
 * strait_context_shared() - The context that a library in this process works with
 * @ret: the context, closed by the caller
 *
 * Memory of an emulated device that is to be used with cuFile calls is allocated in that context; so are its
 * devices, its counters and what it says about routes those of the library.
 *
 * Return: 0; -ENOENT when no context is shared; -EINVAL.
 */
STRAIT_API int strait_context_shared(struct strait_context **ret);

/**
 * strait_stream_forget() - Free an imported stream that may not be there any more
 * @stream: the stream, or NULL
 *
 * For applications that do not say when they destroy their streams: waits for the transfers that were put on it,
 * as the work on a destroyed stream still runs, and does not touch the stream itself. One that was made by
 * strait_stream_open() is closed as by strait_stream_close().
 */
STRAIT_API void strait_stream_forget(struct strait_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
