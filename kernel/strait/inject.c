// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Wrappers of kernel calls that can fail for lack of memory. The kernel's error injection
 * (fail_function, BPF), or a kprobe of strait_inject_test, makes them fail; they contain no test
 * code.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/error-injection.h>
#include <linux/gfp.h>
#include <linux/interrupt.h>
#include <linux/scatterlist.h>

#include "core.h"
#include "inject.h"

noinline void *strait_zalloc(size_t size)
{
	return kzalloc(size, GFP_KERNEL_ACCOUNT);
}
ALLOW_ERROR_INJECTION(strait_zalloc, NULL);

noinline void *strait_zalloc_array(size_t n, size_t size)
{
	return kvcalloc(n, size, GFP_KERNEL_ACCOUNT);
}
ALLOW_ERROR_INJECTION(strait_zalloc_array, NULL);

noinline struct page *strait_alloc_page(gfp_t gfp)
{
	return alloc_page(GFP_KERNEL_ACCOUNT | gfp);
}
ALLOW_ERROR_INJECTION(strait_alloc_page, NULL);

noinline int strait_xa_reserve(struct xarray *xa, u32 *handle, u32 max, u32 *next)
{
	int rc = xa_alloc_cyclic(xa, handle, NULL, XA_LIMIT(1, max), next, GFP_KERNEL_ACCOUNT);

	if (rc < 0)
		return rc == -EBUSY ? -ENOSPC : rc;
	return 0;
}
ALLOW_ERROR_INJECTION(strait_xa_reserve, ERRNO);

noinline int strait_notifier_insert(struct mmu_interval_notifier *notifier, unsigned long start,
				    unsigned long length,
				    const struct mmu_interval_notifier_ops *ops)
{
	return mmu_interval_notifier_insert(notifier, current->mm, start, length, ops);
}
ALLOW_ERROR_INJECTION(strait_notifier_insert, ERRNO);

noinline int strait_alloc_irq_vectors(struct pci_dev *pdev, unsigned int max)
{
	return pci_alloc_irq_vectors(pdev, 1, max, PCI_IRQ_MSIX | PCI_IRQ_MSI);
}
ALLOW_ERROR_INJECTION(strait_alloc_irq_vectors, ERRNO);

noinline int strait_request_irq(unsigned int irq, irq_handler_t handler, const char *name,
				void *data)
{
	return request_irq(irq, handler, 0, name, data);
}
ALLOW_ERROR_INJECTION(strait_request_irq, ERRNO);

noinline int strait_sg_alloc_table(struct sg_table *table, unsigned int entries)
{
	return sg_alloc_table(table, entries, GFP_KERNEL_ACCOUNT);
}
ALLOW_ERROR_INJECTION(strait_sg_alloc_table, ERRNO);

noinline int strait_dma_map_sgtable(struct device *dev, struct sg_table *table,
				    enum dma_data_direction dir)
{
	int rc = dma_map_sgtable(dev, table, dir, COMPAT_DMA_COHERENT);

	return rc == -EIO ? -ENOMEM : rc;
}
ALLOW_ERROR_INJECTION(strait_dma_map_sgtable, ERRNO);

noinline int strait_dma_map_mmio(struct device *dev, phys_addr_t phys, size_t length,
				 enum dma_data_direction dir, dma_addr_t *ret)
{
	*ret = compat_dma_map_mmio(dev, phys, length, dir, DMA_ATTR_SKIP_CPU_SYNC);
	return dma_mapping_error(dev, *ret) ? -ENOMEM : 0;
}
ALLOW_ERROR_INJECTION(strait_dma_map_mmio, ERRNO);

noinline struct dma_buf_attachment *strait_dma_buf_attach(struct dma_buf *dmabuf,
							  struct device *dev,
							  const struct dma_buf_attach_ops *ops,
							  void *priv)
{
	return dma_buf_dynamic_attach(dmabuf, dev, ops, priv);
}
ALLOW_ERROR_INJECTION(strait_dma_buf_attach, ERRNO);

noinline struct sg_table *strait_dma_buf_map(struct dma_buf_attachment *attachment,
					     enum dma_data_direction dir)
{
	dma_resv_assert_held(attachment->dmabuf->resv);
	return dma_buf_map_attachment(attachment, dir);
}
ALLOW_ERROR_INJECTION(strait_dma_buf_map, ERRNO);
