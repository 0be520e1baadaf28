// SPDX-License-Identifier: GPL-2.0 OR MIT
/* A consumer of nvidia_p2p that a test controls. */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/sched.h>

#include "test.h"

/*
 * The pointers are read and cleared under a spinlock, which is never held across a call to the
 * driver: the callback takes it under the driver's lock, which get, put and map take.
 */
struct vt_consumer {
	spinlock_t lock;	/* @table, @mapping */
	struct nvidia_p2p_page_table *table;
	struct nvidia_p2p_dma_mapping *mapping;
	u64 va, len;
	u32 cb_flags, cb_sleep_ms;
	bool persistent;
	struct vt_status status;
};

static atomic_t p2p_callbacks;

static void p2p_clear(struct vt_consumer *c)
{
	spin_lock(&c->lock);
	c->table = NULL;
	c->mapping = NULL;
	spin_unlock(&c->lock);
}

static void p2p_peek(struct vt_consumer *c, struct nvidia_p2p_page_table **table,
		     struct nvidia_p2p_dma_mapping **mapping)
{
	spin_lock(&c->lock);
	*table = c->table;
	*mapping = c->mapping;
	spin_unlock(&c->lock);
}

static void p2p_no_callback(void *data)
{
}

static void p2p_callback_calls(struct vt_consumer *c, struct nvidia_p2p_page_table *table,
			       struct nvidia_p2p_dma_mapping *mapping)
{
	s32 *result = c->status.results;
	struct nvidia_p2p_dma_mapping *more;
	struct nvidia_p2p_page_table *other;
	struct pci_dev *pdev = vt_edu_get();

	if (c->cb_flags & VT_CB_GET)
		result[VT_R_GET] = nvidia_p2p_get_pages(0, 0, c->va, c->len, &other,
							p2p_no_callback, NULL);
	if (c->cb_flags & VT_CB_PUT)
		result[VT_R_PUT] = nvidia_p2p_put_pages(0, 0, c->va, table);
	if (c->cb_flags & VT_CB_MAP && pdev)
		result[VT_R_MAP] = nvidia_p2p_dma_map_pages(pdev, table, &more);
	if (c->cb_flags & VT_CB_UNMAP && pdev && mapping)
		result[VT_R_UNMAP] = nvidia_p2p_dma_unmap_pages(pdev, table, mapping);
	if (c->cb_flags & VT_CB_FREE) {
		result[VT_R_FREE_MAP] = nvidia_p2p_free_dma_mapping(mapping);
		result[VT_R_FREE_TABLE] = nvidia_p2p_free_page_table(table);
	}
	pci_dev_put(pdev);
}

static void p2p_free_callback(void *data)
{
	struct vt_consumer *c = data;
	struct nvidia_p2p_dma_mapping *mapping;
	struct nvidia_p2p_page_table *table;
	ktime_t begin = ktime_get();

	p2p_peek(c, &table, &mapping);
	if (c->cb_flags & VT_CB_FORGET)
		p2p_clear(c);
	if (c->cb_flags & VT_CB_QUIESCE) {
		vt_edu_wait();
		c->status.quiesced_ms = ktime_ms_delta(ktime_get(), begin);
	}
	p2p_callback_calls(c, table, mapping);
	if (c->cb_sleep_ms)
		msleep(c->cb_sleep_ms);
	if (!(c->cb_flags & (VT_CB_FORGET | VT_CB_KEEP)))
		p2p_clear(c);
	c->status.tgid = current->tgid;
	c->status.order = atomic_inc_return(&p2p_callbacks);
	/* Pairs with the acquire in vt_status(): a reader of the count sees the results. */
	smp_store_release(&c->status.called, c->status.called + 1);
}

static struct vt_consumer *p2p_find(struct vt_file *f, u32 id)
{
	return id >= 1 && id <= VT_SLOTS ? READ_ONCE(f->consumers[id - 1]) : NULL;
}

static int p2p_get(struct vt_consumer *c, const struct vt_get *req)
{
	struct nvidia_p2p_page_table **table = req->flags & VT_GET_NO_TABLE ? NULL : &c->table;
	u32 flags = (req->flags & VT_GET_FLAG_1 ? 1 : 0) | (req->flags & VT_GET_FLAG_2 ? 2 : 0);

	if (c->persistent)
		return nvidia_p2p_get_pages_persistent(c->va, c->len, table, flags);
	return nvidia_p2p_get_pages(req->token, req->va_space, c->va, c->len, table,
				    req->flags & VT_GET_NO_CALLBACK ? NULL : p2p_free_callback, c);
}

