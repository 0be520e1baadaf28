/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_MAP_H
#define STRAIT_MAP_H

/*
 * Mappings: memory that an attached device can access. A mapping is live until it is killed, once.
 *
 * Referenced by the device's table and, during a call, by its users. While it is live it has a
 * reference and a use of a backing, on whose list it is: the memory is not given back before.
 *
 * A mapping is killed by STRAIT_IOC_UNMAP, with its device, or when the memory is revoked. The
 * last has four callers: strait_region_revoke() may not sleep and leaves it to a work item, as
 * pages stay pinned until then; strait_backing_kill() and the move notification of a dma-buf kill
 * at once; revoke_begin() of a bridge may not sleep, switches bus mastering off until revoke_end(),
 * and leaves unmapping to the memory's driver.
 */

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>

#include "bridge.h"

struct strait_attach;
struct strait_backing;
struct strait_file;
struct strait_ioc_map;
struct strait_run;

enum strait_map_kind {
	STRAIT_MAP_HOST,		/* one scatterlist: @own */
	STRAIT_MAP_DEVICE,		/* each of @runs is mapped by itself */
	STRAIT_MAP_DMABUF,		/* @table is the exporter's */
	STRAIT_MAP_BRIDGE,		/* mapped by @bridge */
};

struct strait_map {
	struct kref kref;
	struct strait_attach *at;
	u32 handle;
	enum strait_map_kind kind;
	enum dma_data_direction dir;
	u64 length;
	struct mutex kill;		/* one killer at a time */
	spinlock_t lock;		/* @live, @revoked */
	bool live;			/* of a dma-buf: cleared under its reservation lock */
	bool revoked;			/* under @lock: by a bridge, perhaps before it was live */
	struct strait_backing *backing;	/* while live */
	struct list_head node;		/* backing->maps */
	struct sg_table *table;
	struct sg_table own;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attachment;	/* under @kill once live */
	bool pinned;			/* under the reservation lock: dma_buf_pin() succeeded */
	const struct strait_bridge *bridge;	/* until unmapped, with a reference on its module */
	struct strait_bridge_table bridged;
	struct list_head revoking;	/* strait_attach.revoking, under its .master_lock */
	struct task_struct *revoker;	/* the task that has begun it; only compared */
	bool charged;			/* to device_mib_max */
	struct strait_run *runs;
	unsigned int n;
	u32 access, where;		/* STRAIT_MAP_*, STRAIT_WHERE_* */
};

/* attach_map.c: the table of a device's mappings. Callers hold strait_attach.state. */

/* Maps memory and inserts the mapping into the table. The caller gets a reference as well. */
int strait_map_new(struct strait_attach *at, struct strait_file *f, struct strait_ioc_map *req,
		   struct strait_map **ret);
/* Takes a reference. */
struct strait_map *strait_map_find(struct strait_attach *at, u32 handle);
void strait_map_put(struct strait_map *m);
/* 0 while the mapping is live, -ENODEV once it was revoked. */
int strait_map_mapped(struct strait_attach *at, u32 handle);
/* Kills and removes the mapping. @only: not if another mapping has the handle by now. */
int strait_map_remove(struct strait_attach *at, u32 handle, struct strait_map *only);
/*
 * Kills all mappings of the device and leaves them in the table: the program has their handles.
 * When it returns none is mapped for the device: see strait_attach_wait_revoked().
 */
void strait_maps_kill_all(struct strait_attach *at);
/* Empties the table of killed mappings. */
void strait_maps_free_all(struct strait_attach *at);

/* attach_map.c: publishing and killing, for the kinds of mappings. */

/* From here on revoking the memory kills the mapping. -ENODEV: it was revoked before. */
int strait_map_publish(struct strait_map *m);
/* True for one caller, which has to unmap and flush. */
bool strait_map_claim(struct strait_map *m);
/* Drops the backing of a claimed mapping, after it was unmapped and flushed. */
void strait_map_put_backing(struct strait_map *m, bool revoked);

/* attach_map.c: mappings of one backing. */

/* Kills all of them. Sleeps. When it returns no device reaches the memory. */
void strait_maps_kill(struct strait_backing *b);
/* Lets none be added and kills all of them from a work item. Does not sleep. */
void strait_maps_kill_deferred(struct strait_backing *b);
void strait_maps_kill_work(struct work_struct *work);

/* attach_dma.c: host and device memory, through the DMA API. */
int strait_dma_map_host(struct strait_map *m, u64 offset);
int strait_dma_map_device(struct strait_map *m, u64 offset, u32 *reason);
void strait_dma_unmap(struct strait_map *m);
/* Flushes the IOTLB: in lazy mode it keeps unmapped addresses for a while. */
void strait_dma_flush(struct strait_attach *at);
/* Copies the DMA addresses of a mapped table, from @offset on, to m->runs. */
int strait_dma_save_runs(struct strait_map *m, struct sg_table *table, u64 offset);

/* Charges the mapping to device_mib_max. */
int strait_map_charge(struct strait_map *m);

/*
 * STRAIT_WHERE_*, by the IOMMU's translation of m->runs: an exporter may migrate memory to the host
 * for a device that does not reach its own.
 */
u32 strait_dma_where(const struct strait_map *m);

/* attach_bridge.c: memory that a bridge maps for each device. */
int strait_bridge_map(struct strait_map *m, u64 offset, u32 *reason);
/* Caller holds strait_map.kill, or has the last reference. */
void strait_bridge_unmap(struct strait_map *m);

/* attach_dmabuf.c: dma-bufs. */
int strait_dmabuf_map(struct strait_map *m, u64 offset, u32 *reason);
/* Kills the mapping if it is live, and detaches. Caller holds strait_map.kill. */
void strait_dmabuf_kill(struct strait_map *m, bool revoked);

#endif
