// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Device memory as dma-bufs. There are two exporters.
 *
 * The dynamic one accepts importers that allow peer-to-peer and implement the move notification.
 * When memory is freed they are notified, and the free waits, without a deadline, until they have
 * unmapped it. When memory moves they are notified, and may map it again.
 *
 * The static one, selected by the parameter "static_dmabuf", behaves as NVIDIA's: no pin, no move
 * notification, no revocation. It keeps the memory until the dma-buf is released, even if the
 * allocation is freed.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "vgpu.h"

/* Bytes of one scatterlist entry, regardless of the importer's segment size. */
#define ENTRY_MAX SZ_1G

static bool static_dmabuf;
module_param(static_dmabuf, bool, 0644);
MODULE_PARM_DESC(static_dmabuf,
		 "export static dma-bufs, which are never revoked or moved (default 0)");

static bool dmabuf_pin = true;
module_param(dmabuf_pin, bool, 0644);
MODULE_PARM_DESC(dmabuf_pin,
		 "importers may pin dma-bufs, which keeps them from moving (default 1)");

struct vgpu_dmabuf {
	struct kref kref;		/* references of the dma-buf and of a revocation */
	struct vgpu_alloc *alloc;
	struct dma_buf *dmabuf;
	struct list_head node;		/* dynamic: on alloc->dmabufs */
	struct vgpu_block *block;	/* static: the memory, with a reference */
	u64 offset, length;
	u64 notified;			/* alloc->notified at the last notification */
	bool revoked;			/* under the reservation lock */
	atomic_t mapped;
	wait_queue_head_t unmapped;
};

/* A mapping of an importer. */
struct vgpu_sgt {
	struct sg_table table;
	struct vgpu_block *block;	/* with a reference */
};

static void dmabuf_free(struct kref *kref)
{
	struct vgpu_dmabuf *b = container_of(kref, struct vgpu_dmabuf, kref);

	if (b->block) {
		atomic_dec(&b->alloc->pinned);
		vgpu_block_put(b->block);
	}
	vgpu_alloc_put(b->alloc);
	kfree(b);
}

/* A free waits until importers have unmapped: one that cannot be told would keep it for ever. */
static bool dmabuf_importer_is_dynamic(struct dma_buf_attachment *attach)
{
	return attach->peer2peer && compat_dma_buf_told(attach);
}

static int vgpu_dmabuf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct vgpu_dmabuf *b = dmabuf->priv;

	if (!dmabuf_importer_is_dynamic(attach) ||
	    !vgpu_peer_is_reachable(b->alloc->dev, attach->dev))
		return -EOPNOTSUPP;
	return READ_ONCE(b->revoked) ? -ENODEV : 0;
}

/*
 * Older kernels pin for every importer, newer ones when an importer calls dma_buf_pin(). A pin
 * keeps the memory from moving, not from being freed, so only dynamic importers may pin.
 */
static int vgpu_dmabuf_pin(struct dma_buf_attachment *attach)
{
	struct vgpu_dmabuf *b = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (!READ_ONCE(dmabuf_pin) || !dmabuf_importer_is_dynamic(attach))
		return -EOPNOTSUPP;
	atomic_inc(&b->alloc->pinned);
	return 0;
}

static void vgpu_dmabuf_unpin(struct dma_buf_attachment *attach)
{
	struct vgpu_dmabuf *b = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	atomic_dec(&b->alloc->pinned);
}

/* As NVIDIA's: accepts static importers, and dynamic ones that allow peer-to-peer. */
static int vgpu_static_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct vgpu_dmabuf *b = dmabuf->priv;

	if ((attach->importer_ops && !attach->peer2peer) ||
	    !vgpu_peer_is_reachable(b->alloc->dev, attach->dev))
		return -ENOTSUPP;
	return 0;
}

/* Length of the scatterlist entry that starts at @at. */
static u32 dmabuf_entry_length(const struct vgpu_dmabuf *b, const struct vgpu_block *block, u64 at)
{
	return min_t(u64, vgpu_block_run(block, b->offset + at, b->length - at), ENTRY_MAX);
}

