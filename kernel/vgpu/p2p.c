// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * nvidia_p2p: pinning device memory for other drivers.
 *
 * vgpu_api_mutex stands for the driver-wide lock of NVIDIA's driver. It is held in get_pages,
 * put_pages, their persistent forms and dma_map_pages, and around the free callbacks while memory
 * is freed. A consumer that takes a lock of its own in the callback, and holds it while it calls
 * one of these functions, has a lock inversion here as it has there. Called from a callback these
 * functions fail with -EIO instead of deadlocking. dma_unmap_pages does not take the lock.
 *
 * Page tables are looked up by their address. A table that is not found was put before, or its
 * callback was called: put_pages returns 0 and does nothing. dma_unmap_pages of such a table, which
 * reads freed memory in NVIDIA's driver, is reported.
 */
#include <linux/hashtable.h>

#include "p2p.h"

static unsigned int p2p_page_kib = 64;
module_param(p2p_page_kib, uint, 0644);
MODULE_PARM_DESC(p2p_page_kib,
		 "page size of new page tables in KiB: 4, 64, or 128 if aligned (default 64)");

static DEFINE_MUTEX(vgpu_api_mutex);
static struct task_struct *p2p_api_owner;
/* Changed under vgpu_api_mutex and vgpu_dma_lock, read under either. */
static DEFINE_HASHTABLE(p2p_tables, 8);

/* Is the caller inside a free callback? */
static bool p2p_in_callback(void)
{
	return READ_ONCE(p2p_api_owner) == current;
}

bool vgpu_api_lock(void)
{
	if (p2p_in_callback())
		return false;
	mutex_lock(&vgpu_api_mutex);
	WRITE_ONCE(p2p_api_owner, current);
	return true;
}

void vgpu_api_unlock(void)
{
	WRITE_ONCE(p2p_api_owner, NULL);
	mutex_unlock(&vgpu_api_mutex);
}

struct vgpu_pt *vgpu_pt_find(struct nvidia_p2p_page_table *table)
{
	struct vgpu_pt *pt;

	lockdep_assert(lockdep_is_held(&vgpu_api_mutex) || lockdep_is_held(&vgpu_dma_lock));
	hash_for_each_possible(p2p_tables, pt, key, (unsigned long)table)
		if (&pt->pub == table)
			return pt;
	return NULL;
}

static void p2p_table_free(struct vgpu_pt *pt)
{
	if (pt->alloc) {
		atomic_dec(&pt->alloc->pinned);
		vgpu_block_put(pt->block);
		vgpu_alloc_put(pt->alloc);
	}
	vgpu_dev_put(pt->dev);
	kvfree(pt->entry);
	kvfree(pt->pub.pages);
	kfree(pt);
}

/* Unmaps the DMA mappings of the table, then frees it. */
static void p2p_table_destroy(struct vgpu_pt *pt)
{
	lockdep_assert_held(&vgpu_api_mutex);
	list_del(&pt->node);
	mutex_lock(&vgpu_dma_lock);
	hash_del(&pt->key);
	vgpu_dma_unmap_all(&pt->dmas);
	mutex_unlock(&vgpu_dma_lock);
	p2p_table_free(pt);
}

/* Can 128 KiB pages describe the range? Addresses must be aligned, pairs of pages contiguous. */
static bool p2p_has_pairs(const struct vgpu_block *block, u64 va, u64 offset, u64 length)
{
	const u64 pair = 2 * VGPU_SIZE;
	u64 at;

	if (!IS_ALIGNED(va | length, pair))
		return false;
	for (at = offset; at < offset + length; at += pair)
		if (!IS_ALIGNED(vgpu_block_phys(block, at), pair) ||
		    vgpu_block_run(block, at, pair) < pair)
			return false;
	return true;
}

static unsigned int p2p_page_shift(const struct vgpu_block *block, u64 va, u64 offset, u64 length)
{
	switch (READ_ONCE(p2p_page_kib)) {
	case 4:
		return 12;
	case 128:
		return p2p_has_pairs(block, va, offset, length) ? 17 : VGPU_SHIFT;
	default:
		return VGPU_SHIFT;
	}
}

