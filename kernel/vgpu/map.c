// SPDX-License-Identifier: GPL-2.0 OR MIT
/* CPU mappings of device memory. Revoked memory reads as zeros: a program gets no SIGBUS. */
#include "vgpu.h"

static void vgpu_vm_open(struct vm_area_struct *vma)
{
	vgpu_alloc_get(vma->vm_private_data);
}

static void vgpu_vm_close(struct vm_area_struct *vma)
{
	vgpu_alloc_put(vma->vm_private_data);
}

/* nvidia_p2p names memory by its address, so a mapping must not move. */
static int vgpu_vm_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

/* A private zeroed page: writes to revoked memory do not reach the device. */
static vm_fault_t map_fault_zero(struct vm_fault *vmf, struct vgpu_alloc *a)
{
	struct page *page;
	int rc;

	page = vgpu_zalloc_page();
	if (!page)
		return VM_FAULT_OOM;
	rc = vm_insert_page(vmf->vma, vmf->address & PAGE_MASK, page);
	put_page(page);
	if (!rc)
		vgpu_count(a->dev, VGPU_CPU_ZERO, PAGE_SIZE);
	if (!rc || rc == -EBUSY)
		return VM_FAULT_NOPAGE;
	return rc == -ENOMEM ? VM_FAULT_OOM : VM_FAULT_SIGBUS;
}

/* Inserts the CPU page at index @at of the allocation. -EBUSY: it is mapped already. */
static int map_insert_page(struct vm_area_struct *vma, unsigned long addr, struct vgpu_alloc *a,
			   unsigned long at)
{
	vm_fault_t fault;

	if (a->block->pool->pages)
		return vm_insert_page(vma, addr, vgpu_block_page(a->block, (u64)at << PAGE_SHIFT));
	fault = vmf_insert_pfn(vma, addr,
			       PHYS_PFN(vgpu_block_phys(a->block, (u64)at << PAGE_SHIFT)));
	if (fault & VM_FAULT_OOM)
		return -ENOMEM;
	return fault & VM_FAULT_ERROR ? -EFAULT : 0;
}

/* Inserts all CPU pages of one device page that lie in the VMA, to save faults. */
static vm_fault_t map_fault_memory(struct vm_fault *vmf, struct vgpu_alloc *a)
{
	const unsigned long per = VGPU_SIZE / PAGE_SIZE;
	struct vm_area_struct *vma = vmf->vma;
	unsigned long base = a->mmap_offset >> PAGE_SHIFT;
	unsigned long first = max(vma->vm_pgoff - base, round_down(vmf->pgoff - base, per));
	unsigned long end = min(vma->vm_pgoff - base + vma_pages(vma),
				round_down(vmf->pgoff - base, per) + per);
	unsigned long at, addr;
	int rc, wanted = -EFAULT;

	for (at = first; at < end; at++) {
		addr = vma->vm_start + ((at - (vma->vm_pgoff - base)) << PAGE_SHIFT);
		rc = map_insert_page(vma, addr, a, at);
		if (!rc)
			vgpu_count(a->dev, VGPU_CPU_MAPPED, PAGE_SIZE);
		if (at == vmf->pgoff - base)
			wanted = rc;
	}
	if (!wanted || wanted == -EBUSY)
		return VM_FAULT_NOPAGE;
	return wanted == -ENOMEM ? VM_FAULT_OOM : VM_FAULT_SIGBUS;
}

static vm_fault_t vgpu_vm_fault(struct vm_fault *vmf)
{
	struct vgpu_alloc *a = vmf->vma->vm_private_data;
	vm_fault_t ret;

	down_read(&a->lock);
	if (a->revoked) {
		ret = map_fault_zero(vmf, a);
	} else {
		vgpu_window(VGPU_W_FAULT);
		ret = map_fault_memory(vmf, a);
	}
	up_read(&a->lock);
	return ret;
}

/* A VM_PFNMAP mapping cannot hold a dummy page: revoked memory raises SIGBUS. */
static vm_fault_t vgpu_io_fault(struct vm_fault *vmf)
{
	struct vgpu_alloc *a = vmf->vma->vm_private_data;
	unsigned long at = vmf->pgoff - ((a->mmap_offset + STRAIT_VGPU_MMAP_IO) >> PAGE_SHIFT);
	vm_fault_t ret = VM_FAULT_SIGBUS;

	down_read(&a->lock);
	if (!a->revoked)
		ret = vmf_insert_pfn(vmf->vma, vmf->address & PAGE_MASK,
				     PHYS_PFN(vgpu_block_phys(a->block, (u64)at << PAGE_SHIFT)));
	up_read(&a->lock);
	return ret;
}

