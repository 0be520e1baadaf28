/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_VGPU_P2P_H
#define STRAIT_VGPU_P2P_H

#include "nv-p2p.h"
#include "vgpu.h"

struct vgpu_pt {
	struct nvidia_p2p_page_table pub;
	struct hlist_node key;		/* by address, in the table of all */
	struct list_head node;		/* vgpu_alloc.pts; not of persistent ones */
	struct vgpu_dev *dev;		/* held */
	struct vgpu_alloc *alloc;	/* of persistent ones: pinned, with a reference, as is its */
	struct vgpu_block *block;	/* block */
	unsigned int shift;		/* of a page: 12, 16 or 17 */
	u64 moves;			/* alloc->moves when the addresses were taken */
	struct nvidia_p2p_page *entry;	/* what pub.pages points to */
	u64 va;
	bool persistent;
	void (*callback)(void *data);
	void *data;
	struct list_head dmas;		/* vgpu_dma.node, under vgpu_dma_lock */
};

#endif
