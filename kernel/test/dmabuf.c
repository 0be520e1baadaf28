// SPDX-License-Identifier: GPL-2.0 OR MIT
/* An importer of dma-bufs that a test controls. */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/workqueue.h>

#include "test.h"

struct vt_import {
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	struct pci_dev *pdev;
	struct sg_table *table;		/* under the reservation lock */
	bool late, pinned;
	atomic_t notified;
	struct delayed_work work;
};

/*
 * A free in the exporter may return before @table is cleared. A late importer waits here, so that a
 * test can see that.
 */
static void import_unmap(struct vt_import *im)
{
	dma_resv_assert_held(im->dmabuf->resv);
	if (!im->table)
		return;
	dma_buf_unmap_attachment(im->attach, im->table, DMA_BIDIRECTIONAL);
	if (im->late)
		msleep(50);
	im->table = NULL;
}

static void import_late_work(struct work_struct *work)
{
	struct vt_import *im = container_of(to_delayed_work(work), struct vt_import, work);

	dma_resv_lock(im->dmabuf->resv, NULL);
	import_unmap(im);
	dma_resv_unlock(im->dmabuf->resv);
}

static void import_move_notify(struct dma_buf_attachment *attach)
{
	struct vt_import *im = attach->importer_priv;

	dma_resv_assert_held(im->dmabuf->resv);
	atomic_inc(&im->notified);
	if (im->late) {
		schedule_delayed_work(&im->work, msecs_to_jiffies(300));
		return;
	}
	vt_edu_wait();
	import_unmap(im);
}

static const struct dma_buf_attach_ops import_peer_ops = {
	.allow_peer2peer = true,
	.COMPAT_INVALIDATE = import_move_notify,
};

static const struct dma_buf_attach_ops import_no_peer_ops = {
	.allow_peer2peer = false,
	.COMPAT_INVALIDATE = import_move_notify,
};

static struct vt_import *import_find(struct vt_file *f, u32 id)
{
	return id >= 1 && id <= VT_SLOTS ? f->imports[id - 1] : NULL;
}

static void import_free(struct vt_import *im)
{
	if (!IS_ERR_OR_NULL(im->attach)) {
		cancel_delayed_work_sync(&im->work);
		dma_resv_lock(im->dmabuf->resv, NULL);
		import_unmap(im);
		if (im->pinned)
			dma_buf_unpin(im->attach);
		dma_resv_unlock(im->dmabuf->resv);
		dma_buf_detach(im->dmabuf, im->attach);
	}
	dma_buf_put(im->dmabuf);
	pci_dev_put(im->pdev);
	kfree(im);
}

static int import_new(const struct vt_buf *req, struct vt_import **ret)
{
	const struct dma_buf_attach_ops *ops = &import_peer_ops;
	struct vt_import *im;
	int rc;

	im = kzalloc(sizeof(*im), GFP_KERNEL);
	if (!im)
		return -ENOMEM;
	if (req->flags & VT_BUF_NO_PEER)
		ops = &import_no_peer_ops;
	im->late = req->flags & VT_BUF_LATE;
	INIT_DELAYED_WORK(&im->work, import_late_work);
	im->pdev = vt_edu_get();
	if (!im->pdev) {
		kfree(im);
		return -ENODEV;
	}
	im->dmabuf = dma_buf_get(req->fd);
	if (IS_ERR(im->dmabuf)) {
		rc = PTR_ERR(im->dmabuf);
		pci_dev_put(im->pdev);
		kfree(im);
		return rc;
	}
	if (req->flags & VT_BUF_STATIC)
		im->attach = dma_buf_attach(im->dmabuf, &im->pdev->dev);
	else
		im->attach = dma_buf_dynamic_attach(im->dmabuf, &im->pdev->dev, ops, im);
	*ret = im;
	return 0;
}

static int import_pin(struct vt_import *im)
{
	int rc;

	dma_resv_lock(im->dmabuf->resv, NULL);
	rc = dma_buf_pin(im->attach);
	dma_resv_unlock(im->dmabuf->resv);
	im->pinned = !rc;
	return rc;
}

int vt_attach(struct vt_file *f, struct vt_buf *req)
{
	struct vt_import *im;
	u32 i;
	int rc;

	for (i = 0; i < VT_SLOTS && f->imports[i]; i++)
		;
	if (i == VT_SLOTS)
		return -ENOSPC;
	rc = import_new(req, &im);
	if (rc)
		return rc;
	req->result = PTR_ERR_OR_ZERO(im->attach);
	if (!req->result && req->flags & VT_BUF_PIN)
		req->result = import_pin(im);
	if (req->result) {
		import_free(im);
		return 0;
	}
	f->imports[i] = im;
	req->id = i + 1;
	return 0;
}

int vt_buf_map(struct vt_file *f, struct vt_buf *req)
{
	struct vt_import *im = import_find(f, req->id);
	struct sg_table *table;

	if (!im)
		return -ENOENT;
	dma_resv_lock(im->dmabuf->resv, NULL);
	if (im->table) {
		req->result = -EBUSY;
	} else {
		table = dma_buf_map_attachment(im->attach, DMA_BIDIRECTIONAL);
		req->result = PTR_ERR_OR_ZERO(table);
		im->table = IS_ERR(table) ? NULL : table;
	}
	dma_resv_unlock(im->dmabuf->resv);
	return 0;
}

int vt_buf_unmap(struct vt_file *f, struct vt_buf *req)
{
	struct vt_import *im = import_find(f, req->id);

	if (!im)
		return -ENOENT;
	dma_resv_lock(im->dmabuf->resv, NULL);
	import_unmap(im);
	dma_resv_unlock(im->dmabuf->resv);
	req->result = 0;
	return 0;
}

int vt_buf_status(struct vt_file *f, struct vt_buf *req)
{
	struct vt_import *im = import_find(f, req->id);

	if (!im)
		return -ENOENT;
	req->notified = atomic_read(&im->notified);
	/* import_unmap() holds this lock until the table is cleared. */
	dma_resv_lock(im->dmabuf->resv, NULL);
	req->mapped = !!im->table;
	req->entries = im->table ? im->table->nents : 0;
	req->first = im->table ? sg_dma_address(im->table->sgl) : 0;
	dma_resv_unlock(im->dmabuf->resv);
	return 0;
}

int vt_detach(struct vt_file *f, struct vt_buf *req)
{
	struct vt_import *im = import_find(f, req->id);

	if (!im)
		return -ENOENT;
	f->imports[req->id - 1] = NULL;
	import_free(im);
	req->result = 0;
	return 0;
}

static int import_address(struct sg_table *table, u64 offset, u32 len, dma_addr_t *addr)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_dma_sg(table, sg, i) {
		if (offset < sg_dma_len(sg)) {
			if (len > sg_dma_len(sg) - offset)
				return -EINVAL;
			*addr = sg_dma_address(sg) + offset;
			return 0;
		}
		offset -= sg_dma_len(sg);
	}
	return -EINVAL;
}

int vt_buf_addr(struct vt_file *f, u32 id, u64 offset, u32 len, dma_addr_t *addr)
{
	struct vt_import *im = import_find(f, id);
	int rc = -EINVAL;

	if (!im)
		return -ENOENT;
	dma_resv_lock(im->dmabuf->resv, NULL);
	if (im->table)
		rc = import_address(im->table, offset, len, addr);
	dma_resv_unlock(im->dmabuf->resv);
	return rc;
}

void vt_buf_release(struct vt_file *f)
{
	int i;

	for (i = 0; i < VT_SLOTS; i++)
		if (f->imports[i])
			import_free(f->imports[i]);
}
