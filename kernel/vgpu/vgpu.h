/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_VGPU_H
#define STRAIT_VGPU_H

/*
 * strait_vgpu: the GPU of Strait's lab. A PCI device whose BAR 2 is its memory.
 *
 * Objects:
 *	vgpu_dev	the device. Referenced by files, page tables and dma-bufs; it may outlive
 *			its binding.
 *	vgpu_pool	a part of the BAR with one kind of memory, allocated in 64 KiB pages.
 *	vgpu_block	pages of a pool. Referenced by an allocation until it is freed, by a
 *			persistent page table until it is put, by a static dma-buf until its
 *			release and by a mapping of a dma-buf until it is unmapped. The final put
 *			returns the pages to the pool, after page references have drained.
 *	vgpu_file	an open file: a table of allocations and an address_space for its
 *			mappings.
 *	vgpu_alloc	an allocation: live until it is revoked, once. Referenced by the table, by
 *			mappings, by dma-bufs and by page tables that are not registered yet.
 *	vgpu_pt		a page table of nvidia_p2p_get_pages*(); vgpu_dma a DMA mapping of one.
 *	vgpu_dmabuf	private data of an exported dma-buf.
 *
 * Locks, outer to inner:
 *	vgpu_dev.gone_lock	read: creating objects that remove() has to find
 *	vgpu_alloc.revoke_lock	one revocation or move at a time, from begin to end
 *	vgpu_api_mutex		nvidia_p2p_* and the calls of free callbacks: see p2p.c
 *	vgpu_dma_lock		the DMA mappings of all page tables, and which tables there are
 *	vgpu_alloc.resv		dma_resv of all dma-bufs of the allocation: vgpu_dmabuf.revoked,
 *				and .block, by which they are mapped
 *	vgpu_alloc.lock		read: inserting PTEs; write: .revoked, .block, .dmabufs
 *	vgpu_pool.lock, vgpu_dev.list_lock, the xa_lock of a file's table
 *
 * The mmap_lock of a process nests inside gone_lock and outside vgpu_alloc.lock: faults, mmap() and
 * address lookups take these. The locks listed between those two are never held together with it.
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
/* mmap() offsets: the handle is above this bit. No device has that much memory. */
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
	unsigned int n;			/* 64 KiB pages, 0: the device has no such memory */
	struct page *pages;		/* NULL: no struct pages */
	void *kva;			/* NULL: mapped by @io */
	void __iomem *io;
	bool owned;			/* P2PDMA pages with this driver's page map ops: pages.c */
	const struct dev_pagemap_ops *kernel_ops; /* the page map ops that they replace */
	int idle_refs;			/* page reference count before this driver changed it */
	struct dev_pagemap pgmap;	/* of pinnable memory */
	struct mutex lock;		/* @map, @n_free, @draining */
	unsigned long *map;
	unsigned int n_free;
	struct list_head draining;	/* vgpu_block.node */
	struct delayed_work drain;
};

struct vgpu_block {
	struct kref kref;
	struct vgpu_pool *pool;
	unsigned int n;
	u32 *page;			/* indices of @n 64 KiB pages in the pool */
	bool reclaimed;			/* this driver has put its page references */
	atomic_t pages_out;		/* owned pages that still have references */
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
	bool revoked;			/* remove() has revoked all allocations */
	wait_queue_head_t gone_wait;	/* for poll(), which waits for @revoked */
	spinlock_t list_lock;		/* @allocs */
	struct list_head allocs;	/* vgpu_alloc.node of live allocations */
	struct vgpu_pool pools[STRAIT_VGPU_MEM_KINDS];
	atomic64_t counts[VGPU_COUNTS];
	struct dentry *debugfs;
};

struct vgpu_file {
	struct vgpu_dev *dev;
	struct address_space mapping;	/* of this file alone, to unmap its mappings */
	struct xarray allocs;
	u32 next;
	u64 token;
	u32 va_space;
};

