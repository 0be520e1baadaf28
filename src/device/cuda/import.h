/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_CUDA_IMPORT_H
#define DEVICE_CUDA_IMPORT_H

#include "device/cuda/cuda.h"

/* One of the allocations that a range of addresses spans. */
struct cuda_piece {
	uint64_t addr;
	uint64_t id;
};

/* provider_mem.priv of memory that is not one plain device allocation. */
struct cuda_import {
	void *host; /* CPU address, NULL: not accessible by the CPU */
	unsigned int n;
	struct cuda_piece piece[];
};

/* Fills @m for device memory. The caller's reference on @cc becomes that of @m. */
void cuda_mem_fill(struct cuda_ctx *cc, uint64_t addr, uint64_t len, uint64_t id, struct provider_mem *m);

#endif
