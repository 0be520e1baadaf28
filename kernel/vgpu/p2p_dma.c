// SPDX-License-Identifier: GPL-2.0 OR MIT
/* nvidia_p2p: mapping pinned memory for a peer, through the DMA API. */
#include <linux/dma-mapping.h>
#include <linux/hashtable.h>
#include <linux/iommu.h>
#include <linux/pci-p2pdma.h>

#include "p2p.h"

struct vgpu_dma {
	struct nvidia_p2p_dma_mapping pub;
	struct hlist_node key;		/* in the hash table of all, by address */
	struct list_head node;		/* vgpu_pt.dmas */
	struct vgpu_dev *dev;
	unsigned int shift;		/* of the page table's pages */
};

/*
 * Both hash tables and vgpu_pt.dmas. Held until a mapping is unmapped, so that callers wait for it.
 */
DEFINE_MUTEX(vgpu_dma_lock);
static DEFINE_HASHTABLE(p2p_dma_mappings, 8);

bool vgpu_peer_is_reachable(struct vgpu_dev *dev, struct device *peer)
{
	/* Without P2PDMA the kernel cannot tell: assume that the peer reaches the memory. */
	return !dev->p2pdma || pci_p2pdma_distance(dev->pdev, peer, false) >= 0;
}

/*
 * In lazy mode unmapped addresses stay in the IOTLB for a while, and the memory is reused before.
 */
void vgpu_peer_flush(struct device *peer)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(peer);

	if (domain)
		iommu_flush_iotlb_all(domain);
}

static void p2p_dma_unmap_entries(struct vgpu_dma *dma, u32 n)
{
	struct device *peer = &dma->pub.pci_dev->dev;

	while (n--)
		dma_unmap_resource(peer, dma->pub.dma_addresses[n], BIT(dma->shift),
				   DMA_BIDIRECTIONAL, 0);
	vgpu_peer_flush(peer);
}

static void p2p_dma_free(struct vgpu_dma *dma)
{
	pci_dev_put(dma->pub.pci_dev);
	kvfree(dma->pub.dma_addresses);
	kfree(dma);
}

static void p2p_dma_destroy(struct vgpu_dma *dma)
{
	lockdep_assert_held(&vgpu_dma_lock);
	hash_del(&dma->key);
	list_del(&dma->node);
	p2p_dma_unmap_entries(dma, dma->pub.entries);
	vgpu_count(dma->dev, VGPU_PEER_MAPPED_NOW, -((s64)dma->pub.entries << dma->shift));
	p2p_dma_free(dma);
}

void vgpu_dma_unmap_all(struct list_head *link)
{
	struct vgpu_dma *dma, *tmp;

	list_for_each_entry_safe(dma, tmp, link, node)
		p2p_dma_destroy(dma);
}

static struct vgpu_dma *p2p_dma_new(struct vgpu_pt *pt, struct pci_dev *peer)
{
	struct vgpu_dma *dma;

	dma = vgpu_zalloc(sizeof(*dma));
	if (!dma)
		return NULL;
	dma->dev = pt->dev;
	dma->pub.version = NVIDIA_P2P_DMA_MAPPING_VERSION;
	dma->shift = pt->shift;
	dma->pub.page_size_type = pt->pub.page_size;
	dma->pub.entries = pt->pub.entries;
	dma->pub.pci_dev = pci_dev_get(peer);
	dma->pub.dma_addresses = vgpu_zalloc_array(pt->pub.entries, sizeof(u64));
	if (!dma->pub.dma_addresses) {
		p2p_dma_free(dma);
		return NULL;
	}
	return dma;
}

