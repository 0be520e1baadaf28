// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory imported as a dma-buf. A dma-buf gives DMA addresses for a device and no pages, so it can
 * be mapped for an attached device, and file systems cannot use it.
 */
#include <linux/dma-buf.h>
#include <linux/overflow.h>

#include "backing.h"
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
	r->can = STRAIT_CAN_DMA;
	rc = strait_region_set_backing(r, b);
	if (!rc)
		return 0;
err_free:
	strait_backing_free(b);
	return rc;
}
