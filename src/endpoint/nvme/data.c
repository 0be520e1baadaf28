/* SPDX-License-Identifier: MIT */
/* Where the data of a command is: PRP entries and lists, SGL descriptors. */
#include "endpoint/nvme/nvme.h"

#include "base/util.h"

#define LIST_PRPS (NVME_LIST_BYTES / NVME_PRP_ENTRY)
#define LIST_SGLS (NVME_LIST_BYTES / NVME_SGL_ENTRY)

static void sgl(void *at, uint64_t bus, uint32_t len, uint32_t type)
{
	hw_put64(at, 0, bus);
	hw_put32(at, 8, len);
	hw_put32(at, 12, type << 24);
}

/* One descriptor where the memory is contiguous, a list of them otherwise. */
static int data_sgl(struct nvme_slot *s, struct nvme_sqe *sqe, const struct pci_mapping *pm, uint64_t off, uint64_t len)
{
	unsigned int n = 0;
	uint64_t bus, run;

	bus = pci_bus(pm, off, &run);
	sqe->dw0 |= hw_le32_of(NVME_SGL_IN_SQE << 8);
	if (run >= len) {
		sgl(sqe->data, bus, (uint32_t)len, NVME_SGL_DATA);
		return 0;
	}
	while (len) {
		if (n == LIST_SGLS)
			return -EINVAL;
		bus = pci_bus(pm, off, &run);
		run = min_u64(run, len);
		sgl((char *)s->list + (size_t)n++ * NVME_SGL_ENTRY, bus, (uint32_t)run, NVME_SGL_DATA);
		off += run;
		len -= run;
	}
	sgl(sqe->data, s->list_bus, n * NVME_SGL_ENTRY, NVME_SGL_LAST_SEGMENT);
	return 0;
}

/* The second entry and what is behind it: whole pages, but for the end of the last one. */
static int data_list(const struct strait_nvme *ctrl, struct nvme_slot *s, struct nvme_sqe *sqe,
		     const struct pci_mapping *pm, uint64_t off, uint64_t len)
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

			if (step < page && step < len) /* a hole in the middle */
				return -EINVAL;
			last = bus;
			hw_put64(s->list, (unsigned int)(n++ * NVME_PRP_ENTRY), bus);
			run -= step;
			off += step;
			len -= step;
		}
	}
	sqe->data[1] = hw_le64_of(n == 1 ? last : s->list_bus);
	return 0;
}

int nvme_data(const struct strait_nvme *ctrl, struct nvme_slot *s, struct nvme_sqe *sqe, const struct pci_mapping *pm,
	      uint64_t off, uint64_t len)
{
	const uint64_t page = (uint64_t)1 << ctrl->page_shift;
	uint64_t run, bus = pci_bus(pm, off, &run), first = min_u64(len, page - (bus & (page - 1)));
	int rc = -EINVAL;

	/* Where PRP entries need a list and one descriptor says it all, or where they cannot say it. */
	if (ctrl->sgl && ((len - first > page && run >= len) || (bus & 3)))
		return (bus & 3) && !ctrl->sgl_bytes ? -EINVAL : data_sgl(s, sqe, pm, off, len);
	if (!(bus & 3) && run >= first) {
		sqe->data[0] = hw_le64_of(bus);
		rc = first == len ? 0 : data_list(ctrl, s, sqe, pm, off + first, len - first);
	}
	return rc && ctrl->sgl ? data_sgl(s, sqe, pm, off, len) : rc;
}
