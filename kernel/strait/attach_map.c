// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Memory an attached device can reach: regions mapped for it through the DMA API. */
#include <linux/dma-resv.h>
#include <linux/iommu.h>
#include <linux/overflow.h>
#include <linux/pci-p2pdma.h>
#include <linux/uaccess.h>

#include "attach.h"
#include "trace.h"

#define ENTRY_MAX SZ_1G
#define FENCE_LIMIT msecs_to_jiffies(10000)

static void map_release(struct kref *kref)
{
	struct strait_map *m = container_of(kref, struct strait_map, kref);

	if (m->attachment)
		dma_buf_detach(m->dmabuf, m->attachment);
	if (m->dmabuf)
		dma_buf_put(m->dmabuf);
	if (m->charged)
		strait_count(STRAIT_N_DEVICE_BYTES, -(s64)m->length);
	sg_free_table(&m->own);
	kvfree(m->runs);
	strait_attach_put(m->at);
	kfree(m);
}

static void map_put(struct strait_map *m)
{
	kref_put(&m->kref, map_release);
}

/* What was unmapped may stay in the IOMMU's caches for a while, unless it is told. */
static void flush(struct device *dev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	if (domain)
		iommu_flush_iotlb_all(domain);
}

static void unmap_device_runs(struct strait_map *m, unsigned int n)
{
	while (n--)
		compat_dma_unmap_mmio(&m->at->pdev->dev, m->runs[n].bus, m->runs[n].length, m->dir,
				      DMA_ATTR_SKIP_CPU_SYNC);
}

static void undo_dma(struct strait_map *m)
{
	struct device *dev = &m->at->pdev->dev;

	switch (m->kind) {
	case STRAIT_MAP_HOST:
		dma_unmap_sgtable(dev, &m->own, m->dir, COMPAT_DMA_COHERENT);
		break;
	case STRAIT_MAP_DEVICE:
		unmap_device_runs(m, m->n);
		break;
	case STRAIT_MAP_DMABUF:
		dma_buf_unmap_attachment(m->attachment, m->table, m->dir);
		break;
	}
	flush(dev);
}

/* For a dma-buf with its reservation lock held. Drops the hold on the memory, after the device has lost it. */
static void map_kill(struct strait_map *m, bool revoked)
{
	struct strait_backing *b = NULL;

	mutex_lock(&m->lock);
	if (m->live) {
		undo_dma(m);
		WRITE_ONCE(m->live, false);
		b = m->backing;
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
	}
	mutex_unlock(&m->lock);
	if (b) {
		strait_backing_unuse(b);
		strait_backing_put(b);
	}
}

static void map_kill_now(struct strait_map *m, bool revoked)
{
	if (m->dmabuf)
		dma_resv_lock(m->dmabuf->resv, NULL);
	map_kill(m, revoked);
	if (m->dmabuf)
		dma_resv_unlock(m->dmabuf->resv);
}

void strait_maps_kill(struct strait_backing *b)
{
	struct strait_map *m;

	do {
		spin_lock(&b->maps_lock);
		m = list_first_entry_or_null(&b->maps, struct strait_map, node);
		/* On the list it is live, and so the table holds it, or who is about to kill it. */
		if (m)
			kref_get(&m->kref);
		spin_unlock(&b->maps_lock);
		if (m) {
			map_kill_now(m, true);
			map_put(m);
		}
	} while (m);
}

void strait_maps_work(struct work_struct *work)
{
	struct strait_backing *b = container_of(work, struct strait_backing, maps_work);

	strait_maps_kill(b);
	strait_backing_put(b);
}

void strait_maps_orphan(struct strait_backing *b)
{
	bool any;

	spin_lock(&b->maps_lock);
	b->maps_closed = true;
	any = !list_empty(&b->maps);
	spin_unlock(&b->maps_lock);
	if (!any)
		return;
	kref_get(&b->kref);
	if (!queue_work(strait_wq, &b->maps_work))
		strait_backing_put(b);
}

/* From here on it can be killed by who takes the memory away. -ENODEV if that has happened. */
static int map_publish(struct strait_map *m)
{
	struct strait_backing *b = m->backing;
	int rc = 0;

	spin_lock(&b->maps_lock);
	if (b->maps_closed)
		rc = -ENODEV;
	else
		list_add_tail(&m->node, &b->maps);
	m->live = !rc;
	spin_unlock(&b->maps_lock);
	if (!rc) {
		strait_count(STRAIT_N_MAPS, 1);
		strait_count(STRAIT_N_MAPPED_BYTES, m->length);
	}
	return rc;
}

