/* SPDX-License-Identifier: MIT */
#include <strait/device.h>

#include "api/api.h"
#include "base/util.h"

STRAIT_API int strait_device_count(struct strait_context *ctx)
{
	API_CHECK(ctx);
	API_ALIVE(ctx);
	return (int)ctx->set.n_listed;
}

STRAIT_API int strait_device_at(struct strait_context *ctx, unsigned int index, struct strait_device **ret)
{
	API_CHECK(ctx && ret);
	API_ALIVE(ctx);
	if (index >= ctx->set.n_listed)
		return -ENODEV;
	*ret = ctx->set.devices[index];
	return 0;
}

STRAIT_API int strait_device_find(struct strait_context *ctx, const char *name, struct strait_device **ret)
{
	API_CHECK(ctx && name && ret);
	API_ALIVE(ctx);
	return device_set_find(&ctx->set, name, ret);
}

STRAIT_API int strait_device_missing_reason(struct strait_context *ctx, const char *name, char *text, size_t len)
{
	API_CHECK(ctx && name && text && len);
	API_ALIVE(ctx);
	return device_set_missing_reason(&ctx->set, name, text, len);
}

STRAIT_API int strait_device_info(struct strait_device *dev, struct strait_device_info *info)
{
	struct strait_device_info i = { .size = sizeof(i) };
	int rc;

	API_CHECK(dev && info);
	API_ALIVE(device_context(dev));
	if (atomic_load(&dev->removed))
		return -ENODEV;
	str_copy(i.name, sizeof(i.name), dev->name);
	str_copy(i.provider, sizeof(i.provider), dev->ops->name);
	i.caps = dev->caps;
	i.index = dev->index;
	i.numa_node = dev->numa_node;
	rc = dev->ops->info(dev, &i);
	if (rc)
		return rc;
	return struct_out(info, &i, sizeof(i), STRAIT_DEVICE_INFO_SIZE_V1);
}

STRAIT_API int strait_provider_info(struct strait_context *ctx, unsigned int index, struct strait_provider_info *info)
{
	struct strait_provider_info i = { .size = sizeof(i) };
	const struct provider *p;

	API_CHECK(ctx && info);
	API_ALIVE(ctx);
	if (index >= ctx->set.n_providers)
		return -ENOENT;
	p = &ctx->set.providers[index];
	str_copy(i.name, sizeof(i.name), p->ops->name);
	i.devices = p->n;
	i.status = p->status;
	return struct_out(info, &i, sizeof(i), STRAIT_PROVIDER_INFO_SIZE_V1);
}
