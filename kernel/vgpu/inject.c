// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Wrappers of kernel calls that can fail for lack of memory: see strait/inject.c. */
#include <linux/dma-buf.h>
#include <linux/error-injection.h>
#include <linux/file.h>
#include <linux/scatterlist.h>

#include "vgpu.h"

noinline void *vgpu_zalloc(size_t size)
{
	return kzalloc(size, GFP_KERNEL_ACCOUNT);
}
ALLOW_ERROR_INJECTION(vgpu_zalloc, NULL);

noinline void *vgpu_zalloc_array(size_t n, size_t size)
{
	return kvcalloc(n, size, GFP_KERNEL_ACCOUNT);
}
ALLOW_ERROR_INJECTION(vgpu_zalloc_array, NULL);

noinline struct page *vgpu_zalloc_page(void)
{
	return alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
}
ALLOW_ERROR_INJECTION(vgpu_zalloc_page, NULL);

noinline int vgpu_xa_reserve(struct xarray *xa, u32 *handle, u32 max, u32 *next)
{
	int rc = xa_alloc_cyclic(xa, handle, NULL, XA_LIMIT(1, max), next, GFP_KERNEL_ACCOUNT);

	if (rc < 0)
		return rc == -EBUSY ? -ENOSPC : rc;
	return 0;
}
ALLOW_ERROR_INJECTION(vgpu_xa_reserve, ERRNO);

noinline int vgpu_dma_map(struct device *peer, phys_addr_t phys, size_t length,
			  enum dma_data_direction dir, dma_addr_t *ret)
{
	*ret = dma_map_resource(peer, phys, length, dir, 0);
	return dma_mapping_error(peer, *ret) ? -ENOMEM : 0;
}
ALLOW_ERROR_INJECTION(vgpu_dma_map, ERRNO);

noinline int vgpu_sg_alloc_table(struct sg_table *table, unsigned int entries)
{
	return sg_alloc_table(table, entries, GFP_KERNEL);
}
ALLOW_ERROR_INJECTION(vgpu_sg_alloc_table, ERRNO);

noinline struct dma_buf *vgpu_dma_buf_export(const struct dma_buf_export_info *info)
{
	return dma_buf_export(info);
}
ALLOW_ERROR_INJECTION(vgpu_dma_buf_export, ERRNO);

noinline int vgpu_get_unused_fd(unsigned int flags)
{
	return get_unused_fd_flags(flags);
}
ALLOW_ERROR_INJECTION(vgpu_get_unused_fd, ERRNO);
