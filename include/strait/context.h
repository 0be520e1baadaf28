/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_CONTEXT_H
#define STRAIT_CONTEXT_H

#include <strait/log.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRAIT_CONTEXT_NO_URING (1u << 0) /* never use io_uring: threads do the direct I/O */

/**
 * struct strait_context_opts - How a context is set up
 * @size: sizeof(struct strait_context_opts)
 * @flags: STRAIT_CONTEXT_*
 * @threads: worker threads at most, started when first needed; 0: one per CPU, at least 2, at most 12
 * @pool_bytes: pinned staging memory per device, shared by all transfers; 0: what suits the device.
 *	At least one chunk is kept whatever is asked
 * @chunk_bytes: size of one staging chunk, a power of two from 64 KiB to 64 MiB; 0: what suits the device
 * @pinned_budget: bytes of page cache that may stay registered between transfers under a read
 *	lease or promise; 0: 1 GiB
 * @queue_depth: direct I/O requests in flight per transfer; 0: 16
 * @log_level: lines above this level are not produced; 0: STRAIT_LOG_WARN
 * @log: receives log lines; NULL: they are dropped
 * @log_arg: first argument of @log
 */
struct strait_context_opts {
	size_t size;
	uint32_t flags;
	uint32_t threads;
	uint64_t pool_bytes;
	uint64_t chunk_bytes;
	uint64_t pinned_budget;
	uint32_t queue_depth;
	uint32_t log_level;
	strait_log_fn *log;
	void *log_arg;
};

#define STRAIT_CONTEXT_OPTS_SIZE_V1 64

/**
 * strait_context_open() - Open a context: the devices of this machine and what moves data to them
 * @opts: how, or NULL for the defaults
 * @ret: the context
 *
 * Looks for devices of every provider; a provider that finds none is no error (strait_provider_info()
 * tells why). Starts no thread. Contexts are independent of each other.
 *
 * Return: 0; -EINVAL for options out of range; -E2BIG for options this library does not know;
 * -ENOMEM.
 */
STRAIT_API int strait_context_open(const struct strait_context_opts *opts, struct strait_context **ret);

/**
 * strait_context_close() - Give a context back
 * @ctx: the context, or NULL
 *
 * Regions, endpoints, queues and streams made in the context keep it alive: its threads and memory
 * go when the last of them is closed. The log callback is not called after that.
 */
STRAIT_API void strait_context_close(struct strait_context *ctx);

#ifdef __cplusplus
}
#endif

#endif
