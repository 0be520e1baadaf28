/* SPDX-License-Identifier: MIT */
#include "pci/pci.h"

#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"

void pci_close(struct pci_device *dev)
{
	if (dev)
		dev->ops->close(dev);
}

static struct pci_mapping *mapping_new(struct pci_device *dev, struct strait_region *region, uint64_t len)
{
	struct pci_mapping *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->dev = dev;
	m->region = region;
	m->length = len;
	return m;
}

/* The runs must add up to the length: with less, the device would write past the mapping. */
static int mapping_check(const struct pci_mapping *m)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < m->count; i++) {
		if (!m->run[i].length || m->run[i].length > m->length - sum)
			return -EPROTO;
		sum += m->run[i].length;
	}
	return sum == m->length ? 0 : -EPROTO;
}

/* Remove @head bytes at the front and keep @len. */
static void mapping_trim(struct pci_mapping *m, uint64_t head, uint64_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < m->count && len; i++) {
		struct pci_run run = m->run[i];
		uint64_t skip = min_u64(head, run.length);

		head -= skip;
		run.bus += skip;
		run.length = min_u64(run.length - skip, len);
		len -= run.length;
		if (run.length)
			m->run[n++] = run;
	}
	m->count = n;
}

/* Check the runs of the backend, trim them to [head, head + len) and prepare pci_bus(). */
static int mapping_finish(struct pci_mapping *m, uint64_t head, uint64_t len, struct pci_mapping **ret)
{
	uint64_t at = 0;
	int rc;

	rc = mapping_check(m);
	if (rc)
		goto unmap;
	mapping_trim(m, head, len);
	m->length = len;
	m->start = malloc(m->count * sizeof(*m->start));
	rc = m->start ? 0 : -ENOMEM;
	if (rc)
		goto unmap;
	for (size_t i = 0; i < m->count; i++) {
		m->start[i] = at;
		at += m->run[i].length;
	}
	*ret = m;
	return 0;
unmap:
	pci_unmap(m);
	return rc;
}

int pci_map_host(struct pci_device *dev, void *addr, uint64_t len, unsigned int flags, struct pci_mapping **ret)
{
	uint64_t head = (uintptr_t)addr % os_page_size();
	struct pci_mapping *m;
	int rc;

	if (!len || len > INT64_MAX - 2 * os_page_size() || (uintptr_t)addr > UINTPTR_MAX - len - os_page_size())
		return -EINVAL;
	m = mapping_new(dev, NULL, align_up(head + len, os_page_size()));
	if (!m)
		return -ENOMEM;
	rc = dev->ops->map_host(dev, (char *)addr - head, m->length, flags, m);
	if (rc) {
		free(m);
		return rc;
	}
	return mapping_finish(m, head, len, ret);
}

int pci_map_region(struct pci_device *dev, struct strait_region *region, uint64_t off, uint64_t len, unsigned int flags,
		   struct pci_mapping **ret)
{
	struct pci_mapping *m;
	int rc;

	if (!len || !range_inside(off, len, region->mem.len))
		return -EINVAL;
	if (region->dev->caps & STRAIT_DEVICE_HOST) {
		rc = pci_map_host(dev, (void *)(uintptr_t)(region->mem.addr + off), len, flags, &m);
		if (rc)
			return rc;
		m->region = region;
		*ret = m;
		return 0;
	}
	m = mapping_new(dev, region, len);
	if (!m)
		return -ENOMEM;
	rc = dev->ops->map_region(dev, region, off, len, flags, m);
	if (rc) {
		free(m);
		return rc;
	}
	return mapping_finish(m, 0, len, ret);
}

void pci_unmap(struct pci_mapping *m)
{
	if (!m)
		return;
	m->dev->ops->unmap(m->dev, m);
	free(m->start);
	free(m->run);
	free(m);
}

uint64_t pci_bus(const struct pci_mapping *m, uint64_t off, uint64_t *run)
{
	size_t low = 0, high = m->count;

	while (high - low > 1) {
		size_t mid = (low + high) / 2;

		if (m->start[mid] <= off)
			low = mid;
		else
			high = mid;
	}
	off -= m->start[low];
	*run = m->run[low].length - off;
	return m->run[low].bus + off;
}
