/* SPDX-License-Identifier: MIT */
#ifndef CLI_FABRIC_H
#define CLI_FABRIC_H

/* Drives that are reached over a network: NVMe over Fabrics, as sysfs describes it. */

#include <stddef.h>

struct fabric {
	char disk[64];	    /* "nvme1n1" */
	char transport[16]; /* "tcp", "rdma", "fc", "loop"; empty for a drive of this machine */
	char address[160];  /* of the target, as the kernel has it */
	char nic[96];	    /* network interface towards it, and its RDMA device for "rdma"; empty if unknown */
};

/* The drive below a file or block device. -ENODEV if there is none, or more than one. */
int fabric_find(const char *path, struct fabric *f);

#endif
