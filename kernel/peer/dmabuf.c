// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Memory of clients as dma-bufs: see region.h. */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "inject.h"
#include "peer.h"
#include "region.h"

struct peer_dmabuf {
	struct peer_region *region;	/* with a reference */
	u64 offset;
};

struct peer_attach {
	struct kref kref;		/* the attachment, and a revocation */
	struct dma_buf *dmabuf;		/* of the attachment; a revocation has a reference */
	struct peer_context *ctx;
	bool told;			/* the importer can be told */
	bool revoked;
	atomic_t mapped;		/* tables that the importer has */
	wait_queue_head_t unmapped;	/* @mapped is 0 */
};

static void attach_free(struct kref *kref)
{
	kfree(container_of(kref, struct peer_attach, kref));
}

/* While the attachment exists its importer has a reference on the dma-buf. */
static void attach_revoke_begin(void *arg)
{
	struct peer_attach *pa = arg;

	kref_get(&pa->kref);
	get_dma_buf(pa->dmabuf);
	WRITE_ONCE(pa->revoked, true);
}

/*
 * Stops the importer. One that unmaps after the notification is waited for, without a deadline. One
 * that cannot be told has memory of a client that does not invalidate: only unregistration waits
 * for it.
 */
static void attach_revoke_wait(void *arg)
{
	struct peer_attach *pa = arg;
	struct dma_resv *resv = pa->dmabuf->resv;

	if (pa->told) {
		dma_resv_lock(resv, NULL);
		compat_dma_buf_invalidate(pa->dmabuf);
		dma_resv_wait_timeout(resv, DMA_RESV_USAGE_BOOKKEEP, false, MAX_SCHEDULE_TIMEOUT);
		dma_resv_unlock(resv);
	}
	wait_event(pa->unmapped, !atomic_read(&pa->mapped));
}

static void attach_revoke_end(void *arg)
{
	struct peer_attach *pa = arg;

	dma_buf_put(pa->dmabuf);
	kref_put(&pa->kref, attach_free);
}

static const struct strait_bridge_notify attach_notify = {
	.revoke_begin = attach_revoke_begin,
	.revoke_wait = attach_revoke_wait,
	.revoke_end = attach_revoke_end,
};

/*
 * The client for an importer: the region's, or, for an importer that cannot be told of a move, one
 * whose memory stays.
 */
static struct peer_client *dmabuf_client(struct peer_region *r, u64 address, u64 length,
					 struct dma_buf_attachment *attach)
{
	struct peer_client *client;

	if (compat_dma_buf_told(attach) || !r->client->invalidates) {
		kref_get(&r->client->kref);
		return r->client;
	}
	client = peer_client_find(address, length, true);
	if (!client)
		dev_info_ratelimited(attach->dev,
				     "importer refused: %s may free memory, it cannot be told\n",
				     r->client->name);
	return client;
}

/* A client's error that says nothing to an importer. */
static void dmabuf_log(struct dma_buf_attachment *attach, const struct peer_client *client, int rc)
{
	if (rc != -ENOMEM && rc != -ENODEV)
		dev_info_ratelimited(attach->dev, "importer refused: %s fails with %d\n",
				     client->name, rc);
}

static int dmabuf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct peer_dmabuf *b = dmabuf->priv;
	struct peer_region *r = b->region;
	u64 address = r->address + b->offset;
	struct peer_client *client;
	struct peer_attach *pa;
	int rc;

	/* Clients have memory of devices, without pages, and accept PCI devices without a check. */
	if (!attach->peer2peer || !dev_is_pci(attach->dev)) {
		dev_info_ratelimited(attach->dev, "importer refused: %s\n", attach->peer2peer ?
				     "it is no PCI device" : "it does not do peer-to-peer DMA");
		return -EOPNOTSUPP;
	}
	if (current->mm != r->mm) {
		dev_info_ratelimited(attach->dev,
				     "importer refused: the memory is of another process\n");
		return -EACCES;
	}
	pa = peer_zalloc(sizeof(*pa));
	if (!pa)
		return -ENOMEM;
	kref_init(&pa->kref);
	init_waitqueue_head(&pa->unmapped);
	pa->dmabuf = dmabuf;
	pa->told = compat_dma_buf_told(attach);
	rc = -EOPNOTSUPP;
	client = dmabuf_client(r, address, dmabuf->size, attach);
	if (!client)
		goto err_free;
	rc = peer_context_map(client, address, dmabuf->size, to_pci_dev(attach->dev),
			      &attach_notify, pa, &pa->ctx);
	if (rc)
		dmabuf_log(attach, client, rc);
	peer_client_put(client);
	if (rc)
		goto err_free;
	attach->priv = pa;
	return 0;
