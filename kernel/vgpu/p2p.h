/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_VGPU_P2P_H
#define STRAIT_VGPU_P2P_H

#include "nv-p2p.h"
#include "vgpu.h"

struct vgpu_pt {
	struct nvidia_p2p_page_table pub;
	struct hlist_node key;		/* in the hash table of all, by address */
	struct list_head node;		/* on vgpu_alloc.pts, unless persistent */
	struct vgpu_dev *dev;		/* with a reference */
	struct vgpu_alloc *alloc;	/* persistent: pinned, with a reference */
	struct vgpu_block *block;	/* persistent: with a reference */
	unsigned int shift;		/* page size: 12, 16 or 17 */
	u64 moves;			/* alloc->moves when the addresses were read */
	struct nvidia_p2p_page *entry;	/* storage of pub.pages */
	u64 va;
	bool persistent;
	void (*callback)(void *data);
	void *data;
	struct list_head dmas;		/* vgpu_dma.node, under vgpu_dma_lock */
};

#endif