static u32 p2p_page_size_type(unsigned int shift)
{
	switch (shift) {
	case 12:
		return NVIDIA_P2P_PAGE_SIZE_4KB;
	case 17:
		return NVIDIA_P2P_PAGE_SIZE_128KB;
	default:
		return NVIDIA_P2P_PAGE_SIZE_64KB;
	}
}

static struct vgpu_pt *p2p_table_new(struct vgpu_alloc *a, u64 va, u64 offset, u64 length)
{
	struct vgpu_pt *pt;
	u32 i;

	/* Keeps the memory from moving: vgpu_alloc_move() takes it too. */
	lockdep_assert_held(&vgpu_api_mutex);
	pt = vgpu_zalloc(sizeof(*pt));
	if (!pt)
		return NULL;
	vgpu_dev_get(a->dev);
	pt->dev = a->dev;
	pt->va = va;
	INIT_LIST_HEAD(&pt->node);
	INIT_LIST_HEAD(&pt->dmas);
	pt->pub.version = NVIDIA_P2P_PAGE_TABLE_VERSION;
	pt->moves = a->moves;
	pt->shift = p2p_page_shift(a->block, va, offset, length);
	pt->pub.page_size = p2p_page_size_type(pt->shift);
	pt->pub.entries = length >> pt->shift;
	pt->pub.gpu_uuid = a->dev->uuid;
	pt->pub.pages = vgpu_zalloc_array(pt->pub.entries, sizeof(*pt->pub.pages));
	pt->entry = vgpu_zalloc_array(pt->pub.entries, sizeof(*pt->entry));
	if (!pt->pub.pages || !pt->entry) {
		p2p_table_free(pt);
		return NULL;
	}
	for (i = 0; i < pt->pub.entries; i++) {
		pt->entry[i].physical_address =
			vgpu_block_phys(a->block, offset + ((u64)i << pt->shift));
		pt->pub.pages[i] = &pt->entry[i];
	}
	return pt;
}

/* The allocation mapped at @va and the offset in it. -EINVAL: no live memory of this driver. */
static int p2p_find_alloc(u64 token, u32 va_space, u64 va, u64 length, struct vgpu_alloc **ret,
			  u64 *offset)
{
	struct vgpu_alloc *a;
	bool right = true;

	if (!length || va % VGPU_SIZE || length % VGPU_SIZE)
		return -EINVAL;
	/* Checked before mmap_lock is taken, which never nests inside vgpu_api_mutex. */
	if (p2p_in_callback())
		return -EIO;
	if (vgpu_alloc_at(va, length, &a, offset))
		return -EINVAL;
	if (token || va_space) {
		down_read(&a->lock);
		right = !a->revoked && a->file->token == token && a->file->va_space == va_space;
		up_read(&a->lock);
	}
	if (!right || *offset % VGPU_SIZE) {
		vgpu_alloc_put(a);
		return -EINVAL;
	}
	*ret = a;
	return 0;
}

static bool p2p_is_revoked(struct vgpu_alloc *a)
{
	bool revoked;

	/* A revocation sets .revoked before it takes this lock. */
	lockdep_assert_held(&vgpu_api_mutex);
	down_read(&a->lock);
	revoked = a->revoked;
	up_read(&a->lock);
	return revoked;
}

/* First half of get_pages: creates the page table. */
static int p2p_pin(struct vgpu_alloc *a, u64 va, u64 offset, u64 length, bool persistent,
		   struct vgpu_pt **ret)
{
	struct vgpu_pt *pt;

	if (p2p_is_revoked(a))
		return -EINVAL;
	pt = p2p_table_new(a, va, offset, length);
	if (!pt)
		return -ENOMEM;
	if (persistent) {
		/* Not revoked, so a->block is valid: a revocation waits for this lock. */
		kref_get(&a->block->kref);
		pt->block = a->block;
		vgpu_alloc_get(a);
		atomic_inc(&a->pinned);
		pt->alloc = a;
		pt->persistent = true;
	}
	*ret = pt;
	return 0;
}

