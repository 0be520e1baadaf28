/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_COMPAT_H
#define STRAIT_COMPAT_H

/* Differences between the kernels that the modules build for, as found by kernel/probe. */

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/module.h>

#include "compat-probes.h"

/*
 * COMPAT_URING_TASK_WORK(fn) defines fn_task_work, for io_uring_cmd_complete_in_task(), which calls
 * fn(cmd, issue_flags).
 */
#if HAVE_URING_TASK_REQUEST
#define COMPAT_URING_TASK_WORK(fn) \
	static void fn##_task_work(struct io_tw_req request, io_tw_token_t token) \
	{ \
		fn(io_uring_cmd_from_tw(request), IO_URING_CMD_TASK_WORK_ISSUE_FLAGS); \
	} \
	static_assert(true)
#else
#define COMPAT_URING_TASK_WORK(fn) \
	static void fn##_task_work(struct io_uring_cmd *cmd, unsigned int issue_flags) \
	{ \
		fn(cmd, issue_flags); \
	} \
	static_assert(true)
#endif

#if HAVE_URING_DONE_3
#define compat_uring_done(cmd, result, issue_flags) io_uring_cmd_done(cmd, result, issue_flags)
#else
#define compat_uring_done(cmd, result, issue_flags) io_uring_cmd_done(cmd, result, 0, issue_flags)
#endif

/* The bits of io_uring_cmd.flags that the program sets. */
#define COMPAT_URING_USER_FLAGS 0x00ffffffu

#if HAVE_FILE_KATTR
#define compat_fileattr file_kattr
#else
#define compat_fileattr fileattr
#endif

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

/* Revocation of a dma-buf by its exporter, and the importer's callback in dma_buf_attach_ops. */
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

/*
 * Can the importer be told that the memory moves or is freed? Where the kernel does not know: not
 * one without the callback, and not ib_umem when it pins, whose callback only warns. Without
 * CONFIG_KALLSYMS that callback cannot be recognized, and no importer is taken to be told.
 */
static inline bool compat_dma_buf_told(struct dma_buf_attachment *attachment)
{
#if HAVE_DMA_BUF_ATTACH_REVOCABLE
	return dma_buf_attach_revocable(attachment);
#else
	static const char warns[] = "ib_umem_dmabuf_unsupported_move_notify";
	char name[sizeof(warns)];

	if (!attachment->importer_ops || !attachment->importer_ops->COMPAT_INVALIDATE)
		return false;
	snprintf(name, sizeof(name), "%ps", attachment->importer_ops->COMPAT_INVALIDATE);
	/* A function without a name is printed as a number. */
	return strncmp(name, "0x", 2) && strcmp(name, warns);
#endif
}

/* Does the dma-buf core keep this attachment mapped until it is detached? */
static inline bool compat_dma_buf_cached(const struct dma_buf_attachment *attachment)
{
#if HAVE_DMA_BUF_CACHES
	return attachment->sgt;
#else
	return false;
#endif
}

/* For memory that CPU and device access concurrently, and that may be mapped several times. */
#ifdef DMA_ATTR_REQUIRE_COHERENT
#define COMPAT_DMA_COHERENT (DMA_ATTR_SKIP_CPU_SYNC | DMA_ATTR_REQUIRE_COHERENT)
#else
#define COMPAT_DMA_COHERENT DMA_ATTR_SKIP_CPU_SYNC
#endif

/* Maps memory of another device for @dev, by IOVA. @attrs: DMA_ATTR_*. */
#if HAVE_DMA_MAP_PHYS
#define compat_dma_map_mmio(dev, phys, size, dir, attrs) \
	dma_map_phys(dev, phys, size, dir, DMA_ATTR_MMIO | (attrs))
#define compat_dma_unmap_mmio(dev, addr, size, dir, attrs) \
	dma_unmap_phys(dev, addr, size, dir, DMA_ATTR_MMIO | (attrs))
#else
#define compat_dma_map_mmio(dev, phys, size, dir, attrs) \
	dma_map_resource(dev, phys, size, dir, attrs)
#define compat_dma_unmap_mmio(dev, addr, size, dir, attrs) \
	dma_unmap_resource(dev, addr, size, dir, attrs)
#endif

/* The page map of a device page. */
#if HAVE_PAGE_PGMAP
#define compat_page_pgmap(page) page_pgmap(page)
#else
#define compat_page_pgmap(page) ((page)->pgmap)
#endif

/* Takes a reference on a file unless its last one is gone. */
static inline bool compat_get_file_active(struct file **file)
{
#if HAVE_GET_FILE_ACTIVE
	return get_file_active(file);
#else
	return get_file_rcu(*file);
#endif
}

/* The page map that contains a page frame, with a reference. */
#if HAVE_PAGEMAP_HINT
#define compat_get_dev_pagemap(pfn) get_dev_pagemap(pfn, NULL)
#else
#define compat_get_dev_pagemap(pfn) get_dev_pagemap(pfn)
#endif

/* Kernels without the flag have no user mappings of P2PDMA pages. */
#if HAVE_FOLL_PCI_P2PDMA
#define COMPAT_FOLL_PCI_P2PDMA FOLL_PCI_P2PDMA
#else
#define COMPAT_FOLL_PCI_P2PDMA 0
#endif

#endif
