// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Mappings of an attached device: their table, publishing and killing. */
#include <linux/overflow.h>

#include "attach.h"
#include "backing.h"
#include "core.h"
#include "file.h"
#include "map.h"
#include "region.h"
#include "trace.h"
#include "window.h"

static void map_release(struct kref *kref)
{
	struct strait_map *m = container_of(kref, struct strait_map, kref);

	WARN_ON_ONCE(m->live || m->attachment);
	strait_bridge_unmap(m);
	if (m->dmabuf)
		dma_buf_put(m->dmabuf);
	if (m->charged)
		strait_count(STRAIT_N_DEVICE_BYTES, -(s64)m->length);
	sg_free_table(&m->own);
	kvfree(m->runs);
	mutex_destroy(&m->kill);
	strait_attach_put(m->at);
	kfree(m);
}

int strait_map_charge(struct strait_map *m)
{
	u64 max = strait_device_max();

	if (m->length > max)
		return -ENOSPC;
	m->charged = true;
	if (atomic64_add_return(m->length, &strait_counts[STRAIT_N_DEVICE_BYTES]) > max)
		return -ENOSPC;
	return 0;
}

void strait_map_put(struct strait_map *m)
{
	kref_put(&m->kref, map_release);
}

bool strait_map_claim(struct strait_map *m)
{
	bool mine;

	spin_lock(&m->lock);
	mine = m->live;
	m->live = false;
	spin_unlock(&m->lock);
	return mine;
}

void strait_map_put_backing(struct strait_map *m, bool revoked)
{
	struct strait_backing *b = m->backing;

	spin_lock(&b->maps_lock);
	list_del_init(&m->node);
	spin_unlock(&b->maps_lock);
	if (revoked) {
		strait_attach_quiesce(m->at);
		strait_count(STRAIT_N_MAPS_REVOKED, 1);
	}
	strait_count(STRAIT_N_MAPS, -1);
	strait_count(STRAIT_N_MAPPED_BYTES, -(s64)m->length);
	trace_strait_unmap(pci_name(m->at->pdev), m->handle, m->length, revoked);
	strait_backing_unuse(b);
	strait_backing_put(b);
}

/*
 * When it returns the device does not reach the memory, whichever of several callers unmapped it.
 */
static void map_kill(struct strait_map *m, bool revoked)
{
	bool mine;

	mutex_lock(&m->kill);
	if (m->kind == STRAIT_MAP_DMABUF) {
		strait_dmabuf_kill(m, revoked);
	} else if (m->kind == STRAIT_MAP_BRIDGE) {
		/* Also one that is being revoked: unmapping waits for the bridge's calls for it. */
		mine = strait_map_claim(m);
		strait_bridge_unmap(m);
		if (mine)
			strait_map_put_backing(m, revoked);
	} else if (strait_map_claim(m)) {
		strait_dma_unmap(m);
		strait_dma_flush(m->at);
		strait_map_put_backing(m, revoked);
	}
	mutex_unlock(&m->kill);
}

void strait_maps_kill(struct strait_backing *b)
{
	struct strait_map *m;

	do {
		spin_lock(&b->maps_lock);
		m = list_first_entry_or_null(&b->maps, struct strait_map, node);
		/*
		 * A mapping on the list is referenced by the table or by the caller that kills it.
		 */
		if (m)
			kref_get(&m->kref);
		spin_unlock(&b->maps_lock);
		if (m) {
			map_kill(m, true);
			strait_map_put(m);
		}
	} while (m);
}

void strait_maps_kill_work(struct work_struct *work)
{
	struct strait_backing *b = container_of(work, struct strait_backing, maps_kill_work);

	strait_maps_kill(b);
	strait_backing_put(b);
}

void strait_maps_kill_deferred(struct strait_backing *b)
{
	bool any;

	strait_window_meet(STRAIT_W_MAP);
	spin_lock(&b->maps_lock);
	b->maps_closed = true;
	any = !list_empty(&b->maps);
	spin_unlock(&b->maps_lock);
	if (!any)
		return;
	kref_get(&b->kref);
	if (!queue_work(strait_wq, &b->maps_kill_work))
		strait_backing_put(b);
}

int strait_map_publish(struct strait_map *m)
{
	struct strait_backing *b = m->backing;
	int rc = 0;

	strait_window(STRAIT_W_MAP);
	strait_window_meet(STRAIT_W_DEFER);
	spin_lock(&m->lock);
	spin_lock(&b->maps_lock);
	if (b->maps_closed || m->revoked)
		rc = -ENODEV;
	else
		list_add_tail(&m->node, &b->maps);
	m->live = !rc;
	spin_unlock(&b->maps_lock);
	spin_unlock(&m->lock);
	if (!rc) {
		strait_count(STRAIT_N_MAPS, 1);
		strait_count(STRAIT_N_MAPPED_BYTES, m->length);
	}
	return rc;
}

static struct strait_map *map_alloc(struct strait_attach *at, const struct strait_ioc_map *req)
{
	struct strait_map *m = strait_zalloc(sizeof(*m));

