/* SPDX-License-Identifier: MIT */
#ifndef CLI_FABRIC_H
#define CLI_FABRIC_H

/* Storage that is reached over a network, as the kernel describes it: NVMe over Fabrics, NFS. */

#include <stddef.h>

struct fabric {
	char kind[16];	    /* "NVMe", "NFS 4.2" */
	char disk[64];	    /* "nvme1n1"; of NFS what is mounted: "10.0.0.5:/data" */
	char transport[16]; /* "tcp", "rdma", "fc", "loop"; empty for a drive of this machine */
	char address[160];  /* of the target or server, as the kernel has it: traddr=..., addr=... */
	char nic[96];	    /* network interface towards it, and its RDMA device for "rdma"; empty if unknown */
};

/* The drive below a file or block device, or the server of its file system. -ENODEV if there is none, or more than one. */
int fabric_find(const char *path, struct fabric *f);

#endif
