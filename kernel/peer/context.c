// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Client contexts: mapping, unmapping, invalidation, release. See peer.h for the states. */
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "inject.h"
#include "peer.h"
#include "window.h"

static void context_free(struct kref *kref)
{
	struct peer_context *ctx = container_of(kref, struct peer_context, kref);

	sg_free_table(&ctx->copy);
	pci_dev_put(ctx->pdev);
	peer_client_put(ctx->client);
	kfree(ctx);
	module_put(THIS_MODULE);
}

void peer_context_put(struct peer_context *ctx)
{
	kref_put(&ctx->kref, context_free);
}

/* In lazy mode the IOTLB keeps addresses that the client's driver has unmapped. */
static void context_flush(struct peer_context *ctx)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&ctx->pdev->dev);

	if (domain)
		iommu_flush_iotlb_all(domain);
}

/* The last use was dropped: no thread is inside the client, and none calls it again. */
static void context_release(struct peer_context *ctx)
{
	struct peer_client *client = ctx->client;

	peer_window(PEER_W_RELEASE);
	xa_erase(&client->contexts, ctx->ticket);
	if (ctx->acquired && client->ops->release)
		client->ops->release(ctx->priv);
	/* What the client's driver unmapped by itself after an invalidation. */
	context_flush(ctx);
	if (ctx->revoking)
		ctx->notify->revoke_end(ctx->arg);
	atomic_dec(&client->n_contexts);
	/* The last access to the client's functions is over. */
	peer_client_unuse(client);
	/* The reference of the table. */
	peer_context_put(ctx);
}

static void context_unuse(struct peer_context *ctx)
{
	if (refcount_dec_and_test(&ctx->uses))
		context_release(ctx);
}

/* Stops the device, once. */
static void context_stop(struct peer_context *ctx)
{
	lockdep_assert_held(&ctx->lock);
	if (ctx->revoking || ctx->detached)
		return;
	ctx->revoking = true;
	ctx->notify->revoke_begin(ctx->arg);
}

/* The caller is the unmapper. */
static void context_undo(struct peer_context *ctx)
{
	const struct peer_memory_client *ops = ctx->client->ops;
	bool skip;

	spin_lock(&ctx->lock);
	/* The client and its driver have undone it, or do so when the invalidation returns. */
	skip = ctx->invalidated && ctx->client->unmaps;
	spin_unlock(&ctx->lock);
	peer_window(PEER_W_UNMAP);
	if (ctx->mapped && !skip) {
		ops->dma_unmap(&ctx->table, ctx->priv, &ctx->pdev->dev);
		context_flush(ctx);
	}
	peer_window(PEER_W_PUT);
	if (ctx->pinned && !skip)
		ops->put_pages(&ctx->table, ctx->priv);
	spin_lock(&ctx->lock);
	ctx->state = PEER_UNMAPPED;
	spin_unlock(&ctx->lock);
	context_unuse(ctx);
}

/* Waits until the device that context_stop() stopped accesses the memory no more. */
static void context_wait(struct peer_context *ctx)
{
	if (ctx->notify->revoke_wait)
		ctx->notify->revoke_wait(ctx->arg);
}

/* Makes the caller the unmapper of a mapped context. */
static bool context_claim(struct peer_context *ctx)
{
	bool mine;

	spin_lock(&ctx->lock);
	mine = ctx->state == PEER_MAPPED;
	if (mine)
		ctx->state = PEER_UNMAPPING;
	spin_unlock(&ctx->lock);
	return mine;
}

void peer_context_unmap(struct peer_context *ctx)
{
	peer_window_meet(PEER_W_INVALIDATE);
	peer_window_meet(PEER_W_UNMAP);
	if (context_claim(ctx))
		context_undo(ctx);
	spin_lock(&ctx->lock);
	ctx->detached = true;
	spin_unlock(&ctx->lock);
	peer_context_put(ctx);
}

