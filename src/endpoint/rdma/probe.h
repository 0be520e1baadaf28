/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_RDMA_PROBE_H
#define ENDPOINT_RDMA_PROBE_H

#include "device/region.h"

/* Register the region with the RDMA device @nic, without remote access, and deregister it. */
int rdma_probe(const char *nic, struct strait_region *r, struct strait_rdma_reach *reach);

#endif
