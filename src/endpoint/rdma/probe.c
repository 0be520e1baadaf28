/* SPDX-License-Identifier: MIT */
#include <strait/rdma.h>

#include "endpoint/rdma/probe.h"

#include "base/util.h"
#include "endpoint/rdma/session.h"

static struct ibv_context *open_nic(const char *name)
{
	struct ibv_context *ctx = NULL;
	struct ibv_device **list;
	int n = 0;

	list = verbs.ibv_get_device_list(&n);
	for (int i = 0; list && i < n && !ctx; i++)
		if (!strcmp(verbs.ibv_get_device_name(list[i]), name))
			ctx = verbs.ibv_open_device(list[i]);
	if (list)
		verbs.ibv_free_device_list(list);
	return ctx;
}

int rdma_probe(const char *nic, struct strait_region *r, struct strait_rdma_reach *reach)
{
	struct registration reg = { 0 };
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	int rc;

	errno = 0;
	ctx = open_nic(nic);
	if (!ctx)
		return errno == EACCES || errno == EPERM ? -EACCES : -ENODEV;
	pd = verbs.ibv_alloc_pd(ctx);
	if (!pd) {
		rc = -errno;
		goto close_device;
	}
	rc = region_use(r, 0, r->mem.len);
	if (rc)
		goto dealloc_pd;
	if (!ladder_register(pd, r, 0, r->mem.len, IBV_ACCESS_LOCAL_WRITE, &reg))
		verbs.ibv_dereg_mr(reg.mr);
	*reach = reg.reach;
	region_unuse(r);
dealloc_pd:
	verbs.ibv_dealloc_pd(pd);
close_device:
	verbs.ibv_close_device(ctx);
	return rc;
}
