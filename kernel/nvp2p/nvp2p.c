// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * strait_nvp2p: a bridge for memory of GPUs whose driver exports nvidia_p2p.
 *
 * It uses GPL-only symbols of strait.ko and of the kernel. A module that links to both those and
 * the symbols of a proprietary module does not load, so NVIDIA's driver must be the open kernel
 * modules.
 */
#include <linux/completion.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "nv-p2p.h"
#include "strait.h"
#include "strait/bridge.h"
#include "window.h"

#define GPU_PAGE 65536u

/* Race windows: see window.h. */
enum nvp2p_window {
	/* Waits: memory is pinned, the page table not read. Meets: the free callback. */
	NVP2P_W_GET,
	/* Waits: the free callback, after it marked the memory. Meets: put. */
	NVP2P_W_CALLBACK,
	/* Waits: put of memory that is not revoked, before it calls the driver. Meets: callback. */
	NVP2P_W_PUT,
	NVP2P_WINDOWS,
};

#ifdef CONFIG_STRAIT_DELAYS
static struct window nvp2p_windows[NVP2P_WINDOWS];
static struct dentry *nvp2p_debug_root;

static void nvp2p_window(enum nvp2p_window w)
{
	window_wait(&nvp2p_windows[w], false);
}

static void nvp2p_window_meet(enum nvp2p_window w)
{
	window_meet(&nvp2p_windows[w]);
}

static void nvp2p_debug_init(void)
{
	static const char *const names[NVP2P_WINDOWS] = {
		[NVP2P_W_GET] = "get", [NVP2P_W_CALLBACK] = "callback", [NVP2P_W_PUT] = "put"
	};

	nvp2p_debug_root = debugfs_create_dir("strait_nvp2p", NULL);
	windows_create(nvp2p_debug_root, nvp2p_windows, names, NVP2P_WINDOWS);
}

static void nvp2p_debug_fini(void)
{
	debugfs_remove(nvp2p_debug_root);
}
#else
static void nvp2p_window(enum nvp2p_window w)
{
}

static void nvp2p_window_meet(enum nvp2p_window w)
{
}

static void nvp2p_debug_init(void)
{
}

static void nvp2p_debug_fini(void)
{
}
#endif

struct nvp2p_pin {
	struct nvidia_p2p_page_table *table;	/* owned by the GPU driver */
	struct mutex lock;			/* @revoked; nests inside the driver's lock */
	bool revoked;				/* the driver revoked memory and @table */
	struct completion callback_done;	/* the callback does not access this any more */
	u64 address;
	void (*revoked_fn)(void *arg);
	void *arg;
};

/*
 * The driver's free callback, called with a lock of the driver held that nvidia_p2p_get_pages() and
 * nvidia_p2p_put_pages() take: neither may be called from here. The driver frees the table when
 * this returns.
 */
static void nvp2p_free_callback(void *data)
{
	struct nvp2p_pin *p = data;

	nvp2p_window_meet(NVP2P_W_GET);
	nvp2p_window_meet(NVP2P_W_PUT);
	p->revoked_fn(p->arg);
	/* Waits for nvp2p_get_pages() to finish reading the table. */
	mutex_lock(&p->lock);
	p->revoked = true;
	nvp2p_window(NVP2P_W_CALLBACK);
	mutex_unlock(&p->lock);
	complete(&p->callback_done);
}

static u32 nvp2p_page_bytes(const struct nvidia_p2p_page_table *table)
{
	switch (table->page_size) {
	case NVIDIA_P2P_PAGE_SIZE_4KB:
		return 4096;
	case NVIDIA_P2P_PAGE_SIZE_64KB:
		return GPU_PAGE;
	case NVIDIA_P2P_PAGE_SIZE_128KB:
		return 2 * GPU_PAGE;
	default:
		return 0;
	}
}

static int nvp2p_copy_addresses(const struct nvidia_p2p_page_table *table,
				struct strait_bridge_memory *m)
{
	unsigned int i;

	m->page_bytes = nvp2p_page_bytes(table);
	if (!NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table) || !m->page_bytes || !table->entries)
		return -EOPNOTSUPP;
	m->phys = kvmalloc_array(table->entries, sizeof(*m->phys), GFP_KERNEL_ACCOUNT);
	if (!m->phys)
		return -ENOMEM;
	m->n = table->entries;
	for (i = 0; i < m->n; i++)
		m->phys[i] = table->pages[i]->physical_address;
	return 0;
}

static void nvp2p_put_pages(struct strait_bridge_memory *m)
{
	struct nvp2p_pin *p = m->priv;

	nvp2p_window_meet(NVP2P_W_CALLBACK);
	/*
	 * A revoked table must not be put: the driver has freed it, and another table may have its
	 * address. Wait until the callback has returned instead. If the callback comes after this
	 * check, the driver's put waits for it and finds no table.
	 */
	if (READ_ONCE(p->revoked)) {
		wait_for_completion(&p->callback_done);
	} else {
		nvp2p_window(NVP2P_W_PUT);
		nvidia_p2p_put_pages(0, 0, p->address, p->table);
	}
	kvfree(m->phys);
	kfree(p);
}

static int nvp2p_get_pages(u64 address, u64 length, void (*revoked)(void *arg), void *arg,
			   struct strait_bridge_memory *m)
{
	struct nvp2p_pin *p;
	int rc;

	p = kzalloc(sizeof(*p), GFP_KERNEL_ACCOUNT);
	if (!p)
		return -ENOMEM;
	mutex_init(&p->lock);
	init_completion(&p->callback_done);
	p->address = address;
	p->revoked_fn = revoked;
	p->arg = arg;
	rc = nvidia_p2p_get_pages(0, 0, address, length, &p->table, nvp2p_free_callback, p);
	if (rc) {
		kfree(p);
		return rc == -EINVAL ? -EFAULT : rc;
	}
	m->priv = p;
	nvp2p_window(NVP2P_W_GET);
	mutex_lock(&p->lock);
	rc = p->revoked ? -ENODEV : nvp2p_copy_addresses(p->table, m);
	mutex_unlock(&p->lock);
	if (rc)
		nvp2p_put_pages(m);
	return rc;
}

static const struct strait_bridge nvp2p_bridge = {
	.owner = THIS_MODULE,
	.kind = STRAIT_IMPORT_NVP2P,
	.align = GPU_PAGE,
	.get = nvp2p_get_pages,
	.put = nvp2p_put_pages,
};

static int __init nvp2p_init(void)
{
	int rc = strait_bridge_register(&nvp2p_bridge);

	if (!rc)
		nvp2p_debug_init();
	return rc;
}
module_init(nvp2p_init);

static void __exit nvp2p_exit(void)
{
	nvp2p_debug_fini();
	strait_bridge_unregister(&nvp2p_bridge);
}
module_exit(nvp2p_exit);

MODULE_DESCRIPTION("Bridge between strait and GPU drivers that export nvidia_p2p");
MODULE_AUTHOR("The Strait authors");
MODULE_LICENSE("Dual MIT/GPL");
