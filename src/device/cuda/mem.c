/* SPDX-License-Identifier: MIT */
/* GPU memory: allocation, and operations on allocated and imported memory. */
#include "device/cuda/import.h"

#include <strait/region.h>

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "os/os.h"

static struct cuda_ctx *ctx_of(const struct provider_mem *m)
{
	return (struct cuda_ctx *)m->context;
}

void cuda_mem_fill(struct cuda_ctx *cc, uint64_t addr, uint64_t len, uint64_t id, struct provider_mem *m)
{
	*m = (struct provider_mem){
		.addr = addr,
		.len = len,
		.id = id,
		.caps = (id ? STRAIT_REGION_IDENTITY : 0) |
			(cc->cd->dmabuf && !(addr % os_page_size()) ? STRAIT_REGION_DMABUF : 0),
		.page_size = CUDA_PAGE,
		.context = (uintptr_t)cc,
	};
}

int cuda_mem_alloc(struct strait_device *dev, uint64_t len, struct provider_mem *m)
{
	uint64_t id = 0;
	struct cuda_ctx *cc;
	struct cuda_entry e;
	cu_ptr addr = 0;
	cu_result r;
	int rc;

	/* Also avoids overflow below. */
	if (len > cuda_device(dev)->mem_total)
		return -ENOMEM;
	rc = cuda_ctx_get(cuda_device(dev), NULL, &cc);
	if (rc)
		return rc;
	cuda_kernels_expect(cc, false);
	rc = cuda_enter(cc, &e);
	if (rc)
		goto put_ctx;
	/* Whole pages, so that a peer can map them; a smaller allocation shares its page. */
	r = cu.mem_alloc(&addr, len < CUDA_PAGE ? len : align_up(len, CUDA_PAGE));
	cuda_leave(&e);
	rc = cuda_errno(r);
	if (rc)
		goto put_ctx;
	if (cu.ptr_attribute(&id, CU_PTR_BUFFER_ID, addr))
		id = 0;
	cuda_mem_fill(cc, addr, len, id, m);
	return 0;
put_ctx:
	cuda_ctx_put(cc);
	return rc;
}

void cuda_mem_free(struct strait_device *dev, struct provider_mem *m)
{
	struct cuda_ctx *cc = ctx_of(m);
	struct cuda_entry e;

	cuda_load_gate_begin();
	if (!cuda_enter(cc, &e)) {
		cu.mem_free(m->addr);
		cuda_leave(&e);
	}
	cuda_load_gate_end();
	cuda_ctx_put(cc);
}

static int allocation_check(uint64_t addr, uint64_t id)
{
	unsigned long long now = 0;
	unsigned int type = 0;
	cu_result r;

	if (id)
		r = cu.ptr_attribute(&now, CU_PTR_BUFFER_ID, addr);
	else
		r = cu.ptr_attribute(&type, CU_PTR_MEMORY_TYPE, addr);
	if (!r)
		return now == id ? 0 : -ESTALE;
	if (r == CU_INVALID_VALUE || r == CU_INVALID_CONTEXT || r == CU_CONTEXT_IS_DESTROYED)
		return -ESTALE;
	/* Any other error is a sticky one of earlier work; the next operation on the GPU reports it. */
	return cuda_errno(r) == -ENODEV ? -ENODEV : 0;
}

int cuda_mem_check(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len)
{
	const struct cuda_import *im = m->priv;
	uint64_t start = m->addr + off, end = start + len;
	unsigned int i = 0;
	int rc = 0;

	if (cuda_removed(cuda_device(dev)))
		return -ENODEV;
	if (!im)
		return allocation_check(m->addr, m->id);
	/* From the piece that contains @start to the last one that begins before @end. */
	while (i + 1 < im->n && im->piece[i + 1].addr <= start)
		i++;
	do
		rc = allocation_check(im->piece[i].addr, im->piece[i].id);
	while (!rc && ++i < im->n && im->piece[i].addr < end);
	return rc;
}

int cuda_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu)
{
	const struct cuda_import *im = m->priv;
	int rc;

	if (!(m->caps & STRAIT_REGION_CPU_MAP) || !im)
		return -EOPNOTSUPP;
	rc = cuda_mem_check(dev, m, 0, m->len);
	if (!rc)
		*cpu = im->host;
	return rc;
}

int cuda_mem_dmabuf(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd)
{
	struct cuda_ctx *cc = ctx_of(m);
	struct cuda_entry e;
	cu_result r;
	int rc, got = -1;

	if (!(m->caps & STRAIT_REGION_DMABUF) || !cu.range_handle)
		return -EOPNOTSUPP;
	if (!len || !range_inside(off, len, m->len) || (m->addr + off) % os_page_size() || len % os_page_size())
		return -EINVAL;
	rc = cuda_mem_check(dev, m, 0, m->len);
	if (!rc)
		rc = cuda_enter(cc, &e);
	if (rc)
		return rc;
	r = cu.range_handle(&got, m->addr + off, len, CU_RANGE_DMABUF, 0);
	cuda_leave(&e);
	/* The range is valid, so these errors mean that this kind of memory cannot be exported. */
	if (r == CU_INVALID_VALUE || r == CU_NOT_PERMITTED)
		return -EOPNOTSUPP;
	if (r)
		return cuda_errno(r);
	*fd = got;
	return 0;
}

int cuda_mem_sync_memops(struct strait_device *dev, const struct provider_mem *m, bool on)
{
	struct cuda_ctx *cc = ctx_of(m);
	unsigned int value = on;
	struct cuda_entry e;
	cu_result r;
	int rc;

	rc = cuda_mem_check(dev, m, 0, m->len);
	if (!rc)
		rc = cuda_enter(cc, &e);
	if (rc)
		return rc;
	r = cu.ptr_set_attribute(&value, CU_PTR_SYNC_MEMOPS, m->addr);
	cuda_leave(&e);
	/* Some kinds of memory do not have the attribute; drivers report that in two ways. */
	return r == CU_INVALID_VALUE ? -EOPNOTSUPP : cuda_errno(r);
}

int cuda_flush_peer_writes(struct strait_device *dev)
{
	struct cuda_device *cd = cuda_device(dev);
	struct cuda_ctx *cc;
	struct cuda_entry e;
	cu_result r;
	int rc;

	if (cuda_removed(cd))
		return -ENODEV;
	if (cd->writes_ordering >= CU_FLUSH_TO_OWNER)
		return 0; /* the GPU orders them by itself */
	if (!cu.flush_writes || !(cd->flush_options & CU_FLUSH_OPTION_HOST))
		return -EOPNOTSUPP;
	rc = cuda_ctx_get(cd, NULL, &cc);
	if (rc)
		return rc;
	rc = cuda_enter(cc, &e);
	if (!rc) {
		r = cu.flush_writes(CU_FLUSH_CURRENT, CU_FLUSH_TO_OWNER);
		cuda_leave(&e);
		rc = cuda_errno(r);
	}
	cuda_ctx_put(cc);
	return rc;
}
