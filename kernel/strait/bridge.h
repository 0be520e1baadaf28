/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_BRIDGE_H
#define STRAIT_BRIDGE_H

/*
 * A bridge is a module that gives access to memory through an interface of other drivers.
 * strait.ko does not depend on those drivers and loads without the bridge. There is at most one
 * for each kind of import. It has one of two forms:
 *
 *	physical	get and put: memory is pinned, and has physical addresses
 *	per device	open, close, map, unmap and export: memory is not pinned, and has DMA
 *			addresses for the devices that it is mapped for
 */

#include <linux/module.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/types.h>

struct dma_buf;

/**
 * struct strait_bridge_memory - Memory that a bridge has pinned
 * @phys: physical addresses of the pages, in the order of their virtual addresses
 * @n: number of pages
 * @page_bytes: size of each page
 * @priv: private data of the bridge
 */
struct strait_bridge_memory {
	phys_addr_t *phys;
	unsigned int n;
	u32 page_bytes;
	void *priv;
};

/**
 * struct strait_bridge_table - Memory that a bridge has mapped for a device
 * @table: DMA addresses of exactly the requested range; unchanged until it is unmapped
 * @priv: private data of the bridge
 */
struct strait_bridge_table {
	struct sg_table *table;
	void *priv;
};

/**
 * struct strait_bridge_notify - Revocation of memory that is mapped for a device
 * @revoke_begin: stops the device; when it returns the device accesses the memory no more. Called
 *	with locks of the memory's driver held, and with a spinlock of the bridge: it does not
 *	sleep. At most once, and not after unmap has returned
 * @revoke_wait: waits until the device accesses the memory no more. Called after @revoke_begin,
 *	without the spinlock: sleeps. NULL: @revoke_begin has done it. Called by any thread that
 *	revokes
 * @revoke_end: the memory's driver has unmapped the memory and the IOTLB is flushed, so the device
 *	may be started again. Called once if @revoke_begin was, perhaps after unmap. Sleeps
 */
struct strait_bridge_notify {
	void (*revoke_begin)(void *arg);
	void (*revoke_wait)(void *arg);
	void (*revoke_end)(void *arg);
};

/**
 * struct strait_bridge - A bridge
 * @owner: the module; has a reference while its memory is imported or mapped
 * @kind: STRAIT_IMPORT_* that it implements
 * @align: alignment of addresses and lengths
 * @get: pins memory of the calling process. When the driver revokes the memory the bridge calls
 *	@revoked(@arg), at most once and not after @put has returned. That call sleeps; when it
 *	returns nothing uses the memory any more.
 * @put: unpins the memory, whether it was revoked or not; not called from @revoked
 * @open: finds memory of the calling process. -EFAULT: no driver has it. NULL: physical form
 * @close: not called while it is mapped
 * @map: maps a part of it for @pdev, for reading and writing. -EACCES: the calling process is not
 *	the one that opened it. -ENODEV: the driver is gone, or revoked the memory meanwhile.
 *	@notify may be called before @map has returned
 * @unmap: unmaps it, whether it was revoked or not. When it returns @pdev does not reach the
 *	memory, or was stopped, and the bridge makes no calls for @pdev any more; the memory's
 *	driver may, until @notify.revoke_end. Not called from @notify
 * @export: exports a part of it as a dma-buf
 */
struct strait_bridge {
	struct module *owner;
	u32 kind;
	u32 align;
	int (*get)(u64 address, u64 length, void (*revoked)(void *arg), void *arg,
		   struct strait_bridge_memory *m);
	void (*put)(struct strait_bridge_memory *m);
	int (*open)(u64 address, u64 length, void **priv);
	void (*close)(void *priv);
	int (*map)(void *priv, struct pci_dev *pdev, u64 offset, u64 length,
		   const struct strait_bridge_notify *notify, void *arg,
		   struct strait_bridge_table *table);
	void (*unmap)(struct strait_bridge_table *table);
	struct dma_buf *(*export)(void *priv, u64 offset, u64 length, u32 fd_flags);
};

/**
 * strait_bridge_register() - Register a bridge
 * @bridge: valid until it is unregistered
 *
 * Return: 0; -EBUSY if one is registered already for its kind.
 */
int strait_bridge_register(const struct strait_bridge *bridge);

/**
 * strait_bridge_unregister() - Unregister a bridge
 * @bridge: registered, with no imported memory; called from its owner's exit function
 */
void strait_bridge_unregister(const struct strait_bridge *bridge);

#endif