	if (!m)
		return NULL;
	kref_init(&m->kref);
	strait_attach_get(at);
	m->at = at;
	mutex_init(&m->kill);
	spin_lock_init(&m->lock);
	INIT_LIST_HEAD(&m->node);
	m->length = req->length;
	m->access = req->flags;
	if (!(req->flags & STRAIT_MAP_READ))
		m->dir = DMA_FROM_DEVICE;
	else
		m->dir = req->flags & STRAIT_MAP_WRITE ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
	return m;
}

/* Maps a region. The reference and the use of its backing belong to the published mapping. */
static int map_backing(struct strait_map *m, struct strait_region *r, u64 offset, u32 *reason)
{
	int rc;

	rc = strait_region_use(r, &m->backing);
	if (rc)
		return rc;
	if (m->backing->dmabuf)
		rc = strait_dmabuf_map(m, r->address + offset, reason);
	else if (r->kind == STRAIT_IMPORT_PEER)
		rc = strait_bridge_map(m, offset, reason);
	else if (m->backing->pdev)
		rc = strait_dma_map_device(m, offset, reason);
	else
		rc = strait_dma_map_host(m, offset);
	if (rc) {
		strait_backing_unuse(m->backing);
		strait_backing_put(m->backing);
	}
	return rc;
}

static int map_region(struct strait_map *m, struct strait_file *f, struct strait_ioc_map *req)
{
	struct strait_region *r;
	u64 end;
	int rc = -EINVAL;

	r = strait_region_find(f, req->region);
	if (!r)
		return -ENOENT;
	if (!check_add_overflow(req->offset, req->length, &end) && end <= r->length)
		rc = map_backing(m, r, req->offset, &req->reason);
	strait_region_put(r);
	return rc;
}

static void map_describe(const struct strait_map *m, struct strait_ioc_map *req)
{
	req->handle = m->handle;
	req->runs = m->n;
	req->bus = m->runs[0].bus;
	req->contiguous = m->runs[0].length;
	req->access = m->access;
	req->where = m->where;
}

int strait_map_new(struct strait_attach *at, struct strait_file *f, struct strait_ioc_map *req,
		   struct strait_map **ret)
{
	struct strait_map *m;
	int rc;

	lockdep_assert_held(&at->state);
	req->reason = STRAIT_ATTACH_NONE;
	if (!req->flags || req->flags & ~(STRAIT_MAP_READ | STRAIT_MAP_WRITE) || !req->length ||
	    !PAGE_ALIGNED(req->offset | req->length))
		return -EINVAL;
	req->reason = strait_attach_recheck(at->pdev);
	if (req->reason)
		return -EOPNOTSUPP;
	m = map_alloc(at, req);
	if (!m)
		return -ENOMEM;
	rc = strait_xa_reserve(&at->maps, &m->handle, STRAIT_MAPS_MAX, &at->next);
	if (rc)
		goto err_put;
	rc = map_region(m, f, req);
	if (rc)
		goto err_handle;
	map_describe(m, req);
	kref_get(&m->kref);
	*ret = m;
	/* The entry is reserved: storing to it needs no memory. */
	xa_store(&at->maps, m->handle, m, GFP_KERNEL);
	return 0;
err_handle:
	xa_release(&at->maps, m->handle);
err_put:
	strait_map_put(m);
	return rc;
}

struct strait_map *strait_map_find(struct strait_attach *at, u32 handle)
{
	struct strait_map *m;

	lockdep_assert_held(&at->state);
	xa_lock(&at->maps);
	m = xa_load(&at->maps, handle);
	if (m)
		kref_get(&m->kref);
	xa_unlock(&at->maps);
	return m;
}

int strait_map_mapped(struct strait_attach *at, u32 handle)
{
	struct strait_map *m = strait_map_find(at, handle);
	int rc;

	if (!m)
		return -ENOENT;
	/* While the mapping is live m->backing is valid. */
	spin_lock(&m->lock);
	rc = m->live && !READ_ONCE(m->backing->maps_closed) ? 0 : -ENODEV;
	spin_unlock(&m->lock);
	strait_map_put(m);
	return rc;
}

int strait_map_remove(struct strait_attach *at, u32 handle, struct strait_map *only)
{
	struct strait_map *m;

	lockdep_assert_held(&at->state);
	/* A reserved entry loads as NULL: the STRAIT_IOC_MAP that reserved it is still running. */
	xa_lock(&at->maps);
	m = xa_load(&at->maps, handle);
	if (only && m != only)
		m = NULL;
	if (m)
		__xa_erase(&at->maps, handle);
	xa_unlock(&at->maps);
	if (!m)
		return -ENOENT;
	map_kill(m, false);
	strait_map_put(m);
	return 0;
}

void strait_maps_kill_all(struct strait_attach *at)
{
	struct strait_map *m;
	unsigned long handle;

	lockdep_assert_held_write(&at->state);
	xa_for_each(&at->maps, handle, m)
		map_kill(m, false);
	strait_attach_wait_revoked(at);
}

void strait_maps_free_all(struct strait_attach *at)
{
	struct strait_map *m;
	unsigned long handle;

	lockdep_assert_held_write(&at->state);
	xa_for_each(&at->maps, handle, m) {
		xa_erase(&at->maps, handle);
		strait_map_put(m);
	}
}
