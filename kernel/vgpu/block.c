// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Blocks: pages of a pool, in the order of the memory they form. They are contiguous, or scattered
 * with the parameter "scatter".
 *
 * Pages that still have references when their block is released (direct I/O in flight, pins) drain
 * first: a delayed work item polls them.
 */
#include <linux/bitmap.h>
#include <linux/random.h>

#include "vgpu.h"

static unsigned int scatter;
module_param(scatter, uint, 0644);
MODULE_PARM_DESC(scatter,
		 "allocate runs of at most this many 64 KiB pages, 0: contiguous (default 0)");

static void block_free(struct vgpu_block *block)
{
	kvfree(block->page);
	kfree(block);
}

static void block_release_pages(struct vgpu_block *block)
{
	struct vgpu_pool *pool = block->pool;
	unsigned int i;

	lockdep_assert_held(&pool->lock);
	for (i = 0; i < block->n; i++)
		__clear_bit(block->page[i], pool->map);
	pool->n_free += block->n;
	block_free(block);
}

void vgpu_pool_drain(struct vgpu_pool *pool)
{
	struct vgpu_block *block, *tmp;

	lockdep_assert_held(&pool->lock);
	list_for_each_entry_safe(block, tmp, &pool->draining, node) {
		if (vgpu_pages_busy(block))
			continue;
		list_del(&block->node);
		vgpu_count(pool->dev, VGPU_DRAINING, -((s64)block->n << VGPU_SHIFT));
		block_release_pages(block);
	}
}

void vgpu_pool_drain_work(struct work_struct *work)
{
	struct vgpu_pool *pool = container_of(to_delayed_work(work), struct vgpu_pool, drain);

	mutex_lock(&pool->lock);
	vgpu_pool_drain(pool);
	if (!list_empty(&pool->draining))
		schedule_delayed_work(&pool->drain, msecs_to_jiffies(VGPU_DRAIN_MS));
	mutex_unlock(&pool->lock);
}

void vgpu_block_release(struct kref *kref)
{
	struct vgpu_block *block = container_of(kref, struct vgpu_block, kref);
	struct vgpu_pool *pool = block->pool;
	s64 bytes = (s64)block->n << VGPU_SHIFT;

	vgpu_count(pool->dev, VGPU_FREED, bytes);
	vgpu_pages_reclaim(block);
	mutex_lock(&pool->lock);
	if (vgpu_pages_busy(block)) {
		vgpu_count(pool->dev, VGPU_DRAINED, bytes);
		vgpu_count(pool->dev, VGPU_DRAINING, bytes);
		list_add_tail(&block->node, &pool->draining);
		schedule_delayed_work(&pool->drain, msecs_to_jiffies(VGPU_DRAIN_MS));
	} else {
		block_release_pages(block);
	}
	mutex_unlock(&pool->lock);
}

/* Clears the contents of the previous allocation. */
static void block_clear(struct vgpu_block *block)
{
	struct vgpu_pool *pool = block->pool;
	unsigned int i;

	for (i = 0; i < block->n; i++) {
		if (pool->kva)
			memset(pool->kva + ((size_t)block->page[i] << VGPU_SHIFT), 0, VGPU_SIZE);
		else
			memset_io(pool->io + ((size_t)block->page[i] << VGPU_SHIFT), 0, VGPU_SIZE);
		cond_resched();
	}
	vgpu_count(pool->dev, VGPU_CLEARED, (s64)block->n << VGPU_SHIFT);
}

