/* SPDX-License-Identifier: MIT */
/* The data pointer of a command: PRP entries and lists, SGL descriptors. */
#include "base/util.h"
#include "endpoint/nvme/nvme.h"

#define LIST_PRPS (NVME_LIST_BYTES / NVME_PRP_ENTRY)
#define LIST_SGLS (NVME_LIST_BYTES / NVME_SGL_ENTRY)

/* The second quadword of an SGL descriptor. */
static uint64_t sgl(uint64_t len, uint32_t type)
{
	return len | (uint64_t)type << 56;
}

/* One descriptor where the memory is contiguous, a list of them otherwise. */
static int data_sgl(struct nvme_slot *s, const struct pci_mapping *pm, uint64_t off, uint64_t len)
{
	unsigned int n = 0;
	uint64_t bus, run;

	bus = pci_bus(pm, off, &run);
	s->where.flags = NVME_SGL_IN_SQE << 8;
	s->where.data[0] = bus;
	s->where.data[1] = sgl(len, NVME_SGL_DATA);
	if (run >= len)
		return 0;
	while (len) {
		if (n == LIST_SGLS)
			return -EINVAL;
		bus = pci_bus(pm, off, &run);
		run = min_u64(run, len);
		hw_put64(s->list, n * NVME_SGL_ENTRY, bus);
		hw_put64(s->list, n++ * NVME_SGL_ENTRY + 8, sgl(run, NVME_SGL_DATA));
		off += run;
		len -= run;
	}
	s->where.data[0] = s->list_bus;
	s->where.data[1] = sgl(n * NVME_SGL_ENTRY, NVME_SGL_LAST_SEGMENT);
	return 0;
}

/* PRP entry 2, or the PRP list: every entry but the last covers a whole page. */
static int data_list(const struct strait_nvme *ctrl, struct nvme_slot *s, const struct pci_mapping *pm, uint64_t off,
		     uint64_t len)
{
	const uint64_t page = (uint64_t)1 << ctrl->page_shift;
	uint64_t bus, run = 0, last = 0;
	unsigned int n = 0;

	while (len) {
		if (n == LIST_PRPS)
			return -EINVAL;
		bus = pci_bus(pm, off, &run);
		if (bus & (page - 1))
			return -EINVAL;
		/* All pages of the run. */
		for (run = min_u64(run, len); run && n < LIST_PRPS; bus += page) {
			uint64_t step = min_u64(page, run);

			if (step < page && step < len) /* a partial page that is not the last */
				return -EINVAL;
			last = bus;
			hw_put64(s->list, (unsigned int)(n++ * NVME_PRP_ENTRY), bus);
			run -= step;
			off += step;
			len -= step;
		}
	}
	s->where.data[1] = n == 1 ? last : s->list_bus;
	return 0;
}

int nvme_data(const struct strait_nvme *ctrl, struct nvme_slot *s, const struct pci_mapping *pm, uint64_t off,
	      uint64_t len)
{
	const uint64_t page = (uint64_t)1 << ctrl->page_shift;
	uint64_t run, bus = pci_bus(pm, off, &run), first = min_u64(len, page - (bus & (page - 1)));
	int rc = -EINVAL;

	/* An SGL where one descriptor replaces a PRP list, or for memory that PRPs cannot describe. */
	if (ctrl->sgl && ((len - first > page && run >= len) || (bus & 3)))
		return (bus & 3) && !ctrl->sgl_bytes ? -EINVAL : data_sgl(s, pm, off, len);
	if (!(bus & 3) && run >= first) {
		s->where.data[0] = bus;
		rc = first == len ? 0 : data_list(ctrl, s, pm, off + first, len - first);
	}
	return rc && ctrl->sgl ? data_sgl(s, pm, off, len) : rc;
}
