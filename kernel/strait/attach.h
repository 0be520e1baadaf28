/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_ATTACH_H
#define STRAIT_ATTACH_H

/*
 * A PCI device in user space.
 *
 * Objects:
 *	strait_attach	a device that is bound to our driver, with a device node of its own. Referenced by the driver
 *			while it is bound, by every open file of the node, and by its mappings.
 *	strait_map	memory the device can reach: live, then dead, once. Referenced by the device's table and, while
 *			they use it, by callers. While it lives it has a reference and a use of a backing, on whose
 *			list it is; the memory behind is not given back before it is dead.
 *
 * A map dies by its file's wish, with the device, or because the memory goes away. The last comes in three
 * ways: strait_region_revoke() may be called where one cannot sleep and leaves it to a work item, as pages
 * stay pinned meanwhile; strait_backing_kill() does it at once, as does the notice of a dma-buf.
 *
 * Locks, outer to inner:
 *	the device's own lock	attaching, detaching, reset; the core holds it in remove() and error recovery
 *	strait_attach.state	read: calls; write: attaching, detaching, losing the device. Never held while user
 *				memory is touched: a page that does not come would block unbinding
 *	the mmap_lock of a process
 *	what a bridge's driver holds when it calls back
 *	strait_map.kill		killing, by all that may take the next one
 *	dma_resv of a dma-buf	also held by its exporter when it revokes
 *	strait_attach.irq_lock	the interrupts
 *	strait_attach.bars	read: inserting BAR PTEs on a fault; write: forbidding it. Not held across a reset:
 *				the PCI core's locks nest outside mmap_lock
 *	strait_map.lock, strait_attach.master_lock, strait_backing.maps_lock
 */

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/eventfd.h>
#include <linux/iommu.h>
#include <linux/rwsem.h>
#include <linux/wait.h>

#include "core.h"

struct strait_irq {
	spinlock_t lock;		/* @eventfd, which the handler signals */
	struct eventfd_ctx *eventfd;	/* NULL: the interrupt is not requested */
};

struct strait_attach {
	struct device dev;		/* of the node; the last reference to it frees all of this */
	struct cdev cdev;
	struct pci_dev *pdev;
	struct rw_semaphore state;
	bool gone;			/* under @state: unbound */
	bool lost;			/* under @state: @file has it no more, and has only to be closed */
	struct strait_file *file;	/* under @state: the file it is attached to, or NULL */
	bool own_reset;			/* under the device's lock: a reset of our own is running */
	struct work_struct lose_work;	/* after a reset that was not ours */
	struct rw_semaphore bars;
	bool bars_disabled;			/* under @bars: BAR pages are not inserted any more */
	bool bars_in_reset;		/* under @bars: nor now, as the device is being reset */
	wait_queue_head_t reset_done;
	u64 irq_offset, irq_length;	/* the pages with the interrupt table, in */
	int irq_bar;			/* -1: there are none */
	spinlock_t master_lock;		/* @open, @master, @status */
	bool open;			/* it is ours to quiesce */
	bool master;			/* it may start transfers */
	struct strait_status *status;	/* a page */
	struct mutex irq_lock;		/* @irqs, @vectors */
	struct strait_irq *irqs;
	unsigned int vectors;
	unsigned int old_seg_size;
	struct xarray maps;
	u32 next;
};

enum strait_map_kind {
	STRAIT_MAP_HOST,		/* @table is ours */
	STRAIT_MAP_DEVICE,		/* each of @runs was mapped by itself */
	STRAIT_MAP_DMABUF,		/* @table is the exporter's */
};

struct strait_map {
	struct kref kref;
	struct strait_attach *at;
	u32 handle;
	enum strait_map_kind kind;
	enum dma_data_direction dir;
	u64 length;
	struct mutex kill;
	spinlock_t lock;		/* @live */
	bool live;			/* cleared with the reservation lock held where there is a dma-buf */
	struct strait_backing *backing;	/* while it lives */
	struct list_head node;		/* backing->maps */
	struct sg_table *table;
	struct sg_table own;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attachment;	/* under @kill once it is live */
	bool pinned;			/* under the reservation lock: by the exporter */
	bool charged;
	struct strait_run *runs;
	unsigned int n;
	u32 access, where;		/* STRAIT_MAP_*, STRAIT_WHERE_* */
};

