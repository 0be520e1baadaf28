// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The struct pages of a pool, and their reference counts.
 *
 * P2PDMA pages are owned as NVIDIA's driver owns those of its BAR: it replaces the operations of
 * their pagemap, hands a page out with a reference count of one and its own data in the page, and
 * learns from the operations when the last reference is dropped. A module that drops a reference it
 * does not have, or takes one on a page that is not handed out, crashes the machine there. Here that
 * is reported, and made good.
 *
 * Pages of the pinnable kind always have one reference of this driver.
 */
#include <linux/memremap.h>

#include "vgpu.h"

#define PAGES_PER (VGPU_SIZE / PAGE_SIZE)

#define for_each_page(i, at, block) \
	for (i = 0; i < (block)->n; i++) \
		for (at = vgpu_block_page(block, (u64)i << VGPU_SHIFT); \
		     at < vgpu_block_page(block, (u64)i << VGPU_SHIFT) + PAGES_PER; at++)

/* The last reference of a page was dropped. In any context. */
static void pages_free_one(struct page *page)
{
	struct vgpu_block *block = page->zone_device_data;

	if (block && READ_ONCE(block->reclaimed)) {
		page->zone_device_data = NULL;
		/* The block may go as soon as this is said. */
		atomic_dec(&block->pages_out);
		return;
	}
	/* In these words for the lab, which looks for them. */
	pr_err("strait_vgpu: BUG: the last reference of page %#lx, which is %s, was dropped by a foreign module\n",
	       page_to_pfn(page), block ? "handed out" : "free");
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
	struct page *page;
	unsigned int i;

	if (!block->pool->owned)
		return;
	atomic_set(&block->pages_out, block->n * PAGES_PER);
	for_each_page(i, page, block) {
		page->zone_device_data = block;
		set_page_count(page, 1);
	}
}

void vgpu_pages_reclaim(struct vgpu_block *block)
{
	struct page *page;
	unsigned int i;

	WRITE_ONCE(block->reclaimed, true);
	if (!block->pool->owned)
		return;
	for_each_page(i, page, block)
		put_page(page);
}

bool vgpu_pages_referenced(const struct vgpu_block *block)
{
	struct page *page;
	unsigned int i;

	if (!block->pool->pages)
		return false;
	for_each_page(i, page, block)
		if (page_ref_count(page) != 1)
			return true;
	return false;
}

bool vgpu_pages_busy(const struct vgpu_block *block)
{
	return block->pool->owned ? atomic_read(&block->pages_out) : vgpu_pages_referenced(block);
}
