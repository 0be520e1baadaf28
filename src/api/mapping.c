/* SPDX-License-Identifier: MIT */
#include <strait/mapping.h>

#include "api/api.h"
#include "base/util.h"
#include "engine/stream/stream.h"
#include "mapping/mapping.h"

STRAIT_API int strait_mapping_open(struct strait_context *ctx, struct strait_endpoint *ep, uint64_t offset,
				   uint64_t length, const struct strait_mapping_opts *opts, struct strait_mapping **ret)
{
	API_CHECK(ctx && ret);
	API_ALIVE(ctx);
	return mapping_open(ctx, ep, offset, length, opts, ret);
}

STRAIT_API void strait_mapping_close(struct strait_mapping *mapping)
{
	if (mapping && !engine_alive(mapping->ctx))
		mapping_close(mapping);
}

STRAIT_API int strait_mapping_info(struct strait_mapping *mapping, struct strait_mapping_info *info)
{
	struct strait_mapping_info i;

	API_CHECK(mapping && info);
	API_ALIVE(mapping->ctx);
	mapping_info(mapping, &i);
	return struct_out(info, &i, sizeof(i), STRAIT_MAPPING_INFO_SIZE_V1);
}

STRAIT_API int strait_mapping_acquire(struct strait_mapping *mapping, struct strait_device *dev, uint64_t offset,
				      uint64_t length, uint32_t intent, void **addr)
{
	API_CHECK(mapping);
	API_ALIVE(mapping->ctx);
	API_CHECK(!dev || device_context(dev) == mapping->ctx);
	return mapping_acquire(mapping, dev, offset, length, intent, addr);
}

STRAIT_API int strait_mapping_release(struct strait_mapping *mapping, struct strait_device *dev, uint64_t offset,
				      uint64_t length, uint32_t intent)
{
	API_CHECK(mapping);
	API_ALIVE(mapping->ctx);
	return mapping_release(mapping, dev, offset, length, intent);
}

STRAIT_API int strait_mapping_acquire_on(struct strait_mapping *mapping, struct strait_stream *stream, uint64_t offset,
					 uint64_t length, uint32_t intent, void **addr, int *status)
{
	API_CHECK(mapping && stream);
	API_ALIVE(mapping->ctx);
	API_CHECK(stream_context(stream) == mapping->ctx);
	return mapping_acquire_on(mapping, stream, offset, length, intent, addr, status);
}

STRAIT_API int strait_mapping_release_on(struct strait_mapping *mapping, struct strait_stream *stream, uint64_t offset,
					 uint64_t length, uint32_t intent, int *status)
{
	API_CHECK(mapping && stream);
	API_ALIVE(mapping->ctx);
	API_CHECK(stream_context(stream) == mapping->ctx);
	return mapping_release_on(mapping, stream, offset, length, intent, status);
}

STRAIT_API int strait_mapping_refresh(struct strait_mapping *mapping, uint64_t offset, uint64_t length)
{
	API_CHECK(mapping);
	API_ALIVE(mapping->ctx);
	return mapping_refresh(mapping, offset, length);
}

STRAIT_API int strait_mapping_flush(struct strait_mapping *mapping, uint64_t offset, uint64_t length)
{
	API_CHECK(mapping);
	API_ALIVE(mapping->ctx);
	return mapping_flush(mapping, offset, length);
}

STRAIT_API int strait_mapping_sync(struct strait_mapping *mapping, uint64_t offset, uint64_t length)
{
	API_CHECK(mapping);
	API_ALIVE(mapping->ctx);
	return mapping_sync(mapping, offset, length);
}

STRAIT_API int strait_mapping_prefetch(struct strait_mapping *mapping, struct strait_device *dev, uint64_t offset,
				       uint64_t length)
{
	API_CHECK(mapping);
	API_ALIVE(mapping->ctx);
	API_CHECK(!dev || device_context(dev) == mapping->ctx);
	return mapping_prefetch(mapping, dev, offset, length);
}

STRAIT_API int strait_mapping_advise(struct strait_mapping *mapping, uint64_t offset, uint64_t length, uint32_t advice)
{
	API_CHECK(mapping);
	API_ALIVE(mapping->ctx);
	return mapping_advise(mapping, offset, length, advice);
}

STRAIT_API int strait_mapping_evict(struct strait_mapping *mapping, struct strait_device *dev, uint64_t offset,
				    uint64_t length)
{
	API_CHECK(mapping);
	API_ALIVE(mapping->ctx);
	API_CHECK(!dev || device_context(dev) == mapping->ctx);
	return mapping_evict(mapping, dev, offset, length);
}