static unsigned int dmabuf_count_entries(const struct vgpu_dmabuf *b,
					 const struct vgpu_block *block)
{
	unsigned int n = 0;
	u64 at;

	for (at = 0; at < b->length; at += dmabuf_entry_length(b, block, at))
		n++;
	return n;
}

static void dmabuf_unmap_entries(struct device *dev, struct sg_table *table, unsigned int n,
				 enum dma_data_direction dir)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(table->sgl, sg, n, i)
		dma_unmap_resource(dev, sg_dma_address(sg), sg_dma_len(sg), dir, 0);
}

static int dmabuf_map_entries(struct vgpu_dmabuf *b, struct device *dev, struct vgpu_sgt *sgt,
			      enum dma_data_direction dir)
{
	struct sg_table *table = &sgt->table;
	struct scatterlist *sg;
	unsigned int i;
	u64 at = 0;

	for_each_sg(table->sgl, sg, table->orig_nents, i) {
		u32 len = dmabuf_entry_length(b, sgt->block, at);
		dma_addr_t addr;
		int rc;

		rc = vgpu_dma_map(dev, vgpu_block_phys(sgt->block, b->offset + at), len, dir,
				  &addr);
		if (rc) {
			dmabuf_unmap_entries(dev, table, i, dir);
			return rc;
		}
		sg_set_page(sg, NULL, len, 0);
		sg_dma_address(sg) = addr;
		sg_dma_len(sg) = len;
		at += len;
	}
	return 0;
}

static void dmabuf_count_mapped(struct vgpu_dmabuf *b)
{
	atomic_inc(&b->mapped);
	vgpu_count(b->alloc->dev, VGPU_DMABUF_MAPPED, b->length);
	vgpu_count(b->alloc->dev, VGPU_PEER_MAPPED_NOW, b->length);
}

static struct sg_table *vgpu_dmabuf_map(struct dma_buf_attachment *attach,
					enum dma_data_direction dir)
{
	struct vgpu_dmabuf *b = attach->dmabuf->priv;
	struct vgpu_sgt *sgt;
	int rc;

	vgpu_window_meet(VGPU_W_INVALIDATE);
	dma_resv_assert_held(attach->dmabuf->resv);
	if (b->revoked)
		return ERR_PTR(-ENODEV);
	vgpu_window(VGPU_W_DMABUF_MAP);
	sgt = vgpu_zalloc(sizeof(*sgt));
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	/* Not revoked: the allocation has the block, which does not change under this lock. */
	sgt->block = b->block ? b->block : b->alloc->block;
	rc = vgpu_sg_alloc_table(&sgt->table, dmabuf_count_entries(b, sgt->block));
	if (rc)
		goto err_free;
	rc = dmabuf_map_entries(b, attach->dev, sgt, dir);
	if (rc)
		goto err_table;
	kref_get(&sgt->block->kref);
	dmabuf_count_mapped(b);
	return &sgt->table;
err_table:
	sg_free_table(&sgt->table);
err_free:
	kfree(sgt);
	return ERR_PTR(rc);
}

static void vgpu_dmabuf_unmap(struct dma_buf_attachment *attach, struct sg_table *table,
			      enum dma_data_direction dir)
{
	struct vgpu_sgt *sgt = container_of(table, struct vgpu_sgt, table);
	struct vgpu_dmabuf *b = attach->dmabuf->priv;

