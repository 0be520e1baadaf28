/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_CORE_H
#define STRAIT_CORE_H

/*
 * strait: file I/O between a drive and memory of another device.
 *
 * Objects:
 *	strait_file	an open file: a table of regions.
 *	strait_region	what a handle names: live, then revoked, once. Held by the table and, for the
 *			length of a call, by who uses it: its last hold is never dropped where one may
 *			not sleep.
 *	strait_backing	the memory of a region: pages, pinned, as vectors of the kernel's addresses.
 *			Held by the region until that is revoked, and by every I/O in flight. The
 *			vectors that I/O works on are these: kernel-made iterators hold no pages. The
 *			last hold may be dropped in an interrupt, and a work item gives the pages back.
 *
 * Revoking takes the backing from the region. It does not wait: what is in flight has a hold, and the
 * pages stay whose they are until it ends. Memory of a bridge is another matter: its driver takes it
 * away when its callback returns, so that kills the backing first, which waits for what is in flight.
 * That is the one wait without a deadline; a drive that does not answer is reset by its own driver.
 *
 * Locks, all of them leaves:
 *	the xa_lock of a file's table
 *	strait_bridged.lock	.backing, .gone of it
 *	the bridge's mutex	which bridge there is
 *	strait_backing.peers_lock	.peers, .next_peer
 *	strait_backing.maps_lock	.maps, .maps_closed; taken under the mmap_lock by the notifier
 *	strait_region.lock	.backing, .gone, .changes, .compared; taken under the mmap_lock by the notifier
 *
 * Each is taken and dropped in one function, which calls no other of the module's meanwhile. The mmap_lock of a process
 * is taken with none of them held. eligible.c takes the open_mutex of a disk, with none of them held either.
 */

#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/io_uring/cmd.h>
#include <linux/kref.h>
#include <linux/mmu_notifier.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "compat.h"
#include "inject.h"
#include "strait.h"

#define STRAIT_VERSION "0.1.0"

/* Drives whose distance from a region is remembered. */
#define STRAIT_PEERS 8

enum strait_count {
	STRAIT_N_IMPORTS,
	STRAIT_N_REVOKED,
	STRAIT_N_READS,
	STRAIT_N_WRITES,
	STRAIT_N_READ_BYTES,
	STRAIT_N_WRITTEN_BYTES,
	STRAIT_N_REFUSED,
	STRAIT_N_RETRIED,
	STRAIT_N_PATHS,
	STRAIT_N_IN_FLIGHT,
	STRAIT_N_DEVICE_BYTES,
	STRAIT_N_PINNED_BYTES,
	STRAIT_N_ATTACHED,
	STRAIT_N_MAPS,
	STRAIT_N_MAPPED_BYTES,
	STRAIT_N_MAPS_REVOKED,
	STRAIT_N_IRQS,
	STRAIT_COUNTS,
};

struct strait_attach;
struct strait_bridged;

struct strait_file {
	struct xarray regions;
	u32 next;
	struct address_space mapping;	/* so that one file's mappings can be taken away */
	struct strait_attach *attach;	/* the device whose node it is of, NULL: /dev/strait */
};

struct strait_backing {
	struct kref kref;
	struct work_struct work;	/* gives it back */
	u64 length;			/* a multiple of the page size */
	struct kvec *vec;
	u64 *start;			/* where in the memory each of @vec starts */
	unsigned int n;
	struct pci_dev *pdev;		/* whose memory it is, NULL: the host's */
	spinlock_t peers_lock;		/* .peers, .next_peer */
	struct {
		struct pci_dev *drive;	/* one that reaches it, with a reference, */
		int distance;		/* and how far it is */
	} peers[STRAIT_PEERS];
	unsigned int next_peer;		/* to be replaced next */
	struct mm_struct *mm;		/* charged for @length, NULL: nobody is */
	bool charged;			/* to the module's limit */
	struct dma_buf *dmabuf;		/* then there are no pages, and no vectors */
	struct strait_bridged *bridged;	/* then the pages are not pinned by us */
	refcount_t users;		/* I/O in flight, and 1 until it is killed */
	bool killed;
	struct completion idle;		/* no user is left */
	spinlock_t maps_lock;		/* the next two */
	struct list_head maps;		/* strait_map.node: what devices reach it by */
	bool maps_closed;		/* no more of them */
	struct work_struct maps_kill_work;	/* takes them back */
};

struct strait_region {
	struct kref kref;
	u32 kind, handle;
	u64 length, can;
	char pci[16];			/* whose memory it is */
	unsigned long address;
	struct mmu_interval_notifier notifier;
	bool watched;			/* the notifier is there */
	spinlock_t lock;
	struct strait_backing *backing;	/* NULL: revoked, or not there yet */
	u64 changes;			/* of the mapping, which may have put other pages there */
	u64 compared;			/* up to this one the pages are known to be the same */
	bool gone;			/* revoked */
};

/* What a request works on. */
struct strait_io_request {
	struct strait_backing *backing;
	struct file *file;
};

/* What is known of a file and a region together. */
struct strait_eligibility {
	u32 reason;
	u32 offset_align, mem_align;
	int distance;
	struct pci_dev *drive;		/* good as long as the file is */
};

/* main.c. The files of /dev/strait, and of the device nodes. */
int strait_file_open(struct inode *inode, struct file *file);
int strait_file_release(struct inode *inode, struct file *file);
long strait_file_ioctl(struct file *file, unsigned int cmd, unsigned long user);
int strait_file_mmap(struct file *file, struct vm_area_struct *vma);
extern struct workqueue_struct *strait_wq;	/* gives memory back; may wait for a bridge's driver */
extern struct workqueue_struct *strait_retry_wq;	/* submits I/O again, for which that driver may be waiting */
extern atomic64_t strait_counts[STRAIT_COUNTS];

