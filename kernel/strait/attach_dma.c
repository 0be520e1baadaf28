// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Host memory and memory of other devices, mapped for an attached device through the DMA API. */
#include <linux/iommu.h>
#include <linux/sizes.h>

#include "attach.h"
#include "backing.h"
#include "core.h"
#include "import.h"
#include "map.h"

#define ENTRY_MAX SZ_1G	/* bytes of a scatterlist entry */

void strait_dma_flush(struct strait_attach *at)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&at->pdev->dev);

	if (domain)
		iommu_flush_iotlb_all(domain);
}

static void dma_unmap_runs(struct strait_map *m, unsigned int n)
{
	while (n--)
		compat_dma_unmap_mmio(&m->at->pdev->dev, m->runs[n].bus, m->runs[n].length,
				      m->dir, DMA_ATTR_SKIP_CPU_SYNC);
}

void strait_dma_unmap(struct strait_map *m)
{
	if (m->kind == STRAIT_MAP_HOST)
		dma_unmap_sgtable(&m->at->pdev->dev, &m->own, m->dir, COMPAT_DMA_COHERENT);
	else
		dma_unmap_runs(m, m->n);
}

/* The part of vector @i that lies in [offset, offset + length): its address and length. */
static u64 dma_vector(const struct strait_backing *b, unsigned int i, u64 offset, u64 length,
		      void **at)
{
	u64 start = max(b->start[i], offset);
	u64 end = min(b->start[i] + b->vec[i].iov_len, offset + length);

	*at = b->vec[i].iov_base + (start - b->start[i]);
	return end > start ? end - start : 0;
}

static unsigned int dma_count_entries(const struct strait_backing *b, u64 offset, u64 length)
{
	unsigned int i, n = 0;
	void *at;

	for (i = 0; i < b->n; i++)
		n += DIV_ROUND_UP_ULL(dma_vector(b, i, offset, length, &at), ENTRY_MAX);
	return n;
}

static void dma_fill_table(struct sg_table *table, const struct strait_backing *b, u64 offset,
			   u64 length)
{
	struct scatterlist *sg = table->sgl;
	unsigned int i, n;
	u64 left;
	void *at;

	for (i = 0; i < b->n; i++) {
		left = dma_vector(b, i, offset, length, &at);
		for (; left; left -= n, at += n, sg = sg_next(sg)) {
			n = min_t(u64, left, ENTRY_MAX);
			sg_set_page(sg, virt_to_page(at), n, 0);
		}
	}
}

/* Merges adjacent entries into runs. With @runs NULL the runs are only counted. */
static unsigned int dma_gather_runs(struct sg_table *table, u64 offset, u64 length,
				    struct strait_run *runs)
{
	u64 at = 0, end = offset + length, last = U64_MAX;
	struct scatterlist *sg;
	unsigned int i, n = 0;

	for_each_sgtable_dma_sg(table, sg, i) {
		u64 start = max(at, offset), stop = min(at + sg_dma_len(sg), end);
		u64 bus = sg_dma_address(sg) + (start - at);

		at += sg_dma_len(sg);
		if (start >= stop)
			continue;
		if (bus != last) {
			if (runs)
				runs[n] = (struct strait_run){ .bus = bus };
			n++;
		}
		if (runs)
			runs[n - 1].length += stop - start;
		last = bus + (stop - start);
	}
	return n;
}

int strait_dma_save_runs(struct strait_map *m, struct sg_table *table, u64 offset)
{
	m->n = dma_gather_runs(table, offset, m->length, NULL);
	m->runs = strait_zalloc_array(m->n, sizeof(*m->runs));
	if (!m->runs)
		return -ENOMEM;
	dma_gather_runs(table, offset, m->length, m->runs);
	return 0;
}

u32 strait_dma_where(const struct strait_map *m)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&m->at->pdev->dev);
	unsigned int i;

	for (i = 0; i < m->n; i++) {
		phys_addr_t phys = domain ? iommu_iova_to_phys(domain, m->runs[i].bus) : 0;

		if (!phys)
			return STRAIT_WHERE_UNKNOWN;
		if (pfn_valid(PHYS_PFN(phys)) &&
		    !is_zone_device_page(pfn_to_page(PHYS_PFN(phys))))
			return STRAIT_WHERE_HOST;
	}
	return STRAIT_WHERE_DEVICE;
}

static int dma_publish(struct strait_map *m)
{
	int rc = strait_map_publish(m);

	if (rc) {
		strait_dma_unmap(m);
		strait_dma_flush(m->at);
	}
	return rc;
}

int strait_dma_map_host(struct strait_map *m, u64 offset)
{
	struct device *dev = &m->at->pdev->dev;
	struct strait_backing *b = m->backing;
	int rc;

	m->kind = STRAIT_MAP_HOST;
	m->where = STRAIT_WHERE_HOST;
	rc = strait_sg_alloc_table(&m->own, dma_count_entries(b, offset, m->length));
	if (rc)
		return rc;
	dma_fill_table(&m->own, b, offset, m->length);
	rc = strait_dma_map_sgtable(dev, &m->own, m->dir);
	if (rc)
		return rc;
	rc = strait_dma_save_runs(m, &m->own, 0);
	if (rc) {
		strait_dma_unmap(m);
		strait_dma_flush(m->at);
		return rc;
	}
	return dma_publish(m);
}

/* Device memory: the physical address of @offset, and the contiguous bytes from there, <= @most. */
static u64 dma_device_run(const struct strait_backing *b, u64 offset, u64 most, phys_addr_t *phys)
{
	u64 length;

	if (b->n)
		length = strait_backing_run(b, offset, phys);
	else
		length = strait_bridge_run(b, offset, phys);
	return min(length, most);
}

static unsigned int dma_count_runs(const struct strait_backing *b, u64 offset, u64 length)
{
	u64 end = offset + length;
	unsigned int n = 0;
	phys_addr_t phys;

	for (; offset < end; n++)
		offset += dma_device_run(b, offset, end - offset, &phys);
	return n;
}

/*
 * Mapped by IOVA even where devices below one switch could use bus addresses: an address that the
 * IOMMU does not translate cannot be revoked.
 */
static int dma_map_runs(struct strait_map *m, u64 offset)
{
	struct device *dev = &m->at->pdev->dev;
	u64 end = offset + m->length, length;
	phys_addr_t phys;
	dma_addr_t bus;
	int rc;

	for (; offset < end; offset += length) {
		length = dma_device_run(m->backing, offset, end - offset, &phys);
		rc = strait_dma_map_mmio(dev, phys, length, m->dir, &bus);
		if (rc) {
			dma_unmap_runs(m, m->n);
			strait_dma_flush(m->at);
			return rc;
		}
		m->runs[m->n++] = (struct strait_run){ .bus = bus, .length = length };
	}
	return 0;
}

int strait_dma_map_device(struct strait_map *m, u64 offset, u32 *reason)
{
	struct strait_backing *b = m->backing;
	int rc;

	m->kind = STRAIT_MAP_DEVICE;
	m->where = STRAIT_WHERE_DEVICE;
	*reason = strait_attach_check_peer(m->at->pdev, b->pdev);
	if (*reason)
		return -EOPNOTSUPP;
	m->runs = strait_zalloc_array(dma_count_runs(b, offset, m->length), sizeof(*m->runs));
	if (!m->runs)
		return -ENOMEM;
	rc = dma_map_runs(m, offset);
	return rc ? rc : dma_publish(m);
}
