/* SPDX-License-Identifier: MIT */
/* cuFile's behaviour on the fake CUDA driver. */
#include "fakecuda/common.h"

#define CUCALL(name) name
#include "cufile/conform/cuda.h"

#ifdef __SANITIZE_THREAD__
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

/* Programs may end with the driver open, as some of these do; its threads are not joined then. */
const char *__tsan_default_options(void)
{
	return "report_thread_leaks=0";
}
#endif

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
