/* SPDX-License-Identifier: MIT */
/*
 * Import of the application's memory: cudaMalloc, cuMemAllocAsync and pools, cuMemMap, managed, pinned.
 *
 * Lookup by address reports pinned host memory as host memory, because file I/O can use it directly. It is imported as
 * memory of a GPU only if the caller names that GPU.
 *
 * The driver gives each allocation an ID that it never reuses, so a freed and reallocated address is detected. A range
 * mapped with cuMemMap may span several adjacent allocations; each is checked.
 */
#include "device/cuda/import.h"

#include <stdlib.h>

#include <strait/region.h>

#include "base/util.h"

#define MAP_STEP MIB(2) /* minimum size and alignment of a cuMemMap mapping */

/* The pointer attributes of an address. */
struct pointer {
	cu_context ctx;
	unsigned int type;
	cu_ptr dev_addr;
	void *host;
	unsigned long long id;
	uint32_t managed;
	uint32_t mapped;
	int ordinal;
	cu_ptr start;
	size_t size;
};

static int ptr_query(uint64_t addr, struct pointer *p)
{
	int attributes[] = { CU_PTR_CONTEXT,	 CU_PTR_MEMORY_TYPE, CU_PTR_DEVICE_POINTER, CU_PTR_HOST_POINTER,
			     CU_PTR_BUFFER_ID,	 CU_PTR_IS_MANAGED,  CU_PTR_MAPPED,	    CU_PTR_DEVICE_ORDINAL,
			     CU_PTR_RANGE_START, CU_PTR_RANGE_SIZE };
	void *values[] = { &p->ctx,	&p->type,   &p->dev_addr, &p->host,  &p->id,
			   &p->managed, &p->mapped, &p->ordinal,  &p->start, &p->size };
	cu_result r;

	memset(p, 0, sizeof(*p));
	p->ordinal = -1;
	r = cu.ptr_attributes(ARRAY_SIZE(attributes), attributes, values, addr);
	/* Without any context the driver returns -ENODEV: then no memory is the driver's. */
	if (r && r != CU_INVALID_VALUE && cuda_errno(r) != -ENODEV)
		return cuda_errno(r);
	/* A reserved address range has attributes but no memory. */
	if (!p->mapped && !p->ctx && !p->id && p->type != CU_MEMORY_HOST)
		return -ENOENT;
	return r || !p->type ? -ENOENT : 0;
}

static bool ptr_is_host(const struct pointer *p)
{
	return p->type == CU_MEMORY_HOST && !p->managed;
}

int cuda_ptr_device(struct provider *prov, uint64_t addr, struct strait_device **ret)
{
	struct pointer p;
	int rc;

	if (!prov->n)
		return -ENOENT;
	rc = ptr_query(addr, &p);
	if (rc)
		return rc;
	if (ptr_is_host(&p))
		return -ENOENT;
	list_for_each(it, &prov->devices) {
		struct strait_device *dev = list_entry(it, struct strait_device, node);

		/* Managed memory may have no device: the first one takes it. */
		if (cuda_device(dev)->ordinal == p.ordinal || (p.managed && p.ordinal < 0)) {
			*ret = dev;
			return 0;
		}
	}
	return -ENODEV;
}

/* Was the memory mapped with cuMemMap? */
static bool is_vmm_mapped(uint64_t addr)
{
	cu_mem_handle handle;

	if (!cu.mem_handle_retain || !cu.mem_handle_release)
		return false;
	if (cu.mem_handle_retain(&handle, (void *)(uintptr_t)addr))
		return false;
	cu.mem_handle_release(handle);
	return true;
}

/* One past the end of the mapping at @addr. */
static uint64_t mapping_end(uint64_t addr)
{
	cu_ptr base = 0;
	size_t size = 0;

	/* Old drivers do not report mappings; one extends to the next multiple of MAP_STEP at least. */
	if (cu.ptr_attribute(&base, CU_PTR_MAPPING_BASE, addr) || cu.ptr_attribute(&size, CU_PTR_MAPPING_SIZE, addr) ||
	    !size || base > addr || base + size <= addr)
		return align_down(addr, MAP_STEP) + MAP_STEP;
	return base + size;
}

int cuda_ptr_extent(struct strait_device *dev, uint64_t addr, uint64_t *len)
{
	int ordinal = cuda_device(dev)->ordinal;
	struct pointer p;
	uint64_t end;
	int rc = ptr_query(addr, &p);

	if (rc)
		return rc == -ENOENT ? -EFAULT : rc;
	if (p.managed || !is_vmm_mapped(addr)) {
		*len = p.start + p.size - addr;
		return 0;
	}
	/* Adjacent mappings of the same device form one range. */
	for (end = mapping_end(addr);
	     !ptr_query(end, &p) && p.ordinal == ordinal && !ptr_is_host(&p) && is_vmm_mapped(end);)
		end = mapping_end(end);
	*len = end - addr;
	return 0;
}

