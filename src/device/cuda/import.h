/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_CUDA_IMPORT_H
#define DEVICE_CUDA_IMPORT_H

#include "device/cuda/cuda.h"

struct cuda_piece {
	uint64_t addr;
	uint64_t id;
};

/* mem.priv of what is more than one device allocation. */
struct cuda_import {
	void *host; /* where the CPU sees it, or NULL */
	unsigned int n;
	struct cuda_piece piece[];
};

/* Fills @m for device memory; its reference on @sp is the caller's. */
void cuda_mem_fill(struct cuda_ctx *cc, uint64_t addr, uint64_t len, uint64_t id, struct provider_mem *m);

#endif
