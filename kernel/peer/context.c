// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Client contexts: unmapping, invalidation, release. See peer.h for the states. */
#include <linux/iommu.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

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
	peer_idle();
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

/* Waits until the device that context_stop() stopped accesses the memory no more. */
static void context_wait_stopped(struct peer_context *ctx)
{
	if (ctx->notify->revoke_wait)
		ctx->notify->revoke_wait(ctx->arg);
}

/* Waits until an invalidation by another task has made its calls into the client. */
static void context_wait_undone(struct peer_context *ctx)
{
	wait_var_event(&ctx->undoer, !READ_ONCE(ctx->undoer) || ctx->undoer == current);
}

bool peer_context_enter(struct peer_context *ctx)
{
	bool entered;

	spin_lock(&ctx->lock);
	WARN_ON_ONCE(ctx->inside);
	entered = !ctx->invalidated && !ctx->cancelled;
	ctx->inside = entered;
	spin_unlock(&ctx->lock);
	return entered;
}

void peer_context_exit(struct peer_context *ctx, bool *done, bool value)
{
	spin_lock(&ctx->lock);
	ctx->inside = false;
	*done = value;
	spin_unlock(&ctx->lock);
}

/*
 * Enters the function of the client that undoes *@done. False: it is not called, because there is
 * nothing to undo, or because the memory was invalidated: see peer.h.
 */
static bool context_enter_undo(struct peer_context *ctx, const bool *done)
{
	bool entered;

	spin_lock(&ctx->lock);
	WARN_ON_ONCE(ctx->inside);
	entered = *done && !ctx->invalidated;
	ctx->inside = entered;
	spin_unlock(&ctx->lock);
	return entered;
}

/* The caller is the unmapper. */
static void context_undo(struct peer_context *ctx)
{
	const struct peer_memory_client *ops = ctx->client->ops;

	peer_window(PEER_W_UNMAP);
	if (context_enter_undo(ctx, &ctx->mapped)) {
		ops->dma_unmap(&ctx->table, ctx->priv, &ctx->pdev->dev);
		context_flush(ctx);
		peer_context_exit(ctx, &ctx->mapped, false);
	}
	peer_window(PEER_W_PUT);
	if (context_enter_undo(ctx, &ctx->pinned)) {
		ops->put_pages(&ctx->table, ctx->priv);
		peer_context_exit(ctx, &ctx->pinned, false);
	}
	spin_lock(&ctx->lock);
	ctx->state = PEER_UNMAPPED;
	spin_unlock(&ctx->lock);
	context_unuse(ctx);
}

void peer_context_abort(struct peer_context *ctx)
{
	context_undo(ctx);
	context_wait_undone(ctx);
	peer_context_put(ctx);
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
	peer_window_meet(PEER_W_UNDO);
	context_wait_undone(ctx);
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
		context_wait_stopped(ctx);
		context_undo(ctx);
	}
}

static void context_left(struct peer_leave *leave)
{
	struct peer_context *ctx = leave->ctx;

	context_unuse(ctx);
	if (leave != &ctx->leave)
		kfree(leave);
	peer_context_put(ctx);
	peer_window(PEER_W_LEFT);
	peer_idle();
}

static void context_leave_task(struct callback_head *head)
{
	context_left(container_of(head, struct peer_leave, task));
}

static void context_leave_work(struct work_struct *work)
{
	context_left(container_of(to_delayed_work(work), struct peer_leave, work));
}

/* Drops the caller's use and reference after the current task has left the client's callback. */
static void context_leave(struct peer_context *ctx, struct peer_leave *leave)
{
	peer_busy();
	leave->ctx = ctx;
	init_task_work(&leave->task, context_leave_task);
	if (!(current->flags & PF_KTHREAD) && !task_work_add(current, &leave->task, TWA_RESUME))
		return;
	INIT_DELAYED_WORK(&leave->work, context_leave_work);
	queue_delayed_work(peer_wq, &leave->work, msecs_to_jiffies(PEER_LEAVE_MS));
}

