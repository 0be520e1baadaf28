/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_ATTACH_H
#define STRAIT_ATTACH_H

/*
 * A PCI device in user space.
 *
 * Objects:
 *	strait_attach	a device that is bound to our driver. Held by the driver while it is bound, by the file
 *			it is attached to, and by its mappings.
 *	strait_map	memory the device can reach: live, then dead, once. Held by the device's table, and for
 *			a while by who kills it. While it lives it has a hold and a use of a backing, on whose
 *			list it is; the memory behind is not given back before it is dead.
 *
 * A map dies by its file's wish, with the device, or because the memory goes away. The last comes in three
 * ways: strait_region_revoke() may be called where one cannot sleep and leaves it to a work item, as pages
 * stay pinned meanwhile; strait_backing_kill() does it at once, as does the notice of a dma-buf.
 *
 * Locks, outer to inner:
 *	the device's own lock	attaching, detaching, reset; the core holds it in remove()
 *	strait_attach.state	read: calls; write: attaching, detaching, remove()
 *	the mmap_lock of a process
 *	dma_resv of a dma-buf, and what a bridge's driver holds when it calls back
 *	strait_attach.irq_lock	the interrupts
 *	strait_map.lock		dying
 *	strait_attach.bars	read: entering pages of BARs; write: saying that they are not to be. Not held in a
 *				reset, for which the core takes locks that are outer to the mmap_lock
 *	strait_attach.master_lock, strait_backing.maps_lock
 */

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/eventfd.h>
#include <linux/rwsem.h>
#include <linux/wait.h>

#include "core.h"

struct strait_irq {
	struct eventfd_ctx *eventfd;	/* NULL: nobody wants it */
};

struct strait_attach {
	struct kref kref;
	struct pci_dev *pdev;
	struct list_head node;		/* of all that are bound */
	struct rw_semaphore state;
	bool gone;			/* removed: under @state, as is the next one */
	struct strait_file *file;	/* whose it is, NULL: nobody's */
	struct rw_semaphore bars;
	bool bars_off;			/* pages of BARs are not to be entered any more */
	bool bars_reset;		/* nor now, as the device is being reset */
	wait_queue_head_t reset_over;
	u64 irq_offset, irq_length;	/* the pages with the interrupt table, in */
	int irq_bar;			/* -1: there are none */
	spinlock_t master_lock;		/* the next three */
	bool open;			/* it is ours to quiesce */
	bool master;			/* it may start transfers */
	struct strait_status *status;	/* a page */
	struct mutex irq_lock;
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
	struct mutex lock;		/* the next one */
	bool live;
	struct strait_backing *backing;
	struct list_head node;		/* backing->maps */
	struct sg_table *table;
	struct sg_table own;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attachment;
	bool charged;
	struct strait_run *runs;
	unsigned int n;
};

/* attach.c */
u32 strait_attach_judge(struct pci_dev *pdev, int *group);
void strait_attach_release(struct kref *kref);
/* A mapping was taken back: the device may start no more transfers, and who asks is told. */
void strait_attach_quiesce(struct strait_attach *at);

static inline void strait_attach_put(struct strait_attach *at)
{
	kref_put(&at->kref, strait_attach_release);
}

/* attach_bar.c */
u64 strait_bar_length(struct pci_dev *pdev, int bar);
void strait_bars_find_irqs(struct strait_attach *at);
/* From now on registers read as ones. */
void strait_bars_off(struct strait_attach *at, struct strait_file *f);
/* Nobody touches registers between the two. @f: whose the device is, if it is anybody's. */
void strait_bars_reset(struct strait_attach *at, struct strait_file *f);
void strait_bars_reset_over(struct strait_attach *at);

/* attach_irq.c. strait_irqs_begin() never fails: a device may have none that work. */
void strait_irqs_begin(struct strait_attach *at);
void strait_irqs_end(struct strait_attach *at);
int strait_irq_set(struct strait_attach *at, u32 vector, int fd);

/*
 * attach_map.c. With strait_attach.state held for reading. strait_maps_kill_all() leaves dead maps in the
 * table for who still has their handles.
 */
int strait_map(struct strait_attach *at, struct strait_file *f, struct strait_ioc_map *req, void __user *user);
struct strait_map *strait_map_find(struct strait_attach *at, u32 handle);
int strait_map_runs(struct strait_attach *at, struct strait_ioc_runs *req);
int strait_map_mapped(struct strait_attach *at, u32 handle);
int strait_map_remove(struct strait_attach *at, u32 handle);
void strait_maps_kill_all(struct strait_attach *at);
void strait_maps_free_all(struct strait_attach *at);

#endif
