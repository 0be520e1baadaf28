/* SPDX-License-Identifier: MIT */
/* Allocation and mapping of lab GPU memory. */
#include <stdlib.h>

#include <strait/region.h>

#include "base/util.h"
#include "device/vgpu/vgpu.h"
#include "os/os.h"

void vgpu_alloc_unref(struct vgpu_alloc *a)
{
	if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) == 1)
		free(a);
}

struct vgpu_alloc *vgpu_alloc_at_locked(struct vgpu_device *gpu, uint64_t addr, uint64_t len)
{
	uint64_t at = 0, seq = 0;
	struct range_node *n;

	/* The application may remap memory with another length, so several mappings can contain @addr. */
	while ((n = range_tree_next(&gpu->allocs, addr, addr + 1, at, seq)) && len > n->end - addr) {
		at = n->start;
		seq = n->seq;
	}
	return n ? container_of(n, struct vgpu_alloc, node) : NULL;
}

int vgpu_pin(struct soft_engine *eng, uint64_t addr, uint64_t len, struct soft_pin **ret)
{
	struct vgpu_device *gpu = container_of(eng, struct vgpu_device, eng);
	struct vgpu_alloc *a;
	int rc = 0;

	pthread_rwlock_rdlock(&gpu->lock);
	a = vgpu_alloc_at_locked(gpu, addr, len);
	if (!a) {
		rc = vgpu_alloc_at_locked(gpu, addr, 1) ? -EFAULT : -ENOENT;
	} else {
		atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&a->users, 1, memory_order_relaxed);
	}
	pthread_rwlock_unlock(&gpu->lock);
	if (!rc)
		*ret = (struct soft_pin *)a; /* opaque to the engine */
	return rc;
}

void vgpu_unpin(struct soft_pin *pinned)
{
	struct vgpu_alloc *a = (struct vgpu_alloc *)pinned;
	struct vgpu_device *gpu = a->gpu;

	if (atomic_fetch_sub_explicit(&a->users, 1, memory_order_acq_rel) == (VGPU_ALLOC_DEAD | 1)) {
		pthread_mutex_lock(&gpu->idle_lock);
		pthread_cond_broadcast(&gpu->idle);
		pthread_mutex_unlock(&gpu->idle_lock);
	}
	vgpu_alloc_unref(a);
}

static void vgpu_free_handle(struct vgpu_device *gpu, uint32_t handle)
{
	struct strait_vgpu_free req = { .size = sizeof(req), .handle = handle };

	/* An error is ignored: the driver frees the memory when the file is closed. */
	vgpu_call(gpu, STRAIT_VGPU_FREE, &req);
}

static int vgpu_alloc_new(struct vgpu_device *gpu, uint32_t kind, uint64_t len, struct vgpu_alloc **ret)
{
	struct strait_vgpu_alloc req = { .size = sizeof(req), .kind = kind, .length = align_up(len, VGPU_PAGE) };
	struct vgpu_alloc *a;
	void *p;
	int rc;

	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	rc = vgpu_call(gpu, STRAIT_VGPU_ALLOC, &req);
	if (rc)
		goto free_alloc;
	rc = os_map_device(gpu->fd, req.mmap_offset, req.length, VGPU_PAGE, &p);
	if (rc)
		goto free_handle;
	a->gpu = gpu;
	a->owned = true;
	a->pinnable = kind == STRAIT_VGPU_MEM_PINNABLE;
	a->handle = req.handle;
	a->id = req.identity;
	a->mapped = req.length;
	a->offset = req.mmap_offset;
	atomic_init(&a->refs, 1);
	a->node.start = (uint64_t)(uintptr_t)p;
	a->node.end = a->node.start + len;
	*ret = a;
	return 0;
free_handle:
	vgpu_free_handle(gpu, req.handle);
free_alloc:
	free(a);
	return rc == -ENOSPC ? -ENOMEM : rc;
}

/* @a has no user and is not in the index. */
static void vgpu_alloc_unmap(struct vgpu_alloc *a)
{
	os_unmap((void *)(uintptr_t)a->node.start, a->mapped);
	vgpu_free_handle(a->gpu, a->handle);
	vgpu_alloc_unref(a);
}

/*
 * Marks the memory stale, so that no new region is made over it; revokes its regions, whose transfers in flight still
 * look it up in the index; then removes it from the index and waits for ops that were submitted without a region.
 */