void peer_context_cancel(struct peer_context *ctx)
{
	bool mine = false;

	peer_window_meet(PEER_W_PINNED);
	peer_window_meet(PEER_W_MAPPED);
	peer_window_meet(PEER_W_INVALIDATE);
	peer_window_meet(PEER_W_UNMAP);
	spin_lock(&ctx->lock);
	ctx->cancelled = true;
	if (ctx->state == PEER_MAPPED) {
		context_stop(ctx);
		ctx->state = PEER_UNMAPPING;
		mine = true;
	}
	spin_unlock(&ctx->lock);
	if (mine) {
		context_wait(ctx);
		context_undo(ctx);
	}
}

static void context_left(struct peer_context *ctx)
{
	context_unuse(ctx);
	peer_context_put(ctx);
}

static void context_leave_task(struct callback_head *head)
{
	context_left(container_of(head, struct peer_context, leave));
}

static void context_leave_work(struct work_struct *work)
{
	context_left(container_of(to_delayed_work(work), struct peer_context, leave_work));
}

/* Drops the caller's use and reference after the current task has left the client's callback. */
static void context_leave(struct peer_context *ctx)
{
	init_task_work(&ctx->leave, context_leave_task);
	if (!(current->flags & PF_KTHREAD) && !task_work_add(current, &ctx->leave, TWA_RESUME))
		return;
	queue_delayed_work(peer_wq, &ctx->leave_work, msecs_to_jiffies(PEER_LEAVE_MS));
}

/*
 * Marks the context and stops the device. False: it was invalidated before, or is being released.
 * *@mine: the caller is the unmapper.
 */
static bool context_mark(struct peer_context *ctx, bool *mine)
{
	bool unmapped = false, stopped;

	spin_lock(&ctx->lock);
	if (ctx->invalidated || !refcount_inc_not_zero(&ctx->uses)) {
		spin_unlock(&ctx->lock);
		return false;
	}
	ctx->invalidated = true;
	if (ctx->state == PEER_MAPPED || ctx->state == PEER_UNMAPPING)
		context_stop(ctx);
	stopped = ctx->revoking;
	if (ctx->state == PEER_MAPPED) {
		unmapped = ctx->client->unmaps;
		*mine = !unmapped;
		ctx->state = unmapped ? PEER_UNMAPPED : PEER_UNMAPPING;
	}
	spin_unlock(&ctx->lock);
	/* The argument stays valid until revoke_end(), when the last use is dropped. */
	if (stopped)
		context_wait(ctx);
	/* Not the last use: the caller has one. */
	if (unmapped)
		context_unuse(ctx);
	return true;
}

int peer_context_invalidate(struct peer_client *client, u64 ticket)
{
	struct peer_context *ctx = NULL;
	bool mine = false;

	peer_window_meet(PEER_W_PINNED);
	peer_window_meet(PEER_W_MAPPED);
	peer_window_meet(PEER_W_UNMAP);
	peer_window_meet(PEER_W_PUT);
	peer_window_meet(PEER_W_RELEASE);
	xa_lock(&client->contexts);
	if (ticket < PEER_NO_TICKET)
		ctx = xa_load(&client->contexts, ticket);
	if (ctx)
		kref_get(&ctx->kref);
	xa_unlock(&client->contexts);
	/* Released: the ticket is stale. */
	if (!ctx)
		return 0;
	if (!context_mark(ctx, &mine)) {
		peer_context_put(ctx);
		return 0;
	}
	atomic64_inc(&client->n_invalidated);
	if (mine)
		context_undo(ctx);
	peer_window(PEER_W_INVALIDATE);
	context_leave(ctx);
	return 0;
}

/* The part of the client's entry [at, at + length) that lies in [first, end). */
static u64 context_part(struct scatterlist *sg, u64 at, u64 first, u64 end, dma_addr_t *bus)
{
	u64 start = max(at, first), stop = min(at + sg_dma_len(sg), end);

	*bus = sg_dma_address(sg) + (start - at);
	return stop > start ? stop - start : 0;
}

