// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory imported as a dma-buf. A dma-buf gives DMA addresses for a device and no pages, so it can
 * be mapped for an attached device, and file systems cannot use it.
 */
#include <linux/dma-buf.h>
#include <linux/fcntl.h>
#include <linux/overflow.h>

#include "backing.h"
#include "bridge.h"
#include "core.h"
#include "import.h"
#include "region.h"

int strait_dmabuf_import(struct strait_region *r, int fd, u64 offset)
{
	struct strait_backing *b;
	u64 end;
	int rc;

	b = strait_backing_alloc(r->length);
	if (!b)
		return -ENOMEM;
	b->dmabuf = dma_buf_get(fd);
	if (IS_ERR(b->dmabuf)) {
		rc = PTR_ERR(b->dmabuf);
		b->dmabuf = NULL;
		goto err_free;
	}
	rc = -EINVAL;
	if (check_add_overflow(offset, r->length, &end) || end > b->dmabuf->size)
		goto err_free;
	/*
	 * The driver behind a bridge unmaps memory after its importers. A device that a program
	 * drives would reach it in between: it maps the region of the bridge, which stops it until
	 * then.
	 */
	rc = -EOPNOTSUPP;
	if (strait_bridge_exported(b->dmabuf))
		goto err_free;
	r->can = STRAIT_CAN_DMA;
	rc = strait_region_set_backing(r, b);
	if (!rc)
		return 0;
err_free:
	strait_backing_free(b);
	return rc;
}

struct dma_buf *strait_dmabuf_export(struct strait_region *r, const struct strait_ioc_export *req)
{
	struct dma_buf *dmabuf = ERR_PTR(-EOPNOTSUPP);
	const struct strait_bridge *bridge;
	struct strait_backing *b;
	void *priv;
	u64 end;
	int rc;

	if (req->flags || req->reserved || req->fd_flags & ~(O_CLOEXEC | O_RDWR) || !req->length ||
	    !PAGE_ALIGNED(req->offset | req->length) ||
	    check_add_overflow(req->offset, req->length, &end) || end > r->length)
		return ERR_PTR(-EINVAL);
	rc = strait_region_use(r, &b);
	if (rc)
		return ERR_PTR(rc);
	bridge = strait_bridge_per_device(b, &priv);
	if (bridge)
		dmabuf = bridge->export(priv, req->offset, req->length, req->fd_flags & O_ACCMODE);
	strait_backing_unuse(b);
	strait_backing_put(b);
	return dmabuf;
}
