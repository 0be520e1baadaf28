/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_FRAMES_H
#define STRAIT_FRAMES_H

/*
 * Frames: device memory that holds pages of a mapping, filled when threads of the device touch them (strait/view.h).
 * This header is experimental and not part of the stable interface (docs/abi.md); docs/view.md is the guide.
 */

#include <strait/mapping.h>
#include <strait/stream.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_frames;
struct strait_view;

/* Flags of frames. */
#define STRAIT_FRAMES_NO_WINDOWS                                                                                       \
	(1u << 0) /* read through the host's threads, also where page cache could be registered */
#define STRAIT_FRAMES_SOLE_WRITER                                                                                      \
	(1u << 1) /* only this mapping changes the file, so windows are used for writing too */

/**
 * struct strait_frames_opts - Options of frames
 * @size: sizeof(struct strait_frames_opts)
 * @flags: STRAIT_FRAMES_*
 * @frame_bytes: bytes of a frame: 4096, 16384, 65536 or 2097152; 0: 65536
 * @device_budget: most bytes of device memory for frames; 0: the mapping's, and at most half of what is free
 * @window_budget: most bytes of page cache to register; 0: all of the mapping
 * @threads: threads of the host that serve requests; 0: 2
 * @slots: requests in flight, at most 1024; 0: 256
 * @pins: frames that strait_view_pin() may hold at a time: pins of a thread times threads that run at once; 0: a pin that
 *	finds no frame fails with -ENOBUFS instead of waiting
 * @reserved: 0
 * @timeout_ns: how long device threads wait for the host; 0: 30 s
 */
struct strait_frames_opts {
	size_t size;
	uint32_t flags;
	uint32_t frame_bytes;
	uint64_t device_budget;
	uint64_t window_budget;
	uint32_t threads;
	uint32_t slots;
	uint32_t pins;
	uint32_t reserved;
	uint64_t timeout_ns;
};

#define STRAIT_FRAMES_OPTS_SIZE_V1 56

/**
 * struct strait_frames_info - State and counters of frames
 * @size: sizeof(struct strait_frames_info), set by the caller
 * @frames: how many
 * @frame_bytes: bytes of each
 * @device_bytes: device memory, tables included
 * @pinned_bytes: pinned host memory of requests
 * @window_bytes: page cache that is registered and read in place
 * @fetched: granules of 4 KiB that the host read for the device
 * @pulled: granules that the device read from windows
 * @stored: granules written back, by the device's request or at strait_view_end()
 * @evictions: frames that were taken from one page for another
 * @dropped: granules that were not current any more at strait_view_begin()
 * @failures: granules that could not be read or written in the last run
 * @error: of the first failure of the last run, a negative errno; 0: none
 * @begun: 1 between strait_view_begin() and the end of strait_view_end()
 * @error_offset: where in the mapping that was
 *
 * Counters are those of the last strait_view_end().
 */
struct strait_frames_info {
	size_t size;
	uint32_t frames;
	uint32_t frame_bytes;
	uint64_t device_bytes;
	uint64_t pinned_bytes;
	uint64_t window_bytes;
	uint64_t fetched;
	uint64_t pulled;
	uint64_t stored;
	uint64_t evictions;
	uint64_t dropped;
	uint64_t failures;
	int32_t error;
	uint32_t begun;
	uint64_t error_offset;
};

#define STRAIT_FRAMES_INFO_SIZE_V1 104

/**
 * strait_frames_open() - Allocate frames for a mapping on a device
 * @mapping: the mapping; close the frames before it
 * @dev: the device
 * @opts: options, or NULL for the defaults
 * @ret: the frames
 *
 * Where the mapping is read-only, or STRAIT_FRAMES_SOLE_WRITER is set, and the device can register page cache, the file is
 * registered, and threads that miss read it in place.
 *
 * Return: 0; -EINVAL for options; -ENOSPC when the budget has no room for the frames that @pins needs; -E2BIG for a mapping of
 * more than 16 TiB; -EOPNOTSUPP when the device cannot access host memory; -ENODEV; -ENOMEM.
 */
STRAIT_API int strait_frames_open(struct strait_mapping *mapping, struct strait_device *dev,
				  const struct strait_frames_opts *opts, struct strait_frames **ret);

/**
 * strait_frames_close() - Free frames
 * @frames: the frames, or NULL
 *
 * Waits for strait_view_end() if a view is begun and its end is on a stream. A view that was not ended is ended first, so its
 * kernels must have completed.
 */
STRAIT_API void strait_frames_close(struct strait_frames *frames);

/**
 * strait_frames_info() - Get state and counters of frames
 * @frames: the frames
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_frames_info(struct strait_frames *frames, struct strait_frames_info *info);

/**
 * strait_view_begin() - Acquire the mapping for kernels that follow on a stream
 * @frames: the frames
 * @stream: a stream of their device
 * @intent: STRAIT_INTENT_READ or STRAIT_INTENT_WRITE
 * @view: filled at once: pass it by value to kernels. The size of struct strait_view and its @abi must be those of the library:
 *	@view->abi is checked, and must be set to STRAIT_VIEW_ABI before
 * @status: set to 0 or a negative errno before later work on the stream runs; may be NULL; valid until then
 *
 * When the stream gets there, granules that other sides have published since are dropped from the frames, and threads of the
 * host begin to serve requests. The kernels see what was published before. On devices whose kernels are functions, any thread
 * may use the view once the stream has passed this.
 *
 * Return: 0; -EBUSY when a view of these frames is begun and not ended; -EINVAL; -EACCES for writing to a read-only mapping;
 * -EOPNOTSUPP for a stream that is being captured; -EPROTO when @view->abi is another one; -ENODEV; -ENOMEM.
 */
STRAIT_API int strait_view_begin(struct strait_frames *frames, struct strait_stream *stream, uint32_t intent,
				 struct strait_view *view, int *status);

/**
 * strait_view_end() - Publish what kernels before it on a stream have stored
 * @frames: the frames
 * @stream: a stream of their device: all kernels with the view are on it, or it waits for them
 * @status: set to 0 or a negative errno before later work on the stream runs; may be NULL; valid until then
 *
 * When the stream gets there, granules that are dirty are written back and published, and the host stops serving. Granules that
 * cannot be written stay dirty in their frames, and the next strait_view_end() tries again.
 *
 * Return: 0; -EINVAL when no view is begun; -EOPNOTSUPP for a stream that is being captured; -ENODEV; -ENOMEM.
 */
STRAIT_API int strait_view_end(struct strait_frames *frames, struct strait_stream *stream, int *status);

#ifdef __cplusplus
}
#endif

#endif
