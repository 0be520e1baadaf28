// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Wrappers of kernel calls that can fail for lack of memory: see strait/inject.c. */
#include <linux/dma-buf.h>
#include <linux/error-injection.h>
#include <linux/slab.h>

#include "inject.h"
#include "peer.h"

noinline void *peer_zalloc(size_t size)
{
	return kzalloc(size, GFP_KERNEL_ACCOUNT);
}
ALLOW_ERROR_INJECTION(peer_zalloc, NULL);

noinline int peer_sg_alloc_table(struct sg_table *table, unsigned int entries)
{
	return sg_alloc_table(table, entries, GFP_KERNEL_ACCOUNT);
}
ALLOW_ERROR_INJECTION(peer_sg_alloc_table, ERRNO);

noinline int peer_alloc_ticket(struct peer_client *client, struct peer_context *ctx)
{
	int rc = xa_alloc_cyclic(&client->contexts, &ctx->ticket, ctx,
				 XA_LIMIT(1, PEER_NO_TICKET - 1), &client->next,
				 GFP_KERNEL_ACCOUNT);

	return rc < 0 ? rc : 0;
}
ALLOW_ERROR_INJECTION(peer_alloc_ticket, ERRNO);

noinline struct dma_buf *peer_dma_buf_export(const struct dma_buf_export_info *info)
{
	return dma_buf_export(info);
}
ALLOW_ERROR_INJECTION(peer_dma_buf_export, ERRNO);