/* Collects the mappings that cover [addr, addr + len). -EFAULT unless all are of @cd. */
static int collect_mappings(struct cuda_device *cd, uint64_t addr, uint64_t len, struct cuda_import **ret)
{
	uint64_t at = addr, end = addr + len;
	struct cuda_import *im = NULL, *grown;
	unsigned int n = 0;
	struct pointer p;
	int rc;

	while (at < end) {
		rc = ptr_query(at, &p);
		if (rc || p.ordinal != cd->ordinal || ptr_is_host(&p) || !is_vmm_mapped(at)) {
			free(im);
			return rc && rc != -ENOENT ? rc : -EFAULT;
		}
		if (!n || !(n & (n - 1))) {
			grown = realloc(im, sizeof(*im) + (n ? 2 * n : 1) * sizeof(*im->piece));
			if (!grown) {
				free(im);
				return -ENOMEM;
			}
			im = grown;
		}
		im->piece[n++] = (struct cuda_piece){ at, p.id };
		at = mapping_end(at);
	}
	im->host = NULL;
	im->n = n;
	*ret = im;
	return 0;
}

/* Checks that [addr, addr + len) is one allocation, or mappings of several. *ret: NULL for plain device memory. */
static int find_allocations(struct cuda_device *cd, uint64_t addr, uint64_t len, const struct pointer *p,
			    struct cuda_import **ret)
{
	*ret = NULL;
	if (!ptr_is_host(p) && !p->managed && is_vmm_mapped(addr))
		return collect_mappings(cd, addr, len, ret);
	/* Registered host memory has a CPU and a device address, and the driver may report its range by either. */
	if (!range_inside(addr - p->start, len, p->size) &&
	    !(ptr_is_host(p) && range_inside(p->dev_addr - p->start, len, p->size)))
		return -EFAULT;
	if (!ptr_is_host(p) && !(p->managed && cd->managed_cpu))
		return 0;
	*ret = malloc(sizeof(**ret) + sizeof((*ret)->piece[0]));
	if (!*ret)
		return -ENOMEM;
	(*ret)->host = ptr_is_host(p) ? p->host : (void *)(uintptr_t)addr;
	(*ret)->n = 1;
	(*ret)->piece[0] = (struct cuda_piece){ addr, p->id };
	return 0;
}

/*
 * cudaMemcpy() from pageable memory may return before its last part has reached the device: that part is in flight on
 * the default stream, for which the provider's streams do not wait, and could overwrite the data of a transfer.
 * SYNC_MEMOPS makes later copies synchronous; for earlier ones this waits a moment for the default stream.
 */
static void drain_application_copies(struct cuda_ctx *cc, const struct provider_mem *m)
{
	unsigned int sync = 0;
	int capturing = 0;
	struct cuda_entry e;

	/* The memory was imported before. */
	if (!cu.ptr_attribute(&sync, CU_PTR_SYNC_MEMOPS, m->addr) && sync)
		return;
	cuda_mem_sync_memops(cc->cd->dev, m, true);
	if (cuda_enter(cc, &e))
		return;
	/* A query would invalidate a capture. */
	if (!cu.stream_capturing(CU_STREAM_LEGACY, &capturing) && !capturing)
		cuda_wait_moment(CU_STREAM_LEGACY);
	cuda_leave(&e);
}

int cuda_mem_import(struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags, struct provider_mem *m)
{
	struct cuda_device *cd = cuda_device(dev);
	struct cuda_ctx *cc;
	struct cuda_import *im;
	struct pointer p;
	int rc;

	if (cuda_removed(cd))
		return -ENODEV;
	rc = ptr_query(addr, &p);
	if (rc)
		return rc == -ENOENT ? -EFAULT : rc;
	/* Every GPU can access host memory; managed memory migrates to the GPU that uses it. */
	if (p.ordinal != cd->ordinal && !ptr_is_host(&p) && !p.managed)
		return -EFAULT;
	rc = find_allocations(cd, addr, len, &p, &im);
	if (rc)
		return rc;
	/* Mapped and pooled memory has no context, and that of another device cannot be used: primary context. */
	rc = cuda_ctx_get(cd, p.ordinal == cd->ordinal && !ptr_is_host(&p) ? p.ctx : NULL, &cc);
	if (rc) {
		free(im);
		return rc;
	}
	cuda_kernels_expect(cc, false);
	cuda_mem_fill(cc, ptr_is_host(&p) && p.dev_addr ? p.dev_addr : addr, len, p.id, m);
	m->priv = im;
	m->pieces = im && im->n > 1;
	if (im && im->host)
		m->caps = (m->caps | STRAIT_REGION_CPU_MAP) & ~STRAIT_REGION_DMABUF;
	else if (im)
		m->caps |= STRAIT_REGION_REMAPPABLE;
	else if (p.managed)
		m->caps &= ~STRAIT_REGION_DMABUF;
	if (p.type == CU_MEMORY_DEVICE && !p.managed && !(flags & STRAIT_REGION_IMPORT_ORDERED))
		drain_application_copies(cc, m);
	return 0;
}

void cuda_mem_release(struct strait_device *dev, struct provider_mem *m)
{
	free(m->priv);
	cuda_ctx_put((struct cuda_ctx *)m->context);
}
