// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * dma-bufs mapped for an attached device.
 *
 * An exporter without .pin is static: it never revokes. Where the dma-buf core caches the mapping
 * of such an attachment (compat_dma_buf_cached()), dma_buf_unmap_attachment() does nothing and the
 * memory stays mapped, in both directions, until dma_buf_detach(). Killing a mapping therefore
 * detaches and then flushes the IOTLB. Detaching takes the reservation lock. A dynamic exporter
 * revokes with that lock held: there unmapping is enough, and the call that removes the mapping
 * detaches later.
 */
#include <linux/dma-resv.h>

#include "attach.h"
#include "backing.h"
#include "core.h"
#include "map.h"
#include "window.h"

#define FENCE_LIMIT msecs_to_jiffies(10000)

static void dmabuf_unmap(struct strait_map *m)
{
	dma_resv_assert_held(m->dmabuf->resv);
	dma_buf_unmap_attachment(m->attachment, m->table, m->dir);
	if (m->pinned)
		dma_buf_unpin(m->attachment);
	m->pinned = false;
}

void strait_dmabuf_kill(struct strait_map *m, bool revoked)
{
	bool mine;

	lockdep_assert_held(&m->kill);
	dma_resv_lock(m->dmabuf->resv, NULL);
	mine = strait_map_claim(m);
	if (mine)
		dmabuf_unmap(m);
	dma_resv_unlock(m->dmabuf->resv);
	strait_window(STRAIT_W_DETACH);
	if (m->attachment)
		dma_buf_detach(m->dmabuf, m->attachment);
	m->attachment = NULL;
	strait_dma_flush(m->at);
	if (mine)
		strait_map_put_backing(m, revoked);
}

/* move_notify(): the exporter revokes or moves the memory. */
static void dmabuf_invalidate(struct dma_buf_attachment *attachment)
{
	struct strait_map *m = attachment->importer_priv;

	dma_resv_assert_held(m->dmabuf->resv);
	strait_window_meet(STRAIT_W_DETACH);
	if (compat_dma_buf_cached(attachment)) {
		/* Only detaching unmaps it, which takes this lock: a work item does it. */
		spin_lock(&m->lock);
		if (m->live)
			strait_maps_kill_deferred(m->backing);
		spin_unlock(&m->lock);
		strait_attach_quiesce(m->at);
		return;
	}
	if (strait_map_claim(m)) {
		dmabuf_unmap(m);
		strait_dma_flush(m->at);
		strait_map_put_backing(m, true);
	} else {
		/* strait_dmabuf_kill() unmapped under this lock and may not have flushed yet. */
		strait_dma_flush(m->at);
	}
}

static const struct dma_buf_attach_ops dmabuf_attach_ops = {
	.allow_peer2peer = true,
	.COMPAT_INVALIDATE = dmabuf_invalidate,
};

/* Keeps a dynamic exporter from moving the memory. */
static int dmabuf_pin(struct strait_map *m)
{
	int rc;

	if (!dma_buf_is_dynamic(m->dmabuf))
		return 0;
	rc = dma_buf_pin(m->attachment);
	m->pinned = !rc;
	/* Without a pin the mapping is revoked when the memory moves. */
	return rc == -EOPNOTSUPP ? 0 : rc;
}

/* Waits for the exporter's fences, after which the memory is where @m->table says; publishes. */
static int dmabuf_publish(struct strait_map *m, u64 offset)
{
	long left;
	int rc;

	left = dma_resv_wait_timeout(m->dmabuf->resv, DMA_RESV_USAGE_KERNEL, false, FENCE_LIMIT);
	if (left <= 0)
		return left ? left : -ETIMEDOUT;
	rc = strait_dma_save_runs(m, m->table, offset);
	if (rc)
		return rc;
	m->where = strait_dma_where(m);
	if (compat_dma_buf_cached(m->attachment))
		m->access = STRAIT_MAP_READ | STRAIT_MAP_WRITE;
	return strait_map_publish(m);
}

static int dmabuf_map_locked(struct strait_map *m, u64 offset)
{
	struct sg_table *table;
	int rc;

	dma_resv_assert_held(m->dmabuf->resv);
	rc = dmabuf_pin(m);
	if (rc)
		return rc;
	table = strait_dma_buf_map(m->attachment, m->dir);
	if (IS_ERR(table)) {
		if (m->pinned)
			dma_buf_unpin(m->attachment);
		m->pinned = false;
		return PTR_ERR(table);
	}
	m->table = table;
	rc = dmabuf_publish(m, offset);
	if (rc)
		dmabuf_unmap(m);
	return rc;
}

int strait_dmabuf_map(struct strait_map *m, u64 offset, u32 *reason)
{
	static struct lock_class_key kill_key;
	struct dma_buf_attachment *attachment;
	int rc;

	m->kind = STRAIT_MAP_DMABUF;
	/* A class of its own: nests outside dma_resv; for a bridge, inside its driver's locks. */
	lockdep_set_class_and_name(&m->kill, &kill_key, "strait_map.kill/dmabuf");
	rc = strait_map_charge(m);
	if (rc)
		return rc;
	get_dma_buf(m->backing->dmabuf);
	m->dmabuf = m->backing->dmabuf;
	attachment = strait_dma_buf_attach(m->dmabuf, &m->at->pdev->dev, &dmabuf_attach_ops, m);
	if (IS_ERR(attachment)) {
		rc = PTR_ERR(attachment);
		goto refused;
	}
	m->attachment = attachment;
	dma_resv_lock(m->dmabuf->resv, NULL);
	rc = dmabuf_map_locked(m, offset);
	dma_resv_unlock(m->dmabuf->resv);
	if (!rc)
		return 0;
	dma_buf_detach(m->dmabuf, m->attachment);
	m->attachment = NULL;
	strait_dma_flush(m->at);
refused:
	if (rc == -ENOMEM || rc == -ENODEV || rc == -EINTR || rc == -ERESTARTSYS ||
	    rc == -ETIMEDOUT)
		return rc;
	*reason = STRAIT_ATTACH_EXPORTER;
	return -EOPNOTSUPP;
}
