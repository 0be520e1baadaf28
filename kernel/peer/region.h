/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_PEER_REGION_H
#define STRAIT_PEER_REGION_H

/*
 * Regions: a range of a process and the client that has it. Referenced by the region of strait.ko
 * and by dma-bufs of parts of it.
 *
 * A dma-buf has one peer_attach, with a context, for each attachment: made in .attach, which the
 * importer calls in the process that owns the memory, and unmapped in .detach. Mapping hands out
 * copies of the context's table and calls no client: the exporter's operations for it run under
 * the dma_resv lock, which a freeing thread takes with its driver's locks held. So .attach and
 * .detach call the client with no dma_resv lock held, and an invalidation takes the dma_resv lock
 * to notify importers, and then waits until they have unmapped. Importers unmap without the
 * client.
 */

#include <linux/kref.h>
#include <linux/mm_types.h>

struct dma_buf;
struct peer_client;

struct peer_region {
	struct kref kref;
	struct mm_struct *mm;		/* with a reference on the struct */
	struct peer_client *client;	/* with a reference */
	u64 address, length;
};

/* region.c */
void peer_region_put(struct peer_region *r);

/* dmabuf.c: [offset, offset + length) lies in the region. */
struct dma_buf *peer_dmabuf_export(struct peer_region *r, u64 offset, u64 length, u32 fd_flags);

#endif