static inline void strait_count(enum strait_count what, s64 n)
{
	atomic64_add(n, &strait_counts[what]);
}

/*
 * region.c. strait_region_new() gives a region with one hold that is in no table.
 * strait_region_reserve() gives it a handle by which it is not found until strait_region_settle(),
 * which gives the caller's hold to the table or the handle back. strait_region_find() takes a hold;
 * strait_region_use() one on the memory, after making sure that it is still what is mapped where it
 * was imported from.
 */
struct strait_region *strait_region_new(u32 kind, u64 length);
int strait_region_reserve(struct strait_file *f, struct strait_region *r);
void strait_region_commit(struct strait_file *f, struct strait_region *r);
void strait_region_unreserve(struct strait_file *f, struct strait_region *r);
struct strait_region *strait_region_find(struct strait_file *f, u32 handle);
struct strait_region *strait_region_remove(struct strait_file *f, u32 handle);
int strait_region_use(struct strait_region *r, struct strait_backing **ret);
void strait_region_revoke(struct strait_region *r);
/* The same where one may sleep: when it returns no device reaches the memory any more. */
void strait_region_revoke_sync(struct strait_region *r);
void strait_region_put(struct strait_region *r);

/*
 * backing.c. An import allocates a backing, charges it, pins the memory and fills the backing with it, in that order:
 * memory past a limit is not even pinned. strait_backing_charge() charges host memory as mlock() does, device memory
 * to what the module allows. strait_backing_fill() takes over the pins of the pages when it succeeds.
 * strait_backing_free() is for a backing that no region has been given, and sleeps.
 */
struct strait_backing *strait_backing_alloc(u64 length);
int strait_backing_charge(struct strait_backing *b, bool host);
int strait_backing_fill(struct strait_backing *b, struct page **pages, unsigned long n);
void strait_backing_free(struct strait_backing *b);
u64 strait_device_max(void);
void strait_backing_release(struct kref *kref);
void strait_backing_iter(struct strait_backing *b, u64 offset, u64 length, int direction,
			 struct iov_iter *iter);

/*
 * A use is what I/O has, along with a hold: strait_backing_kill() lets no new one begin, and returns
 * when there is none. False: it has been killed.
 */
bool strait_backing_use(struct strait_backing *b);
void strait_backing_unuse(struct strait_backing *b);
void strait_backing_kill(struct strait_backing *b);

static inline void strait_backing_put(struct strait_backing *b)
{
	kref_put(&b->kref, strait_backing_release);
}

/* Where @offset is, and how many bytes from there are in one piece. */
u64 strait_backing_run(const struct strait_backing *b, u64 offset, phys_addr_t *phys);

/* The kernel's address of the page that @offset lies in. */
void *strait_backing_at(const struct strait_backing *b, u64 offset);

/* import.c. strait_device_by_address(): the device with a BAR that holds that, with a reference. */
bool strait_bar_contains(struct pci_dev *pdev, phys_addr_t start, u64 length);
struct pci_dev *strait_device_by_address(phys_addr_t start, u64 length);
int strait_import(const struct strait_ioc_import *req, struct strait_region **ret);
/* Are the pages that are mapped now those of @b? -ENODEV if not. */
int strait_import_compare(struct strait_region *r, struct strait_backing *b);
/* The backing becomes the region's, unless the memory went away before: -ENODEV. */
int strait_region_set_backing(struct strait_region *r, struct strait_backing *b);

/* dmabuf.c */
int strait_dmabuf_import(struct strait_region *r, int fd, u64 offset);

/* bridge.c */
bool strait_bridge_is_registered(void);
int strait_bridge_import(struct strait_region *r, struct strait_backing *b);
void strait_bridge_put(struct strait_bridged *bridged);
/* Of memory that is no pages to the kernel: where @offset is, and how many bytes from there are in one piece. */
u64 strait_bridge_run(const struct strait_backing *b, u64 offset, phys_addr_t *phys);

/*
 * attach*.c: see attach.h. strait_maps_kill() returns when no device reaches the memory any more, and sleeps;
 * strait_maps_kill_deferred() lets none begin to, and leaves those that do to a work item.
 */
int strait_attach_init(void);
void strait_attach_exit(void);
void strait_detach(struct strait_file *f);
long strait_attach_ioctl(struct strait_file *f, unsigned int cmd, void __user *user);
int strait_attach_mmap(struct strait_file *f, struct vm_area_struct *vma);
void strait_maps_kill(struct strait_backing *b);
void strait_maps_kill_deferred(struct strait_backing *b);
void strait_maps_kill_work(struct work_struct *work);

/* eligible.c */
void strait_check_eligibility(struct strait_backing *b, struct file *file, u32 op, struct strait_eligibility *e);
u64 strait_features(void);

/*
 * io.c. After strait_io_begin() there is a scene. strait_io_end() gives up its memory and may be called in an
 * interrupt; it must not wait for the submitter's task, as that may be the one that frees the memory of a bridge and
 * waits for this. strait_io_request_close() drops what is left of the scene.
 */
int strait_io_begin(struct strait_file *f, struct strait_ioc_io *args, struct strait_io_request *req);
ssize_t strait_io_submit(const struct strait_ioc_io *args, struct strait_io_request *req, struct kiocb *kiocb,
			 struct iov_iter *iter);
void strait_io_end(const struct strait_ioc_io *args, struct strait_io_request *req, ssize_t result);
void strait_io_request_close(struct strait_io_request *req);
long strait_io_check(struct strait_file *f, struct strait_ioc_check *args);
long strait_io(struct strait_file *f, struct strait_ioc_io *args);

/* uring.c */
int strait_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);

/* debug.c */
void strait_debug_init(void);
void strait_debug_fini(void);

#endif
