/* SPDX-License-Identifier: MIT */
/* cuFile's behaviour on a GPU: the same tests as on the emulated device and on the fake driver. */
#include "gpu/gpu.h"

#define CUCALL(name) app.name
#include "cufile/conform/cuda.h"

static void memory_begin(const struct memory *m)
{
	if (!app.cuInit)
		need_gpu();
	use_primary();
}

static void memory_end(const struct memory *m)
{
	ASSERT_EQ(now_current() != NULL, true);
}

#include "cufile/conform/all.h"
#include "cufile/conform/cuda_memory.h"
#include "cufile/conform/cuda_stream.h"
