// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Memory imported through a bridge. */
#include <linux/dma-buf.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/mutex.h>

#include "backing.h"
#include "bridge.h"
#include "core.h"
#include "import.h"
#include "region.h"
#include "window.h"

static DEFINE_MUTEX(strait_bridge_lock);	/* bridge_registered */
static const struct strait_bridge *bridge_registered[STRAIT_IMPORT_KINDS];

/*
 * The argument of the bridge's callback. Allocated before the backing is published, freed with it.
 */
struct strait_bridged {
	const struct strait_bridge *bridge;
	struct strait_bridge_memory memory;	/* physical form */
	void *priv;			/* per-device form: of open() */
	struct dev_pagemap *pgmap;	/* of the pages, with a reference; NULL: no pages */
	spinlock_t lock;		/* @backing, @revoked */
	struct strait_backing *backing;	/* NULL: not published yet */
	bool revoked;
};

int strait_bridge_register(const struct strait_bridge *bridge)
{
	int rc = -EBUSY;

	if (WARN_ON(bridge->kind >= STRAIT_IMPORT_KINDS))
		return -EINVAL;
	mutex_lock(&strait_bridge_lock);
	if (!bridge_registered[bridge->kind]) {
		bridge_registered[bridge->kind] = bridge;
		rc = 0;
	}
	mutex_unlock(&strait_bridge_lock);
	return rc;
}
EXPORT_SYMBOL_GPL(strait_bridge_register);

void strait_bridge_unregister(const struct strait_bridge *bridge)
{
	mutex_lock(&strait_bridge_lock);
	if (bridge_registered[bridge->kind] == bridge)
		bridge_registered[bridge->kind] = NULL;
	mutex_unlock(&strait_bridge_lock);
}
EXPORT_SYMBOL_GPL(strait_bridge_unregister);

bool strait_bridge_is_registered(u32 kind)
{
	return READ_ONCE(bridge_registered[kind]);
}

bool strait_bridge_exported(const struct dma_buf *dmabuf)
{
	bool found = false;
	u32 kind;

	mutex_lock(&strait_bridge_lock);
	for (kind = 0; kind < STRAIT_IMPORT_KINDS; kind++)
		if (bridge_registered[kind] && bridge_registered[kind]->owner == dmabuf->owner)
			found = true;
	mutex_unlock(&strait_bridge_lock);
	return found;
}

static const struct strait_bridge *bridge_get(u32 kind)
{
	const struct strait_bridge *bridge;

	mutex_lock(&strait_bridge_lock);
	bridge = bridge_registered[kind];
	if (bridge && !try_module_get(bridge->owner))
		bridge = NULL;
	mutex_unlock(&strait_bridge_lock);
	return bridge;
}

/*
 * Called by revocation and by strait_bridge_put(); the first puts. The bridge's put() orders both.
 */
static void bridge_put_pgmap(struct strait_bridged *bridged)
{
	struct dev_pagemap *pgmap = xchg(&bridged->pgmap, NULL);

	if (pgmap)
		put_dev_pagemap(pgmap);
}

/*
 * The bridge's callback, called with locks of the GPU driver held. Waits for I/O in flight without
 * a deadline: when it returns the driver reuses the memory.
 */
static void bridge_memory_revoked(void *arg)
{
	struct strait_bridged *bridged = arg;
	struct strait_backing *b;

	strait_window_meet(STRAIT_W_PUBLISH);
	spin_lock(&bridged->lock);
	bridged->revoked = true;
	b = bridged->backing;
	spin_unlock(&bridged->lock);
	/* An import that has not published its memory yet sees .revoked, and puts the memory. */
	if (!b)
		return;
	/* Freeing the backing waits in the bridge's put() until this callback has returned. */
	strait_backing_kill(b);
	bridge_put_pgmap(bridged);
}

void strait_bridge_put(struct strait_bridged *bridged)
{
	const struct strait_bridge *bridge = bridged->bridge;

	if (bridge->open)
		bridge->close(bridged->priv);
	else
		bridge->put(&bridged->memory);
	bridge_put_pgmap(bridged);
	module_put(bridge->owner);
	kfree(bridged);
}

static bool bridge_pgmap_contains(const struct dev_pagemap *pgmap, phys_addr_t start, u64 length)
{
	int i;

	for (i = 0; i < pgmap->nr_range; i++)
		if (start >= pgmap->ranges[i].start && start + length - 1 <= pgmap->ranges[i].end)
			return true;
	return false;
}

/*
 * Finds the struct pages of the memory, which must all be P2PDMA pages of one page map. -ENXIO:
 * there are none, and no file system can do I/O with the memory.
 *
 * No page reference is taken: reference counts of these pages belong to the driver that made them.
 * NVIDIA's driver crashes when another module drops the last reference, and a free page has none.
 * The bridge's pin keeps the memory, and a reference on the page map keeps the struct pages, until
 * the driver revokes the memory.
 */
