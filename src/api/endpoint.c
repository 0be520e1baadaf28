/* SPDX-License-Identifier: MIT */
#include <strait/endpoint.h>

#include "api/api.h"
#include "base/util.h"

STRAIT_API int strait_file_open(struct strait_context *ctx, const char *path, int oflags, mode_t mode, uint32_t flags,
				struct strait_endpoint **ret)
{
	struct strait_endpoint *ep;
	int rc;

	API_CHECK(ctx && path && ret);
	API_ALIVE(ctx);
	rc = file_endpoint_open(&ctx->log, path, oflags, mode, flags, &ep);
	if (!rc)
		rc = endpoint_adopt(ctx, ep);
	if (!rc)
		*ret = ep;
	return rc;
}

STRAIT_API int strait_file_import(struct strait_context *ctx, int fd, uint32_t flags, struct strait_endpoint **ret)
{
	struct strait_endpoint *ep;
	int rc;

	API_CHECK(ctx && ret);
	API_ALIVE(ctx);
	rc = file_endpoint_import(&ctx->log, fd, flags, &ep);
	if (!rc)
		rc = endpoint_adopt(ctx, ep);
	if (!rc)
		*ret = ep;
	return rc;
}

STRAIT_API int strait_file_info(struct strait_endpoint *ep, struct strait_file_info *info)
{
	struct strait_file_info i = { .size = sizeof(i) };
	const struct endpoint_facts *f;
	int rc;

	API_CHECK(ep && info);
	API_ALIVE((struct strait_context *)ep->owner);
	API_CHECK(!ep->facts.self_dma);
	rc = ep->ops->length(ep, &i.length);
	if (rc)
		return rc;
	f = &ep->facts;
	i.caps = (f->can_read ? STRAIT_FILE_CAN_READ : 0) | (f->can_write ? STRAIT_FILE_CAN_WRITE : 0) |
		 (f->can_direct ? STRAIT_FILE_CAN_DIRECT : 0) | (f->can_map ? STRAIT_FILE_CAN_MAP : 0) |
		 (f->is_block ? STRAIT_FILE_IS_BLOCK : 0) | (ep->ops->unchanged(ep) ? STRAIT_FILE_UNCHANGED : 0);
	i.dio_align = f->dio_align;
	i.dio_mem_align = f->dio_mem_align;
	str_copy(i.fs, sizeof(i.fs), f->fs);
	i.direct_reason = f->direct_reason;
	i.direct_error = f->direct_error;
	return struct_out(info, &i, sizeof(i), STRAIT_FILE_INFO_SIZE_V1);
}

STRAIT_API int strait_endpoint_sync(struct strait_endpoint *ep)
{
	API_CHECK(ep);
	API_ALIVE((struct strait_context *)ep->owner);
	return ep->ops->sync(ep);
}

STRAIT_API void strait_endpoint_close(struct strait_endpoint *ep)
{
	if (ep && !engine_alive(ep->owner))
		endpoint_unref(ep, 1);
}
