/* SPDX-License-Identifier: MIT */
#include <strait/region.h>

#include "api/api.h"
#include "base/util.h"
#include "os/os.h"

static struct strait_context *region_context(const struct strait_region *r)
{
	return device_context(r->dev);
}

/* A region references its context until strait_region_close(). */
STRAIT_API int strait_region_alloc(struct strait_device *dev, size_t len, struct strait_region **ret)
{
	int rc;

	API_CHECK(dev && ret && len);
	API_ALIVE(device_context(dev));
	rc = region_alloc(dev, len, ret);
	if (!rc)
		engine_ref(device_context(dev));
	return rc;
}

STRAIT_API int strait_region_alloc_caps(struct strait_device *dev, size_t len, uint32_t caps,
					struct strait_region **ret)
{
	int rc;

	API_CHECK(dev && ret && len && !(caps & ~REGION_CAPS_ASKED));
	API_ALIVE(device_context(dev));
	rc = region_alloc_caps(dev, len, caps, ret);
	if (!rc)
		engine_ref(device_context(dev));
	return rc;
}

STRAIT_API int strait_region_import(struct strait_context *ctx, struct strait_device *dev, void *addr, size_t len,
				    struct strait_region **ret)
{
	return strait_region_import_flags(ctx, dev, addr, len, 0, ret);
}

STRAIT_API int strait_region_import_flags(struct strait_context *ctx, struct strait_device *dev, void *addr, size_t len,
					  uint32_t flags, struct strait_region **ret)
{
	int rc;

	API_CHECK(ctx && addr && ret && len && !(flags & ~STRAIT_REGION_IMPORT_ORDERED));
	API_ALIVE(ctx);
	API_CHECK(!dev || device_context(dev) == ctx);
	rc = region_import(&ctx->set, dev, (uint64_t)(uintptr_t)addr, len, flags, ret);
	if (!rc)
		engine_ref(ctx);
	return rc;
}

STRAIT_API int strait_region_import_dmabuf(struct strait_context *ctx, int fd, uint64_t offset, uint64_t len,
					   uint32_t flags, struct strait_region **ret)
{
	uint64_t magic;
	int rc;

	API_CHECK(ctx && ret && !(flags & ~STRAIT_DMABUF_NO_CPU_MAP));
	API_ALIVE(ctx);
	if (offset > INT64_MAX || len > INT64_MAX)
		return -EOVERFLOW;
	rc = os_fs_magic(fd, &magic);
	if (rc)
		return rc;
	API_CHECK(os_is_dmabuf(fd));
	rc = region_import_dmabuf(&ctx->set, fd, offset, len, flags, ret);
	if (!rc)
		engine_ref(ctx);
	return rc;
}

STRAIT_API int strait_region_extent(struct strait_context *ctx, const void *addr, struct strait_device **dev,
				    uint64_t *len)
{
	struct strait_device *found;
	uint64_t bytes;
	int rc;

	API_CHECK(ctx && addr && len);
	API_ALIVE(ctx);
	rc = region_extent(&ctx->set, (uint64_t)(uintptr_t)addr, &found, &bytes);
	if (rc)
		return rc;
	if (dev)
		*dev = found;
	*len = bytes;
	return 0;
}

STRAIT_API int strait_region_lookup(struct strait_context *ctx, const void *addr, uint64_t *offset,
				    struct strait_region **ret)
{
	uint64_t off;
	int rc;

	API_CHECK(ctx && ret);
	API_ALIVE(ctx);
	rc = region_lookup(&ctx->set, (uint64_t)(uintptr_t)addr, &off, ret);
	if (rc)
		return rc;
	if (offset)
		*offset = off;
	engine_ref(ctx);
	return 0;
}

STRAIT_API void strait_region_close(struct strait_region *region)
{
	struct strait_context *ctx;

	if (!region)
		return;
	ctx = region_context(region);
	if (engine_alive(ctx))
		return;
	region_put(region);
	engine_unref(ctx);
}

STRAIT_API int strait_region_info(struct strait_region *region, struct strait_region_info *info)
{
	struct strait_region_info i = { .size = sizeof(i) };

	API_CHECK(region && info);
	API_ALIVE(region_context(region));
	i.device = region->dev;
	i.addr = region->mem.addr;
	i.length = region->mem.len;
	i.caps = region->mem.caps;
	i.page_size = region->mem.page_size;
	i.identity = region->mem.id;
	return struct_out(info, &i, sizeof(i), STRAIT_REGION_INFO_SIZE_V1);
}

STRAIT_API int strait_region_check(struct strait_region *region)
{
	API_CHECK(region);
	API_ALIVE(region_context(region));
	return region_check(region);
}

STRAIT_API int strait_region_revoke(struct strait_region *region)
{
	API_CHECK(region);
	API_ALIVE(region_context(region));
	return region_revoke(region);
}

STRAIT_API int strait_region_on_revoke(struct strait_region *region, strait_revoke_fn *fn, void *arg)
{
	API_CHECK(region);
	API_ALIVE(region_context(region));
	return region_on_revoke(region, fn, arg);
}

STRAIT_API int strait_region_export_dmabuf(struct strait_region *region, uint64_t offset, size_t len, int *ret)
{
	int rc;

	API_CHECK(region && ret && len);
	API_ALIVE(region_context(region));
	rc = region_use(region, offset, len);
	if (rc)
		return rc;
	if (!(region->mem.caps & STRAIT_REGION_DMABUF))
		rc = -EOPNOTSUPP;
	else if (offset % region->mem.page_size || len % region->mem.page_size)
		rc = -EINVAL;
	else
		rc = region->dev->ops->mem_dmabuf(region->dev, &region->mem, offset, len, ret);
	region_unuse(region);
	return rc;
}

STRAIT_API int strait_region_map(struct strait_region *region, void **ret)
{
	int rc;

	API_CHECK(region && ret);
	API_ALIVE(region_context(region));
	rc = region_use(region, 0, 0);
	if (rc)
		return rc;
	rc = region->dev->ops->mem_map(region->dev, &region->mem, ret);
	region_unuse(region);
	return rc;
}
