// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * strait_vgpu_peer: a peer memory client for memory of the lab's GPU, on nvidia_p2p.
 *
 * With the parameter "invalidate" it has the invalidate callback, and pins memory that may be freed
 * meanwhile. Without it, it uses the persistent interface. "extended" registers a
 * peer_memory_client_ex that unmaps by itself. "stale" keeps the pointers to what the driver has
 * freed, as NVIDIA's clients do: a call with them is reported. It takes no reference on its module:
 * unregistering releases all contexts.
 *
 * vgpu_peer_context.lock is a leaf: the driver's callback takes it with the driver's lock held, and
 * no function of the driver is called with it held.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include <rdma/peer_mem.h>

#include "nv-p2p.h"
#include "window.h"

#define GPU_PAGE 65536ull

static bool extended = true;
module_param(extended, bool, 0444);
MODULE_PARM_DESC(extended, "register an extended client, which unmaps by itself (default 1)");

static bool invalidate = true;
module_param(invalidate, bool, 0444);
MODULE_PARM_DESC(invalidate, "register with the invalidate callback (default 1)");

static bool stale;
module_param(stale, bool, 0444);
MODULE_PARM_DESC(stale, "keep pointers that the driver has freed (default 0)");

static bool both;
module_param(both, bool, 0444);
MODULE_PARM_DESC(both, "register a second client without the invalidate callback (default 0)");

struct vgpu_peer_context {
	bool persistent;
	u64 start, length;		/* whole GPU pages */
	u64 core_context;
	spinlock_t lock;		/* @table to @callback_task */
	struct nvidia_p2p_page_table *table;	/* NULL: not pinned, or the driver freed it */
	struct nvidia_p2p_dma_mapping *mapping;	/* of @table */
	bool freed;			/* the driver's callback has returned */
	struct task_struct *callback_task;	/* the task inside the driver's callback */
	struct sg_table sgl;
};

static void *vgpu_peer_handle, *vgpu_peer_handle_nc;
static invalidate_peer_memory vgpu_peer_invalidate;

/* Race windows: see window.h. */
enum vgpu_peer_window {
	/* Waits: the driver's callback after the invalidation. Meets: release. */
	VGPU_PEER_W_CALLBACK,
	/* Waits: get_pages before it returns. Meets: the driver's callback. */
	VGPU_PEER_W_GET,
	/* Waits: dma_map before it calls the driver. Meets: the driver's callback. */
	VGPU_PEER_W_MAP,
	/* Waits: dma_map after the driver has mapped. Meets: the driver's callback. */
	VGPU_PEER_W_FILL,
	VGPU_PEER_WINDOWS,
};

static struct window vgpu_peer_windows[VGPU_PEER_WINDOWS];
static struct dentry *vgpu_peer_debug_root;

/* A driver's mistake, for tests: calls the callback with any number, and no memory was freed. */
static int vgpu_peer_spurious(void *data, u64 core_context)
{
	return invalidate ? vgpu_peer_invalidate(vgpu_peer_handle, core_context) : -EOPNOTSUPP;
}
DEFINE_DEBUGFS_ATTRIBUTE(vgpu_peer_spurious_fops, NULL, vgpu_peer_spurious, "%llu\n");

struct vgpu_peer_work {
	struct work_struct work;
	u64 core_context;
	int rc;
};

static void vgpu_peer_spurious_work(struct work_struct *work)
{
	struct vgpu_peer_work *w = container_of(work, struct vgpu_peer_work, work);

	w->rc = vgpu_peer_spurious(NULL, w->core_context);
}

/* The same in a kernel thread, which does not return to user space. */
static int vgpu_peer_spurious_thread(void *data, u64 core_context)
{
	struct vgpu_peer_work w = { .core_context = core_context };

	INIT_WORK_ONSTACK(&w.work, vgpu_peer_spurious_work);
	schedule_work(&w.work);
	flush_work(&w.work);
	destroy_work_on_stack(&w.work);
	return w.rc;
}
DEFINE_DEBUGFS_ATTRIBUTE(vgpu_peer_spurious_thread_fops, NULL, vgpu_peer_spurious_thread,
			 "%llu\n");