static void vgpu_alloc_free(struct vgpu_alloc *a)
{
	struct vgpu_device *gpu = a->gpu;

	atomic_store_explicit(&a->stale, true, memory_order_seq_cst);
	device_set_revoke_range(gpu->eng.dev, a->node.start, a->node.end - a->node.start);
	pthread_rwlock_wrlock(&gpu->lock);
	range_tree_remove(&gpu->allocs, &a->node);
	a->listed = false;
	pthread_rwlock_unlock(&gpu->lock);

	atomic_fetch_or_explicit(&a->users, VGPU_ALLOC_DEAD, memory_order_acq_rel);
	pthread_mutex_lock(&gpu->idle_lock);
	while (atomic_load_explicit(&a->users, memory_order_acquire) != VGPU_ALLOC_DEAD)
		pthread_cond_wait(&gpu->idle, &gpu->idle_lock);
	pthread_mutex_unlock(&gpu->idle_lock);
	vgpu_alloc_unmap(a);
}

void vgpu_alloc_free_all(struct vgpu_device *gpu)
{
	struct range_node *n;

	while ((n = range_tree_overlap(&gpu->allocs, 0, UINT64_MAX))) {
		struct vgpu_alloc *a = container_of(n, struct vgpu_alloc, node);

		range_tree_remove(&gpu->allocs, n);
		if (a->owned)
			vgpu_alloc_unmap(a);
		else
			vgpu_alloc_unref(a);
	}
}

void vgpu_fill_mem(struct vgpu_alloc *a, uint64_t addr, uint64_t len, struct provider_mem *m)
{
	*m = (struct provider_mem){
		.addr = addr,
		.len = len,
		.id = a->id,
		.caps = a->gpu->caps | (a->owned ? STRAIT_REGION_NOTICE : 0) |
			(a->pinnable ? STRAIT_REGION_PINNABLE : 0),
		.page_size = VGPU_PAGE,
		.priv = a,
	};
}

static int vgpu_alloc_kind(struct strait_device *dev, uint32_t kind, uint64_t len, struct provider_mem *m)
{
	struct vgpu_device *gpu = vgpu_device(dev);
	struct vgpu_alloc *a;
	int rc;

	if (soft_removed(&gpu->eng))
		return -ENODEV;
	if (len > gpu->total[kind])
		return -ENOMEM;
	rc = vgpu_watch(gpu);
	if (rc)
		return rc;
	rc = vgpu_alloc_new(gpu, kind, len, &a);
	if (rc)
		return rc;
	a->listed = true;
	pthread_rwlock_wrlock(&gpu->lock);
	range_tree_insert(&gpu->allocs, &a->node);
	pthread_rwlock_unlock(&gpu->lock);
	vgpu_fill_mem(a, a->node.start, len, m);
	return 0;
}

int vgpu_mem_alloc(struct strait_device *dev, uint64_t len, struct provider_mem *m)
{
	return vgpu_alloc_kind(dev, STRAIT_VGPU_MEM_PLAIN, len, m);
}

int vgpu_mem_alloc_pinnable(struct strait_device *dev, uint64_t len, struct provider_mem *m)
{
	if (!vgpu_device(dev)->total[STRAIT_VGPU_MEM_PINNABLE])
		return -EOPNOTSUPP;
	return vgpu_alloc_kind(dev, STRAIT_VGPU_MEM_PINNABLE, len, m);
}

void vgpu_mem_free(struct strait_device *dev, struct provider_mem *m)
{
	vgpu_alloc_free(m->priv);
}

int vgpu_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu)
{
	int rc = vgpu_mem_check(dev, m, 0, m->len);

	if (rc)
		return rc;
	*cpu = (void *)(uintptr_t)m->addr;
	return 0;
}

/* Owned memory only: imported memory belongs to another open file of the driver. */
int vgpu_mem_map_io(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, void **io)
{
	const struct vgpu_alloc *a = m->priv;
	uint64_t at = m->addr - a->node.start + off;
	int rc = vgpu_mem_check(dev, m, 0, m->len);

	if (rc)
		return rc;
	if (!a->owned || (at | len) % KIB(4) || !range_inside(at, len, a->mapped))
		return -EOPNOTSUPP;
	return os_map_device(a->gpu->fd, a->offset + STRAIT_VGPU_MMAP_IO + at, len, VGPU_PAGE, io);
}

void vgpu_mem_unmap_io(struct strait_device *dev, void *io, uint64_t len)
{
	os_unmap(io, len);
}
