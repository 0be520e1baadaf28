/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_BRIDGE_H
#define STRAIT_BRIDGE_H

/*
 * A bridge is a module that pins memory through the interface of one GPU driver. strait.ko does not
 * depend on that driver and loads without it.
 */

#include <linux/module.h>
#include <linux/types.h>

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
 * struct strait_bridge - A bridge
 * @owner: the module; has a reference while its memory is imported
 * @kind: STRAIT_IMPORT_* that it implements
 * @align: alignment of addresses and lengths
 * @get: pins memory of the calling process. When the driver revokes the memory the bridge calls
 *	@revoked(@arg), at most once and not after @put has returned. That call sleeps; when it
 *	returns nothing uses the memory any more.
 * @put: unpins the memory, whether it was revoked or not; not called from @revoked
 */
struct strait_bridge {
	struct module *owner;
	u32 kind;
	u32 align;
	int (*get)(u64 address, u64 length, void (*revoked)(void *arg), void *arg,
		   struct strait_bridge_memory *m);
	void (*put)(struct strait_bridge_memory *m);
};

/**
 * strait_bridge_register() - Register a bridge
 * @bridge: valid until it is unregistered
 *
 * Return: 0; -EBUSY if one is registered already.
 */
int strait_bridge_register(const struct strait_bridge *bridge);

/**
 * strait_bridge_unregister() - Unregister a bridge
 * @bridge: registered, with no imported memory; called from its owner's exit function
 */
void strait_bridge_unregister(const struct strait_bridge *bridge);

#endif
