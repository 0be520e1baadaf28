// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Client contexts: mapping. See peer.h for the states. */
#include <linux/iommu.h>
#include <linux/slab.h>

#include "inject.h"
#include "peer.h"
#include "window.h"

/* The part of the client's entry [at, at + length) that lies in [first, end). */
static u64 map_part(struct scatterlist *sg, u64 at, u64 first, u64 end, dma_addr_t *bus)
{
	u64 start = max(at, first), stop = min(at + sg_dma_len(sg), end);

	*bus = sg_dma_address(sg) + (start - at);
	return stop > start ? stop - start : 0;
}

/* Does the IOMMU translate the address? One that it does not cannot be revoked, and faults. */
static bool map_is_translated(struct peer_context *ctx, dma_addr_t bus)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&ctx->pdev->dev);

	if (!domain || (domain->type != IOMMU_DOMAIN_DMA && domain->type != IOMMU_DOMAIN_DMA_FQ))
		return true;
	return iommu_iova_to_phys(domain, bus);
}

/* Copies [first, end) of the client's @n entries, which the client frees. */
static int map_copy(struct peer_context *ctx, int n, u64 first, u64 end)
{
	struct scatterlist *sg, *to;
	unsigned int used = 0;
	u64 at = 0, part;
	dma_addr_t bus;
	int i, rc;

	for_each_sg(ctx->table.sgl, sg, n, i) {
		used += !!map_part(sg, at, first, end, &bus);
		at += sg_dma_len(sg);
	}
	if (at < end || !used)
		return -EOPNOTSUPP;
	rc = peer_sg_alloc_table(&ctx->copy, used);
	if (rc)
		return rc;
	at = 0;
	to = ctx->copy.sgl;
	for_each_sg(ctx->table.sgl, sg, n, i) {
		part = map_part(sg, at, first, end, &bus);
		at += sg_dma_len(sg);
		if (!part)
			continue;
		if (!map_is_translated(ctx, bus)) {
			dev_info_ratelimited(&ctx->pdev->dev,
					     "mapping refused: %s gives physical addresses\n",
					     ctx->client->name);
			return -EOPNOTSUPP;
		}
		sg_set_page(to, NULL, part, 0);
		sg_dma_address(to) = bus;
		sg_dma_len(to) = part;
		to = sg_next(to);
	}
	return 0;
}

/* The table of a client whose dma_map has succeeded. */
static int map_take_table(struct peer_context *ctx, u64 address, u64 length, int n)
{
	const struct peer_memory_client *ops = ctx->client->ops;
	unsigned long page = PAGE_SIZE;

	if (ops->get_page_size)
		page = ops->get_page_size(ctx->priv);
	if (!is_power_of_2(page) || page < PAGE_SIZE)
		return -EOPNOTSUPP;
	address &= page - 1;
	return map_copy(ctx, n, address, address + length);
}

/* An error of a client as a negative errno that programs know. */
static int map_error(int rc)
{
	if (rc == -ENOTSUPP)
		return -EOPNOTSUPP;
	/* Numbers from 512 on are the kernel's own. */
	return rc > 0 || rc <= -512 ? -EIO : rc;
}

/* acquire, get_pages, dma_map. The caller is the mapper, and undoes what was done on failure. */
static int map_call(struct peer_context *ctx, u64 address, u64 length)
{
	const struct peer_memory_client *ops = ctx->client->ops;
	bool mapped;
	int rc, n = 0;

	if (ops->acquire(address, length, NULL, NULL, &ctx->priv) != 1)
		return -EFAULT;
	ctx->acquired = true;
	if (!peer_context_enter(ctx))
		return -ENODEV;
	rc = ops->get_pages(address, length, 1, 0, NULL, ctx->priv,
			    ctx->client->invalidates ? ctx->ticket : PEER_NO_TICKET);
	peer_context_exit(ctx, &ctx->pinned, !rc);
	if (rc)
		return map_error(rc);
	peer_window(PEER_W_PINNED);
	if (!peer_context_enter(ctx))
		return -ENODEV;
	rc = map_error(ops->dma_map(&ctx->table, ctx->priv, &ctx->pdev->dev, 0, &n));
	mapped = !rc;
	if (!rc)
		rc = map_take_table(ctx, address, length, n);
	peer_context_exit(ctx, &ctx->mapped, mapped);
	peer_window(PEER_W_MAPPED);
	return rc;
}

/* The mapper is done. Returns 0 if the context is mapped; otherwise the caller has to undo. */
static int map_commit(struct peer_context *ctx, int rc)
{
	spin_lock(&ctx->lock);
	/* An unregistration that did not see this context in the table had set .gone before. */
	if (ctx->invalidated || ctx->cancelled || READ_ONCE(ctx->client->gone))
		rc = -ENODEV;
	ctx->state = rc ? PEER_UNMAPPING : PEER_MAPPED;
	spin_unlock(&ctx->lock);
	return rc;
}

/* A context with a use, a reference of the caller and one of the client's table. */
static int map_new(struct peer_client *client, struct pci_dev *pdev, struct peer_context **ret)
{
	struct peer_context *ctx;
	int rc;

	ctx = peer_zalloc(sizeof(*ctx));
	if (!ctx)
		return -ENOMEM;
	kref_init(&ctx->kref);
	kref_get(&ctx->kref);
	refcount_set(&ctx->uses, 1);
	spin_lock_init(&ctx->lock);
	ctx->client = client;
	ctx->pdev = pdev;
	rc = peer_alloc_ticket(client, ctx);
	if (rc) {
		kfree(ctx);
		return rc;
	}
	peer_busy();
	kref_get(&client->kref);
	pci_dev_get(pdev);
	atomic_inc(&client->n_contexts);
	*ret = ctx;
	return 0;
}

int peer_context_map(struct peer_client *client, u64 address, u64 length, struct pci_dev *pdev,
		     const struct strait_bridge_notify *notify, void *arg,
		     struct peer_context **ret)
{
	struct peer_context *ctx;
	int rc;

	if (!peer_client_use(client))
		return -ENODEV;
	rc = map_new(client, pdev, &ctx);
	if (rc) {
		peer_client_unuse(client);
		return rc;
	}
	ctx->notify = notify;
	ctx->arg = arg;
	rc = map_commit(ctx, map_call(ctx, address, length));
	if (rc)
		peer_context_abort(ctx);
	else
		*ret = ctx;
	return rc;
}
