// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Device memory as a dma-buf. The exporter is dynamic: importers must allow peer-to-peer and be
 * ready to be told that the memory goes. They are told when it is freed; the free waits, without
 * a deadline, until they have unmapped it. There is nothing to move it to: then it is gone.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "vgpu.h"

/* What one entry of a table holds at most, whatever the importer's device can take. */
#define ENTRY_MAX SZ_1G

struct vgpu_dmabuf {
	struct kref kref;		/* the dma-buf's, and who revokes it */
	struct vgpu_alloc *alloc;
	struct dma_buf *dmabuf;
	struct list_head node;		/* alloc->dmabufs */
	phys_addr_t phys;
	u64 length;
	bool revoked;			/* under the dma-buf's reservation lock */
	atomic_t mapped;
	wait_queue_head_t unmapped;
};

static void dmabuf_free(struct kref *kref)
{
	struct vgpu_dmabuf *b = container_of(kref, struct vgpu_dmabuf, kref);

	vgpu_alloc_put(b->alloc);
	kfree(b);
}

static bool can_be_told(const struct dma_buf_attachment *attach)
{
	return attach->peer2peer && attach->importer_ops && attach->importer_ops->COMPAT_INVALIDATE;
}

static int vgpu_dmabuf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct vgpu_dmabuf *b = dmabuf->priv;

	if (!can_be_told(attach) || !vgpu_peer_reaches(b->alloc->dev, attach->dev))
		return -EOPNOTSUPP;
	return READ_ONCE(b->revoked) ? -ENODEV : 0;
}

/* The memory never moves. Some kernels pin even for importers that could follow a move. */
static int vgpu_dmabuf_pin(struct dma_buf_attachment *attach)
{
	return can_be_told(attach) ? 0 : -EOPNOTSUPP;
}

static void vgpu_dmabuf_unpin(struct dma_buf_attachment *attach)
{
}

static void unmap_entries(struct device *dev, struct sg_table *table, unsigned int n,
			  enum dma_data_direction dir)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(table->sgl, sg, n, i)
		dma_unmap_resource(dev, sg_dma_address(sg), sg_dma_len(sg), dir, 0);
}

static int map_entries(struct vgpu_dmabuf *b, struct device *dev, struct sg_table *table,
		       enum dma_data_direction dir)
{
	struct scatterlist *sg;
	unsigned int i;
	u64 at = 0;

	for_each_sg(table->sgl, sg, table->orig_nents, i) {
		u32 len = min_t(u64, b->length - at, ENTRY_MAX);
		dma_addr_t addr;
		int rc;

		rc = vgpu_dma_map(dev, b->phys + at, len, dir, &addr);
		if (rc) {
			unmap_entries(dev, table, i, dir);
			return rc;
		}
		sg_set_page(sg, NULL, len, 0);
		sg_dma_address(sg) = addr;
		sg_dma_len(sg) = len;
		at += len;
	}
	return 0;
}

static void count_mapped(struct vgpu_dmabuf *b)
{
	atomic_inc(&b->mapped);
	vgpu_count(b->alloc->dev, VGPU_DMABUF_MAPPED, b->length);
	vgpu_count(b->alloc->dev, VGPU_PEER_MAPPED_NOW, b->length);
}

static struct sg_table *vgpu_dmabuf_map(struct dma_buf_attachment *attach,
					enum dma_data_direction dir)
{
	struct vgpu_dmabuf *b = attach->dmabuf->priv;
	struct sg_table *table;
	int rc;

	vgpu_window_meet(VGPU_W_INVALIDATE);
	dma_resv_assert_held(attach->dmabuf->resv);
	if (b->revoked)
		return ERR_PTR(-ENODEV);
	vgpu_window(VGPU_W_DMABUF_MAP);
	table = vgpu_zalloc(sizeof(*table));
	if (!table)
		return ERR_PTR(-ENOMEM);
	rc = vgpu_sg_alloc_table(table, DIV_ROUND_UP_ULL(b->length, ENTRY_MAX));
	if (rc)
		goto err_free;
	rc = map_entries(b, attach->dev, table, dir);
	if (rc)
		goto err_table;
	count_mapped(b);
	return table;
err_table:
	sg_free_table(table);
err_free:
	kfree(table);
	return ERR_PTR(rc);
}

static void vgpu_dmabuf_unmap(struct dma_buf_attachment *attach, struct sg_table *table,
			      enum dma_data_direction dir)
{
	struct vgpu_dmabuf *b = attach->dmabuf->priv;

