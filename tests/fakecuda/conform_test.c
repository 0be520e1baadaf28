/* SPDX-License-Identifier: MIT */
/* cuFile's behaviour on the fake CUDA driver. */
#include "fakecuda/common.h"

#define CUCALL(name) name
#include "cufile/conform/cuda.h"

static void memory_begin(const struct memory *m)
{
	static cu_context ctx;

	/* The first time it is one thread alone. */
	if (ctx) {
		CU(cuCtxSetCurrent(ctx));
		return;
	}
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&ctx, 0, 0));
}

static void memory_end(const struct memory *m)
{
	expect_clean();
}

#include "cufile/conform/all.h"
#include "cufile/conform/cuda_memory.h"
#include "cufile/conform/cuda_stream.h"
