/* SPDX-License-Identifier: MIT */
/* How a region is registered: the best kind that the RDMA device, the kernel and the memory have. */
#include <stdio.h>

#include "base/util.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"
#include "os/probe.h"

static int errno_of(const struct ibv_mr *mr)
{
	return mr ? 0 : errno ? -errno : -EIO;
}

static int as_dmabuf(struct ibv_pd *pd, struct strait_region *r, uint64_t off, uint64_t len, int access,
		     struct registration *reg)
{
	struct page_span pages;
	uint64_t at;
	int fd, rc;

	if (!(r->mem.caps & STRAIT_REGION_DMABUF) || !verbs.ibv_reg_dmabuf_mr)
		return -EOPNOTSUPP;
	pages = page_span(r->mem.addr + off, len, r->mem.page_size);
	rc = r->dev->ops->mem_dmabuf_part(r->dev, &r->mem, pages.start - r->mem.addr, pages.length, &fd, &at);
	if (rc)
		return rc;
	reg->addr = r->mem.addr + off;
	reg->mr = verbs.ibv_reg_dmabuf_mr(pd, at + pages.head, len, reg->addr, fd, access);
	rc = errno_of(reg->mr);
	os_close(fd); /* the registration references the dma-buf */
	return rc;
}

static int by_pointer(struct ibv_pd *pd, uint64_t addr, uint64_t len, int access, struct registration *reg)
{
	reg->addr = addr;
	reg->mr = verbs.ibv_reg_mr(pd, (void *)(uintptr_t)addr, len, access);
	return errno_of(reg->mr);
}

/* The kernel counts pinned memory against RLIMIT_MEMLOCK, per user. */
static void explain_limit(struct strait_rdma_reach *reach, uint64_t len)
{
	uint64_t limit = os_memlock_limit();
	size_t n = strlen(reach->reason);

	if (limit == UINT64_MAX)
		return;
	str_format(reach->reason + n, sizeof(reach->reason) - n,
		   ": \"ulimit -l\" is %llu, registering needs %llu more (KiB)", (unsigned long long)(limit / 1024),
		   (unsigned long long)((len + 1023) / 1024));
}

static void explain(struct strait_rdma_reach *reach, const char *kind, int err)
{
	size_t n = strlen(reach->reason);

	str_format(reach->reason + n, sizeof(reach->reason) - n, "%s%s: %s", n ? "; " : "", kind, strerror(-err));
}

int ladder_register(struct ibv_pd *pd, struct strait_region *r, uint64_t off, uint64_t len, int access,
		    struct registration *reg)
{
	struct strait_rdma_reach *reach = &reg->reach;
	void *cpu = NULL;
	int rc;

	*reach = (struct strait_rdma_reach){ .size = sizeof(*reach) };
	if (r->mem.caps & STRAIT_REGION_CPU_MAP && r->dev->ops->mem_map(r->dev, &r->mem, &cpu))
		cpu = NULL;
	rc = as_dmabuf(pd, r, off, len, access, reg);
	reach->error[STRAIT_RDMA_DMABUF] = rc;
	if (!rc) {
		reach->kind = STRAIT_RDMA_DMABUF;
		return 0;
	}
	explain(reach, "dma-buf", rc);
	/* Memory whose CPU mapping the kernel pins needs no PeerDirect. */
	rc = -EOPNOTSUPP;
	if (!cpu && !(r->mem.caps & STRAIT_REGION_DMA_ONLY)) {
		rc = by_pointer(pd, r->mem.addr + off, len, access, reg);
		if (!rc) {
			reach->kind = STRAIT_RDMA_ADDRESS;
			return 0;
		}
		explain(reach, "device address", rc);
	}
	reach->error[STRAIT_RDMA_ADDRESS] = rc;
	rc = cpu ? by_pointer(pd, (uintptr_t)cpu + off, len, access, reg) : -EOPNOTSUPP;
	reach->error[STRAIT_RDMA_MAPPING] = rc;
	if (!rc) {
		reach->kind = STRAIT_RDMA_MAPPING;
		return 0;
	}
	explain(reach, "CPU mapping", rc);
	if (rc != -ENOMEM)
		return -EOPNOTSUPP;
	explain_limit(reach, len);
	return -ENOMEM;
}
