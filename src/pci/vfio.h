/* SPDX-License-Identifier: MIT */
#ifndef PCI_VFIO_H
#define PCI_VFIO_H

/* The VFIO backend. */

#include "os/vfio.h"
#include "pci/iova.h"
#include "pci/pci.h"

struct vfio_pci {
	struct pci_device dev;
	struct os_vfio v;
	struct iova iova;
	uint64_t config;
	uint64_t bar_at[PCI_BARS]; /* offset in the device's file */
	int *irq;		   /* eventfds of dev.vectors; NULL: not opened yet */
};

static inline struct vfio_pci *vfio_pci(const struct pci_device *dev)
{
	return container_of(dev, struct vfio_pci, dev);
}

/* vfio_map.c */
int vfio_map_host(struct pci_device *dev, void *addr, uint64_t len, unsigned int flags, struct pci_mapping *m);
int vfio_map_region(struct pci_device *dev, struct strait_region *region, uint64_t off, uint64_t len,
		    unsigned int flags, struct pci_mapping *m);
void vfio_unmap(struct pci_device *dev, struct pci_mapping *m);

#endif
