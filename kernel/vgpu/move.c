// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Moves memory to other pages, as a GPU driver does that evicts memory and brings it back.
 * Importers of its dma-bufs are notified, the contents are copied, and later mappings by importers
 * or the CPU find the new pages. Importers that have not unmapped yet reach the old pages, which
 * are released when they do.
 */
#include <linux/dma-resv.h>

#include "vgpu.h"

static void move_unmap_cpu(struct vgpu_alloc *a)
{
	unmap_mapping_range(&a->file->mapping, a->mmap_offset, a->length, 1);
	unmap_mapping_range(&a->file->mapping, a->mmap_offset + STRAIT_VGPU_MMAP_IO, a->length, 1);
}

/* Swaps *@block with the allocation's block, unless that is pinned. */
static int move_swap(struct vgpu_alloc *a, struct vgpu_block **block)
{
	int rc = -EBUSY;

	dma_resv_assert_held(&a->resv);
	/* Faults wait for this lock and find the new pages. */
	down_write(&a->lock);
	move_unmap_cpu(a);
	/* Referenced pages are pinned, or a target of direct I/O. */
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

	/* Keeps nvidia_p2p_get_pages() out until the memory has moved. */
	if (!vgpu_api_lock())
		return -EIO;
	dma_resv_lock(&a->resv, NULL);
	if (list_empty(&a->pts) && !atomic_read(&a->pinned)) {
		vgpu_dmabuf_invalidate_all(a);
		/* Importers may write until their fences have signalled. */
		dma_resv_wait_timeout(&a->resv, DMA_RESV_USAGE_BOOKKEEP, false,
				      MAX_SCHEDULE_TIMEOUT);
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
