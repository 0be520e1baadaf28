/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_RDMA_NIC_H
#define ENDPOINT_RDMA_NIC_H

/* RDMA devices of this machine as sysfs lists them, and what is missing where there is none. Needs no RDMA library. */

#include <stddef.h>
#include <strait/rdma.h>

/* "/sys"; tests set another root. */
extern const char *nic_sysfs;

int nic_at(const char *sysfs_root, unsigned int index, struct strait_rdma_nic *nic);
const char *wc_status_name(int32_t status);
/* 0 with the commands that provide an RDMA device in @text; -EEXIST if there is an active one. */
int nic_missing_reason(const char *sysfs_root, const char *modules_root, char *text, size_t len);

#endif