static const struct vm_operations_struct vgpu_io_vm_ops = {
	.open = vgpu_vm_open,
	.close = vgpu_vm_close,
	.mremap = vgpu_vm_mremap,
	.fault = vgpu_io_fault,
};

const struct vm_operations_struct vgpu_vm_ops = {
	.open = vgpu_vm_open,
	.close = vgpu_vm_close,
	.mremap = vgpu_vm_mremap,
	.fault = vgpu_vm_fault,
};

/*
 * The first mmap() of a file through which nothing was allocated, at offset 0: allocates pinnable
 * memory for it. For programs that can map a file, and know nothing of ioctls.
 */
static struct vgpu_alloc *map_alloc(struct vgpu_file *f, struct vm_area_struct *vma)
{
	u64 len = round_up((u64)(vma->vm_end - vma->vm_start), VGPU_SIZE);
	struct vgpu_alloc *a;
	int rc = -ENODEV;

	if (!xa_empty(&f->allocs))
		return ERR_PTR(-EINVAL);
	/* mmap_lock nests inside gone_lock: do not wait. This fails while the device is removed. */
	if (!down_read_trylock(&f->dev->gone_lock))
		return ERR_PTR(-ENODEV);
	if (!f->dev->gone)
		rc = vgpu_alloc_new(f, STRAIT_VGPU_MEM_PINNABLE, len, &a);
	if (!rc) {
		vgpu_alloc_get(a); /* of the mapping: once it is published it can be freed */
		vma->vm_pgoff = a->mmap_offset >> PAGE_SHIFT;
		vgpu_alloc_publish(a);
	}
	up_read(&f->dev->gone_lock);
	return rc ? ERR_PTR(rc) : a;
}

int vgpu_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct vgpu_file *f = file->private_data;
	u64 offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	u64 inside = offset & ((1ull << VGPU_HANDLE_SHIFT) - 1);
	u64 len = vma->vm_end - vma->vm_start;
	bool io = inside & STRAIT_VGPU_MMAP_IO;
	struct vgpu_alloc *a;

	inside &= ~STRAIT_VGPU_MMAP_IO;
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EPERM;
	if (offset >> VGPU_HANDLE_SHIFT > VGPU_MAX_ALLOCS)
		return -EINVAL;
	a = offset ? vgpu_alloc_find(f, offset >> VGPU_HANDLE_SHIFT) : map_alloc(f, vma);
	if (IS_ERR_OR_NULL(a))
		return a ? PTR_ERR(a) : -EINVAL;
	if (inside > a->length || len > a->length - inside) {
		vgpu_alloc_put(a);
		return -EINVAL;
	}
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTCOPY | VM_DONTDUMP |
			  (io ? VM_PFNMAP | VM_IO : VM_MIXEDMAP));
	vm_flags_clear(vma, VM_MAYEXEC);
	/* The same memory type as the kernel's mapping of these pages. */
	if (a->kind == STRAIT_VGPU_MEM_PLAIN)
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	vma->vm_private_data = a;
	vma->vm_ops = io ? &vgpu_io_vm_ops : &vgpu_vm_ops;
	return 0;
}

int vgpu_query(struct vgpu_file *f, struct strait_vgpu_query *q)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	struct vgpu_alloc *a;
	int rc = -ENOENT;
	u64 offset;

	if (q->address >= TASK_SIZE)
		return -ENOENT;
	mmap_read_lock(mm);
	vma = vma_lookup(mm, q->address);
	if (!vma || vma->vm_ops != &vgpu_vm_ops)
		goto out;
	a = vma->vm_private_data;
	if (a->dev != f->dev)
		goto out;
	q->start = vma->vm_start;
	q->length = vma->vm_end - vma->vm_start;
	q->offset = ((u64)vma->vm_pgoff << PAGE_SHIFT) - a->mmap_offset;
	q->identity = a->identity;
	q->kind = a->kind;
	q->flags = a->file == f ? STRAIT_VGPU_QUERY_MINE : 0;
	q->handle = a->file == f ? a->handle : 0;
	offset = q->offset + (q->address - q->start);
	down_read(&a->lock);
	if (a->revoked) {
		q->flags |= STRAIT_VGPU_QUERY_REVOKED;
		q->bar_offset = 0;
		q->bar_length = 0;
	} else {
		q->bar_offset = vgpu_block_bar(a->block, offset);
		q->bar_length = vgpu_block_run(a->block, offset, a->length - offset);
	}
	up_read(&a->lock);
	rc = 0;
out:
	mmap_read_unlock(mm);
	return rc;
}
