// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Pinned memory as vectors for I/O. */
#include <linux/dma-buf.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>

#include "backing.h"
#include "core.h"
#include "import.h"
#include "map.h"
#include "window.h"

static unsigned long device_mib_max = 256ul << 10;
module_param(device_mib_max, ulong, 0444);
MODULE_PARM_DESC(device_mib_max,
		 "MiB of device memory that all files together may import (default 262144)");

u64 strait_device_max(void)
{
	return (u64)device_mib_max << 20;
}

static void backing_uncharge(struct strait_backing *b)
{
	if (b->mm) {
		account_locked_vm(b->mm, b->length >> PAGE_SHIFT, false);
		mmdrop(b->mm);
		strait_count(STRAIT_N_PINNED_BYTES, -(s64)b->length);
	}
	if (b->charged)
		strait_count(STRAIT_N_DEVICE_BYTES, -(s64)b->length);
}

void strait_backing_free(struct strait_backing *b)
{
	unsigned int i;

	/* A drive may have written to host memory; device memory has nothing to write back to. */
	for (i = 0; !b->bridged && i < b->n; i++)
		unpin_user_page_range_dirty_lock(virt_to_page(b->vec[i].iov_base),
						 b->vec[i].iov_len >> PAGE_SHIFT, !b->pdev);
	if (b->bridged)
		strait_bridge_put(b->bridged);
	backing_uncharge(b);
	pci_dev_put(b->pdev);
	for (i = 0; i < STRAIT_PEERS; i++)
		pci_dev_put(b->peers[i].drive);
	if (b->dmabuf)
		dma_buf_put(b->dmabuf);
	kvfree(b->vec);
	kvfree(b->start);
	kfree(b);
}

static void backing_free_work(struct work_struct *work)
{
	strait_backing_free(container_of(work, struct strait_backing, free_work));
}

bool strait_backing_use(struct strait_backing *b)
{
	return refcount_inc_not_zero(&b->users);
}

void strait_backing_unuse(struct strait_backing *b)
{
	strait_window_meet(STRAIT_W_KILL);
	if (refcount_dec_and_test(&b->users))
		complete_all(&b->idle);
}

void strait_backing_kill(struct strait_backing *b)
{
	strait_window_meet(STRAIT_W_USE);
	strait_window_meet(STRAIT_W_COMPLETE);
	strait_window_meet(STRAIT_W_FINISH);
	strait_window_meet(STRAIT_W_RETRY);
	strait_maps_kill_deferred(b);
	strait_maps_kill(b);
	if (!xchg(&b->killed, true))
		strait_backing_unuse(b);
	strait_window(STRAIT_W_KILL);
	wait_for_completion(&b->idle);
}

void strait_backing_release(struct kref *kref)
{
	struct strait_backing *b = container_of(kref, struct strait_backing, kref);

	queue_work(strait_wq, &b->free_work);
}

int strait_backing_charge(struct strait_backing *b, bool host)
{
	u64 max = strait_device_max();
	int rc;

	if (host) {
		rc = account_locked_vm(current->mm, b->length >> PAGE_SHIFT, true);
		if (rc)
			return rc;
		b->mm = current->mm;
		mmgrab(b->mm);
		strait_count(STRAIT_N_PINNED_BYTES, b->length);
		return 0;
	}
	if (b->length > max ||
	    atomic64_add_return(b->length, &strait_counts[STRAIT_N_DEVICE_BYTES]) > max) {
		if (b->length <= max)
			strait_count(STRAIT_N_DEVICE_BYTES, -(s64)b->length);
		return -ENOSPC;
	}
	b->charged = true;
	return 0;
}

static bool backing_pages_adjacent(struct page *page, struct page *next)
{
	return page + 1 == next && page_address(page) + PAGE_SIZE == page_address(next) &&
	       is_zone_device_page(page) == is_zone_device_page(next);
}

static unsigned int backing_count_runs(struct page **pages, unsigned long n)
{
	unsigned int runs = 1;
	unsigned long i;

	for (i = 1; i < n; i++)
		runs += !backing_pages_adjacent(pages[i - 1], pages[i]);
	return runs;
}

static void backing_fill_runs(struct strait_backing *b, struct page **pages, unsigned long n)
{
	unsigned long i;

	for (i = 0; i < n; i++) {
		if (!i || !backing_pages_adjacent(pages[i - 1], pages[i])) {
			b->vec[b->n].iov_base = page_address(pages[i]);
			b->start[b->n++] = (u64)i << PAGE_SHIFT;
		}
		b->vec[b->n - 1].iov_len += PAGE_SIZE;
	}
}

struct strait_backing *strait_backing_alloc(u64 length)
{
	struct strait_backing *b;

	b = strait_zalloc(sizeof(*b));
	if (!b)
		return NULL;
	kref_init(&b->kref);
	INIT_WORK(&b->free_work, backing_free_work);
	b->length = length;
	refcount_set(&b->users, 1);
	init_completion(&b->idle);
	spin_lock_init(&b->peers_lock);
	spin_lock_init(&b->maps_lock);
	INIT_LIST_HEAD(&b->maps);
	INIT_WORK(&b->maps_kill_work, strait_maps_kill_work);
	return b;
}

int strait_backing_fill(struct strait_backing *b, struct page **pages, unsigned long n)
{
	unsigned int runs = backing_count_runs(pages, n);

	b->vec = strait_zalloc_array(runs, sizeof(*b->vec));
	b->start = strait_zalloc_array(runs, sizeof(*b->start));
	if (!b->vec || !b->start)
		return -ENOMEM;
	backing_fill_runs(b, pages, n);
	return 0;
}

/* The vector that contains byte @offset. */
static unsigned int backing_find_run(const struct strait_backing *b, u64 offset)
{
	unsigned int low = 0, high = b->n;

	while (high - low > 1) {
		unsigned int mid = low + (high - low) / 2;

		if (b->start[mid] <= offset)
			low = mid;
		else
			high = mid;
	}
	return low;
}

u64 strait_backing_run(const struct strait_backing *b, u64 offset, phys_addr_t *phys)
{
	unsigned int run = backing_find_run(b, offset);
	u64 inside = offset - b->start[run];

	*phys = page_to_phys(virt_to_page(b->vec[run].iov_base)) + inside;
	return b->vec[run].iov_len - inside;
}

void *strait_backing_at(const struct strait_backing *b, u64 offset)
{
	unsigned int run = backing_find_run(b, offset);

	return b->vec[run].iov_base + ((offset - b->start[run]) & PAGE_MASK);
}

/*
 * A kvec iterator, not a bvec: for a bio built from a bvec the block layer checks only the first
 * page for P2PDMA, and may merge requests for peer memory with neighbouring requests for RAM.
 */
void strait_backing_iter(struct strait_backing *b, u64 offset, u64 length, int direction,
			 struct iov_iter *iter)
{
	unsigned int first = backing_find_run(b, offset);
	unsigned int last = backing_find_run(b, offset + length - 1);
	u64 skip = offset - b->start[first];

	iov_iter_kvec(iter, direction, b->vec + first, last - first + 1, skip + length);
	iov_iter_advance(iter, skip);
}
