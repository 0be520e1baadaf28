// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The bridge of strait.ko: memory of clients as regions, mapped for one device at a time. */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "inject.h"
#include "peer.h"
#include "region.h"
#include "strait.h"

static void region_free(struct kref *kref)
{
	struct peer_region *r = container_of(kref, struct peer_region, kref);

	mmdrop(r->mm);
	peer_client_put(r->client);
	kfree(r);
}

void peer_region_put(struct peer_region *r)
{
	kref_put(&r->kref, region_free);
}

static int region_open(u64 address, u64 length, void **ret)
{
	struct peer_region *r;

	r = peer_zalloc(sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->client = peer_client_find(address, length, false);
	if (!r->client) {
		kfree(r);
		return -EFAULT;
	}
	kref_init(&r->kref);
	mmgrab(current->mm);
	r->mm = current->mm;
	r->address = address;
	r->length = length;
	*ret = r;
	return 0;
}

static void region_close(void *priv)
{
	peer_region_put(priv);
}

/*
 * The client looks the address up in the calling process. A process that has inherited or received
 * the file would map memory of its own at the same address.
 */
static int region_map(void *priv, struct pci_dev *pdev, u64 offset, u64 length,
		      const struct strait_bridge_notify *notify, void *arg,
		      struct strait_bridge_table *table)
{
	struct peer_region *r = priv;
	struct peer_context *ctx;
	int rc;

	if (current->mm != r->mm)
		return -EACCES;
	rc = peer_context_map(r->client, r->address + offset, length, pdev, notify, arg, &ctx);
	if (rc)
		return rc;
	table->table = &ctx->copy;
	table->priv = ctx;
	return 0;
}

static void region_unmap(struct strait_bridge_table *table)
{
	peer_context_unmap(table->priv);
}

static struct dma_buf *region_export(void *priv, u64 offset, u64 length, u32 fd_flags)
{
	return peer_dmabuf_export(priv, offset, length, fd_flags);
}

const struct strait_bridge peer_bridge = {
	.owner = THIS_MODULE,
	.kind = STRAIT_IMPORT_PEER,
	.align = PAGE_SIZE,
	.open = region_open,
	.close = region_close,
	.map = region_map,
	.unmap = region_unmap,
	.export = region_export,
};
