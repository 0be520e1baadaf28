/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_CONTEXT_H
#define STRAIT_CONTEXT_H

#include <strait/log.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRAIT_CONTEXT_NO_URING (1u << 0) /* do not use io_uring: worker threads do the direct I/O */

/**
 * struct strait_context_opts - Options of a context
 * @size: sizeof(struct strait_context_opts)
 * @flags: STRAIT_CONTEXT_*
 * @threads: most worker threads, started when first needed; 0: one per CPU, at least 2, at most 12
 * @pool_bytes: pinned staging memory per device, shared by all transfers, at least one chunk; 0: the default of the
 *	device
 * @chunk_bytes: size of one staging chunk, a power of two from 64 KiB to 64 MiB; 0: the default of the
 *	device
 * @pinned_budget: most bytes of page cache in the registration cache, of files that are promised not to change or under
 *	a lease; 0: 1 GiB
 * @queue_depth: direct I/O requests in flight per transfer; 0: 16
 * @log_level: highest level that is logged; 0: STRAIT_LOG_WARN
 * @log: receives log lines; NULL drops them
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
 * strait_context_open() - Open a context: the devices of this machine and the state of transfers
 * @opts: options, or NULL for the defaults
 * @ret: the context
 *
 * Looks for the devices of every provider. A provider without devices is not an error: strait_provider_info() tells
 * why. No thread is started. Contexts are independent of each other.
 *
 * Return: 0; -EINVAL for options out of range; -E2BIG for options that this library does not know;
 * -ENOMEM.
 */
STRAIT_API int strait_context_open(const struct strait_context_opts *opts, struct strait_context **ret);

/**
 * strait_context_close() - Close a context
 * @ctx: the context, or NULL
 *
 * Regions, endpoints, queues and streams reference their context: its threads end and its memory is freed when the last
 * of them is closed. The log callback is not called after that.
 */
STRAIT_API void strait_context_close(struct strait_context *ctx);

#ifdef __cplusplus
}
#endif

#endif