static int bridge_fill_pages(struct strait_bridged *bridged, struct page **pages, unsigned long n)
{
	const struct strait_bridge_memory *m = &bridged->memory;
	const unsigned long per = m->page_bytes >> PAGE_SHIFT;
	struct dev_pagemap *pgmap;
	unsigned long i;

	if (m->n * per < n)
		return -EINVAL;
	pgmap = compat_get_dev_pagemap(PHYS_PFN(m->phys[0]));
	if (!pgmap)
		return -ENXIO;
	bridged->pgmap = pgmap;
	if (pgmap->type != MEMORY_DEVICE_PCI_P2PDMA)
		return -EOPNOTSUPP;
	for (i = 0; i < m->n; i++)
		if (!bridge_pgmap_contains(pgmap, m->phys[i], m->page_bytes))
			return -EOPNOTSUPP;
	for (i = 0; i < n; i++)
		pages[i] = pfn_to_page(PHYS_PFN(m->phys[i / per]) + i % per);
	return 0;
}

/* Memory without struct pages has no vectors. Its device is the one with a matching BAR. */
static int bridge_fill_physical(const struct strait_bridge_memory *m, struct strait_backing *b)
{
	unsigned int i;

	b->pdev = strait_device_by_address(m->phys[0], m->page_bytes);
	for (i = 0; b->pdev && i < m->n; i++)
		if (!strait_bar_contains(b->pdev, m->phys[i], m->page_bytes))
			break;
	return b->pdev && i == m->n ? 0 : -EOPNOTSUPP;
}

u64 strait_bridge_run(const struct strait_backing *b, u64 offset, phys_addr_t *phys)
{
	const struct strait_bridge_memory *m = &b->bridged->memory;
	unsigned int page = div_u64(offset, m->page_bytes);
	u64 length = m->page_bytes - (offset - (u64)page * m->page_bytes);

	*phys = m->phys[page] + m->page_bytes - length;
	while (++page < m->n && m->phys[page] == m->phys[page - 1] + m->page_bytes)
		length += m->page_bytes;
	return length;
}

static int bridge_fill_backing(struct strait_bridged *bridged, struct strait_backing *b)
{
	unsigned long n = b->length >> PAGE_SHIFT;
	struct page **pages;
	int rc;

	pages = strait_zalloc_array(n, sizeof(*pages));
	if (!pages)
		return -ENOMEM;
	rc = bridge_fill_pages(bridged, pages, n);
	if (!rc)
		rc = strait_backing_fill(b, pages, n);
	kvfree(pages);
	return rc == -ENXIO ? bridge_fill_physical(&bridged->memory, b) : rc;
}

static int bridge_publish(struct strait_bridged *bridged, struct strait_backing *b)
{
	int rc = 0;

	spin_lock(&bridged->lock);
	if (bridged->revoked)
		rc = -ENODEV;
	else
		bridged->backing = b;
	spin_unlock(&bridged->lock);
	return rc;
}

static int bridge_access(u32 kind, u64 address, u64 length, struct strait_bridged **ret)
{
	struct strait_bridged *bridged;
	const struct strait_bridge *bridge;
	int rc = -ENOMEM;

	bridge = bridge_get(kind);
	if (!bridge)
		return -EOPNOTSUPP;
	bridged = strait_zalloc(sizeof(*bridged));
	if (!bridged)
		goto err_module;
	spin_lock_init(&bridged->lock);
	bridged->bridge = bridge;
	rc = -EINVAL;
	if ((address | length) % bridge->align)
		goto err_free;
	if (bridge->open)
		rc = bridge->open(address, length, &bridged->priv);
	else
		rc = bridge->get(address, length, bridge_memory_revoked, bridged, &bridged->memory);
	if (rc)
		goto err_free;
	*ret = bridged;
	return 0;
err_free:
	kfree(bridged);
err_module:
	module_put(bridge->owner);
	return rc;
}

const struct strait_bridge *strait_bridge_per_device(const struct strait_backing *b, void **priv)
{
	const struct strait_bridged *bridged = b->bridged;

	if (!bridged || !bridged->bridge->open)
		return NULL;
	*priv = bridged->priv;
	return bridged->bridge;
}

/* The memory is put or closed when the backing is freed, also when this fails. */
int strait_bridge_import(struct strait_region *r, struct strait_backing *b)
{
	struct strait_bridged *bridged;
	int rc;

	rc = bridge_access(r->kind, r->address, r->length, &bridged);
	if (rc)
		return rc;
	b->bridged = bridged;
	/* Nothing is pinned: memory is revoked from the devices that it is mapped for. */
	if (bridged->bridge->open)
		return 0;
	rc = bridge_fill_backing(bridged, b);
	if (rc)
		return rc;
	strait_window(STRAIT_W_PUBLISH);
	return bridge_publish(bridged, b);
}
