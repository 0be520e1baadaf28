/* SPDX-License-Identifier: MIT */
#include <strait/stream.h>

#include "api/api.h"
#include "engine/stream/stream.h"

STRAIT_API int strait_stream_open(struct strait_device *dev, struct strait_stream **ret)
{
	API_CHECK(dev && ret);
	API_ALIVE(device_context(dev));
	return stream_open(dev, false, NULL, ret);
}

STRAIT_API int strait_stream_import(struct strait_device *dev, void *native, struct strait_stream **ret)
{
	API_CHECK(dev && ret);
	API_ALIVE(device_context(dev));
	return stream_open(dev, true, native, ret);
}

STRAIT_API void strait_stream_close(struct strait_stream *stream)
{
	if (stream && !engine_alive(stream_context(stream)))
		stream_close(stream);
}

STRAIT_API int strait_stream_call(struct strait_stream *stream, strait_stream_fn *fn, void *arg)
{
	API_CHECK(stream && fn);
	API_ALIVE(stream_context(stream));
	return stream_call(stream, fn, arg);
}

STRAIT_API int strait_stream_transfer(struct strait_stream *stream, const struct strait_stream_transfer *t)
{
	API_CHECK(stream && t);
	API_ALIVE(stream_context(stream));
	return stream_transfer(stream, t);
}

STRAIT_API int strait_stream_wait(struct strait_stream *stream, int64_t timeout_ns)
{
	API_CHECK(stream && timeout_ns >= 0);
	API_ALIVE(stream_context(stream));
	return stream_wait(stream, timeout_ns);
}
