// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory that moves, as that of a GPU does whose driver evicts it and brings it back: importers of
 * its dma-bufs are notified, its contents are copied to other pages, and whatever maps it again, importer
 * or CPU, finds it there. Old mappings of importers that take their time reach the old pages, which
 * stay theirs until they have unmapped them.
 */
#include <linux/dma-resv.h>

#include "vgpu.h"

static void move_unmap_cpu(struct vgpu_alloc *a)
{
	unmap_mapping_range(&a->file->mapping, a->mmap_offset, a->length, 1);
	unmap_mapping_range(&a->file->mapping, a->mmap_offset + STRAIT_VGPU_MMAP_IO, a->length, 1);
}

/* Swaps *@block with the allocation's, if nothing keeps that where it is. */
static int move_swap(struct vgpu_alloc *a, struct vgpu_block **block)
{
	int rc = -EBUSY;

	dma_resv_assert_held(&a->resv);
	/* Faults wait here, and find the new pages. */
	down_write(&a->lock);
	move_unmap_cpu(a);
	/* Referenced pages are a target of direct I/O, or pinned. */
	if (!atomic_read(&a->pinned) && !vgpu_pages_referenced(a->block))
		rc = vgpu_block_copy(*block, a->block);
	if (!rc) {
		swap(*block, a->block);
		a->moves++;
		vgpu_count(a->dev, VGPU_MOVES, 1);
	}
	up_write(&a->lock);
	return rc;
}

static int move_to_block(struct vgpu_alloc *a, struct vgpu_block **block)
{
	int rc = -EBUSY;

	/* Against nvidia_p2p_get_pages(), until the memory is at its new place. */
	if (!vgpu_api_lock())
		return -EIO;
	dma_resv_lock(&a->resv, NULL);
	if (list_empty(&a->pts) && !atomic_read(&a->pinned)) {
		vgpu_dmabuf_invalidate_all(a);
		/* Until the fences of importers have signalled they may write. */
		dma_resv_wait_timeout(&a->resv, DMA_RESV_USAGE_BOOKKEEP, false, MAX_SCHEDULE_TIMEOUT);
		rc = move_swap(a, block);
	}
	dma_resv_unlock(&a->resv);
	vgpu_api_unlock();
	return rc;
}

int vgpu_alloc_move(struct vgpu_file *f, u32 handle)
{
	struct vgpu_alloc *a = vgpu_alloc_find(f, handle);
	struct vgpu_block *block;
	int rc = -ENODEV;

	if (!a)
		return -ENOENT;
	mutex_lock(&a->revoke_lock);
	if (!a->revoked) {
		rc = vgpu_block_new(a->block->pool, a->block->n, &block);
		if (!rc) {
			rc = move_to_block(a, &block);
			vgpu_block_put(block);
		}
	}
	mutex_unlock(&a->revoke_lock);
	vgpu_alloc_put(a);
	return rc;
}