/* Second half: registers the table, whose callback is called when the memory is freed. */
static int p2p_insert(struct vgpu_alloc *a, struct vgpu_pt *pt)
{
	lockdep_assert_held(&vgpu_api_mutex);
	if (!pt->persistent) {
		/* Moved or revoked between the halves: the addresses are stale. */
		if (p2p_is_revoked(a) || pt->moves != a->moves)
			return -EINVAL;
		list_add_tail(&pt->node, &a->pts);
	}
	mutex_lock(&vgpu_dma_lock);
	hash_add(p2p_tables, &pt->key, (unsigned long)&pt->pub);
	mutex_unlock(&vgpu_dma_lock);
	vgpu_count(pt->dev, VGPU_P2P_PINNED, (u64)pt->pub.entries << pt->shift);
	return 0;
}

/* The lock is dropped between the halves, as in NVIDIA's driver: memory may be freed in between. */
int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	struct vgpu_alloc *a;
	struct vgpu_pt *pt;
	u64 offset;
	int rc;

	might_sleep();
	if (!page_table || !free_callback)
		return -EINVAL;
	rc = p2p_find_alloc(p2p_token, va_space, virtual_address, length, &a, &offset);
	if (rc)
		return rc;
	vgpu_api_lock();
	rc = p2p_pin(a, virtual_address, offset, length, false, &pt);
	vgpu_api_unlock();
	if (rc)
		goto out;
	pt->callback = free_callback;
	pt->data = data;
	vgpu_window(VGPU_W_GET);
	vgpu_api_lock();
	rc = p2p_insert(a, pt);
	/* Set under the lock: the callback may be called as soon as it is dropped. */
	if (!rc)
		*page_table = &pt->pub;
	vgpu_api_unlock();
	if (rc)
		p2p_table_free(pt);
out:
	vgpu_alloc_put(a);
	return rc;
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags)
{
	struct vgpu_alloc *a;
	struct vgpu_pt *pt;
	u64 offset;
	int rc;

	might_sleep();
	if (!page_table || flags & ~NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING)
		return -EINVAL;
	/* NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING is for GPUs with coherent memory. */
	if (flags)
		return -ENOTSUPP;
	rc = p2p_find_alloc(0, 0, virtual_address, length, &a, &offset);
	if (rc)
		return rc;
	vgpu_api_lock();
	rc = p2p_pin(a, virtual_address, offset, length, true, &pt);
	if (!rc) {
		p2p_insert(a, pt);
		*page_table = &pt->pub;
	}
	vgpu_api_unlock();
	vgpu_alloc_put(a);
	return rc;
}
EXPORT_SYMBOL(nvidia_p2p_get_pages_persistent);

static int p2p_put(u64 va, struct nvidia_p2p_page_table *page_table, bool persistent)
{
	struct vgpu_pt *pt;
	int rc = 0;

	vgpu_window_meet(VGPU_W_CALLBACK);
	vgpu_window_meet(VGPU_W_CLOSE);
	vgpu_window(VGPU_W_PUT);
	if (!vgpu_api_lock())
		return -EIO;
	pt = vgpu_pt_find(page_table);
	if (pt && pt->va == va) {
		if (pt->persistent == persistent)
			p2p_table_destroy(pt);
		else
			rc = -EINVAL;
	}
	vgpu_api_unlock();
	return rc;
}

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	might_sleep();
	return page_table ? p2p_put(virtual_address, page_table, false) : 0;
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_put_pages_persistent(u64 virtual_address,
				    struct nvidia_p2p_page_table *page_table, u32 flags)
{
	might_sleep();
	if (flags)
		return -EINVAL;
	return page_table ? p2p_put(virtual_address, page_table, true) : 0;
}
EXPORT_SYMBOL(nvidia_p2p_put_pages_persistent);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_free_page_table);

/*
 * For each page table: calls the consumer's callback, unmaps the DMA mappings that are left, frees
 * the table. vgpu_api_mutex is held throughout.
 */
void vgpu_p2p_revoke_all(struct vgpu_alloc *a)
{
	struct vgpu_pt *pt;

	/* No function that a callback may call frees memory. */
	if (WARN_ON_ONCE(!vgpu_api_lock()))
		return;
	vgpu_window(VGPU_W_CALLBACK);
	while ((pt = list_first_entry_or_null(&a->pts, struct vgpu_pt, node))) {
		vgpu_window_meet(VGPU_W_PUT);
		vgpu_count(a->dev, VGPU_CALLBACKS, 1);
		pt->callback(pt->data);
		vgpu_window(VGPU_W_TEARDOWN);
		p2p_table_destroy(pt);
	}
	vgpu_api_unlock();
}
