/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_IMPORT_H
#define STRAIT_IMPORT_H

/* Memory as regions: by an address of a process, by a dma-buf, by a bridge. */

#include <linux/pci.h>

struct dma_buf;
struct strait_backing;
struct strait_bridge;
struct strait_bridged;
struct strait_ioc_export;
struct strait_ioc_import;
struct strait_region;

/* import.c */
int strait_import(const struct strait_ioc_import *req, struct strait_region **ret);
/* 0 if the pages that are mapped now are those of @b, else -ENODEV. Takes the mmap_lock. */
int strait_import_verify(struct strait_region *r, struct strait_backing *b);
/* Does one BAR of @pdev contain the range? */
bool strait_bar_contains(struct pci_dev *pdev, phys_addr_t start, u64 length);
/* The device that has such a BAR, with a reference, or NULL. */
struct pci_dev *strait_device_by_address(phys_addr_t start, u64 length);

/* dmabuf.c */
int strait_dmabuf_import(struct strait_region *r, int fd, u64 offset);
struct dma_buf *strait_dmabuf_export(struct strait_region *r, const struct strait_ioc_export *req);

/* bridge.c */
bool strait_bridge_is_registered(u32 kind);
int strait_bridge_import(struct strait_region *r, struct strait_backing *b);
void strait_bridge_put(struct strait_bridged *bridged);
/* strait_backing_run() for memory without pages. */
u64 strait_bridge_run(const struct strait_backing *b, u64 offset, phys_addr_t *phys);
/* Was the dma-buf exported by a bridge? */
bool strait_bridge_exported(const struct dma_buf *dmabuf);
/* The bridge that maps the memory for each device, and its private data. NULL: none does. */
const struct strait_bridge *strait_bridge_per_device(const struct strait_backing *b, void **priv);

#endif
