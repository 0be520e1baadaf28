// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Pools of device memory: the BAR in two parts. The first is plain memory, with P2PDMA pages if the
 * kernel supports them and without struct pages if not. The second may be pinned long-term: generic
 * device pages.
 */
#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/pci-p2pdma.h>

#include "vgpu.h"

/* Alignment that memremap_pages() needs. */
#define REMAP_ALIGN (2ul << 20)

static unsigned int pinnable_percent = 25;
module_param(pinnable_percent, uint, 0444);
MODULE_PARM_DESC(pinnable_percent,
		 "percent of the memory that can be pinned long-term (default 25)");

u64 vgpu_pool_free_bytes(struct vgpu_pool *pool)
{
	u64 bytes;

	mutex_lock(&pool->lock);
	bytes = (u64)pool->n_free << VGPU_SHIFT;
	mutex_unlock(&pool->lock);
	return bytes;
}

/* Allocates all P2PDMA memory at once; the pool allocates 64 KiB pages of it. */
static int pool_init_p2pdma(struct vgpu_pool *pool, size_t bytes)
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
	pool->owned = true;
	vgpu_pages_init(pool);
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
	INIT_DELAYED_WORK(&pool->drain, vgpu_pool_drain_work);
	if (!pool->n)
		return 0;
	pool->map = bitmap_zalloc(pool->n, GFP_KERNEL);
	return pool->map ? 0 : -ENOMEM;
}

static int pool_init_plain(struct vgpu_pool *pool, u64 bytes)
{
	int rc;

	rc = pool_init(pool, STRAIT_VGPU_MEM_PLAIN, 0, bytes);
	if (rc)
		return rc;
	rc = pool_init_p2pdma(pool, bytes);
	if (!rc)
		return 0;
	pci_info(pool->dev->pdev, "no P2PDMA pages (%d): memory has no struct pages\n", rc);
	pool->io = ioremap(pool->phys, bytes);
	if (pool->io)
		return 0;
	bitmap_free(pool->map);
	return -ENOMEM;
}

static int pool_init_pinnable(struct vgpu_pool *pool, u64 bar_offset, u64 bytes)
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
	vgpu_pages_init(pool);
	return 0;
}

static bool pool_is_idle(struct vgpu_pool *pool)
{
	bool back;

	mutex_lock(&pool->lock);
	vgpu_pool_drain(pool);
	back = pool->n_free == pool->n;
	mutex_unlock(&pool->lock);
	return back;
}

static void pool_fini(struct vgpu_pool *pool)
{
	unsigned long logged = jiffies;

	/* Pinned pages and pages of persistent page tables cannot be removed: wait. */
	while (!pool_is_idle(pool)) {
		if (time_after(jiffies, logged + 10 * HZ)) {
			pci_info(pool->dev->pdev, "waiting for %llu bytes that are still in use\n",
				 ((u64)pool->n << VGPU_SHIFT) - vgpu_pool_free_bytes(pool));
			logged = jiffies;
		}
		msleep(VGPU_DRAIN_MS);
	}
	cancel_delayed_work_sync(&pool->drain);
	if (pool->pages)
		vgpu_pages_fini(pool);
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
	/* mmap() offsets use this bit as a flag. */
	if (bytes > STRAIT_VGPU_MMAP_IO)
		return -E2BIG;
	dev->pools[STRAIT_VGPU_MEM_PLAIN].dev = dev;
	dev->pools[STRAIT_VGPU_MEM_PINNABLE].dev = dev;
	rc = pool_init_plain(&dev->pools[STRAIT_VGPU_MEM_PLAIN],
			     ALIGN_DOWN(bytes - pinnable, VGPU_SIZE));
	if (rc)
		return rc;
	rc = pool_init_pinnable(&dev->pools[STRAIT_VGPU_MEM_PINNABLE], bytes - pinnable, pinnable);
	if (rc)
		pool_fini(&dev->pools[STRAIT_VGPU_MEM_PLAIN]);
	return rc;
}

void vgpu_pools_fini(struct vgpu_dev *dev)
{
	pool_fini(&dev->pools[STRAIT_VGPU_MEM_PINNABLE]);
	pool_fini(&dev->pools[STRAIT_VGPU_MEM_PLAIN]);
}
