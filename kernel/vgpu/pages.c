// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The struct pages of a pool, and their reference counts.
 *
 * P2PDMA pages are owned as NVIDIA's driver owns those of its BAR: it replaces the ops of their
 * page map, allocates a page with a reference count of one and private data, and the ops tell it
 * when the last reference is dropped. A module that drops a reference it does not have, or takes
 * one on a free page, crashes the machine there. Here that is reported and repaired.
 *
 * Pages of pinnable memory always have one reference of this driver.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/memremap.h>

#include "vgpu.h"

#define PAGES_PER (VGPU_SIZE / PAGE_SIZE)	/* CPU pages of a device page */

static unsigned long pages_count(const struct vgpu_block *block)
{
	return (unsigned long)block->n * PAGES_PER;
}

static struct page *pages_nth(const struct vgpu_block *block, unsigned long i)
{
	return vgpu_block_page(block, (u64)i << PAGE_SHIFT);
}

/* The last reference of a page was dropped. Called in any context. */
static void pages_free_one(struct page *page)
{
	struct vgpu_block *block = page->zone_device_data;

	if (block && READ_ONCE(block->reclaimed)) {
		page->zone_device_data = NULL;
		/* The block may be freed as soon as the count is 0. */
		atomic_dec(&block->pages_out);
		return;
	}
	/* lab/ scans the log for "BUG:". */
	pr_err("BUG: a foreign module dropped the last reference of page %#lx (%s)\n",
	       page_to_pfn(page), block ? "allocated" : "free");
	dump_stack();
	if (block) {
		vgpu_count(block->pool->dev, VGPU_FOREIGN_PUTS, 1);
		set_page_count(page, 1);
	}
}

#if HAVE_FOLIO_FREE
static void pages_folio_free(struct folio *folio)
{
	pages_free_one(&folio->page);
}

static const struct dev_pagemap_ops pages_ops = {
	.folio_free = pages_folio_free,
};
#else
static const struct dev_pagemap_ops pages_ops = {
	.page_free = pages_free_one,
};
#endif

void vgpu_pages_init(struct vgpu_pool *pool)
{
	unsigned long i;

	pool->idle_refs = page_ref_count(pool->pages);
	if (pool->owned) {
		pool->kernel_ops = compat_page_pgmap(pool->pages)->ops;
		compat_page_pgmap(pool->pages)->ops = &pages_ops;
	}
	for (i = 0; i < pool->n * PAGES_PER; i++) {
		set_page_count(pool->pages + i, pool->owned ? 0 : 1);
		if (pool->owned)
			pool->pages[i].zone_device_data = NULL;
	}
}

void vgpu_pages_fini(struct vgpu_pool *pool)
{
	unsigned long i;

	if (pool->owned)
		compat_page_pgmap(pool->pages)->ops = pool->kernel_ops;
	for (i = 0; i < pool->n * PAGES_PER; i++)
		set_page_count(pool->pages + i, pool->idle_refs);
}

void vgpu_pages_acquire(struct vgpu_block *block)
{
	unsigned long i;

	if (!block->pool->owned)
		return;
	atomic_set(&block->pages_out, pages_count(block));
	for (i = 0; i < pages_count(block); i++) {
		pages_nth(block, i)->zone_device_data = block;
		set_page_count(pages_nth(block, i), 1);
	}
}

void vgpu_pages_reclaim(struct vgpu_block *block)
{
	unsigned long i, n = pages_count(block);

	WRITE_ONCE(block->reclaimed, true);
	if (!block->pool->owned)
		return;
	for (i = 0; i < n; i++)
		put_page(pages_nth(block, i));
}

bool vgpu_pages_referenced(const struct vgpu_block *block)
{
	unsigned long i;

	if (!block->pool->pages)
		return false;
	for (i = 0; i < pages_count(block); i++)
		if (page_ref_count(pages_nth(block, i)) != 1)
			return true;
	return false;
}

bool vgpu_pages_busy(const struct vgpu_block *block)
{
	return block->pool->owned ? atomic_read(&block->pages_out) : vgpu_pages_referenced(block);
}