/* What dma_map fails with, for tests; 0: nothing. Any number, as clients return. */
static u64 vgpu_peer_error;

static void vgpu_peer_debug_init(void)
{
	static const char *const names[VGPU_PEER_WINDOWS] = {
		[VGPU_PEER_W_CALLBACK] = "callback", [VGPU_PEER_W_GET] = "get",
		[VGPU_PEER_W_MAP] = "map", [VGPU_PEER_W_FILL] = "fill",
	};

	vgpu_peer_debug_root = debugfs_create_dir("strait_vgpu_peer", NULL);
	windows_create(vgpu_peer_debug_root, vgpu_peer_windows, names, VGPU_PEER_WINDOWS);
	debugfs_create_x64("error", 0600, vgpu_peer_debug_root, &vgpu_peer_error);
	debugfs_create_file_unsafe("invalidate", 0200, vgpu_peer_debug_root, NULL,
				   &vgpu_peer_spurious_fops);
	debugfs_create_file_unsafe("invalidate_thread", 0200, vgpu_peer_debug_root, NULL,
				   &vgpu_peer_spurious_thread_fops);
}

/* Does nothing: the driver frees the table of a range that was only looked up. */
static void vgpu_peer_ignore(void *data)
{
}

static int vgpu_peer_acquire(unsigned long addr, size_t size, void *unused, char *unused_name,
			     void **client_context)
{
	struct nvidia_p2p_page_table *table;
	struct vgpu_peer_context *c;

	c = kzalloc(sizeof(*c), GFP_KERNEL);
	if (!c)
		return -ENOMEM;
	spin_lock_init(&c->lock);
	c->persistent = !invalidate;
	c->start = round_down(addr, GPU_PAGE);
	c->length = round_up(addr + size, GPU_PAGE) - c->start;
	/* The driver has no call that only looks the range up. */
	if (nvidia_p2p_get_pages(0, 0, c->start, c->length, &table, vgpu_peer_ignore, NULL)) {
		kfree(c);
		return 0;
	}
	nvidia_p2p_put_pages(0, 0, c->start, table);
	*client_context = c;
	return 1;
}

/* Of the second client. */
static int vgpu_peer_acquire_nc(unsigned long addr, size_t size, void *unused, char *unused_name,
				void **client_context)
{
	int mine = vgpu_peer_acquire(addr, size, unused, unused_name, client_context);
	struct vgpu_peer_context *c = *client_context;

	if (mine == 1)
		c->persistent = true;
	return mine;
}

/* The driver's free callback. It frees the table and its DMA mappings when this returns. */
static void vgpu_peer_freed(void *data)
{
	struct vgpu_peer_context *c = data;

	window_meet(&vgpu_peer_windows[VGPU_PEER_W_GET]);
	window_meet(&vgpu_peer_windows[VGPU_PEER_W_MAP]);
	window_meet(&vgpu_peer_windows[VGPU_PEER_W_FILL]);
	spin_lock(&c->lock);
	c->callback_task = current;
	spin_unlock(&c->lock);
	vgpu_peer_invalidate(vgpu_peer_handle, c->core_context);
	window_wait(&vgpu_peer_windows[VGPU_PEER_W_CALLBACK], false);
	/* The context is valid: release is called after this task has left the callback. */
	spin_lock(&c->lock);
	if (!stale) {
		c->table = NULL;
		c->mapping = NULL;
	}
	c->freed = true;
	c->callback_task = NULL;
	spin_unlock(&c->lock);
}

static int vgpu_peer_get_pages(unsigned long addr, size_t size, int write, int force,
			       struct sg_table *unused, void *client_context, u64 core_context)
{
	struct nvidia_p2p_page_table *table;
	struct vgpu_peer_context *c = client_context;
	int rc;