static int p2p_dma_map_entries(struct vgpu_pt *pt, struct vgpu_dma *dma)
{
	struct device *peer = &dma->pub.pci_dev->dev;
	u32 i;

	for (i = 0; i < pt->pub.entries; i++) {
		dma_addr_t addr;
		int rc;

		rc = vgpu_dma_map(peer, pt->entry[i].physical_address, BIT(pt->shift),
				  DMA_BIDIRECTIONAL, &addr);
		if (rc) {
			p2p_dma_unmap_entries(dma, i);
			return rc;
		}
		dma->pub.dma_addresses[i] = addr;
	}
	return 0;
}

static void p2p_dma_insert(struct vgpu_pt *pt, struct vgpu_dma *dma)
{
	s64 bytes = (s64)dma->pub.entries << dma->shift;

	mutex_lock(&vgpu_dma_lock);
	hash_add(p2p_dma_mappings, &dma->key, (unsigned long)&dma->pub);
	list_add_tail(&dma->node, &pt->dmas);
	mutex_unlock(&vgpu_dma_lock);
	vgpu_count(pt->dev, VGPU_P2P_MAPPED, bytes);
	vgpu_count(pt->dev, VGPU_PEER_MAPPED_NOW, bytes);
}

static int p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
			     struct nvidia_p2p_dma_mapping **ret)
{
	struct vgpu_pt *pt = vgpu_pt_find(table);
	struct vgpu_dma *dma;
	int rc;

	if (!pt)
		return -EINVAL;
	if (pt->shift < VGPU_SHIFT) {
		/* NVIDIA's driver hits BUG_ON() here. lab/ scans the log for "BUG:". */
		pci_err(peer, "BUG: DMA mapping of a page table with 4 KiB pages\n");
		return -EINVAL;
	}
	if (!vgpu_peer_is_reachable(pt->dev, &peer->dev))
		return -ENOTSUPP;
	dma = p2p_dma_new(pt, peer);
	if (!dma)
		return -ENOMEM;
	rc = p2p_dma_map_entries(pt, dma);
	if (rc) {
		p2p_dma_free(dma);
		return rc;
	}
	p2p_dma_insert(pt, dma);
	*ret = &dma->pub;
	return 0;
}

int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping)
{
	int rc;

	might_sleep();
	if (!peer || !page_table || !dma_mapping)
		return -EINVAL;
	vgpu_window_meet(VGPU_W_CALLBACK);
	if (!vgpu_api_lock())
		return -EIO;
	rc = p2p_dma_map_pages(peer, page_table, dma_mapping);
	vgpu_api_unlock();
	return rc;
}
EXPORT_SYMBOL(nvidia_p2p_dma_map_pages);

static struct vgpu_dma *p2p_dma_find(struct nvidia_p2p_dma_mapping *mapping)
{
	struct vgpu_dma *dma;

	lockdep_assert_held(&vgpu_dma_lock);
	hash_for_each_possible(p2p_dma_mappings, dma, key, (unsigned long)mapping)
		if (&dma->pub == mapping)
			return dma;
	return NULL;
}

/* Allowed in a free callback, so it does not take vgpu_api_mutex. */
int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping)
{
	struct vgpu_dma *dma;
	int rc = 0;

	might_sleep();
	if (!peer || !page_table || !dma_mapping)
		return -EINVAL;
	vgpu_window_meet(VGPU_W_TEARDOWN);
	mutex_lock(&vgpu_dma_lock);
	dma = p2p_dma_find(dma_mapping);
	if (!vgpu_pt_find(page_table)) {
		/* NVIDIA's driver reads the freed table. lab/ scans the log for "BUG:". */
		pci_err(peer, "BUG: DMA unmapping of a page table that was freed\n");
		rc = -EINVAL;
	} else if (dma) {
		if (dma->pub.pci_dev != peer)
			pci_warn(peer, "unmaps a mapping of %s\n", pci_name(dma->pub.pci_dev));
		p2p_dma_destroy(dma);
	}
	mutex_unlock(&vgpu_dma_lock);
	return rc;
}
EXPORT_SYMBOL(nvidia_p2p_dma_unmap_pages);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_free_dma_mapping);
