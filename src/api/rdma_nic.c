/* SPDX-License-Identifier: MIT */
/* The calls of strait/rdma.h that need no RDMA library. */
#include <strait/rdma.h>

#include "api/api.h"
#include "base/util.h"
#include "endpoint/rdma/nic.h"

STRAIT_API int strait_rdma_nic(unsigned int index, struct strait_rdma_nic *nic)
{
	struct strait_rdma_nic n;
	int rc;

	API_CHECK(nic && struct_room(nic, STRAIT_RDMA_NIC_SIZE_V1));
	rc = nic_at(nic_sysfs, index, &n);
	return rc ? rc : struct_out(nic, &n, sizeof(n), STRAIT_RDMA_NIC_SIZE_V1);
}

STRAIT_API const char *strait_rdma_status_name(int32_t status)
{
	return wc_status_name(status);
}

STRAIT_API const char *strait_rdma_kind_name(uint32_t kind)
{
	static const char *const names[] = { "staged", "dma-buf", "address", "mapping" };

	return kind < ARRAY_SIZE(names) ? names[kind] : names[0];
}
