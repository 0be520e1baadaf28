/* SPDX-License-Identifier: MIT */
/* One window of the page cache, mapped and registered with a device. */
#include "engine/regcache/regcache.h"
#include "os/os.h"

int window_register(struct strait_endpoint *ep, struct strait_device *dev, uint64_t off, uint64_t len, void **map,
		    struct host_reg *reg)
{
	int rc = ep->ops->map(ep, off, len, map);

	if (rc)
		return rc;
	rc = dev->ops->host_register(dev, *map, len, HOST_REG_READ_ONLY | HOST_REG_FILE, reg);
	if (rc)
		os_unmap(*map, len);
	return rc;
}

void window_unregister(struct strait_device *dev, void *map, uint64_t len, struct host_reg *reg)
{
	dev->ops->host_unregister(dev, reg);
	os_unmap(map, len);
}