static u64 p2p_page_bytes(u32 page_size)
{
	static const u64 bytes[] = { 4096, 65536, 131072 };

	return page_size < ARRAY_SIZE(bytes) ? bytes[page_size] : 0;
}

static u32 p2p_count_runs(const struct nvidia_p2p_page_table *table)
{
	u32 i, runs = 1;

	for (i = 1; i < table->entries; i++)
		runs += table->pages[i]->physical_address !=
			table->pages[i - 1]->physical_address + p2p_page_bytes(table->page_size);
	return runs;
}

/* The callback may be running. It clears the pointer before the driver frees the table. */
static void p2p_describe(struct vt_consumer *c, struct vt_get *req)
{
	struct nvidia_p2p_page_table *table;

	spin_lock(&c->lock);
	table = c->table;
	if (table) {
		req->version = table->version;
		req->page_size = table->page_size;
		req->entries = table->entries;
		req->table_flags = table->flags;
		req->first = table->pages[0]->physical_address;
		req->last = table->pages[table->entries - 1]->physical_address;
		req->runs = p2p_count_runs(table);
		memcpy(req->uuid, table->gpu_uuid, sizeof(req->uuid));
	}
	spin_unlock(&c->lock);
}

int vt_get(struct vt_file *f, struct vt_get *req)
{
	struct vt_consumer *c;
	u32 i;

	for (i = 0; i < VT_SLOTS && f->consumers[i]; i++)
		;
	if (i == VT_SLOTS)
		return -ENOSPC;
	c = kzalloc(sizeof(*c), GFP_KERNEL);
	if (!c)
		return -ENOMEM;
	spin_lock_init(&c->lock);
	c->va = req->va;
	c->len = req->len;
	c->cb_flags = req->cb_flags;
	c->cb_sleep_ms = min(req->cb_sleep_ms, 10000u);
	c->persistent = req->flags & VT_GET_PERSISTENT;
	req->result = p2p_get(c, req);
	if (req->result) {
		kfree(c);
		return 0;
	}
	p2p_describe(c, req);
	c->status.id = i + 1;
	req->id = i + 1;
	WRITE_ONCE(f->consumers[i], c);
	return 0;
}

static int p2p_put(struct vt_consumer *c, u32 flags, struct nvidia_p2p_page_table *table)
{
	u64 va = c->va + (flags & VT_PUT_WRONG_VA ? VT_PAGE : 0);

	if (flags & VT_PUT_PERSISTENT)
		return nvidia_p2p_put_pages_persistent(va, table, flags & VT_PUT_FLAG ? 1 : 0);
	return nvidia_p2p_put_pages(0, 0, va, table);
}

int vt_put(struct vt_file *f, struct vt_op *req)
{
	struct nvidia_p2p_dma_mapping *mapping;
	struct nvidia_p2p_page_table *table;
	struct vt_consumer *c = p2p_find(f, req->id);

	if (!c)
		return -ENOENT;
	p2p_peek(c, &table, &mapping);
	req->result = p2p_put(c, req->flags, req->flags & VT_PUT_NULL ? NULL : table);
	if (!req->result && !(req->flags & (VT_PUT_KEEP | VT_PUT_NULL | VT_PUT_WRONG_VA)))
		p2p_clear(c);
	return 0;
}

int vt_map(struct vt_file *f, struct vt_op *req)
{
	struct nvidia_p2p_dma_mapping *mapping;
	struct nvidia_p2p_page_table *table;
	struct vt_consumer *c = p2p_find(f, req->id);
	struct pci_dev *pdev;

	if (!c)
		return -ENOENT;
	pdev = vt_edu_get();
	if (!pdev)
		return -ENODEV;
	p2p_peek(c, &table, &mapping);
	if (req->flags & VT_MAP_NULL)
		table = NULL;
	/* c->mapping is written by the driver before it can call the callback. */
	req->result = nvidia_p2p_dma_map_pages(pdev, table, &c->mapping);
	pci_dev_put(pdev);
	spin_lock(&c->lock);
	if (!req->result && c->mapping) {
		req->entries = c->mapping->entries;
		req->version = c->mapping->version;
	}
	spin_unlock(&c->lock);
	return 0;
}

