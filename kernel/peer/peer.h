/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_PEER_H
#define STRAIT_PEER_H

/*
 * strait_peer: memory of peer clients (include/rdma/peer_mem.h) for devices of strait.ko.
 *
 * Objects:
 *	peer_client	a registered client. Referenced by its registration until that has ended, by
 *			regions and by contexts. After unregistration it is gone: no function of it
 *			is called any more.
 *	peer_region	memory of a process: mm, range, client. Pins nothing (region.h).
 *	peer_context	one client context: a range mapped for one device.
 *
 * States of a context, changed under peer_context.lock:
 *
 *	MAPPING		the mapper calls acquire, get_pages and dma_map. The device has no address.
 *	MAPPED		no thread is inside a function of the client.
 *	UNMAPPING	one thread, the unmapper, calls dma_unmap and put_pages: the owner of the
 *			mapping, an unregistration, an invalidation, or a mapper that failed. The
 *			device may still access the memory.
 *	UNMAPPED	the client will only be asked to release.
 *
 *	MAPPING -> MAPPED		mapper
 *	MAPPING -> UNMAPPING		mapper, if mapping failed or the context was invalidated or
 *					cancelled meanwhile
 *	MAPPED -> UNMAPPING		whichever thread comes first; it is the unmapper
 *	UNMAPPING -> UNMAPPED		unmapper
 *
 * An invalidation marks the context and, in states MAPPED and UNMAPPING, stops the device. It does
 * not wait for a call into the client, whose locks its caller may hold. It takes peer_context.lock,
 * the xa_lock of the client and, in revoke_begin(), spinlocks of strait.ko. For the importer of a
 * dma-buf revoke_wait() takes the dma_resv lock and waits until the importer has unmapped.
 *
 * When the client's callback returns its driver frees the page table and the DMA mapping, and
 * clients keep their pointers to both. So no dma_map, dma_unmap or put_pages of a context begins
 * after it was invalidated, except in the callback itself: mapper and unmapper ask before each call
 * (peer_context_enter()), and .inside says that one of them is inside. An invalidation that finds
 * no thread inside undoes what was done, in whatever state the context is, or leaves it to a client
 * that unmaps by itself. If a thread is inside, what its call does or undoes is between the client
 * and its driver, and the rest is the driver's, which frees it with the memory. A thread that has
 * asked and not called yet looks the same: a client that keeps freed pointers may use them then.
 *
 * peer_context.uses counts the reasons not to call release(): the context is not UNMAPPED, and
 * each invalidating task that may still be inside the client's callback, which accesses its
 * context after the invalidation has returned. Such a task drops its use when it returns to user
 * space (task_work). A kernel thread has no such moment: a work item drops it PEER_LEAVE_MS later.
 * peer_context.kref keeps the struct: the owner of the mapping, the client's table and
 * invalidations have references. Contexts, and tasks that leave, are counted by peer_busy(): the
 * module's exit waits for them. They have no reference on the module, which a function of the
 * module could not drop as the last thing it does.
 *
 * Which thread waits for which: an unregistration waits for all contexts of the client, so for
 * mappers and unmappers inside its functions, and for invalidating tasks. An invalidation and an
 * unregistration wait for importers of dma-bufs to unmap, which call no client for it. The owner of
 * a mapping, and a mapper that failed, wait for the calls that an invalidation of another task
 * makes in its callback: afterwards the device may be removed. Nothing else waits.
 *
 * Locks, outer to inner:
 *	peer_registry_lock	the list of clients, peer_client.gone. Held while a client is asked
 *				whether memory is its own (acquire, release)
 *	locks of the driver behind a client
 *	dma_resv of a dma-buf: no function of a client is called with it held
 *	peer_context.lock, the xa_lock of a client's table
 */

#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <rdma/peer_mem.h>

#include "compat.h"
#include "strait/bridge.h"

/* core_context of clients without the callback. */
#define PEER_NO_TICKET U32_MAX
/* How long a kernel thread may be inside the callback after it invalidated. */
#define PEER_LEAVE_MS 2000