struct vgpu_alloc {
	struct kref kref;
	struct vgpu_dev *dev;
	struct vgpu_file *file;		/* valid until revoked, or while mapped */
	struct vgpu_block *block;	/* until revoked */
	u32 kind, handle;
	u64 length, identity, mmap_offset;
	u64 moves;			/* under vgpu_api_mutex: how often @block was replaced */
	atomic_t pinned;		/* pins of @block, without page tables on @pts */
	struct dma_resv resv;
	u64 notified;			/* under @resv: how often importers were notified */
	struct list_head node;
	struct mutex revoke_lock;	/* one revocation or move at a time */
	struct rw_semaphore lock;
	bool revoked;
	struct list_head dmabufs;	/* vgpu_dmabuf.node */
	struct list_head pts;		/* vgpu_pt.node, under vgpu_api_mutex */
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

/* pool.c. vgpu_pools_fini() waits, without a deadline, until all blocks are free and drained. */
int vgpu_pools_init(struct vgpu_dev *dev);
void vgpu_pools_fini(struct vgpu_dev *dev);
u64 vgpu_pool_free_bytes(struct vgpu_pool *pool);

/*
 * block.c. vgpu_block_run() returns how many bytes from @offset on are contiguous, at most @most,
 * which must lie in the block. vgpu_block_copy() needs two blocks with the same number of pages.
 */
int vgpu_block_new(struct vgpu_pool *pool, unsigned int n, struct vgpu_block **ret);
void vgpu_block_release(struct kref *kref);
u64 vgpu_block_run(const struct vgpu_block *block, u64 offset, u64 most);
int vgpu_block_copy(struct vgpu_block *to, const struct vgpu_block *from);
void vgpu_pool_drain(struct vgpu_pool *pool);
void vgpu_pool_drain_work(struct work_struct *work);

/*
 * pages.c. vgpu_pages_acquire() and vgpu_pages_reclaim() are called once for a block.
 * vgpu_pages_referenced(): does anything but this driver have references on the pages?
 * vgpu_pages_busy(): the same after vgpu_pages_reclaim().
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

/* Offset in the pool of byte @offset of a block. */
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
 * alloc.c. Callers of vgpu_alloc_new() hold gone_lock for reading, have checked that the device is
 * not gone, and call vgpu_alloc_publish() or vgpu_alloc_discard() before they drop the lock.
 * vgpu_alloc_publish() gives the caller's reference to the file's table. When vgpu_alloc_revoke()
 * returns nothing reaches the memory through the allocation any more, whichever of several callers
 * revoked it. vgpu_alloc_at() finds the allocation that is mapped at an address of the calling
 * process and takes a reference: one allocation must be mapped contiguously at [va, va + len).
 */
int vgpu_alloc_new(struct vgpu_file *f, u32 kind, u64 length, struct vgpu_alloc **ret);
void vgpu_alloc_publish(struct vgpu_alloc *a);
void vgpu_alloc_discard(struct vgpu_alloc *a);
struct vgpu_alloc *vgpu_alloc_find(struct vgpu_file *f, u32 handle);
int vgpu_alloc_free(struct vgpu_file *f, u32 handle);
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

/* move.c. Moves the memory to other pages. -EBUSY: it is pinned, and was not moved. */
int vgpu_alloc_move(struct vgpu_file *f, u32 handle);

/* file.c */
extern const struct file_operations vgpu_fops;

/* map.c */
extern const struct vm_operations_struct vgpu_vm_ops;
int vgpu_mmap(struct file *file, struct vm_area_struct *vma);
int vgpu_query(struct vgpu_file *f, struct strait_vgpu_query *q);

/* dmabuf.c */
struct dma_buf *vgpu_dmabuf_export(struct vgpu_alloc *a, u64 offset, u64 length, u32 fd_flags);
void vgpu_dmabuf_revoke_all(struct vgpu_alloc *a);
/* Notifies importers of all dma-bufs: they unmap, and may map again. Caller holds @a->resv. */
void vgpu_dmabuf_invalidate_all(struct vgpu_alloc *a);

/*
 * p2p.c. vgpu_p2p_revoke_all() calls the free callbacks of all page tables of @a and frees the
 * tables. vgpu_api_lock() takes vgpu_api_mutex, or fails if the caller is inside a callback.
 */
struct vgpu_pt;
struct nvidia_p2p_page_table;
void vgpu_p2p_revoke_all(struct vgpu_alloc *a);
bool vgpu_api_lock(void);
void vgpu_api_unlock(void);
struct vgpu_pt *vgpu_pt_find(struct nvidia_p2p_page_table *table);

/*
 * p2p_dma.c. Unmaps all DMA mappings of a page table. @link: its list of them. Caller holds
 * vgpu_dma_lock.
 */
extern struct mutex vgpu_dma_lock;
void vgpu_dma_unmap_all(struct list_head *link);
/* Does @peer reach the memory? */
bool vgpu_peer_is_reachable(struct vgpu_dev *dev, struct device *peer);
/* Flushes the IOTLB after unmapping: when it returns @peer does not reach the memory. */
void vgpu_peer_flush(struct device *peer);

/* debug.c. Race windows: see kernel/window.h. */
enum vgpu_window {
	/* Waits: a fault that found the memory live. Meets: begin of a revocation. */
	VGPU_W_FAULT,
	/* Waits: get_pages, pinned and not registered. Meets: begin of a revocation. */
	VGPU_W_GET,
	/*
	 * Waits: a revocation that has vgpu_api_mutex, before the callbacks. Meets: put_pages,
	 * dma_map_pages.
	 */
	VGPU_W_CALLBACK,
	/* Waits: a revocation after a callback, before unmapping. Meets: dma_unmap_pages. */
	VGPU_W_TEARDOWN,
	/* Waits: put_pages before it takes vgpu_api_mutex. Meets: the call of a callback. */
	VGPU_W_PUT,
	/* Waits: an importer that maps a live dma-buf. Meets: begin of a revocation. */
	VGPU_W_DMABUF_MAP,
	/* Waits: a revocation before it notifies importers. Meets: an importer that maps. */
	VGPU_W_INVALIDATE,
	/* Waits: release of a file before it revokes. Meets: put_pages. */
	VGPU_W_CLOSE,
	VGPU_WINDOWS,
};

void vgpu_window(enum vgpu_window w);
void vgpu_window_meet(enum vgpu_window w);
void vgpu_debug_init(void);
void vgpu_debug_fini(void);
void vgpu_debug_add(struct vgpu_dev *dev);
void vgpu_debug_remove(struct vgpu_dev *dev);

/* inject.c: see strait/inject.h. A new wrapper is listed in kernel/test/inject.c. */
struct dma_buf_export_info;
void *vgpu_zalloc(size_t size);
void *vgpu_zalloc_array(size_t n, size_t size);
struct page *vgpu_zalloc_page(void);
int vgpu_xa_reserve(struct xarray *xa, u32 *handle, u32 max, u32 *next);
int vgpu_dma_map(struct device *peer, phys_addr_t phys, size_t length,
		 enum dma_data_direction dir, dma_addr_t *ret);
int vgpu_sg_alloc_table(struct sg_table *table, unsigned int entries);
struct dma_buf *vgpu_dma_buf_export(const struct dma_buf_export_info *info);
int vgpu_get_unused_fd(unsigned int flags);

#endif