/* attach.c */
/* A mapping was revoked: the device may start no more transfers, and the status page says so. */
void strait_attach_quiesce(struct strait_attach *at);
void strait_attach_set_master(struct strait_attach *at, bool on);
/* With the device's lock held, and @state for reading or writing. */
int strait_attach_reset(struct strait_attach *at);
/* Give the device to @f; fills @req. Sleeps for the device's lock. */
int strait_attach_take(struct strait_attach *at, struct strait_file *f, struct strait_ioc_attach *req);
/* Take it back from @f, if @f has it. */
void strait_attach_leave(struct strait_attach *at, struct strait_file *f);

static inline void strait_attach_get(struct strait_attach *at)
{
	get_device(&at->dev);
}

static inline void strait_attach_put(struct strait_attach *at)
{
	put_device(&at->dev);
}

/* attach_check.c. Why the device cannot be driven from user space: STRAIT_ATTACH_*. */
u32 strait_attach_check(struct pci_dev *pdev, int *group);
/* What of that can change while it is bound: an administrator may change the domain. */
u32 strait_attach_recheck(struct pci_dev *pdev);
int strait_has_direct_regions(struct iommu_group *group);
/* Why it does not reach the memory of @owner, likewise. */
u32 strait_attach_check_peer(struct pci_dev *pdev, struct pci_dev *owner);

/* attach_node.c: a device node for each bound device. strait_node_add() leaves nothing behind when it fails. */
int strait_nodes_init(void);
void strait_nodes_exit(void);
int strait_node_init(struct strait_attach *at);
int strait_node_add(struct strait_attach *at);
void strait_node_remove(struct strait_attach *at);

/* attach_bar.c */
u64 strait_bar_length(struct pci_dev *pdev, int bar);
void strait_bars_find_irqs(struct strait_attach *at);
/* From now on registers read as ones. */
void strait_bars_disable(struct strait_attach *at, struct strait_file *f);
/* No program touches registers between the two. @f: the file that has the device, or NULL. */
void strait_bars_reset_begin(struct strait_attach *at, struct strait_file *f);
void strait_bars_reset_end(struct strait_attach *at);

/* attach_irq.c. strait_irqs_init() never fails: a device may have none that work. */
void strait_irqs_init(struct strait_attach *at);
void strait_irqs_free(struct strait_attach *at);
int strait_irq_set(struct strait_attach *at, u32 vector, int fd);

/*
 * attach_map.c: the table of a device's mappings, and how they die. With strait_attach.state held.
 * strait_map_new() gives a mapping that is in the table, with a reference for the caller. strait_maps_kill_all()
 * leaves dead maps in the table for the program that still has their handles.
 */
int strait_map_new(struct strait_attach *at, struct strait_file *f, struct strait_ioc_map *req, struct strait_map **ret);
struct strait_map *strait_map_find(struct strait_attach *at, u32 handle);
void strait_map_put(struct strait_map *m);
int strait_map_mapped(struct strait_attach *at, u32 handle);
/* @only: unmap that one and no other that may have its handle by now; NULL: whichever has it. */
int strait_map_remove(struct strait_attach *at, u32 handle, struct strait_map *only);
void strait_maps_kill_all(struct strait_attach *at);
void strait_maps_free_all(struct strait_attach *at);
/* From here on revoking the memory kills the mapping. -ENODEV: it has been revoked. */
int strait_map_publish(struct strait_map *m);
/* True for one caller: this one kills the mapping. */
bool strait_map_claim(struct strait_map *m);
/* After the device has lost the memory: gives it back. */
void strait_map_put_backing(struct strait_map *m, bool revoked);

/* attach_dma.c: regions of host and device memory for a device, by the DMA API. */
int strait_dma_map_host(struct strait_map *m, u64 offset);
int strait_dma_map_device(struct strait_map *m, u64 offset, u32 *reason);
void strait_dma_unmap(struct strait_map *m);
/* What was unmapped may stay in the IOMMU's caches for a while, unless it is told. */
void strait_dma_flush(struct strait_attach *at);
/* Copies the addresses of a mapped table from @offset on to m->runs. */
int strait_dma_save_runs(struct strait_map *m, struct sg_table *table, u64 offset);

/* attach_dmabuf.c: the same for dma-bufs. */
int strait_dmabuf_map(struct strait_map *m, u64 offset, u32 *reason);
/* Kills a mapping that lives; detaches in any case. With strait_map.kill held. */
void strait_dmabuf_kill(struct strait_map *m, bool revoked);

#endif
