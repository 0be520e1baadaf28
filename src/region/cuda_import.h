/* SPDX-License-Identifier: MIT */
#ifndef REGION_CUDA_IMPORT_H
#define REGION_CUDA_IMPORT_H

#include "region/cuda.h"

/* Fills @m for device memory; its reference on @sp is the caller's. */
void cuda_mem_fill(struct cuda_space *sp, uint64_t addr, uint64_t len, uint64_t id, struct mem *m);

#endif
