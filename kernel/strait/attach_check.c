// SPDX-License-Identifier: GPL-2.0 OR MIT
/* May a device be driven from user space? Only if an IOMMU confines it to its mappings. */
#include <linux/dma-map-ops.h>
#include <linux/error-injection.h>
#include <linux/iommu.h>
#include <linux/pci-p2pdma.h>

#include "attach.h"
#include "core.h"

static bool assume_peers;
module_param(assume_peers, bool, 0644);
MODULE_PARM_DESC(assume_peers,
		 "without CONFIG_PCI_P2PDMA: assume that devices reach each other (default 0)");

static int check_count_device(struct device *dev, void *data)
{
	int *n = data;

	/* Bridges may be in the group of the devices below them, and start no DMA themselves. */
	if (!dev_is_pci(dev) || !pci_is_bridge(to_pci_dev(dev)))
		(*n)++;
	return 0;
}

/*
 * 1 if firmware reserves memory that the device always reaches (Intel's RMRR, AMD's IVMD). Regions
 * that the kernel calls relaxable (USB keyboards, graphics) do not count. A program must not drive
 * a device that can write to such memory.
 */
noinline int strait_has_direct_regions(struct iommu_group *group)
{
	struct iommu_resv_region *region, *next;
	LIST_HEAD(regions);
	int rc;

	rc = iommu_get_group_resv_regions(group, &regions);
	list_for_each_entry_safe(region, next, &regions, list) {
		if (!rc && region->type == IOMMU_RESV_DIRECT)
			rc = 1;
		list_del(&region->list);
		kfree(region);
	}
	return rc;
}
ALLOW_ERROR_INJECTION(strait_has_direct_regions, ERRNO);

static bool check_alone(struct iommu_group *group)
{
	int n = 0;

	iommu_group_for_each_dev(group, &n, check_count_device);
	return n == 1;
}

/*
 * Without isolated MSIs the device can raise any interrupt by a DMA write to the MSI window: the
 * IOMMU does not translate that window, and nothing remaps the interrupt.
 */
static u32 check_group(struct pci_dev *pdev, int *id)
{
	struct iommu_group *group = iommu_group_get(&pdev->dev);
	u32 reason = STRAIT_ATTACH_NONE;

	*id = -1;
	if (!group)
		return STRAIT_ATTACH_NO_IOMMU;
	*id = iommu_group_id(group);
	if (!check_alone(group))
		reason = STRAIT_ATTACH_GROUP;
	else if (!iommu_group_has_isolated_msi(group))
		reason = STRAIT_ATTACH_INTERRUPTS;
	else if (strait_has_direct_regions(group))
		reason = STRAIT_ATTACH_RESERVED;
	iommu_group_put(group);
	return reason;
}

/* Only in a translating domain of the DMA API does the device reach nothing that is not mapped. */
static u32 check_domain(struct pci_dev *pdev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);

	if (!domain)
		return STRAIT_ATTACH_NO_IOMMU;
	if (domain->type == IOMMU_DOMAIN_IDENTITY)
		return STRAIT_ATTACH_IDENTITY;
	if (domain->type != IOMMU_DOMAIN_DMA && domain->type != IOMMU_DOMAIN_DMA_FQ)
		return STRAIT_ATTACH_DOMAIN;
	return STRAIT_ATTACH_NONE;
}

u32 strait_attach_check(struct pci_dev *pdev, int *group)
{
	u32 reason = check_group(pdev, group);

	/* The domain's reason takes precedence: it says more than the group's. */
	if (reason != STRAIT_ATTACH_NO_IOMMU)
		reason = check_domain(pdev) ?: reason;
	if (!reason && pdev->untrusted)
		reason = STRAIT_ATTACH_UNTRUSTED;
	if (!reason && !dev_is_dma_coherent(&pdev->dev))
		reason = STRAIT_ATTACH_NOT_COHERENT;
	return reason;
}

u32 strait_attach_recheck(struct pci_dev *pdev)
{
	struct iommu_group *group = iommu_group_get(&pdev->dev);
	bool alone;

	if (!group)
		return STRAIT_ATTACH_NO_IOMMU;
	alone = check_alone(group);
	iommu_group_put(group);
	return check_domain(pdev) ?: alone ? STRAIT_ATTACH_NONE : STRAIT_ATTACH_GROUP;
}

u32 strait_attach_check_peer(struct pci_dev *pdev, struct pci_dev *owner)
{
	if (!IS_ENABLED(CONFIG_PCI_P2PDMA))
		return READ_ONCE(assume_peers) ? STRAIT_ATTACH_NONE : STRAIT_ATTACH_NO_P2PDMA;
	if (pci_p2pdma_distance(owner, &pdev->dev, false) < 0)
		return STRAIT_ATTACH_NO_PATH;
	return STRAIT_ATTACH_NONE;
}