	c->core_context = core_context;
	if (c->persistent) {
		rc = nvidia_p2p_get_pages_persistent(c->start, c->length, &table, 0);
		if (!rc)
			c->table = table;
		return rc;
	}
	/* The driver sets the pointer before the callback can be called, which clears it. */
	rc = nvidia_p2p_get_pages(0, 0, c->start, c->length, &c->table, vgpu_peer_freed, c);
	window_wait(&vgpu_peer_windows[VGPU_PEER_W_GET], false);
	return rc;
}

static struct nvidia_p2p_page_table *vgpu_peer_table(struct vgpu_peer_context *c,
						     struct nvidia_p2p_dma_mapping **mapping)
{
	struct nvidia_p2p_page_table *table;

	spin_lock(&c->lock);
	table = c->table;
	*mapping = c->mapping;
	spin_unlock(&c->lock);
	return table;
}

/* While the table is there the driver has not freed the mapping: its callback clears both. */
static int vgpu_peer_fill(struct vgpu_peer_context *c, struct nvidia_p2p_dma_mapping *mapping)
{
	struct scatterlist *sg;
	int i, rc = 0;

	spin_lock(&c->lock);
	if (!c->table)
		rc = -ENODEV;
	else if (mapping->entries != c->sgl.nents)
		rc = -EOPNOTSUPP;
	if (!rc) {
		c->mapping = mapping;
		for_each_sgtable_sg(&c->sgl, sg, i) {
			sg_set_page(sg, NULL, GPU_PAGE, 0);
			sg_dma_address(sg) = mapping->dma_addresses[i];
			sg_dma_len(sg) = GPU_PAGE;
		}
	}
	spin_unlock(&c->lock);
	return rc;
}

/*
 * The driver finds the table by its address: one that it has freed is -EINVAL. If it frees the
 * table after mapping it, it unmaps it as well.
 */
static int vgpu_peer_dma_map(struct sg_table *sg_head, void *client_context,
			     struct device *dma_device, int dmasync, int *nmap)
{
	struct nvidia_p2p_dma_mapping *mapping;
	struct vgpu_peer_context *c = client_context;
	struct nvidia_p2p_page_table *table;
	int rc;

	if (READ_ONCE(vgpu_peer_error))
		return (int)READ_ONCE(vgpu_peer_error);
	table = vgpu_peer_table(c, &mapping);
	if (!table)
		return -ENODEV;
	rc = sg_alloc_table(&c->sgl, div_u64(c->length, GPU_PAGE), GFP_KERNEL);
	if (rc)
		return rc;
	window_wait(&vgpu_peer_windows[VGPU_PEER_W_MAP], false);
	rc = nvidia_p2p_dma_map_pages(to_pci_dev(dma_device), table, &mapping);
	if (rc)
		goto err_table;
	window_wait(&vgpu_peer_windows[VGPU_PEER_W_FILL], false);
	rc = vgpu_peer_fill(c, mapping);
	if (rc) {
		/* If the driver freed the table meanwhile, it freed the mapping as well. */
		if (rc != -ENODEV)
			nvidia_p2p_dma_unmap_pages(to_pci_dev(dma_device), table, mapping);
		goto err_table;
	}
	*sg_head = c->sgl;
	*nmap = c->sgl.nents;
	return 0;
err_table:
	sg_free_table(&c->sgl);
	return rc;
}

static int vgpu_peer_dma_unmap(struct sg_table *sg_head, void *client_context,
			       struct device *dma_device)
{
	struct nvidia_p2p_dma_mapping *mapping;
	struct vgpu_peer_context *c = client_context;
	struct nvidia_p2p_page_table *table;

	WARN_ON_ONCE(memcmp(sg_head, &c->sgl, sizeof(*sg_head)));
	/* lab/ scans the log for "BUG:". */
	if (READ_ONCE(c->freed))
		pr_err("BUG: dma_unmap after the memory was freed\n");
	table = vgpu_peer_table(c, &mapping);
	/* NVIDIA's clients leave it to the driver then. */
	if (stale && READ_ONCE(c->callback_task) == current)
		return 0;
	/* The only function of the driver that its callback may call. */
	if (table && mapping)
		nvidia_p2p_dma_unmap_pages(to_pci_dev(dma_device), table, mapping);
	return 0;
}

