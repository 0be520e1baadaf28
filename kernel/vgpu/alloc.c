// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Allocations: the table of handles, lookup by address, revocation. */
#include "vgpu.h"

/* Unique while the module is loaded. */
static atomic64_t alloc_last_identity;

void vgpu_alloc_release(struct kref *kref)
{
	struct vgpu_alloc *a = container_of(kref, struct vgpu_alloc, kref);

	dma_resv_fini(&a->resv);
	vgpu_dev_put(a->dev);
	kfree(a);
}

static int alloc_reserve_handle(struct vgpu_file *f, struct vgpu_alloc *a)
{
	/* vgpu_alloc_find() does not find the reserved entry until vgpu_alloc_publish(). */
	return vgpu_xa_reserve(&f->allocs, &a->handle, VGPU_MAX_ALLOCS, &f->next);
}

static void alloc_init(struct vgpu_alloc *a, struct vgpu_file *f, u64 length)
{
	kref_init(&a->kref);
	a->dev = f->dev;
	vgpu_dev_get(a->dev);
	a->file = f;
	a->length = length;
	a->identity = atomic64_inc_return(&alloc_last_identity);
	mutex_init(&a->revoke_lock);
	dma_resv_init(&a->resv);
	init_rwsem(&a->lock);
	INIT_LIST_HEAD(&a->node);
	INIT_LIST_HEAD(&a->dmabufs);
	INIT_LIST_HEAD(&a->pts);
}

int vgpu_alloc_new(struct vgpu_file *f, u32 kind, u64 length, struct vgpu_alloc **ret)
{
	struct vgpu_pool *pool = &f->dev->pools[kind];
	struct vgpu_alloc *a;
	int rc;

	if (!pool->n)
		return -EOPNOTSUPP;
	if (length >> VGPU_SHIFT > pool->n)
		return -ENOMEM;
	a = vgpu_zalloc(sizeof(*a));
	if (!a)
		return -ENOMEM;
	alloc_init(a, f, length);
	a->kind = kind;
	rc = vgpu_block_new(pool, length >> VGPU_SHIFT, &a->block);
	if (rc)
		goto err_put;
	rc = alloc_reserve_handle(f, a);
	if (rc)
		goto err_block;
	a->mmap_offset = (u64)a->handle << VGPU_HANDLE_SHIFT;
	spin_lock(&f->dev->list_lock);
	list_add_tail(&a->node, &f->dev->allocs);
	spin_unlock(&f->dev->list_lock);
	*ret = a;
	return 0;
err_block:
	vgpu_block_put(a->block);
err_put:
	vgpu_alloc_put(a);
	return rc;
}

void vgpu_alloc_publish(struct vgpu_alloc *a)
{
	/* The entry is reserved: storing to it needs no memory. */
	xa_store(&a->file->allocs, a->handle, a, GFP_KERNEL);
}

void vgpu_alloc_discard(struct vgpu_alloc *a)
{
	xa_release(&a->file->allocs, a->handle);
	vgpu_alloc_revoke(a);
	vgpu_alloc_put(a);
}

struct vgpu_alloc *vgpu_alloc_find(struct vgpu_file *f, u32 handle)
{
	struct vgpu_alloc *a;

	xa_lock(&f->allocs);
	a = xa_load(&f->allocs, handle);
	if (a)
		vgpu_alloc_get(a);
	xa_unlock(&f->allocs);
	return a;
}

/*
 * The order matters: no new use begins; CPU mappings are removed, so that faults find zeros; peers
 * are notified and waited for; the pages are released last.
 */
static void alloc_revoke_locked(struct vgpu_alloc *a)
{
	lockdep_assert_held(&a->revoke_lock);
	vgpu_window_meet(VGPU_W_FAULT);
	vgpu_window_meet(VGPU_W_GET);
	vgpu_window_meet(VGPU_W_DMABUF_MAP);
	down_write(&a->lock);
	a->revoked = true;
	up_write(&a->lock);
	unmap_mapping_range(&a->file->mapping, a->mmap_offset, a->length, 1);
	unmap_mapping_range(&a->file->mapping, a->mmap_offset + STRAIT_VGPU_MMAP_IO, a->length, 1);
	vgpu_p2p_revoke_all(a);
	vgpu_dmabuf_revoke_all(a);
	spin_lock(&a->dev->list_lock);
	list_del_init(&a->node);
	spin_unlock(&a->dev->list_lock);
	vgpu_block_put(a->block);
}

void vgpu_alloc_revoke(struct vgpu_alloc *a)
{
	mutex_lock(&a->revoke_lock);
	if (!a->revoked)
		alloc_revoke_locked(a);
	mutex_unlock(&a->revoke_lock);
}

int vgpu_alloc_free(struct vgpu_file *f, u32 handle)
{
	struct vgpu_alloc *a;

	/* A reserved entry loads as NULL: the call that reserved it is still running. */
	xa_lock(&f->allocs);
	a = xa_load(&f->allocs, handle);
	if (a)
		__xa_erase(&f->allocs, handle);
	xa_unlock(&f->allocs);
	if (!a)
		return -ENOENT;
	vgpu_alloc_revoke(a);
	vgpu_alloc_put(a);
	return 0;
}

void vgpu_file_free_all(struct vgpu_file *f)
{
	struct vgpu_alloc *a;
	unsigned long handle;

	xa_for_each(&f->allocs, handle, a) {
		xa_erase(&f->allocs, handle);
		vgpu_alloc_revoke(a);
		vgpu_alloc_put(a);
		cond_resched();
	}
}

void vgpu_dev_revoke_all(struct vgpu_dev *dev)
{
	struct vgpu_alloc *a;

	do {
		spin_lock(&dev->list_lock);
		a = list_first_entry_or_null(&dev->allocs, struct vgpu_alloc, node);
		/* A live allocation is referenced by the table or by the caller that revokes it. */
		if (a)
			vgpu_alloc_get(a);
		spin_unlock(&dev->list_lock);
		if (a) {
			vgpu_alloc_revoke(a);
			vgpu_alloc_put(a);
		}
	} while (a);
}

/* The allocation that the VMA at @va maps, or NULL, and the VMA's end. */
static struct vgpu_alloc *alloc_at_vma(u64 va, u64 *offset, u64 *end)
{
	struct vm_area_struct *vma;
	struct vgpu_alloc *a;

	mmap_assert_locked(current->mm);
	vma = vma_lookup(current->mm, va);
	if (!vma || vma->vm_ops != &vgpu_vm_ops)
		return NULL;
	a = vma->vm_private_data;
	*offset = va - vma->vm_start + ((u64)vma->vm_pgoff << PAGE_SHIFT) - a->mmap_offset;
	*end = vma->vm_end;
	return a;
}

int vgpu_alloc_at(u64 va, u64 len, struct vgpu_alloc **ret, u64 *offset)
{
	struct vgpu_alloc *a, *next;
	u64 from, end, at, last;
	int rc = -ENOENT;

	if (!current->mm || check_add_overflow(va, len, &last) || last > TASK_SIZE)
		return -ENOENT;
	mmap_read_lock(current->mm);
	a = alloc_at_vma(va, offset, &end);
	if (!a)
		goto out;
	/* mprotect() of a part splits the VMA: follow adjacent VMAs of the same allocation. */
	while (end < last) {
		from = end;
		next = alloc_at_vma(from, &at, &end);
		if (next != a || at != *offset + (from - va))
			goto out;
	}
	vgpu_alloc_get(a);
	*ret = a;
	rc = 0;
out:
	mmap_read_unlock(current->mm);
	return rc;
}
