/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_BACKING_H
#define STRAIT_BACKING_H

/*
 * The pinned memory of a region, as vectors of kernel addresses.
 *
 * Referenced by the region until that is revoked, by every I/O in flight and by every live mapping.
 * I/O iterates over these very vectors, and kernel iterators take no page references, so an I/O
 * keeps its reference until it ends. The final put may come in an interrupt; a work item then
 * unpins the pages.
 */

#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/uio.h>
#include <linux/workqueue.h>

/* Drives whose distance from a backing is cached. */
#define STRAIT_PEERS 8

struct dma_buf;
struct strait_bridged;

struct strait_backing {
	struct kref kref;
	struct work_struct free_work;
	u64 length;			/* a multiple of the page size */
	struct kvec *vec;
	u64 *start;			/* offset in the memory of each of @vec */
	unsigned int n;			/* entries of @vec; 0: the memory has no pages */
	struct pci_dev *pdev;		/* the device that owns the memory; NULL: host memory */
	spinlock_t peers_lock;		/* @peers, @next_peer */
	struct {
		struct pci_dev *drive;	/* a drive that reaches the memory, with a reference */
		int distance;		/* pci_p2pdma_distance() to it */
	} peers[STRAIT_PEERS];
	unsigned int next_peer;		/* entry to replace next */
	struct mm_struct *mm;		/* charged for @length; NULL: no process is */
	bool charged;			/* to device_mib_max */
	struct dma_buf *dmabuf;		/* a dma-buf: no pages, no vectors */
	struct strait_bridged *bridged;	/* memory of a bridge: pages are not pinned by page */
	refcount_t users;		/* I/O in flight and live mappings, plus 1 until killed */
	bool killed;
	struct completion idle;		/* @users is 0 */
	spinlock_t maps_lock;		/* @maps, @maps_closed */
	struct list_head maps;		/* strait_map.node: mappings for devices */
	bool maps_closed;		/* no new mapping may be added */
	struct work_struct maps_kill_work;
};

/*
 * An import allocates a backing, charges it, pins the memory and fills the backing with the pages,
 * in that order: memory past a limit is not even pinned. Sleeps.
 */
struct strait_backing *strait_backing_alloc(u64 length);

/* Charges host memory to the process as mlock() does, device memory to device_mib_max. */
int strait_backing_charge(struct strait_backing *b, bool host);

/* Takes over the pins of the pages on success. */
int strait_backing_fill(struct strait_backing *b, struct page **pages, unsigned long n);

/* Frees a backing that no region has. Sleeps. */
void strait_backing_free(struct strait_backing *b);

/* Bytes of device memory that all files together may import. */
u64 strait_device_max(void);

void strait_backing_release(struct kref *kref);

static inline void strait_backing_put(struct strait_backing *b)
{
	kref_put(&b->kref, strait_backing_release);
}

/*
 * I/O and mappings use the backing, on top of their reference, for as long as a device may access
 * the memory. strait_backing_use() fails once the backing was killed.
 */
bool strait_backing_use(struct strait_backing *b);
void strait_backing_unuse(struct strait_backing *b);

/* Kills all mappings, lets no new use begin and waits until the last one ends. Sleeps. */
void strait_backing_kill(struct strait_backing *b);

/* An iterator over [offset, offset + length), which must lie in the backing. */
void strait_backing_iter(struct strait_backing *b, u64 offset, u64 length, int direction,
			 struct iov_iter *iter);

/* Physical address of @offset. Returns how many bytes from there are contiguous. */
u64 strait_backing_run(const struct strait_backing *b, u64 offset, phys_addr_t *phys);

/* Kernel address of the page that contains @offset. */
void *strait_backing_at(const struct strait_backing *b, u64 offset);

#endif