	dmabuf_unmap_entries(attach->dev, table, table->orig_nents, dir);
	vgpu_peer_flush(attach->dev);
	sg_free_table(table);
	vgpu_block_put(sgt->block);
	kfree(sgt);
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

static const struct dma_buf_ops vgpu_static_ops = {
	.attach = vgpu_static_attach,
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
	b->offset = offset;
	b->length = length;
	INIT_LIST_HEAD(&b->node);
	init_waitqueue_head(&b->unmapped);
	return b;
}

/* Static: keeps the memory, and keeps it from moving. */
static int dmabuf_reference_block(struct vgpu_dmabuf *b)
{
	struct vgpu_alloc *a = b->alloc;
	int rc = -ENODEV;

	down_read(&a->lock);
	if (!a->revoked) {
		atomic_inc(&a->pinned);
		kref_get(&a->block->kref);
		b->block = a->block;
		rc = 0;
	}
	up_read(&a->lock);
	return rc;
}

/* Dynamic: from here on revocations and moves find the dma-buf. */
static int dmabuf_publish(struct vgpu_dmabuf *b)
{
	struct vgpu_alloc *a = b->alloc;
	int rc = 0;

	down_write(&a->lock);
	if (a->revoked)
		rc = -ENODEV;
	else
		list_add_tail(&b->node, &a->dmabufs);
	up_write(&a->lock);
	return rc;
}

struct dma_buf *vgpu_dmabuf_export(struct vgpu_alloc *a, u64 offset, u64 length, u32 fd_flags)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct vgpu_dmabuf *b;
	bool keep = READ_ONCE(static_dmabuf);
	struct dma_buf *dmabuf;
	int rc;

	if (!length || !PAGE_ALIGNED(offset | length) || offset > a->length ||
	    length > a->length - offset)
		return ERR_PTR(-EINVAL);
	b = dmabuf_new(a, offset, length);
	if (!b)
		return ERR_PTR(-ENOMEM);
	rc = keep ? dmabuf_reference_block(b) : 0;
	if (rc) {
		kref_put(&b->kref, dmabuf_free);
		return ERR_PTR(rc);
	}
	info.ops = keep ? &vgpu_static_ops : &vgpu_dmabuf_ops;
	/* Shared by all dma-bufs of the allocation, which move together. */
	info.resv = &a->resv;
	info.size = length;
	info.flags = fd_flags & O_ACCMODE;
	info.priv = b;
	dmabuf = vgpu_dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		kref_put(&b->kref, dmabuf_free);
		return dmabuf;
	}
	b->dmabuf = dmabuf;
	rc = keep ? 0 : dmabuf_publish(b);
	if (rc) {
		dma_buf_put(dmabuf);
		return ERR_PTR(rc);
	}
	return dmabuf;
}

static void dmabuf_revoke(struct vgpu_dmabuf *b)
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

/* Removes a dma-buf that is not being released from the list, with references on both objects. */
static struct vgpu_dmabuf *dmabuf_take(struct vgpu_alloc *a)
{
	struct vgpu_dmabuf *b, *found = NULL;

	down_write(&a->lock);
	list_for_each_entry(b, &a->dmabufs, node) {
		/* vgpu_dmabuf_release() removes it from the list before its file is freed. */
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

/* A dma-buf whose importers are not notified yet, with references on both objects. */
static struct vgpu_dmabuf *dmabuf_next_to_notify(struct vgpu_alloc *a)
{
	struct vgpu_dmabuf *b, *found = NULL;

	down_write(&a->lock);
	list_for_each_entry(b, &a->dmabufs, node) {
		if (b->notified == a->notified || !compat_get_file_active(&b->dmabuf->file))
			continue;
		b->notified = a->notified;
		kref_get(&b->kref);
		found = b;
		break;
	}
	up_write(&a->lock);
	return found;
}

void vgpu_dmabuf_invalidate_all(struct vgpu_alloc *a)
{
	struct vgpu_dmabuf *b;

	dma_resv_assert_held(&a->resv);
	a->notified++;
	while ((b = dmabuf_next_to_notify(a))) {
		vgpu_count(a->dev, VGPU_INVALIDATIONS, 1);
		compat_dma_buf_invalidate(b->dmabuf);
		dma_buf_put(b->dmabuf);
		kref_put(&b->kref, dmabuf_free);
	}
}

void vgpu_dmabuf_revoke_all(struct vgpu_alloc *a)
{
	struct vgpu_dmabuf *b;

	vgpu_window(VGPU_W_INVALIDATE);
	while ((b = dmabuf_take(a))) {
		dmabuf_revoke(b);
		dma_buf_put(b->dmabuf);
		kref_put(&b->kref, dmabuf_free);
	}
}
