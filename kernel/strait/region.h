/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_REGION_H
#define STRAIT_REGION_H

/*
 * Regions: imported memory, named by a handle of one file. A region is live until it is revoked,
 * once.
 *
 * Referenced by the file's table and, during a call, by its users. The final put is always in
 * sleepable context.
 */

#include <linux/kref.h>
#include <linux/mmu_notifier.h>
#include <linux/spinlock.h>

struct strait_backing;
struct strait_file;

struct strait_region {
	struct kref kref;
	u32 kind, handle;
	u64 length, can;
	char pci[16];			/* the device that owns the memory */
	unsigned long address;
	struct mmu_interval_notifier notifier;
	bool watched;			/* @notifier is registered */
	spinlock_t lock;		/* @backing, @changes, @verified, @revoked */
	struct strait_backing *backing;	/* NULL: revoked, or not imported yet */
	u64 changes;			/* changes of the mapping that may have replaced pages */
	u64 verified;			/* changes after which the pages were found unchanged */
	bool revoked;
};

/* A region with one reference, in no table yet. */
struct strait_region *strait_region_new(u32 kind, u64 length);

/* Reserves a handle; strait_region_find() does not find the region yet. */
int strait_region_reserve(struct strait_file *f, struct strait_region *r);
/* Publishes the region under its handle. The caller's reference becomes the table's. */
void strait_region_commit(struct strait_file *f, struct strait_region *r);
/* Releases a handle that was reserved and not committed. */
void strait_region_unreserve(struct strait_file *f, struct strait_region *r);

/* Takes a reference. */
struct strait_region *strait_region_find(struct strait_file *f, u32 handle);
/* Removes the region from the table. The table's reference becomes the caller's. */
struct strait_region *strait_region_remove(struct strait_file *f, u32 handle);
void strait_region_put(struct strait_region *r);

/* Gives the region its backing, or fails with -ENODEV if it was revoked during the import. */
int strait_region_set_backing(struct strait_region *r, struct strait_backing *b);

/*
 * Takes a reference and a use of the backing, after verifying that the pages are still those that
 * are mapped at the imported address. -ENODEV: the region is revoked.
 */
int strait_region_use(struct strait_region *r, struct strait_backing **ret);

/* Does not sleep: mappings for devices are killed by a work item. */
void strait_region_revoke(struct strait_region *r);
/* Sleeps. When it returns no device reaches the memory through a mapping of this region. */
void strait_region_revoke_sync(struct strait_region *r);

#endif
