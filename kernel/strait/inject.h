/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_INJECT_H
#define STRAIT_INJECT_H

/*
 * inject.c: wrappers of kernel calls that can fail for lack of memory, for error injection. A new
 * wrapper is marked with ALLOW_ERROR_INJECTION() and listed in kernel/test/inject.c.
 */

#include <linux/dma-mapping.h>
#include <linux/interrupt.h>
#include <linux/mmu_notifier.h>
#include <linux/pci.h>
#include <linux/xarray.h>

struct dma_buf;
struct dma_buf_attachment;
struct dma_buf_attach_ops;

/* Zeroed memory, charged to the caller's control group. */
void *strait_zalloc(size_t size);
void *strait_zalloc_array(size_t n, size_t size);

/* @gfp: flags in addition to GFP_KERNEL_ACCOUNT. */
struct page *strait_alloc_page(gfp_t gfp);

/* Reserves an index from 1 to @max; -ENOSPC: all are taken. */
int strait_xa_reserve(struct xarray *xa, u32 *handle, u32 max, u32 *next);

/* Watches memory of the calling process. */
int strait_notifier_insert(struct mmu_interval_notifier *notifier, unsigned long start,
			   unsigned long length, const struct mmu_interval_notifier_ops *ops);

/* MSI-X or MSI vectors, from 1 to @max. Returns how many. */
int strait_alloc_irq_vectors(struct pci_dev *pdev, unsigned int max);
int strait_request_irq(unsigned int irq, irq_handler_t handler, const char *name, void *data);

int strait_sg_alloc_table(struct sg_table *table, unsigned int entries);
/* Host memory, mapped coherently. */
int strait_dma_map_sgtable(struct device *dev, struct sg_table *table, enum dma_data_direction dir);
/* Memory of another device. */
int strait_dma_map_mmio(struct device *dev, phys_addr_t phys, size_t length,
			enum dma_data_direction dir, dma_addr_t *ret);

struct dma_buf_attachment *strait_dma_buf_attach(struct dma_buf *dmabuf, struct device *dev,
						 const struct dma_buf_attach_ops *ops, void *priv);
/* Caller holds the reservation lock of the dma-buf. */
struct sg_table *strait_dma_buf_map(struct dma_buf_attachment *attachment,
				    enum dma_data_direction dir);

#endif