err_free:
	kref_put(&pa->kref, attach_free);
	return rc;
}

static void dmabuf_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct peer_attach *pa = attach->priv;

	peer_context_unmap(pa->ctx);
	kref_put(&pa->kref, attach_free);
}

/* The memory does not move. It may be freed, for importers that can be told. */
static int dmabuf_pin(struct dma_buf_attachment *attach)
{
	dma_resv_assert_held(attach->dmabuf->resv);
	return 0;
}

static void dmabuf_unpin(struct dma_buf_attachment *attach)
{
	dma_resv_assert_held(attach->dmabuf->resv);
}

/* A copy: importers change the table, and the client compares it with its own. */
static struct sg_table *dmabuf_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct peer_attach *pa = attach->priv;
	struct scatterlist *from, *to;
	struct sg_table *table;
	int i, rc;

	dma_resv_assert_held(attach->dmabuf->resv);
	table = peer_zalloc(sizeof(*table));
	if (!table)
		return ERR_PTR(-ENOMEM);
	rc = peer_sg_alloc_table(table, pa->ctx->copy.orig_nents);
	if (rc) {
		kfree(table);
		return ERR_PTR(rc);
	}
	to = table->sgl;
	for_each_sgtable_sg(&pa->ctx->copy, from, i) {
		sg_set_page(to, NULL, sg_dma_len(from), 0);
		sg_dma_address(to) = sg_dma_address(from);
		sg_dma_len(to) = sg_dma_len(from);
		to = sg_next(to);
	}
	/* A revocation sets .revoked before it takes this lock to notify the importer. */
	if (READ_ONCE(pa->revoked)) {
		sg_free_table(table);
		kfree(table);
		return ERR_PTR(-ENODEV);
	}
	atomic_inc(&pa->mapped);
	return table;
}

static void dmabuf_unmap(struct dma_buf_attachment *attach, struct sg_table *table,
			 enum dma_data_direction dir)
{
	struct peer_attach *pa = attach->priv;

	sg_free_table(table);
	kfree(table);
	if (atomic_dec_and_test(&pa->mapped))
		wake_up_all(&pa->unmapped);
}

static void dmabuf_release(struct dma_buf *dmabuf)
{
	struct peer_dmabuf *b = dmabuf->priv;

	peer_region_put(b->region);
	kfree(b);
}

static const struct dma_buf_ops peer_dmabuf_ops = {
	.attach = dmabuf_attach,
	.detach = dmabuf_detach,
	.pin = dmabuf_pin,
	.unpin = dmabuf_unpin,
	.map_dma_buf = dmabuf_map,
	.unmap_dma_buf = dmabuf_unmap,
	.release = dmabuf_release,
};

struct dma_buf *peer_dmabuf_export(struct peer_region *r, u64 offset, u64 length, u32 fd_flags)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	struct peer_dmabuf *b;

	b = peer_zalloc(sizeof(*b));
	if (!b)
		return ERR_PTR(-ENOMEM);
	kref_get(&r->kref);
	b->region = r;
	b->offset = offset;
	info.ops = &peer_dmabuf_ops;
	info.size = length;
	info.flags = fd_flags;
	info.priv = b;
	dmabuf = peer_dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		peer_region_put(r);
		kfree(b);
	}
	return dmabuf;
}
