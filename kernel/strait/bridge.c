// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Memory by a bridge. */
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/mutex.h>

#include "bridge.h"
#include "core.h"
#include "window.h"

static DEFINE_MUTEX(lock);
static const struct strait_bridge *registered;

/* What the bridge calls back with. It is there before the backing, and goes with it. */
struct strait_bridged {
	const struct strait_bridge *bridge;
	struct strait_bridge_memory memory;
	spinlock_t lock;
	struct strait_backing *backing;	/* NULL: not yet */
	bool gone;
};

int strait_bridge_register(const struct strait_bridge *bridge)
{
	int rc = -EBUSY;

	mutex_lock(&lock);
	if (!registered) {
		registered = bridge;
		rc = 0;
	}
	mutex_unlock(&lock);
	return rc;
}
EXPORT_SYMBOL_GPL(strait_bridge_register);

void strait_bridge_unregister(const struct strait_bridge *bridge)
{
	mutex_lock(&lock);
	if (registered == bridge)
		registered = NULL;
	mutex_unlock(&lock);
}
EXPORT_SYMBOL_GPL(strait_bridge_unregister);

bool strait_bridge_there(void)
{
	return READ_ONCE(registered);
}

static const struct strait_bridge *bridge_get(u32 kind)
{
	const struct strait_bridge *bridge;

	mutex_lock(&lock);
	bridge = registered;
	if (bridge && (bridge->kind != kind || !try_module_get(bridge->owner)))
		bridge = NULL;
	mutex_unlock(&lock);
	return bridge;
}

/* Called by the bridge, with whatever its driver holds. Waits for I/O in flight, without a deadline. */
static void memory_gone(void *arg)
{
	struct strait_bridged *bridged = arg;
	struct strait_backing *b;

	strait_window_meet(STRAIT_W_PUBLISH);
	spin_lock(&bridged->lock);
	bridged->gone = true;
	b = bridged->backing;
	spin_unlock(&bridged->lock);
	/* It does not go before the bridge's put() has returned, and that is not before we have. */
	if (b)
		strait_backing_kill(b);
}

void strait_bridge_put(struct strait_bridged *bridged)
{
	const struct strait_bridge *bridge = bridged->bridge;

	bridge->put(&bridged->memory);
	module_put(bridge->owner);
	kfree(bridged);
}

/*
 * Every page of it must be a page to the kernel, and one that may be handed to other devices. -ENXIO if it is
 * none at all: then no file system can do something with it.
 */
static int fill_pages(const struct strait_bridge_memory *m, struct page **pages, unsigned long n)
{
	const unsigned long per = m->page_bytes >> PAGE_SHIFT;
	unsigned long i, pfn;

	if (m->n * per < n)
		return -EINVAL;
	for (i = 0; i < n; i++) {
		pfn = PHYS_PFN(m->phys[i / per]) + i % per;
		if (!pfn_valid(pfn))
			return -ENXIO;
		if (!is_pci_p2pdma_page(pfn_to_page(pfn)))
			return -EOPNOTSUPP;
		pages[i] = pfn_to_page(pfn);
	}
	return 0;
}

/* No vectors: whose it is the addresses tell. */
static int make_bare(struct strait_bridged *bridged, u64 length, struct strait_backing **ret)
{
	const struct strait_bridge_memory *m = &bridged->memory;
	struct strait_backing *b;
	unsigned int i;

	b = strait_backing_alloc(length, 0);
	if (!b)
		return -ENOMEM;
	b->pdev = strait_device_at(m->phys[0], m->page_bytes);
	for (i = 0; b->pdev && i < m->n; i++)
		if (!strait_bar_holds(b->pdev, m->phys[i], m->page_bytes))
			break;
	if (i < m->n || !b->pdev) {
		strait_backing_put(b);
		return -EOPNOTSUPP;
	}
	*ret = b;
	return 0;
}

u64 strait_bridge_piece(const struct strait_backing *b, u64 offset, phys_addr_t *phys)
{
	const struct strait_bridge_memory *m = &b->bridged->memory;
	unsigned int page = div_u64(offset, m->page_bytes);
	u64 length = m->page_bytes - (offset - (u64)page * m->page_bytes);

	*phys = m->phys[page] + m->page_bytes - length;
	while (++page < m->n && m->phys[page] == m->phys[page - 1] + m->page_bytes)
		length += m->page_bytes;
	return length;
}

static int make_backing(struct strait_bridged *bridged, u64 length, struct strait_backing **ret)
{
	unsigned long n = length >> PAGE_SHIFT;
	struct page **pages;
	int rc;

	pages = strait_zalloc_array(n, sizeof(*pages));
	if (!pages)
		return -ENOMEM;
	rc = fill_pages(&bridged->memory, pages, n);
	if (!rc)
		rc = strait_backing_new(pages, n, ret);
	kvfree(pages);
	return rc == -ENXIO ? make_bare(bridged, length, ret) : rc;
}

static int publish(struct strait_bridged *bridged, struct strait_backing *b)
{
	int rc = 0;

	spin_lock(&bridged->lock);
	if (bridged->gone)
		rc = -ENODEV;
	else
		bridged->backing = b;
	spin_unlock(&bridged->lock);
	return rc;
}

static int pin(u32 kind, u64 address, u64 length, struct strait_bridged **ret)
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
	rc = bridge->get(address, length, memory_gone, bridged, &bridged->memory);
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

int strait_bridge_back(struct strait_region *r, struct strait_backing **ret)
{
	struct strait_bridged *bridged;
	struct strait_backing *b;
	int rc;

	rc = pin(r->kind, r->address, r->length, &bridged);
	if (rc)
		return rc;
	rc = make_backing(bridged, r->length, &b);
	if (rc) {
		strait_bridge_put(bridged);
		return rc;
	}
	/* From here on it is given back with the backing. */
	b->bridged = bridged;
	strait_window(STRAIT_W_PUBLISH);
	rc = publish(bridged, b);
	if (rc) {
		strait_backing_put(b);
		return rc;
	}
	*ret = b;
	return 0;
}
