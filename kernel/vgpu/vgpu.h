/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_VGPU_H
#define STRAIT_VGPU_H

/*
 * strait_vgpu: the GPU of Strait's lab. A PCI device whose BAR 2 is its memory.
 *
 * Objects:
 *	vgpu_dev	the device. Files, page tables and dma-bufs hold it; it outlives its driver.
 *	vgpu_pool	a part of the BAR that holds one kind of memory, given out in 64 KiB pages.
 *	vgpu_block	pages taken from a pool. Counted: an allocation has a reference until it
 *			is freed, a persistent page table until it is put, a static dma-buf until
 *			its release, a mapping of a dma-buf until it is unmapped. The last
 *			reference gives the pages back, or leaves them to drain while something
 *			has references on them.
 *	vgpu_file	an open file: a table of allocations and an address_space for its
 *			mappings.
 *	vgpu_alloc	an allocation: live, then revoked, once. Held by the table, by mappings,
 *			by dma-bufs and by page tables that are not registered yet.
 *	vgpu_pt		a page table of nvidia_p2p_get_pages*(); vgpu_dma a DMA mapping of one.
 *	vgpu_dmabuf	what an exported dma-buf points to.
 *
 * Locks, outer to inner:
 *	vgpu_dev.gone_lock	read: making something that remove() would have to find
 *	vgpu_alloc.revoke_lock	one revocation or move at a time; held until it is complete
 *	the API lock		nvidia_p2p_* and the calls of free callbacks: see p2p.c
 *	vgpu_dma_lock		the DMA mappings of all page tables
 *	vgpu_alloc.resv		the dma_resv of all its dma-bufs: vgpu_dmabuf.revoked, and .block by
 *				which they are mapped
 *	vgpu_alloc.lock		read: entering pages for the CPU; write: .revoked, .block, .dmabufs
 *	vgpu_pool.lock, vgpu_dev.list_lock, the xa_lock of a file's table
 *
 * The mmap_lock of a process comes after gone_lock and before vgpu_alloc.lock: faults, mmap() and
 * looking addresses up take these. It is never taken under one of those in between, nor they
 * under it.
 */

#include <linux/atomic.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/memremap.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "compat.h"
#include "strait_vgpu.h"

#define VGPU_BAR 2
#define VGPU_SHIFT 16
#define VGPU_SIZE BIT(VGPU_SHIFT)
#define VGPU_UUID_LEN 16
#define VGPU_DRAIN_MS 10
#define VGPU_MAX_ALLOCS 65536
/* Where the allocation of a handle is in a file's offsets. No device has as much memory. */
#define VGPU_HANDLE_SHIFT 40

struct dma_buf;
struct vgpu_dev;

enum vgpu_count {
	VGPU_ALLOCATED,
	VGPU_FREED,
	VGPU_CLEARED,
	VGPU_CPU_MAPPED,
	VGPU_CPU_ZERO,
	VGPU_P2P_PINNED,
	VGPU_P2P_MAPPED,
	VGPU_DMABUF_MAPPED,
	VGPU_PEER_MAPPED_NOW,
	VGPU_CALLBACKS,
	VGPU_INVALIDATIONS,
	VGPU_DRAINED,
	VGPU_DRAINING,
	VGPU_MOVES,
	VGPU_FOREIGN_PUTS,
	VGPU_COUNTS,
};

struct vgpu_pool {
	struct vgpu_dev *dev;
	u32 kind;
	u64 bar_offset;
	phys_addr_t phys;
	unsigned int n;			/* 64 KiB pages, 0: there is no such memory */
	struct page *pages;		/* NULL: it has no struct pages */
	void *kva;			/* one of these two */
	void __iomem *io;
	bool owned;			/* P2PDMA pages, with this driver's operations: pages.c */
	const struct dev_pagemap_ops *kernel_ops; /* those they had before */
	int idle_refs;			/* what pages had before this driver took them */
	struct dev_pagemap pgmap;	/* of the pinnable kind */
	struct mutex lock;		/* everything below */
	unsigned long *map;
	unsigned int n_free;
	struct list_head draining;	/* vgpu_block.node */
	struct delayed_work drain;
};

struct vgpu_block {
	struct kref kref;
	struct vgpu_pool *pool;
	unsigned int n;
	u32 *page;			/* @n numbers of 64 KiB pages in the pool */
	bool reclaimed;		/* the last reference is gone: pages may follow */
	atomic_t pages_out;		/* of pages that are owned: not free yet */
	struct list_head node;
};

struct vgpu_dev {
	struct kref kref;
	struct pci_dev *pdev;
	struct miscdevice misc;
	int id;
	char name[24];
	u8 uuid[VGPU_UUID_LEN];
	bool p2pdma;
	struct rw_semaphore gone_lock;
	bool gone;
	wait_queue_head_t gone_wait;	/* who polls a file, to be notified */
	spinlock_t list_lock;		/* @allocs */
	struct list_head allocs;	/* vgpu_alloc.node: those not revoked */
	struct vgpu_pool pools[STRAIT_VGPU_MEM_KINDS];
	atomic64_t counts[VGPU_COUNTS];
	struct dentry *debugfs;
};

