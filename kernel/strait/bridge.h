/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_BRIDGE_H
#define STRAIT_BRIDGE_H

/*
 * A bridge is a module that brings strait.ko memory which a driver names in a way of its own, so that
 * strait.ko loads without that driver.
 */

#include <linux/module.h>
#include <linux/types.h>

/**
 * struct strait_bridge_memory - What a bridge has pinned
 * @phys: where the pages are, in the order of their addresses
 * @n: how many
 * @page_bytes: of each
 * @priv: the bridge's own
 */
struct strait_bridge_memory {
	phys_addr_t *phys;
	unsigned int n;
	u32 page_bytes;
	void *priv;
};

/**
 * struct strait_bridge - A bridge
 * @owner: held while memory of it is imported
 * @kind: STRAIT_IMPORT_* that it serves
 * @align: what addresses and lengths must be multiples of
 * @get: pin memory of the calling process. @gone(@arg) is to be called, once at most and not after
 *	@put has returned, when the memory goes away by itself. It sleeps; when it returns nothing uses
 *	the memory any more.
 * @put: give it back, whether it has gone by itself or not; not called by @gone
 */
struct strait_bridge {
	struct module *owner;
	u32 kind;
	u32 align;
	int (*get)(u64 address, u64 length, void (*gone)(void *arg), void *arg,
		   struct strait_bridge_memory *m);
	void (*put)(struct strait_bridge_memory *m);
};

/**
 * strait_bridge_register() - From now on @bridge serves its kind
 * @bridge: good until it is unregistered
 *
 * Return: 0; -EBUSY when there is one already.
 */
int strait_bridge_register(const struct strait_bridge *bridge);

/**
 * strait_bridge_unregister() - No more
 * @bridge: one that is registered, of whose memory nothing is imported; in its owner's exit
 */
void strait_bridge_unregister(const struct strait_bridge *bridge);

#endif