/* What an invalidation that has marked a context has to do. */
struct context_marked {
	bool first;			/* none came before */
	bool stopped;			/* the device: wait for it */
	bool mapped, pinned;		/* to be undone by the caller */
	bool unmapper;			/* the caller made it PEER_UNMAPPING */
};

/*
 * Marks the context, stops the device, and takes over what is to be undone unless a thread is
 * inside the client. False: it is being released.
 */
static bool context_mark(struct peer_context *ctx, struct context_marked *m)
{
	bool live;

	spin_lock(&ctx->lock);
	live = refcount_inc_not_zero(&ctx->uses);
	if (live && !ctx->invalidated) {
		ctx->invalidated = true;
		m->first = true;
		if (ctx->state == PEER_MAPPED || ctx->state == PEER_UNMAPPING)
			context_stop(ctx);
		if (!ctx->client->unmaps && !ctx->inside) {
			swap(m->mapped, ctx->mapped);
			swap(m->pinned, ctx->pinned);
			ctx->undoer = current;
		}
		m->unmapper = ctx->state == PEER_MAPPED;
		if (m->unmapper)
			ctx->state = PEER_UNMAPPING;
	}
	m->stopped = ctx->revoking;
	spin_unlock(&ctx->lock);
	return live;
}

/* The part of an invalidation that may call the client, in its callback. */
static void context_undo_marked(struct peer_context *ctx, const struct context_marked *m)
{
	const struct peer_memory_client *ops = ctx->client->ops;

	peer_window(PEER_W_UNDO);
	if (m->mapped) {
		ops->dma_unmap(&ctx->table, ctx->priv, &ctx->pdev->dev);
		context_flush(ctx);
	}
	if (m->pinned)
		ops->put_pages(&ctx->table, ctx->priv);
	spin_lock(&ctx->lock);
	ctx->undoer = NULL;
	if (m->unmapper)
		ctx->state = PEER_UNMAPPED;
	spin_unlock(&ctx->lock);
	/* Orders .undoer before the check for waiters in wake_up_var(). */
	smp_mb();
	wake_up_var(&ctx->undoer);
	/* Not the last use: the caller has one. */
	if (m->unmapper)
		context_unuse(ctx);
}

static struct peer_context *context_find(struct peer_client *client, u64 ticket)
{
	struct peer_context *ctx = NULL;

	xa_lock(&client->contexts);
	if (ticket < PEER_NO_TICKET)
		ctx = xa_load(&client->contexts, ticket);
	if (ctx)
		kref_get(&ctx->kref);
	xa_unlock(&client->contexts);
	return ctx;
}

int peer_context_invalidate(struct peer_client *client, u64 ticket)
{
	struct context_marked m = { };
	struct peer_leave *leave;
	struct peer_context *ctx;

	peer_window_meet(PEER_W_PINNED);
	peer_window_meet(PEER_W_MAPPED);
	peer_window_meet(PEER_W_UNMAP);
	peer_window_meet(PEER_W_PUT);
	peer_window_meet(PEER_W_STOP);
	peer_window_meet(PEER_W_RELEASE);
	ctx = context_find(client, ticket);
	/* Released: the ticket is stale. */
	if (!ctx)
		return 0;
	if (!context_mark(ctx, &m)) {
		peer_context_put(ctx);
		return 0;
	}
	if (m.first)
		peer_window(PEER_W_STOP);
	/* The argument stays valid until revoke_end(), when the last use is dropped. */
	if (m.stopped)
		context_wait_stopped(ctx);
	leave = &ctx->leave;
	if (m.first) {
		atomic64_inc(&client->n_invalidated);
		context_undo_marked(ctx, &m);
		peer_window(PEER_W_INVALIDATE);
	} else {
		leave = kzalloc(sizeof(*leave), GFP_KERNEL | __GFP_NOFAIL);
	}
	context_leave(ctx, leave);
	return 0;
}
