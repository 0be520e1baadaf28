/* SPDX-License-Identifier: MIT */
/*
 * Memory mapped through VFIO. VFIO pins what it maps and cannot revoke a mapping: memory of other devices is mapped only
 * for a caller that promises, with PCI_MAP_UNREVOCABLE, to unmap it before it is freed.
 */
#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"
#include "pci/backend.h"
#include "pci/vfio.h"

#define HUGE_PAGE MIB(2)

/* pci_mapping.priv */
struct vfio_mapping {
	uint64_t bus, length;
	void *io; /* mapping of the BAR made for this DMA mapping */
	struct strait_device *owner;
};

static int map_at(struct vfio_pci *p, const void *addr, uint64_t length, unsigned int flags, uint64_t *bus)
{
	/* An IOVA with the same offset into a huge page as the address lets the IOMMU use huge pages. */
	uint64_t align = length >= HUGE_PAGE ? HUGE_PAGE : os_page_size();
	int rc = iova_alloc(&p->iova, length, align, (uintptr_t)addr, bus);

	if (rc)
		return rc;
	rc = os_vfio_map(&p->v, addr, *bus, length, flags & PCI_MAP_READ, flags & PCI_MAP_WRITE);
	if (rc) {
		iova_free(&p->iova, *bus);
		if (rc == -ENOMEM)
			log_warn(p->dev.log, "%s: %llu bytes cannot be locked in memory: ulimit -l may be too small",
				 p->dev.name, (unsigned long long)length);
	}
	return rc;
}

/* Map whole pages from @addr on; the first @head bytes are not part of @m. */
static int map_pages(struct vfio_pci *p, void *addr, uint64_t length, uint64_t head, unsigned int flags,
		     struct pci_mapping *m)
{
	struct vfio_mapping *s = calloc(1, sizeof(*s));
	struct pci_run *run = malloc(sizeof(*run));
	uint64_t bus;
	int rc = s && run ? map_at(p, addr, length, flags, &bus) : -ENOMEM;

	if (rc) {
		free(s);
		free(run);
		return rc;
	}
	*s = (struct vfio_mapping){ .bus = bus, .length = length };
	*run = (struct pci_run){ bus, length };
	pci_fill_runs(m, run, 1, head);
	m->priv = s;
	return 0;
}

int vfio_map_host(struct pci_device *dev, void *addr, uint64_t len, unsigned int flags, struct pci_mapping *m)
{
	struct page_span pages = page_span((uintptr_t)addr, len, os_page_size());

	return map_pages(vfio_pci(dev), (void *)(uintptr_t)pages.start, pages.length, pages.head, flags, m);
}

/* Map device memory through the CPU's mapping of its BAR. */
static int map_bar(struct vfio_pci *p, struct strait_region *r, uint64_t off, unsigned int flags, struct pci_mapping *m)
{
	struct page_span pages = page_span(off, m->length, os_page_size());
	struct vfio_mapping *s;
	void *io;
	int rc;

	rc = r->dev->ops->mem_map_io(r->dev, &r->mem, pages.start, pages.length, &io);
	if (rc) {
		log_warn(p->dev.log, "%s: memory of %s cannot be mapped through its BAR, which VFIO needs", p->dev.name,
			 r->dev->name);
		return rc;
	}
	rc = map_pages(p, io, pages.length, pages.head, flags, m);
	if (rc) {
		if (rc == -EFAULT && p->v.iommufd >= 0) {
			log_warn(p->dev.log, "%s: iommufd does not map device memory: open it with backend vfio-type1",
				 p->dev.name);
			rc = -EOPNOTSUPP;
		}
		r->dev->ops->mem_unmap_io(r->dev, io, pages.length);
		return rc;
	}
	s = m->priv;
	s->io = io;
	s->owner = r->dev;
	return 0;
}

int vfio_map_region(struct pci_device *dev, struct strait_region *region, uint64_t off, uint64_t len,
		    unsigned int flags, struct pci_mapping *m)
{
	struct vfio_pci *p = vfio_pci(dev);
	void *cpu;
	int rc;

	rc = region_use(region, off, len);
	if (rc)
		return rc;
	/* Memory of a host or emulated device is memory of the process. */
	if (region->dev->caps & (STRAIT_DEVICE_HOST | STRAIT_DEVICE_EMULATED)) {
		rc = region->dev->ops->mem_map(region->dev, &region->mem, &cpu);
		if (!rc)
			rc = vfio_map_host(dev, (char *)cpu + off, len, flags, m);
	} else if (!(flags & PCI_MAP_UNREVOCABLE)) {
		log_warn(
			dev->log,
			"%s: VFIO cannot revoke memory of %s when it is freed: bind the device to strait, or allow unrevocable mappings",
			dev->name, region->dev->name);
		rc = -EOPNOTSUPP;
	} else {
		rc = map_bar(p, region, off, flags, m);
	}
	region_unuse(region);
	return rc;
}

void vfio_unmap(struct pci_device *dev, struct pci_mapping *m)
{
	struct vfio_pci *p = vfio_pci(dev);
	struct vfio_mapping *s = m->priv;

	/* An IOVA range that could not be unmapped is not reused. */
	if (os_vfio_unmap(&p->v, s->bus, s->length) >= 0)
		iova_free(&p->iova, s->bus);
	else
		log_error(dev->log, "%s: a DMA mapping cannot be removed", dev->name);
	if (s->io)
		s->owner->ops->mem_unmap_io(s->owner, s->io, s->length);
	free(s);
}