struct vgpu_file {
	struct vgpu_dev *dev;
	struct address_space mapping;	/* so that one file's mappings can be taken away */
	struct xarray allocs;
	u32 next;
	u64 token;
	u32 va_space;
};

struct vgpu_alloc {
	struct kref kref;
	struct vgpu_dev *dev;
	struct vgpu_file *file;		/* valid until it is revoked, or while it is mapped */
	struct vgpu_block *block;	/* until it is revoked */
	u32 kind, handle;
	u64 length, identity, mmap_offset;
	u64 moves;			/* how often @block was another; under the API lock */
	atomic_t pinned;		/* what keeps @block where it is, but for page tables on @pts */
	struct dma_resv resv;
	u64 notified;			/* how often importers were notified that it moves; under @resv */
	struct list_head node;
	struct mutex revoke_lock;	/* a revocation, from its beginning to its end */
	struct rw_semaphore lock;
	bool revoked;
	struct list_head dmabufs;	/* vgpu_dmabuf.node */
	struct list_head pts;		/* vgpu_pt.node, under the API lock */
};

static inline void vgpu_count(struct vgpu_dev *dev, enum vgpu_count what, s64 n)
{
	atomic64_add(n, &dev->counts[what]);
}

/* pci.c */
void vgpu_dev_release(struct kref *kref);

static inline void vgpu_dev_get(struct vgpu_dev *dev)
{
	kref_get(&dev->kref);
}

static inline void vgpu_dev_put(struct vgpu_dev *dev)
{
	kref_put(&dev->kref, vgpu_dev_release);
}

/* pool.c. vgpu_pool_fini() waits, without a deadline, until all blocks are back and drained. */
int vgpu_pools_init(struct vgpu_dev *dev);
void vgpu_pools_fini(struct vgpu_dev *dev);
u64 vgpu_pool_free_bytes(struct vgpu_pool *pool);

/*
 * block.c. vgpu_block_run(): how many bytes from @offset on lie in one piece, @most at most, which do not reach past
 * the end. vgpu_block_copy(): both have as many pages.
 */
int vgpu_block_new(struct vgpu_pool *pool, unsigned int n, struct vgpu_block **ret);
void vgpu_block_release(struct kref *kref);
u64 vgpu_block_run(const struct vgpu_block *block, u64 offset, u64 most);
int vgpu_block_copy(struct vgpu_block *to, const struct vgpu_block *from);
void vgpu_pool_drain(struct vgpu_pool *pool);
void vgpu_pool_drain_work(struct work_struct *work);

/*
 * pages.c. A block's pages are handed out once and taken back once; vgpu_pages_busy() afterwards: has
 * something references on them still? vgpu_pages_referenced() before that: has something other than
 * this driver?
 */
void vgpu_pages_init(struct vgpu_pool *pool);
void vgpu_pages_fini(struct vgpu_pool *pool);
void vgpu_pages_acquire(struct vgpu_block *block);
void vgpu_pages_reclaim(struct vgpu_block *block);
bool vgpu_pages_busy(const struct vgpu_block *block);
bool vgpu_pages_referenced(const struct vgpu_block *block);

static inline void vgpu_block_put(struct vgpu_block *block)
{
	kref_put(&block->kref, vgpu_block_release);
}

/* Where in the pool byte @offset of a block lies. */
static inline u64 vgpu_block_at(const struct vgpu_block *block, u64 offset)
{
	return ((u64)block->page[offset >> VGPU_SHIFT] << VGPU_SHIFT) + offset % VGPU_SIZE;
}

static inline phys_addr_t vgpu_block_phys(const struct vgpu_block *block, u64 offset)
{
	return block->pool->phys + vgpu_block_at(block, offset);
}

static inline u64 vgpu_block_bar(const struct vgpu_block *block, u64 offset)
{
	return block->pool->bar_offset + vgpu_block_at(block, offset);
}

static inline struct page *vgpu_block_page(const struct vgpu_block *block, u64 offset)
{
	return block->pool->pages + (vgpu_block_at(block, offset) >> PAGE_SHIFT);
}

/*
 * alloc.c. vgpu_alloc_new() is called with gone_lock held for reading and the device there, and
 * so is what must follow it: vgpu_alloc_publish(), which gives the caller's hold to the file's
 * table, or vgpu_alloc_discard(). When vgpu_alloc_revoke() returns nobody reaches the memory
 * through the allocation any more, whoever of several callers did it. vgpu_alloc_at() finds what
 * is mapped at an address of the calling process, with a hold: all of [va, va + len) must be one
 * allocation's, in one piece.
 */