/* Does the IOMMU translate the address? One that it does not cannot be revoked, and faults. */
static bool context_is_translated(struct peer_context *ctx, dma_addr_t bus)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&ctx->pdev->dev);

	if (!domain || (domain->type != IOMMU_DOMAIN_DMA && domain->type != IOMMU_DOMAIN_DMA_FQ))
		return true;
	return iommu_iova_to_phys(domain, bus);
}

/* Copies [first, end) of the client's @n entries, which the client frees. */
static int context_copy(struct peer_context *ctx, int n, u64 first, u64 end)
{
	struct scatterlist *sg, *to;
	unsigned int used = 0;
	u64 at = 0, part;
	dma_addr_t bus;
	int i, rc;

	for_each_sg(ctx->table.sgl, sg, n, i) {
		used += !!context_part(sg, at, first, end, &bus);
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
		part = context_part(sg, at, first, end, &bus);
		at += sg_dma_len(sg);
		if (!part)
			continue;
		if (!context_is_translated(ctx, bus))
			return -EOPNOTSUPP;
		sg_set_page(to, NULL, part, 0);
		sg_dma_address(to) = bus;
		sg_dma_len(to) = part;
		to = sg_next(to);
	}
	return 0;
}

static bool context_is_dead(struct peer_context *ctx)
{
	bool dead;

	spin_lock(&ctx->lock);
	dead = ctx->invalidated || ctx->cancelled;
	spin_unlock(&ctx->lock);
	return dead;
}

/* acquire, get_pages, dma_map. The caller is the mapper, and undoes what was done on failure. */
static int context_call(struct peer_context *ctx, u64 address, u64 length)
{
	const struct peer_memory_client *ops = ctx->client->ops;
	unsigned long page = PAGE_SIZE;
	int rc, n = 0;

	if (ops->acquire(address, length, NULL, NULL, &ctx->priv) != 1)
		return -EFAULT;
	ctx->acquired = true;
	rc = ops->get_pages(address, length, 1, 0, NULL, ctx->priv,
			    ctx->client->invalidates ? ctx->ticket : PEER_NO_TICKET);
	if (rc)
		return rc;
	ctx->pinned = true;
	peer_window(PEER_W_PINNED);
	if (context_is_dead(ctx))
		return -ENODEV;
	rc = ops->dma_map(&ctx->table, ctx->priv, &ctx->pdev->dev, 0, &n);
	if (rc)
		return rc;
	ctx->mapped = true;
	peer_window(PEER_W_MAPPED);
	if (ops->get_page_size)
		page = ops->get_page_size(ctx->priv);
	if (!is_power_of_2(page) || page < PAGE_SIZE)
		return -EOPNOTSUPP;
	address &= page - 1;
	return context_copy(ctx, n, address, address + length);
}

/* The mapper is done. Returns 0 if the context is mapped; otherwise the caller has to undo. */
static int context_commit(struct peer_context *ctx, int rc)
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
static int context_new(struct peer_client *client, struct pci_dev *pdev, struct peer_context **ret)
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
	INIT_DELAYED_WORK(&ctx->leave_work, context_leave_work);
	ctx->client = client;
	ctx->pdev = pdev;
	rc = peer_alloc_ticket(client, ctx);
	if (rc) {
		kfree(ctx);
		return rc;
	}
	__module_get(THIS_MODULE);
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
	rc = context_new(client, pdev, &ctx);
	if (rc) {
		peer_client_unuse(client);
		return rc;
	}
	ctx->notify = notify;
	ctx->arg = arg;
	rc = context_commit(ctx, context_call(ctx, address, length));
	if (!rc) {
		*ret = ctx;
		return 0;
	}
	context_undo(ctx);
	peer_context_put(ctx);
	return rc;
}