int vt_unmap(struct vt_file *f, struct vt_op *req)
{
	struct nvidia_p2p_dma_mapping *mapping;
	struct nvidia_p2p_page_table *table;
	struct vt_consumer *c = p2p_find(f, req->id);
	struct pci_dev *pdev;

	if (!c)
		return -ENOENT;
	pdev = vt_edu_get();
	if (!pdev)
		return -ENODEV;
	p2p_peek(c, &table, &mapping);
	req->result = nvidia_p2p_dma_unmap_pages(pdev, table, mapping);
	pci_dev_put(pdev);
	if (!(req->flags & VT_PUT_KEEP)) {
		spin_lock(&c->lock);
		c->mapping = NULL;
		spin_unlock(&c->lock);
	}
	return 0;
}

int vt_status(struct vt_file *f, struct vt_status *req)
{
	struct vt_consumer *c = p2p_find(f, req->id);

	if (!c)
		return -ENOENT;
	/* Pairs with the release in p2p_free_callback(). */
	if (smp_load_acquire(&c->status.called))
		*req = c->status;
	else
		*req = (struct vt_status){ .id = req->id };
	return 0;
}

int vt_p2p_addr(struct vt_file *f, u32 id, u64 offset, u32 len, dma_addr_t *addr)
{
	struct vt_consumer *c = p2p_find(f, id);
	int rc = -EINVAL;
	u64 page;

	if (!c)
		return -ENOENT;
	spin_lock(&c->lock);
	page = c->mapping ? p2p_page_bytes(c->mapping->page_size_type) : 0;
	if (page && offset / page < c->mapping->entries && offset % page + len <= page) {
		*addr = c->mapping->dma_addresses[offset / page] + offset % page;
		rc = 0;
	}
	spin_unlock(&c->lock);
	return rc;
}

void vt_p2p_release(struct vt_file *f)
{
	struct nvidia_p2p_dma_mapping *mapping;
	struct nvidia_p2p_page_table *table;
	int i;

	for (i = 0; i < VT_SLOTS; i++) {
		struct vt_consumer *c = f->consumers[i];

		if (!c)
			continue;
		/* Revoked or not: after put_pages has returned the callback is not called. */
		p2p_peek(c, &table, &mapping);
		p2p_put(c, c->persistent ? VT_PUT_PERSISTENT : 0, table);
		kfree(c);
	}
}

static int p2p_rsync_get_mode(int *mode, void *data)
{
	return -ENODEV;
}

static void p2p_rsync_put_mode(int mode, void *data)
{
}

static void p2p_rsync_wait(struct pci_dev *gpu, void *data)
{
}

/* Drops a page reference that this module does not have, as a faulty consumer does. */
int vt_foreign_put(struct vt_file *f, struct vt_op *req)
{
	struct vt_consumer *c = p2p_find(f, req->id);
	struct page *page = NULL;

	if (!c)
		return -ENOENT;
	spin_lock(&c->lock);
	if (c->table && pfn_valid(PHYS_PFN(c->table->pages[0]->physical_address)))
		page = pfn_to_page(PHYS_PFN(c->table->pages[0]->physical_address));
	spin_unlock(&c->lock);
	req->result = page ? 0 : -EOPNOTSUPP;
	if (page)
		put_page(page);
	return 0;
}

int vt_old(struct vt_file *f, struct vt_old *req)
{
	nvidia_p2p_rsync_driver_t driver = { .version = NVIDIA_P2P_RSYNC_DRIVER_VERSION,
					     .get_relaxed_ordering_mode = p2p_rsync_get_mode,
					     .put_relaxed_ordering_mode = p2p_rsync_put_mode,
					     .wait_for_rsync = p2p_rsync_wait };
	nvidia_p2p_rsync_driver_t wrong = driver;
	nvidia_p2p_rsync_reg_info_t *info = NULL;

	req->init_mapping = nvidia_p2p_init_mapping(1, NULL, NULL, NULL);
	req->destroy_mapping = nvidia_p2p_destroy_mapping(1);
	req->rsync_null = nvidia_p2p_register_rsync_driver(NULL, NULL);
	wrong.version = 0x00020000;
	req->rsync_version = nvidia_p2p_register_rsync_driver(&wrong, NULL);
	req->rsync_good = nvidia_p2p_register_rsync_driver(&driver, NULL);
	req->rsync_again = nvidia_p2p_register_rsync_driver(&driver, NULL);
	nvidia_p2p_unregister_rsync_driver(&driver, NULL);
	req->rsync_registers = nvidia_p2p_get_rsync_registers(&info);
	nvidia_p2p_put_rsync_registers(info);
	return 0;
}