static void vgpu_peer_unpin(struct vgpu_peer_context *c)
{
	struct nvidia_p2p_page_table *table = NULL;

	spin_lock(&c->lock);
	if (c->callback_task != current)
		swap(table, c->table);
	spin_unlock(&c->lock);
	if (!table)
		return;
	/* If the callback is called meanwhile, this waits for it and finds no table. */
	if (c->persistent)
		nvidia_p2p_put_pages_persistent(c->start, table, 0);
	else
		nvidia_p2p_put_pages(0, 0, c->start, table);
}

static void vgpu_peer_put_pages(struct sg_table *sg_head, void *client_context)
{
	struct vgpu_peer_context *c = client_context;

	if (READ_ONCE(c->freed))
		pr_err("BUG: put_pages after the memory was freed\n");
	vgpu_peer_unpin(c);
}

static unsigned long vgpu_peer_page_size(void *client_context)
{
	return GPU_PAGE;
}

static void vgpu_peer_release(void *client_context)
{
	struct vgpu_peer_context *c = client_context;

	window_meet(&vgpu_peer_windows[VGPU_PEER_W_CALLBACK]);
	WARN_ON_ONCE(c->callback_task);
	/* An extended client unpins by itself what was invalidated though it was not freed. */
	if (!c->freed)
		vgpu_peer_unpin(c);
	sg_free_table(&c->sgl);
	kfree(c);
}

static struct peer_memory_client_ex vgpu_peer_client = {
	.client = {
		.name = "strait_vgpu",
		.version = "1.0",
		.acquire = vgpu_peer_acquire,
		.get_pages = vgpu_peer_get_pages,
		.dma_map = vgpu_peer_dma_map,
		.dma_unmap = vgpu_peer_dma_unmap,
		.put_pages = vgpu_peer_put_pages,
		.get_page_size = vgpu_peer_page_size,
		.release = vgpu_peer_release,
	},
	.ex_size = sizeof(struct peer_memory_client_ex),
	.flags = PEER_MEM_INVALIDATE_UNMAPS,
};

static struct peer_memory_client vgpu_peer_client_nc = {
	.name = "strait_vgpu_nc",
	.version = "1.0",
	.acquire = vgpu_peer_acquire_nc,
	.get_pages = vgpu_peer_get_pages,
	.dma_map = vgpu_peer_dma_map,
	.dma_unmap = vgpu_peer_dma_unmap,
	.put_pages = vgpu_peer_put_pages,
	.get_page_size = vgpu_peer_page_size,
	.release = vgpu_peer_release,
};

static int __init vgpu_peer_init(void)
{
	if (extended)
		vgpu_peer_client.client.version[IB_PEER_MEMORY_VER_MAX - 1] = 1;
	vgpu_peer_handle = ib_register_peer_memory_client(&vgpu_peer_client.client,
							  invalidate ? &vgpu_peer_invalidate :
								       NULL);
	if (!vgpu_peer_handle)
		return -EINVAL;
	if (both) {
		vgpu_peer_handle_nc = ib_register_peer_memory_client(&vgpu_peer_client_nc, NULL);
		if (!vgpu_peer_handle_nc) {
			ib_unregister_peer_memory_client(vgpu_peer_handle);
			return -EINVAL;
		}
	}
	vgpu_peer_debug_init();
	return 0;
}
module_init(vgpu_peer_init);

static void __exit vgpu_peer_exit(void)
{
	debugfs_remove(vgpu_peer_debug_root);
	if (both)
		ib_unregister_peer_memory_client(vgpu_peer_handle_nc);
	ib_unregister_peer_memory_client(vgpu_peer_handle);
}
module_exit(vgpu_peer_exit);

MODULE_DESCRIPTION("Peer memory client for the GPU of Strait's lab");
MODULE_AUTHOR("The Strait authors");
MODULE_LICENSE("Dual MIT/GPL");