int vgpu_block_copy(struct vgpu_block *to, const struct vgpu_block *from)
{
	struct vgpu_pool *pool = to->pool;
	void *bounce = NULL;
	unsigned int i;

	if (!pool->kva) {
		bounce = vgpu_zalloc_array(1, VGPU_SIZE);
		if (!bounce)
			return -ENOMEM;
	}
	for (i = 0; i < to->n; i++) {
		size_t src = (size_t)from->page[i] << VGPU_SHIFT;
		size_t dst = (size_t)to->page[i] << VGPU_SHIFT;

		if (pool->kva) {
			memcpy(pool->kva + dst, pool->kva + src, VGPU_SIZE);
		} else {
			memcpy_fromio(bounce, pool->io + src, VGPU_SIZE);
			memcpy_toio(pool->io + dst, bounce, VGPU_SIZE);
		}
		cond_resched();
	}
	kvfree(bounce);
	return 0;
}

static int block_find_contiguous(struct vgpu_block *block)
{
	struct vgpu_pool *pool = block->pool;
	unsigned long at;
	unsigned int i;

	at = bitmap_find_next_zero_area(pool->map, pool->n, 0, block->n, 0);
	if (at >= pool->n)
		return -ENOMEM;
	for (i = 0; i < block->n; i++)
		block->page[i] = at + i;
	bitmap_set(pool->map, at, block->n);
	return 0;
}

/* The first free page from a random index on; @not only if no other page is free. */
static unsigned int block_find_page(struct vgpu_pool *pool, unsigned int not)
{
	unsigned int at = find_next_zero_bit(pool->map, pool->n, get_random_u32_below(pool->n));

	if (at == not)
		at = find_next_zero_bit(pool->map, pool->n, at + 1);
	if (at >= pool->n)
		at = find_next_zero_bit(pool->map, pool->n, 0);
	if (at == not) {
		at = find_next_zero_bit(pool->map, pool->n, at + 1);
		if (at >= pool->n)
			at = not;
	}
	return at;
}

/* Runs of 1 to @most pages, none adjacent to the previous run. */
static int block_find_scattered(struct vgpu_block *block, unsigned int most)
{
	struct vgpu_pool *pool = block->pool;
	unsigned int i = 0, at, run;

	if (pool->n_free < block->n)
		return -ENOMEM;
	while (i < block->n) {
		at = block_find_page(pool, i ? block->page[i - 1] + 1 : pool->n);
		for (run = 1 + get_random_u32_below(most); run && i < block->n; run--) {
			if (at >= pool->n || test_bit(at, pool->map))
				break;
			__set_bit(at, pool->map);
			block->page[i++] = at++;
		}
	}
	return 0;
}

static int block_find(struct vgpu_block *block)
{
	struct vgpu_pool *pool = block->pool;
	unsigned int most = READ_ONCE(scatter);
	int rc;

	mutex_lock(&pool->lock);
	vgpu_pool_drain(pool);
	rc = most ? block_find_scattered(block, most) : block_find_contiguous(block);
	if (!rc)
		pool->n_free -= block->n;
	mutex_unlock(&pool->lock);
	return rc;
}

int vgpu_block_new(struct vgpu_pool *pool, unsigned int n, struct vgpu_block **ret)
{
	struct vgpu_block *block;
	int rc = -ENOMEM;

	if (n > pool->n)
		return -ENOMEM;
	block = vgpu_zalloc(sizeof(*block));
	if (!block)
		return -ENOMEM;
	kref_init(&block->kref);
	block->pool = pool;
	block->n = n;
	block->page = vgpu_zalloc_array(n, sizeof(*block->page));
	if (block->page)
		rc = block_find(block);
	if (rc) {
		block_free(block);
		return rc;
	}
	block_clear(block);
	vgpu_pages_acquire(block);
	vgpu_count(pool->dev, VGPU_ALLOCATED, (s64)n << VGPU_SHIFT);
	*ret = block;
	return 0;
}

u64 vgpu_block_run(const struct vgpu_block *block, u64 offset, u64 most)
{
	unsigned int i = offset >> VGPU_SHIFT;
	u64 length = VGPU_SIZE - offset % VGPU_SIZE;

	for (; length < most && block->page[i + 1] == block->page[i] + 1; i++)
		length += VGPU_SIZE;
	return min(length, most);
}
