/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_COMPAT_H
#define STRAIT_COMPAT_H

/* What differs between the kernels the modules build for. Decided by kernel/probe. */

#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/module.h>

#include "compat-probes.h"

#if HAVE_BARE_NAMESPACE
#define COMPAT_IMPORT_NS_DMA_BUF MODULE_IMPORT_NS(DMA_BUF)
#else
#define COMPAT_IMPORT_NS_DMA_BUF MODULE_IMPORT_NS("DMA_BUF")
#endif

#if !HAVE_VM_FLAGS_SET
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* Telling importers to let go, and the member of dma_buf_attach_ops by which they are told. */
#if HAVE_DMA_BUF_INVALIDATE
#define COMPAT_INVALIDATE invalidate_mappings
static inline void compat_dma_buf_invalidate(struct dma_buf *dmabuf)
{
	dma_buf_invalidate_mappings(dmabuf);
}
#else
#define COMPAT_INVALIDATE move_notify
static inline void compat_dma_buf_invalidate(struct dma_buf *dmabuf)
{
	dma_buf_move_notify(dmabuf);
}
#endif

/* A reference on a file that has one still. */
static inline bool compat_get_file_active(struct file **file)
{
#if HAVE_GET_FILE_ACTIVE
	return get_file_active(file);
#else
	return get_file_rcu(*file);
#endif
}

/* Before there was the flag, no user mapping could hold P2PDMA pages. */
#if HAVE_FOLL_PCI_P2PDMA
#define COMPAT_FOLL_PCI_P2PDMA FOLL_PCI_P2PDMA
#else
#define COMPAT_FOLL_PCI_P2PDMA 0
#endif

#endif
