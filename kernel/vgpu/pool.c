// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Where device memory comes from: the BAR, cut in two. The first part is plain memory: P2PDMA
 * pages where the kernel has them, no struct pages where not. The second is memory that may be
 * pinned for long: generic device pages.
 *
 * This driver holds one reference on every page that has a struct page, so a page nobody else uses
 * has exactly one. Pages that go back while they have more (direct I/O in flight, pins) drain
 * first: nobody tells when a reference is dropped, so they are looked at from time to time.
 */
#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/pci-p2pdma.h>

#include "vgpu.h"

#define PAGES_PER (VGPU_SIZE / PAGE_SIZE)
/* What memremap_pages() wants both ends of a range to be a multiple of. */
#define REMAP_ALIGN (2ul << 20)
#define DRAIN_MS 10

static unsigned int pinnable_percent = 25;
module_param(pinnable_percent, uint, 0444);
MODULE_PARM_DESC(pinnable_percent, "share of the memory that can be pinned for long (default 25)");

static bool block_busy(const struct vgpu_block *block)
{
	struct page *page = block->pool->pages;
	unsigned long i;

	if (!page)
		return false;
	page += block->first * PAGES_PER;
	for (i = 0; i < block->n * PAGES_PER; i++)
		if (page_ref_count(page + i) != 1)
			return true;
	return false;
}

/* With the pool's lock held. */
static void give_back(struct vgpu_block *block)
{
	struct vgpu_pool *pool = block->pool;

	bitmap_clear(pool->map, block->first, block->n);
	pool->n_free += block->n;
	kfree(block);
}

/* With the pool's lock held. */
static void drain(struct vgpu_pool *pool)
{
	struct vgpu_block *block, *tmp;

	list_for_each_entry_safe(block, tmp, &pool->draining, node) {
		if (block_busy(block))
			continue;
		list_del(&block->node);
		vgpu_count(pool->dev, VGPU_DRAINING, -((s64)block->n << VGPU_SHIFT));
		give_back(block);
	}
}

static void drain_work(struct work_struct *work)
{
	struct vgpu_pool *pool = container_of(to_delayed_work(work), struct vgpu_pool, drain);

	mutex_lock(&pool->lock);
	drain(pool);
	if (!list_empty(&pool->draining))
		schedule_delayed_work(&pool->drain, msecs_to_jiffies(DRAIN_MS));
	mutex_unlock(&pool->lock);
}

void vgpu_block_release(struct kref *kref)
{
	struct vgpu_block *block = container_of(kref, struct vgpu_block, kref);
	struct vgpu_pool *pool = block->pool;
	s64 bytes = (s64)block->n << VGPU_SHIFT;

	vgpu_count(pool->dev, VGPU_FREED, bytes);
	mutex_lock(&pool->lock);
	if (block_busy(block)) {
		vgpu_count(pool->dev, VGPU_DRAINED, bytes);
		vgpu_count(pool->dev, VGPU_DRAINING, bytes);
		list_add_tail(&block->node, &pool->draining);
		schedule_delayed_work(&pool->drain, msecs_to_jiffies(DRAIN_MS));
	} else {
		give_back(block);
	}
	mutex_unlock(&pool->lock);
}

/* What its last owner left in it is nobody else's business. */
static void block_clear(struct vgpu_block *block)
{
	struct vgpu_pool *pool = block->pool;
	unsigned int i;

	for (i = block->first; i < block->first + block->n; i++) {
		if (pool->kva)
			memset(pool->kva + ((size_t)i << VGPU_SHIFT), 0, VGPU_SIZE);
		else
			memset_io(pool->io + ((size_t)i << VGPU_SHIFT), 0, VGPU_SIZE);
		cond_resched();
	}
	vgpu_count(pool->dev, VGPU_CLEARED, (s64)block->n << VGPU_SHIFT);
}

int vgpu_block_new(struct vgpu_pool *pool, unsigned int n, struct vgpu_block **ret)
{
	struct vgpu_block *block;
	unsigned long at;

	if (n > pool->n)
		return -ENOMEM;
	block = vgpu_zalloc(sizeof(*block));
	if (!block)
		return -ENOMEM;
	kref_init(&block->kref);
	block->pool = pool;
	block->n = n;
	mutex_lock(&pool->lock);
	drain(pool);
	at = bitmap_find_next_zero_area(pool->map, pool->n, 0, n, 0);
	if (at < pool->n) {
		bitmap_set(pool->map, at, n);
		pool->n_free -= n;
	}
	mutex_unlock(&pool->lock);
	if (at >= pool->n) {
		kfree(block);
		return -ENOMEM;
	}
	block->first = at;
	block_clear(block);
	vgpu_count(pool->dev, VGPU_ALLOCATED, (s64)n << VGPU_SHIFT);
	*ret = block;
	return 0;
}

u64 vgpu_pool_free_bytes(struct vgpu_pool *pool)
{
	u64 bytes;

	mutex_lock(&pool->lock);
	bytes = (u64)pool->n_free << VGPU_SHIFT;
	mutex_unlock(&pool->lock);
	return bytes;
}

/* Take the reference that says "idle". Free pages have none on some kernels and one on others. */
static void pages_take(struct vgpu_pool *pool)
{
	unsigned long i;

	pool->idle_refs = page_ref_count(pool->pages);
	for (i = 0; i < pool->n * PAGES_PER; i++)
		set_page_count(pool->pages + i, 1);
}

static void pages_give(struct vgpu_pool *pool)
{
	unsigned long i;

	for (i = 0; i < pool->n * PAGES_PER; i++)
		set_page_count(pool->pages + i, pool->idle_refs);
}