/* Vector @i of a backing, as far as it lies in [offset, offset + length). */
static u64 piece(const struct strait_backing *b, unsigned int i, u64 offset, u64 length, void **at)
{
	u64 start = max(b->start[i], offset);
	u64 end = min(b->start[i] + b->vec[i].iov_len, offset + length);

	*at = b->vec[i].iov_base + (start - b->start[i]);
	return end > start ? end - start : 0;
}

static unsigned int count_entries(const struct strait_backing *b, u64 offset, u64 length)
{
	unsigned int i, n = 0;
	void *at;

	for (i = 0; i < b->n; i++)
		n += DIV_ROUND_UP_ULL(piece(b, i, offset, length, &at), ENTRY_MAX);
	return n;
}

static void fill_table(struct sg_table *table, const struct strait_backing *b, u64 offset, u64 length)
{
	struct scatterlist *sg = table->sgl;
	unsigned int i, n;
	u64 left;
	void *at;

	for (i = 0; i < b->n; i++)
		for (left = piece(b, i, offset, length, &at); left; left -= n, at += n, sg = sg_next(sg)) {
			n = min_t(u64, left, ENTRY_MAX);
			sg_set_page(sg, virt_to_page(at), n, 0);
		}
}

/* Neighbours are one run. With @runs NULL they are only counted. */
static unsigned int gather_runs(struct sg_table *table, u64 offset, u64 length, struct strait_run *runs)
{
	u64 at = 0, end = offset + length, last = U64_MAX;
	struct scatterlist *sg;
	unsigned int i, n = 0;

	for_each_sgtable_dma_sg(table, sg, i) {
		u64 start = max(at, offset), stop = min(at + sg_dma_len(sg), end);
		u64 bus = sg_dma_address(sg) + (start - at);

		at += sg_dma_len(sg);
		if (start >= stop)
			continue;
		if (bus != last) {
			if (runs)
				runs[n] = (struct strait_run){ .bus = bus };
			n++;
		}
		if (runs)
			runs[n - 1].length += stop - start;
		last = bus + (stop - start);
	}
	return n;
}

static int keep_runs(struct strait_map *m, struct sg_table *table, u64 offset)
{
	m->n = gather_runs(table, offset, m->length, NULL);
	m->runs = strait_zalloc_array(m->n, sizeof(*m->runs));
	if (!m->runs)
		return -ENOMEM;
	gather_runs(table, offset, m->length, m->runs);
	return 0;
}

static int map_host(struct strait_map *m, u64 offset)
{
	struct device *dev = &m->at->pdev->dev;
	struct strait_backing *b = m->backing;
	int rc;

	m->kind = STRAIT_MAP_HOST;
	rc = strait_sg_alloc_table(&m->own, count_entries(b, offset, m->length));
	if (rc)
		return rc;
	fill_table(&m->own, b, offset, m->length);
	rc = strait_dma_map_sgtable(dev, &m->own, m->dir);
	if (rc)
		return rc;
	rc = keep_runs(m, &m->own, 0);
	if (!rc)
		rc = map_publish(m);
	if (rc)
		undo_dma(m);
	return rc;
}

/* Of device memory: where @offset is, and how many bytes from there, up to @most, are in one piece. */
static u64 device_piece(const struct strait_backing *b, u64 offset, u64 most, phys_addr_t *phys)
{
	u64 length;

	if (b->n)
		length = strait_backing_piece(b, offset, phys);
	else
		length = strait_bridge_piece(b, offset, phys);
	return min(length, most);
}

static unsigned int count_pieces(const struct strait_backing *b, u64 offset, u64 length)
{
	u64 end = offset + length;
	unsigned int n = 0;
	phys_addr_t phys;

	for (; offset < end; n++)
		offset += device_piece(b, offset, end - offset, &phys);
	return n;
}

/*
 * Addresses of the IOMMU's also where devices below one switch could do with those of the bus: what is
 * not translated could not be taken back.
 */
