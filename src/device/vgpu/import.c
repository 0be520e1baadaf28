/* SPDX-License-Identifier: MIT */
/* Lookup, import and export of lab GPU memory by address. */
#include <fcntl.h>
#include <stdlib.h>

#include <strait/region.h>

#include "base/util.h"
#include "device/vgpu/vgpu.h"
#include "os/os.h"
#include "uapi/strait_vgpu.h"

static int vgpu_query_addr(struct vgpu_device *gpu, uint64_t addr, struct strait_vgpu_query *q)
{
	*q = (struct strait_vgpu_query){ .size = sizeof(*q), .address = addr };
	return vgpu_call(gpu, STRAIT_VGPU_QUERY, q);
}

int vgpu_ptr_device(struct provider *p, uint64_t addr, struct strait_device **ret)
{
	list_for_each(it, &p->devices) {
		struct strait_device *dev = list_entry(it, struct strait_device, node);
		struct strait_vgpu_query q;

		if (!vgpu_query_addr(vgpu_device(dev), addr, &q)) {
			*ret = dev;
			return 0;
		}
	}
	return -ENOENT;
}

int vgpu_ptr_extent(struct strait_device *dev, uint64_t addr, uint64_t *len)
{
	struct strait_vgpu_query q;
	int rc = vgpu_query_addr(vgpu_device(dev), addr, &q);

	if (rc || q.flags & STRAIT_VGPU_QUERY_REVOKED)
		return rc && rc != -ENOENT ? rc : -EFAULT;
	*len = q.start + q.length - addr;
	return 0;
}

static int import_owned_locked(struct vgpu_alloc *a)
{
	if (!a || !a->owned || atomic_load_explicit(&a->stale, memory_order_seq_cst))
		return -EFAULT;
	atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
	return 0;
}

/*
 * The indexed mapping that matches @q, or NULL. A mapping of other memory at the same addresses no longer exists: it is
 * marked stale and removed from the index.
 */
static struct vgpu_alloc *find_mapping_locked(struct vgpu_device *gpu, const struct strait_vgpu_query *q)
{
	uint64_t end = q->start + q->length, at = 0, seq = 0;
	struct vgpu_alloc *known = NULL;
	struct range_node *n;

	while ((n = range_tree_next(&gpu->allocs, q->start, end, at, seq))) {
		struct vgpu_alloc *a = container_of(n, struct vgpu_alloc, node);

		at = n->start;
		seq = n->seq;
		if (!a->owned && a->id != q->identity) {
			atomic_store_explicit(&a->stale, true, memory_order_seq_cst);
			range_tree_remove(&gpu->allocs, n);
			a->listed = false;
			vgpu_alloc_unref(a);
		} else if (!a->owned && n->start == q->start && n->end == end) {
			known = a;
		}
	}
	return known;
}

static struct vgpu_alloc *import_mapping_locked(struct vgpu_device *gpu, const struct strait_vgpu_query *q)
{
	struct vgpu_alloc *a = find_mapping_locked(gpu, q);

	if (!a) {
		a = calloc(1, sizeof(*a));
		if (!a)
			return NULL;
		a->gpu = gpu;
		a->id = q->identity;
		a->listed = true;
		a->node.start = q->start;
		a->node.end = q->start + q->length;
		atomic_init(&a->refs, 1);
		range_tree_insert(&gpu->allocs, &a->node);
	}
	a->imports++;
	atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
	return a;
}

int vgpu_mem_import(struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags, struct provider_mem *m)
{
	struct vgpu_device *gpu = vgpu_device(dev);
	struct strait_vgpu_query q;
	struct vgpu_alloc *a;
	int rc;

	if (soft_removed(&gpu->eng))
		return -ENODEV;
	rc = vgpu_query_addr(gpu, addr, &q);
	if (rc)
		return rc == -ENOENT ? -EFAULT : rc;
	if (q.flags & STRAIT_VGPU_QUERY_REVOKED || len > q.start + q.length - addr)
		return -EFAULT;
	pthread_rwlock_wrlock(&gpu->lock);
	if (q.flags & STRAIT_VGPU_QUERY_MINE) {
		a = vgpu_alloc_at_locked(gpu, addr, len);
		rc = import_owned_locked(a);
	} else {
		a = import_mapping_locked(gpu, &q);
		rc = a ? 0 : -ENOMEM;
	}
	pthread_rwlock_unlock(&gpu->lock);
	if (!rc)
		vgpu_fill_mem(a, addr, len, m);
	return rc;
}

void vgpu_mem_release(struct strait_device *dev, struct provider_mem *m)
{
	struct vgpu_device *gpu = vgpu_device(dev);
	struct vgpu_alloc *a = m->priv;

	if (!a->owned) {
		pthread_rwlock_wrlock(&gpu->lock);
		if (!--a->imports && a->listed) {
			range_tree_remove(&gpu->allocs, &a->node);
			a->listed = false;
			vgpu_alloc_unref(a);
		}
		pthread_rwlock_unlock(&gpu->lock);
	}
	vgpu_alloc_unref(a);
}

int vgpu_mem_check(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len)
{
	struct vgpu_device *gpu = vgpu_device(dev);
	const struct vgpu_alloc *a = m->priv;
	struct strait_vgpu_query q;
	int rc;

	if (soft_removed(&gpu->eng))
		return -ENODEV;
	if (atomic_load_explicit(&a->stale, memory_order_seq_cst))
		return -ESTALE;
	rc = vgpu_query_addr(gpu, m->addr, &q);
	if (rc == -ENODEV)
		return rc;
	if (rc || q.identity != m->id || q.flags & STRAIT_VGPU_QUERY_REVOKED)
		return -ESTALE;
	return 0;
}

int vgpu_mem_dmabuf(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd)
{
	struct strait_vgpu_dmabuf_at req = { .size = sizeof(req),
					     .address = m->addr + off,
					     .length = len,
					     .identity = m->id,
					     .fd_flags = O_CLOEXEC | O_RDWR };
	int rc;

	if (!(m->caps & STRAIT_REGION_DMABUF))
		return -EOPNOTSUPP;
	rc = vgpu_mem_check(dev, m, 0, m->len);
	if (rc)
		return rc;
	/* Allocations are multiples of VGPU_PAGE, so the end of the last CPU page is in the same allocation. */
	if (!len || !range_inside(off, len, align_up(m->len, os_page_size())) || (req.address | len) % os_page_size())
		return -EINVAL;
	rc = vgpu_call(vgpu_device(dev), STRAIT_VGPU_DMABUF_AT, &req);
	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	*fd = req.fd;
	return 0;
}

/* Copies by the CPU are always synchronous. */
int vgpu_mem_sync_memops(struct strait_device *dev, const struct provider_mem *m, bool on)
{
	return vgpu_mem_check(dev, m, 0, m->len);
}