/* All of the P2PDMA memory is taken at once, and given out in 64 KiB pages from here. */
static int plain_p2pdma(struct vgpu_pool *pool, size_t bytes)
{
	struct pci_dev *pdev = pool->dev->pdev;
	int rc;

	if (!IS_ENABLED(CONFIG_PCI_P2PDMA))
		return -EOPNOTSUPP;
	rc = pci_p2pdma_add_resource(pdev, VGPU_BAR, bytes, 0);
	if (rc)
		return rc;
	pool->kva = pci_alloc_p2pmem(pdev, bytes);
	if (!pool->kva)
		return -ENOMEM;
	pool->pages = virt_to_page(pool->kva);
	pages_take(pool);
	pool->dev->p2pdma = true;
	return 0;
}

static int pool_init(struct vgpu_pool *pool, u32 kind, u64 bar_offset, u64 bytes)
{
	pool->kind = kind;
	pool->bar_offset = bar_offset;
	pool->phys = pci_resource_start(pool->dev->pdev, VGPU_BAR) + bar_offset;
	pool->n = bytes >> VGPU_SHIFT;
	pool->n_free = pool->n;
	mutex_init(&pool->lock);
	INIT_LIST_HEAD(&pool->draining);
	INIT_DELAYED_WORK(&pool->drain, drain_work);
	if (!pool->n)
		return 0;
	pool->map = bitmap_zalloc(pool->n, GFP_KERNEL);
	return pool->map ? 0 : -ENOMEM;
}

static int plain_init(struct vgpu_pool *pool, u64 bytes)
{
	int rc;

	rc = pool_init(pool, STRAIT_VGPU_MEM_PLAIN, 0, bytes);
	if (rc)
		return rc;
	rc = plain_p2pdma(pool, bytes);
	if (!rc)
		return 0;
	pci_info(pool->dev->pdev, "no peer-to-peer pages (%d): mapped by page number\n", rc);
	pool->io = ioremap(pool->phys, bytes);
	if (pool->io)
		return 0;
	bitmap_free(pool->map);
	return -ENOMEM;
}

static int pinnable_init(struct vgpu_pool *pool, u64 bar_offset, u64 bytes)
{
	void *kva;
	int rc;

	rc = pool_init(pool, STRAIT_VGPU_MEM_PINNABLE, bar_offset, bytes);
	if (rc || !pool->n)
		return rc;
	pool->pgmap.type = MEMORY_DEVICE_GENERIC;
	pool->pgmap.range.start = pool->phys;
	pool->pgmap.range.end = pool->phys + bytes - 1;
	pool->pgmap.nr_range = 1;
	kva = memremap_pages(&pool->pgmap, dev_to_node(&pool->dev->pdev->dev));
	if (IS_ERR(kva)) {
		pci_info(pool->dev->pdev, "no pinnable memory (%ld)\n", PTR_ERR(kva));
		bitmap_free(pool->map);
		pool->map = NULL;
		pool->n = 0;
		pool->n_free = 0;
		return 0;
	}
	pool->kva = kva;
	pool->pages = virt_to_page(kva);
	pages_take(pool);
	return 0;
}

static bool all_back(struct vgpu_pool *pool)
{
	bool back;

	mutex_lock(&pool->lock);
	drain(pool);
	back = pool->n_free == pool->n;
	mutex_unlock(&pool->lock);
	return back;
}

static void pool_fini(struct vgpu_pool *pool)
{
	unsigned long said = jiffies;

	/* A page that is pinned, or held by a persistent page table, cannot be taken away: wait. */
	while (!all_back(pool)) {
		if (time_after(jiffies, said + 10 * HZ)) {
			pci_info(pool->dev->pdev, "waiting for %llu bytes that are still held\n",
				 ((u64)pool->n << VGPU_SHIFT) - vgpu_pool_free_bytes(pool));
			said = jiffies;
		}
		msleep(DRAIN_MS);
	}
	cancel_delayed_work_sync(&pool->drain);
	if (pool->pages)
		pages_give(pool);
	if (pool->io)
		iounmap(pool->io);
	else if (pool->kind == STRAIT_VGPU_MEM_PLAIN)
		pci_free_p2pmem(pool->dev->pdev, pool->kva, (size_t)pool->n << VGPU_SHIFT);
	else if (pool->kva)
		memunmap_pages(&pool->pgmap);
	bitmap_free(pool->map);
}

int vgpu_pools_init(struct vgpu_dev *dev)
{
	u64 bytes = pci_resource_len(dev->pdev, VGPU_BAR), pinnable;
	int rc;

	pinnable = bytes / 100 * min(pinnable_percent, 100u);
	pinnable = ALIGN_DOWN(pinnable, REMAP_ALIGN);
	if (bytes - pinnable < REMAP_ALIGN || !IS_ALIGNED(bytes, REMAP_ALIGN))
		pinnable = 0;
	if (bytes > 1ull << VGPU_HANDLE_SHIFT)
		return -E2BIG;
	dev->pools[STRAIT_VGPU_MEM_PLAIN].dev = dev;
	dev->pools[STRAIT_VGPU_MEM_PINNABLE].dev = dev;
	rc = plain_init(&dev->pools[STRAIT_VGPU_MEM_PLAIN],
			ALIGN_DOWN(bytes - pinnable, VGPU_SIZE));
	if (rc)
		return rc;
	rc = pinnable_init(&dev->pools[STRAIT_VGPU_MEM_PINNABLE], bytes - pinnable, pinnable);
	if (rc)
		pool_fini(&dev->pools[STRAIT_VGPU_MEM_PLAIN]);
	return rc;
}

void vgpu_pools_fini(struct vgpu_dev *dev)
{
	pool_fini(&dev->pools[STRAIT_VGPU_MEM_PINNABLE]);
	pool_fini(&dev->pools[STRAIT_VGPU_MEM_PLAIN]);
}