	unmap_entries(attach->dev, table, table->orig_nents, dir);
	vgpu_peer_flush(attach->dev);
	sg_free_table(table);
	kfree(table);
	vgpu_count(b->alloc->dev, VGPU_PEER_MAPPED_NOW, -(s64)b->length);
	if (atomic_dec_and_test(&b->mapped))
		wake_up_all(&b->unmapped);
}

static void vgpu_dmabuf_release(struct dma_buf *dmabuf)
{
	struct vgpu_dmabuf *b = dmabuf->priv;

	down_write(&b->alloc->lock);
	list_del_init(&b->node);
	up_write(&b->alloc->lock);
	kref_put(&b->kref, dmabuf_free);
}

static const struct dma_buf_ops vgpu_dmabuf_ops = {
	.attach = vgpu_dmabuf_attach,
	.pin = vgpu_dmabuf_pin,
	.unpin = vgpu_dmabuf_unpin,
	.map_dma_buf = vgpu_dmabuf_map,
	.unmap_dma_buf = vgpu_dmabuf_unmap,
	.release = vgpu_dmabuf_release,
};

static struct vgpu_dmabuf *dmabuf_new(struct vgpu_alloc *a, u64 offset, u64 length)
{
	struct vgpu_dmabuf *b;

	b = vgpu_zalloc(sizeof(*b));
	if (!b)
		return NULL;
	kref_init(&b->kref);
	vgpu_alloc_get(a);
	b->alloc = a;
	b->phys = pci_resource_start(a->dev->pdev, VGPU_BAR) + a->bar_offset + offset;
	b->length = length;
	INIT_LIST_HEAD(&b->node);
	init_waitqueue_head(&b->unmapped);
	return b;
}

struct dma_buf *vgpu_dmabuf_export(struct vgpu_alloc *a, u64 offset, u64 length, u32 fd_flags)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct vgpu_dmabuf *b;
	struct dma_buf *dmabuf;
	bool late;

	if (!length || !PAGE_ALIGNED(offset | length) || offset > a->length ||
	    length > a->length - offset)
		return ERR_PTR(-EINVAL);
	b = dmabuf_new(a, offset, length);
	if (!b)
		return ERR_PTR(-ENOMEM);
	info.ops = &vgpu_dmabuf_ops;
	info.size = length;
	info.flags = fd_flags & O_ACCMODE;
	info.priv = b;
	dmabuf = vgpu_dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		kref_put(&b->kref, dmabuf_free);
		return dmabuf;
	}
	b->dmabuf = dmabuf;
	down_write(&a->lock);
	late = a->revoked;
	if (!late)
		list_add_tail(&b->node, &a->dmabufs);
	up_write(&a->lock);
	if (late) {
		dma_buf_put(dmabuf);
		return ERR_PTR(-ENODEV);
	}
	return dmabuf;
}

static void revoke_one(struct vgpu_dmabuf *b)
{
	struct dma_resv *resv = b->dmabuf->resv;

	dma_resv_lock(resv, NULL);
	b->revoked = true;
	vgpu_count(b->alloc->dev, VGPU_INVALIDATIONS, 1);
	compat_dma_buf_invalidate(b->dmabuf);
	dma_resv_wait_timeout(resv, DMA_RESV_USAGE_BOOKKEEP, false, MAX_SCHEDULE_TIMEOUT);
	dma_resv_unlock(resv);
	wait_event(b->unmapped, !atomic_read(&b->mapped));
}

/* A dma-buf whose file is not on its way out, off the list and with a reference on both. */
static struct vgpu_dmabuf *take_one(struct vgpu_alloc *a)
{
	struct vgpu_dmabuf *b, *found = NULL;

	down_write(&a->lock);
	list_for_each_entry(b, &a->dmabufs, node) {
		/* It is off the list before its file's memory goes. */
		if (!compat_get_file_active(&b->dmabuf->file))
			continue;
		list_del_init(&b->node);
		kref_get(&b->kref);
		found = b;
		break;
	}
	up_write(&a->lock);
	return found;
}

void vgpu_dmabuf_revoke_all(struct vgpu_alloc *a)
{
	struct vgpu_dmabuf *b;

	vgpu_window(VGPU_W_INVALIDATE);
	while ((b = take_one(a))) {
		revoke_one(b);
		dma_buf_put(b->dmabuf);
		kref_put(&b->kref, dmabuf_free);
	}
}