int vgpu_alloc_new(struct vgpu_file *f, u32 kind, u64 length, struct vgpu_alloc **ret);
void vgpu_alloc_publish(struct vgpu_alloc *a);
void vgpu_alloc_discard(struct vgpu_alloc *a);
struct vgpu_alloc *vgpu_alloc_find(struct vgpu_file *f, u32 handle);
int vgpu_alloc_free(struct vgpu_file *f, u32 handle);
/* move.c. The memory is in other pages when this returns; -EBUSY, and it is where it was, if it is pinned. */
int vgpu_alloc_move(struct vgpu_file *f, u32 handle);
void vgpu_alloc_revoke(struct vgpu_alloc *a);
void vgpu_alloc_release(struct kref *kref);
int vgpu_alloc_at(u64 va, u64 len, struct vgpu_alloc **ret, u64 *offset);
void vgpu_file_free_all(struct vgpu_file *f);
void vgpu_dev_revoke_all(struct vgpu_dev *dev);

static inline void vgpu_alloc_get(struct vgpu_alloc *a)
{
	kref_get(&a->kref);
}

static inline void vgpu_alloc_put(struct vgpu_alloc *a)
{
	kref_put(&a->kref, vgpu_alloc_release);
}

/* file.c */
extern const struct file_operations vgpu_fops;

/* map.c */
extern const struct vm_operations_struct vgpu_vm_ops;
int vgpu_mmap(struct file *file, struct vm_area_struct *vma);
int vgpu_query(struct vgpu_file *f, struct strait_vgpu_query *q);

/* dmabuf.c */
struct dma_buf *vgpu_dmabuf_export(struct vgpu_alloc *a, u64 offset, u64 length, u32 fd_flags);
void vgpu_dmabuf_revoke_all(struct vgpu_alloc *a);
/* With @a->resv held: importers of all dma-bufs of it unmap what they have mapped, and may map it again. */
void vgpu_dmabuf_invalidate_all(struct vgpu_alloc *a);

/*
 * p2p.c. vgpu_p2p_revoke_all() calls the callbacks of all page tables of @a and frees those.
 * vgpu_api_lock() is false, without the lock, if the caller is inside a callback.
 */
struct vgpu_pt;
struct nvidia_p2p_page_table;
void vgpu_p2p_revoke_all(struct vgpu_alloc *a);
bool vgpu_api_lock(void);
void vgpu_api_unlock(void);
struct vgpu_pt *vgpu_pt_find(struct nvidia_p2p_page_table *table);

/* p2p_dma.c. @link is the page table's list of its DMA mappings, all of which are undone. */
void vgpu_dma_unmap_all(struct list_head *link);
/* Is there a way from @peer to the memory? */
bool vgpu_peer_is_reachable(struct vgpu_dev *dev, struct device *peer);
/* After unmapping: when it returns, nothing that @peer started before gets through any more. */
void vgpu_peer_flush(struct device *peer);

/*
 * debug.c. A window is a place where a race could be: a test makes it wide by a delay, and asks
 * afterwards how often somebody was in it, and how often the other side came by meanwhile.
 */
enum vgpu_window {
	/* who is in it | who comes by */
	VGPU_W_FAULT,	   /* a fault that found the memory live | revocation begins */
	VGPU_W_GET,	   /* get_pages, pinned, not registered | revocation begins */
	VGPU_W_CALLBACK,   /* revocation, API lock taken, no callback yet | put_pages */
	VGPU_W_TEARDOWN,   /* revocation, callback done, nothing undone | dma_unmap_pages */
	VGPU_W_PUT,	   /* put_pages, lock not taken | the callback is called */
	VGPU_W_DMABUF_MAP, /* an importer that found the dma-buf live | revocation begins */
	VGPU_W_INVALIDATE, /* revocation, importers not notified yet | an importer maps */
	VGPU_W_CLOSE,	   /* release of a file, nothing revoked yet | put_pages */
	VGPU_WINDOWS,
};

void vgpu_window(enum vgpu_window w);
void vgpu_window_meet(enum vgpu_window w);
void vgpu_debug_init(void);
void vgpu_debug_fini(void);
void vgpu_debug_add(struct vgpu_dev *dev);
void vgpu_debug_remove(struct vgpu_dev *dev);

/* inject.c: what can fail for want of memory. A new one is listed in kernel/test/inject.c. */
struct dma_buf_export_info;
void *vgpu_zalloc(size_t size);
void *vgpu_zalloc_array(size_t n, size_t size);
struct page *vgpu_zalloc_page(void);
int vgpu_xa_reserve(struct xarray *xa, u32 *handle, u32 max, u32 *next);
int vgpu_dma_map(struct device *peer, phys_addr_t phys, size_t length, enum dma_data_direction dir, dma_addr_t *ret);
int vgpu_sg_alloc_table(struct sg_table *table, unsigned int entries);
struct dma_buf *vgpu_dma_buf_export(const struct dma_buf_export_info *info);
int vgpu_get_unused_fd(unsigned int flags);

#endif