static int map_device_runs(struct strait_map *m, u64 offset)
{
	struct device *dev = &m->at->pdev->dev;
	u64 end = offset + m->length, length;
	phys_addr_t phys;
	dma_addr_t bus;
	int rc;

	for (; offset < end; offset += length) {
		length = device_piece(m->backing, offset, end - offset, &phys);
		rc = strait_dma_map_mmio(dev, phys, length, m->dir, &bus);
		if (rc) {
			unmap_device_runs(m, m->n);
			flush(dev);
			return rc;
		}
		m->runs[m->n++] = (struct strait_run){ .bus = bus, .length = length };
	}
	return 0;
}

/* A kernel without P2PDMA does not know, and leaves it to whoever put the two into one machine. */
static bool reaches(struct strait_attach *at, struct pci_dev *owner)
{
	return !IS_ENABLED(CONFIG_PCI_P2PDMA) || pci_p2pdma_distance(owner, &at->pdev->dev, false) >= 0;
}

static int map_device(struct strait_map *m, u64 offset, u32 *reason)
{
	struct strait_backing *b = m->backing;
	int rc;

	m->kind = STRAIT_MAP_DEVICE;
	if (!reaches(m->at, b->pdev)) {
		*reason = STRAIT_ATTACH_NO_PATH;
		return -EOPNOTSUPP;
	}
	m->runs = strait_zalloc_array(count_pieces(b, offset, m->length), sizeof(*m->runs));
	if (!m->runs)
		return -ENOMEM;
	rc = map_device_runs(m, offset);
	if (rc)
		return rc;
	rc = map_publish(m);
	if (rc)
		undo_dma(m);
	return rc;
}

/* With the reservation lock held: the memory goes, or moves. */
static void told(struct dma_buf_attachment *attachment)
{
	map_kill(attachment->importer_priv, true);
}

static const struct dma_buf_attach_ops attach_ops = {
	.allow_peer2peer = true,
	.COMPAT_INVALIDATE = told,
};

/* With the reservation lock held. */
static int map_attachment(struct strait_map *m, u64 offset)
{
	struct sg_table *table;
	long left;
	int rc;

	table = strait_dma_buf_map(m->attachment, m->dir);
	if (IS_ERR(table))
		return PTR_ERR(table);
	m->table = table;
	/* It may still be on its way to where it is. */
	left = dma_resv_wait_timeout(m->dmabuf->resv, DMA_RESV_USAGE_KERNEL, false, FENCE_LIMIT);
	rc = left > 0 ? keep_runs(m, table, offset) : left ? left : -ETIMEDOUT;
	if (!rc)
		rc = map_publish(m);
	if (rc)
		undo_dma(m);
	return rc;
}

static int charge(struct strait_map *m)
{
	u64 max = strait_device_max();

	if (m->length > max)
		return -ENOSPC;
	m->charged = true;
	return atomic64_add_return(m->length, &strait_counts[STRAIT_N_DEVICE_BYTES]) > max ? -ENOSPC : 0;
}

static int map_dmabuf(struct strait_map *m, u64 offset, u32 *reason)
{
	struct dma_buf_attachment *attachment;
	int rc;

	m->kind = STRAIT_MAP_DMABUF;
	rc = charge(m);
	if (rc)
		return rc;
	attachment = strait_dma_buf_attach(m->backing->dmabuf, &m->at->pdev->dev, &attach_ops, m);
	if (IS_ERR(attachment)) {
		rc = PTR_ERR(attachment);
		if (rc != -ENOMEM && rc != -ENODEV) {
			*reason = STRAIT_ATTACH_EXPORTER;
			rc = -EOPNOTSUPP;
		}
		return rc;
	}
	get_dma_buf(m->backing->dmabuf);
	m->dmabuf = m->backing->dmabuf;
	m->attachment = attachment;
	dma_resv_lock(m->dmabuf->resv, NULL);
	rc = map_attachment(m, offset);
	dma_resv_unlock(m->dmabuf->resv);
	return rc;
}

static struct strait_map *map_new(struct strait_attach *at, const struct strait_ioc_map *req)
{
	struct strait_map *m = strait_zalloc(sizeof(*m));

	if (!m)
		return NULL;
	kref_init(&m->kref);
	kref_get(&at->kref);
	m->at = at;
	mutex_init(&m->lock);
	INIT_LIST_HEAD(&m->node);
	m->length = req->length;
	if (!(req->flags & STRAIT_MAP_READ))
		m->dir = DMA_FROM_DEVICE;
	else
		m->dir = req->flags & STRAIT_MAP_WRITE ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
	return m;
}

