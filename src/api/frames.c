/* SPDX-License-Identifier: MIT */
#include <strait/frames.h>

#include "api/api.h"
#include "base/util.h"
#include "engine/stream/stream.h"
#include "mapping/frames/frames.h"

STRAIT_API int strait_frames_open(struct strait_mapping *mapping, struct strait_device *dev,
				  const struct strait_frames_opts *opts, struct strait_frames **ret)
{
	API_CHECK(mapping && dev && ret);
	API_ALIVE(mapping->ctx);
	API_CHECK(device_context(dev) == mapping->ctx);
	return frames_open(mapping, dev, opts, ret);
}

STRAIT_API void strait_frames_close(struct strait_frames *frames)
{
	if (frames && !engine_alive(frames->m->ctx))
		frames_close(frames);
}

STRAIT_API int strait_frames_info(struct strait_frames *frames, struct strait_frames_info *info)
{
	struct strait_frames_info i;

	API_CHECK(frames && info);
	API_ALIVE(frames->m->ctx);
	frames_info(frames, &i);
	return struct_out(info, &i, sizeof(i), STRAIT_FRAMES_INFO_SIZE_V1);
}

STRAIT_API int strait_view_begin(struct strait_frames *frames, struct strait_stream *stream, uint32_t intent,
				 struct strait_view *view, int *status)
{
	API_CHECK(frames && stream && view);
	API_ALIVE(frames->m->ctx);
	return frames_begin(frames, stream, intent, view, status);
}

STRAIT_API int strait_view_end(struct strait_frames *frames, struct strait_stream *stream, int *status)
{
	API_CHECK(frames && stream);
	API_ALIVE(frames->m->ctx);
	return frames_end(frames, stream, status);
}
