/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_ATTACH_H
#define STRAIT_ATTACH_H

/*
 * PCI devices driven from user space. A device bound to this driver is a strait_attach and has a
 * device node. Referenced by the driver while it is bound, by every open file of the node, and by
 * its mappings.
 *
 * Locks, outer to inner:
 *	the device's lock	attaching, detaching, reset; the PCI core holds it in remove() and
 *				error recovery
 *	strait_attach.state	read: calls; write: attaching, detaching, losing the device. Not
 *				held while user memory is accessed: a page fault that does not
 *				finish would block unbinding
 *	mmap_lock of a process
 *	locks of the driver behind a bridge, held when it revokes memory
 *	strait_map.kill
 *	dma_resv of a dma-buf	also held by its exporter when it revokes
 *	strait_attach.irq_lock
 *	strait_attach.bars	read: inserting BAR PTEs on a fault; write: forbidding it. Not held
 *				across a reset: the PCI core's locks nest outside mmap_lock
 *	strait_map.lock
 *	strait_attach.master_lock, strait_backing.maps_lock
 *
 * strait_map.kill of a mapping by a bridge of the per-device form is outside the locks of the
 * bridge's driver: unmapping calls the driver, and its revocation does not take it.
 */

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/eventfd.h>
#include <linux/iommu.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

struct strait_file;
struct strait_ioc_attach;
struct strait_map;
struct strait_status;

struct strait_irq {
	spinlock_t lock;		/* @eventfd, which the handler signals */
	struct eventfd_ctx *eventfd;	/* NULL: the interrupt is not requested */
};

struct strait_attach {
	struct device dev;		/* the node; its release frees the strait_attach */
	struct cdev cdev;
	struct pci_dev *pdev;
	struct rw_semaphore state;
	bool gone;			/* under @state: unbound */
	bool lost;			/* under @state: @file lost the device and can only close */
	struct strait_file *file;	/* under @state: the file it is attached to, or NULL */
	bool own_reset;			/* under the device's lock: strait_attach_reset() runs */
	struct work_struct lose_work;	/* after a reset that strait_attach_reset() did not do */
	struct rw_semaphore bars;
	bool bars_disabled;		/* under @bars: faults get a dummy page */
	bool bars_in_reset;		/* under @bars: faults wait */
	wait_queue_head_t reset_done;
	int irq_bar;			/* BAR of the MSI-X table, -1: none */
	u64 irq_offset, irq_length;	/* pages of the MSI-X table in that BAR */
	spinlock_t master_lock;		/* @open, @master, @status, @revoking */
	bool open;			/* the device is enabled and attached */
	bool master;			/* bus mastering is on */
	struct strait_status *status;	/* a page of its own */
	struct list_head revoking;	/* strait_map.revoking: its driver has not unmapped yet */
	wait_queue_head_t revoked;	/* one of @revoking has ended, or @lost */
	struct mutex irq_lock;		/* @irqs, @vectors */
	struct strait_irq *irqs;
	unsigned int vectors;
	unsigned int old_seg_size;
	struct xarray maps;		/* struct strait_map */
	u32 next;			/* handle to try next */
};

static inline void strait_attach_get(struct strait_attach *at)
{
	get_device(&at->dev);
}

static inline void strait_attach_put(struct strait_attach *at)
{
	put_device(&at->dev);
}

/* attach.c */
int strait_attach_init(void);
void strait_attach_exit(void);
/* Attaches the device to @f and fills @req. Takes the device's lock. */
int strait_attach_take(struct strait_attach *at, struct strait_file *f,
		       struct strait_ioc_attach *req);
/* Detaches the device from @f, if it is attached to @f. Takes the device's lock. */
void strait_attach_leave(struct strait_attach *at, struct strait_file *f);
/* The same, and drops the file's reference on its device. */
void strait_detach(struct strait_file *f);
/* Resets the function. Caller holds the device's lock and @state. */
int strait_attach_reset(struct strait_attach *at);

/* attach_master.c */
/* After a mapping was revoked: bus mastering off, and the status page counts it. */
void strait_attach_quiesce(struct strait_attach *at);
/* In between bus mastering cannot be switched on. Neither sleeps. */
void strait_attach_revoke_begin(struct strait_map *m);
void strait_attach_revoke_end(struct strait_map *m);
/*
 * Waits for revocations that other tasks have begun, ten seconds at most: when it returns their
 * drivers have unmapped the memory, so the device may be removed. One that the calling task has
 * begun ends after this task has returned to user space; another task may wait for the calling one.
 */
void strait_attach_wait_revoked(struct strait_attach *at);
/* -EAGAIN: it cannot be switched on now. */
int strait_attach_set_master(struct strait_attach *at, bool on);
/*
 * Waits until it can be switched on, or the device is lost. -EINTR: the process was killed. Called
 * without @state: a task that revokes memory may remove the device before the revocation ends.
 */
int strait_attach_wait_master(struct strait_attach *at);

/* attach_ioctl.c */
long strait_attach_ioctl(struct strait_file *f, unsigned int cmd, void __user *user);

/* attach_check.c: STRAIT_ATTACH_* reasons. */
/* Why @pdev cannot be driven from user space. */
u32 strait_attach_check(struct pci_dev *pdev, int *group);
/* The part of it that an administrator can change while the device is bound. */
u32 strait_attach_recheck(struct pci_dev *pdev);
/* Why @pdev does not reach the memory of @owner. */
u32 strait_attach_check_peer(struct pci_dev *pdev, struct pci_dev *owner);
int strait_has_direct_regions(struct iommu_group *group);

/* attach_node.c: the device nodes. */
int strait_nodes_init(void);
void strait_nodes_exit(void);
/* After this call strait_attach_put() frees @at. */
int strait_node_init(struct strait_attach *at);
/* Adds nothing when it fails. */
int strait_node_add(struct strait_attach *at);
void strait_node_remove(struct strait_attach *at);

/* attach_bar.c */
int strait_attach_mmap(struct strait_file *f, struct vm_area_struct *vma);
/* Bytes that can be mapped of a BAR, 0: none. */
u64 strait_bar_length(struct pci_dev *pdev, int bar);
/* Finds the MSI-X table. */
void strait_bars_find_irqs(struct strait_attach *at);
/* From now on registers read as ones. */
void strait_bars_disable(struct strait_attach *at, struct strait_file *f);
/* No program accesses registers in between. @f: the file that has the device, or NULL. */
void strait_bars_reset_begin(struct strait_attach *at, struct strait_file *f);
void strait_bars_reset_end(struct strait_attach *at);

/* attach_irq.c. strait_irqs_init() leaves @vectors 0 if it cannot allocate any. */
void strait_irqs_init(struct strait_attach *at);
void strait_irqs_free(struct strait_attach *at);
int strait_irq_set(struct strait_attach *at, u32 vector, int fd);

#endif
