/* SPDX-License-Identifier: MIT */
/* Operations of the device on the memory of a region, synchronous. */
#include <strait/region.h>

#include "api/api.h"
#include "base/util.h"

struct use {
	struct strait_region *region;
	struct lane_stream *ls;
};

static int use_begin(struct use *u, struct strait_region *region, uint64_t off, uint64_t len)
{
	int rc;

	API_CHECK(region);
	API_ALIVE(device_context(region->dev));
	u->region = region;
	rc = region_use(region, off, len);
	if (rc)
		return rc;
	rc = engine_stream_get(region->dev, &region->mem, false, &u->ls);
	if (rc)
		region_unuse(region);
	return rc;
}

static int use_end(struct use *u, int rc)
{
	int done = u->region->dev->ops->stream_wait(u->ls->stream, STRAIT_FOREVER);

	if (!rc)
		rc = done;
	engine_stream_put(u->region->dev, u->ls, rc != 0);
	region_unuse(u->region);
	return rc;
}

STRAIT_API int strait_region_copy_in(struct strait_region *region, uint64_t offset, const void *src, size_t len)
{
	struct use u;
	int rc;

	API_CHECK(src || !len);
	rc = use_begin(&u, region, offset, len);
	if (rc)
		return rc;
	return use_end(&u, len ? region->dev->ops->copy_in(u.ls->stream, region->mem.addr + offset, src, len) : 0);
}

STRAIT_API int strait_region_copy_out(struct strait_region *region, uint64_t offset, void *dst, size_t len)
{
	struct use u;
	int rc;

	API_CHECK(dst || !len);
	rc = use_begin(&u, region, offset, len);
	if (rc)
		return rc;
	return use_end(&u, len ? region->dev->ops->copy_out(u.ls->stream, dst, region->mem.addr + offset, len) : 0);
}

STRAIT_API int strait_region_fill(struct strait_region *region, uint64_t offset, uint8_t value, size_t len)
{
	struct use u;
	int rc = use_begin(&u, region, offset, len);

	if (rc)
		return rc;
	return use_end(&u, len ? region->dev->ops->fill(u.ls->stream, region->mem.addr + offset, value, len) : 0);
}

STRAIT_API int strait_region_crc32c(struct strait_region *region, uint64_t offset, size_t len, uint32_t *crc)
{
	uint32_t value;
	struct use u;
	int rc;

	API_CHECK(crc);
	rc = use_begin(&u, region, offset, len);
	if (rc)
		return rc;
	value = *crc;
	rc = use_end(&u, len ? region->dev->ops->crc32c(u.ls->stream, region->mem.addr + offset, len, &value) : 0);
	if (!rc)
		*crc = value;
	return rc;
}

STRAIT_API int strait_region_compare(struct strait_region *a, uint64_t a_offset, struct strait_region *b,
				     uint64_t b_offset, size_t len, uint64_t *where)
{
	uint64_t at = len;
	struct use u;
	int rc;

	API_CHECK(a && b && where);
	if (a->dev != b->dev)
		return -EXDEV;
	rc = use_begin(&u, a, a_offset, len);
	if (rc)
		return rc;
	rc = region_use(b, b_offset, len);
	if (rc) {
		use_end(&u, 0);
		return rc;
	}
	if (len)
		rc = a->dev->ops->compare(u.ls->stream, a->mem.addr + a_offset, b->mem.addr + b_offset, len, &at);
	rc = use_end(&u, rc);
	region_unuse(b);
	if (!rc)
		*where = at;
	return rc;
}