/* Of a region that is in use: until it is published its hold and use are ours. */
static int map_backing(struct strait_map *m, struct strait_region *r, u64 offset, u32 *reason)
{
	int rc;

	rc = strait_region_use(r, &m->backing);
	if (rc)
		return rc;
	if (m->backing->dmabuf)
		rc = map_dmabuf(m, r->address + offset, reason);
	else if (m->backing->pdev)
		rc = map_device(m, offset, reason);
	else
		rc = map_host(m, offset);
	if (rc) {
		strait_backing_unuse(m->backing);
		strait_backing_put(m->backing);
	}
	return rc;
}

static int reserve(struct strait_attach *at, struct strait_map *m)
{
	return strait_xa_reserve(&at->maps, &m->handle, STRAIT_MAPS_MAX, &at->next);
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

int strait_map(struct strait_attach *at, struct strait_file *f, struct strait_ioc_map *req, void __user *user)
{
	struct strait_map *m;
	int rc, group;

	if (!req->flags || req->flags & ~(STRAIT_MAP_READ | STRAIT_MAP_WRITE) || !req->length ||
	    !PAGE_ALIGNED(req->offset | req->length))
		return -EINVAL;
	/* An administrator can change the domain while the driver is bound. */
	req->reason = strait_attach_judge(at->pdev, &group);
	if (req->reason)
		return -EOPNOTSUPP;
	m = map_new(at, req);
	if (!m)
		return -ENOMEM;
	rc = reserve(at, m);
	if (rc)
		goto err_put;
	rc = map_region(m, f, req);
	if (rc)
		goto err_handle;
	req->size = sizeof(*req);
	req->handle = m->handle;
	req->runs = m->n;
	req->bus = m->runs[0].bus;
	req->contiguous = m->runs[0].length;
	if (copy_to_user(user, req, sizeof(*req))) {
		map_kill_now(m, false);
		rc = -EFAULT;
		goto err_handle;
	}
	/* The entry is reserved: this needs no memory. */
	xa_store(&at->maps, m->handle, m, GFP_KERNEL);
	return 0;
err_handle:
	xa_release(&at->maps, m->handle);
err_put:
	map_put(m);
	return rc;
}

struct strait_map *strait_map_find(struct strait_attach *at, u32 handle)
{
	struct strait_map *m;

	xa_lock(&at->maps);
	m = xa_load(&at->maps, handle);
	if (m)
		kref_get(&m->kref);
	xa_unlock(&at->maps);
	return m;
}

int strait_map_runs(struct strait_attach *at, struct strait_ioc_runs *req)
{
	struct strait_map *m = strait_map_find(at, req->handle);
	u32 n = 0;
	int rc = 0;

	if (!m)
		return -ENOENT;
	if (!READ_ONCE(m->live)) {
		rc = -ENODEV;
	} else if (req->first < m->n) {
		n = min(req->count, m->n - req->first);
		if (copy_to_user(u64_to_user_ptr(req->runs), m->runs + req->first, n * sizeof(*m->runs)))
			rc = -EFAULT;
	}
	req->count = n;
	map_put(m);
	return rc;
}

int strait_map_mapped(struct strait_attach *at, u32 handle)
{
	struct strait_map *m = strait_map_find(at, handle);
	int rc;

	if (!m)
		return -ENOENT;
	/* While it lives it has the backing. */
	mutex_lock(&m->lock);
	rc = m->live && !READ_ONCE(m->backing->maps_closed) ? 0 : -ENODEV;
	mutex_unlock(&m->lock);
	map_put(m);
	return rc;
}

int strait_map_remove(struct strait_attach *at, u32 handle)
{
	struct strait_map *m;

	/* Not an entry that is only reserved: that one has an owner still. */
	xa_lock(&at->maps);
	m = xa_load(&at->maps, handle);
	if (m)
		__xa_erase(&at->maps, handle);
	xa_unlock(&at->maps);
	if (!m)
		return -ENOENT;
	map_kill_now(m, false);
	map_put(m);
	return 0;
}

void strait_maps_kill_all(struct strait_attach *at)
{
	struct strait_map *m;
	unsigned long handle;

	xa_for_each(&at->maps, handle, m)
		map_kill_now(m, false);
}

void strait_maps_free_all(struct strait_attach *at)
{
	struct strait_map *m;
	unsigned long handle;

	xa_for_each(&at->maps, handle, m) {
		xa_erase(&at->maps, handle);
		map_put(m);
	}
}