struct peer_client {
	struct kref kref;
	struct list_head node;		/* in the list of clients */
	const struct peer_memory_client *ops;	/* until gone */
	char name[IB_PEER_MEMORY_NAME_MAX];
	char version[IB_PEER_MEMORY_VER_MAX];
	bool invalidates;		/* it has the callback */
	bool unmaps;			/* PEER_MEM_INVALIDATE_UNMAPS */
	bool gone;			/* under peer_registry_lock: unregistered */
	struct xarray contexts;		/* by ticket */
	u32 next;			/* ticket to try next */
	refcount_t users;		/* contexts, plus 1 until unregistered */
	struct completion idle;		/* @users is 0 */
	atomic_t n_contexts;
	atomic64_t n_invalidated;
};

enum peer_state {
	PEER_MAPPING,
	PEER_MAPPED,
	PEER_UNMAPPING,
	PEER_UNMAPPED,
};

/* A task that has invalidated, until it has left the client's callback. */
struct peer_leave {
	struct peer_context *ctx;	/* with a use and a reference */
	struct callback_head task;
	struct delayed_work work;
};

struct peer_context {
	struct kref kref;
	struct peer_client *client;	/* with a reference, and a use until released */
	void *priv;			/* the client's */
	u32 ticket;
	bool acquired;			/* of the mapper: release is to be called */
	struct pci_dev *pdev;
	struct sg_table table;		/* the client's: it compares and frees it */
	struct sg_table copy;		/* the requested range */
	spinlock_t lock;		/* @state to @revoking */
	enum peer_state state;
	bool inside;			/* mapper or unmapper is inside a function of the client */
	bool pinned, mapped;		/* what is to be undone */
	struct task_struct *undoer;	/* an invalidation that may call the client */
	bool invalidated;
	bool cancelled;			/* the client unregisters */
	const struct strait_bridge_notify *notify;
	void *arg;			/* of @notify */
	bool detached;			/* the owner has unmapped: it is notified no more */
	bool revoking;			/* revoke_begin() was called, revoke_end() is due */
	refcount_t uses;
	struct peer_leave leave;	/* of the first invalidation */
};

/* registry.c */

/* The first client that has the memory, with a reference. @unrevoked: not one that invalidates. */
struct peer_client *peer_client_find(u64 address, u64 length, bool unrevoked);
void peer_client_put(struct peer_client *client);
/* Takes a use of a client that is not gone. */
bool peer_client_use(struct peer_client *client);
void peer_client_unuse(struct peer_client *client);

/* map.c */

/*
 * Maps [address, address + length) of the calling process for @pdev. Sleeps. -EFAULT: it is not
 * memory of the client any more. -ENODEV: it was invalidated meanwhile, or the client is gone.
 * @notify may be called before this returns.
 */
int peer_context_map(struct peer_client *client, u64 address, u64 length, struct pci_dev *pdev,
		     const struct strait_bridge_notify *notify, void *arg,
		     struct peer_context **ret);

/* context.c */

/* For the mapper: enters a function of the client, unless the context is dead. */
bool peer_context_enter(struct peer_context *ctx);
/* Leaves it, and sets one of .pinned and .mapped. */
void peer_context_exit(struct peer_context *ctx, bool *done, bool value);
/* Mapping failed: undoes what was done and drops the mapper's reference. */
void peer_context_abort(struct peer_context *ctx);
/*
 * Unmaps it and drops the caller's reference. When it returns the device does not reach the memory
 * or was stopped, revoke_begin() is not called any more, and no thread of another task calls the
 * client's functions for it. Sleeps.
 */
void peer_context_unmap(struct peer_context *ctx);
/* The client unregisters. */
void peer_context_cancel(struct peer_context *ctx);
/* The client's memory goes away: the callback. */
int peer_context_invalidate(struct peer_client *client, u64 ticket);
void peer_context_put(struct peer_context *ctx);

/* region.c: the bridge. */
extern const struct strait_bridge peer_bridge;

/* main.c: runs peer_leave.work. */
extern struct workqueue_struct *peer_wq;
/* The module's exit waits in between. peer_idle() is the last call of its caller. */
void peer_busy(void);
void peer_idle(void);

#endif
