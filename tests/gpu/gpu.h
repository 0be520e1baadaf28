/* SPDX-License-Identifier: MIT */
#ifndef GPU_GPU_H
#define GPU_GPU_H

/* Helpers for tests on a GPU: the driver's calls as an application makes them. */

#include <dlfcn.h>

#include "base/crc32c.h"
#include "fakecuda/app.h"
#include "functional/common.h"

struct app {
#define APP_CALL(name, args) cu_result(*name) args;
	CUDA_ALL(APP_CALL)
#undef APP_CALL
	/* Calls that the fake driver lacks: NULL there. */
	cu_result (*cuStreamBeginCapture_v2)(cu_stream s, int mode);
	cu_result (*cuStreamEndCapture)(cu_stream s, void **graph);
	cu_result (*cuGraphDestroy)(void *graph);
};

static struct app app;

/* A call of the application into the driver. */
#define CU(call) ASSERT_EQ(app.call, CU_OK)

static inline void *app_symbol(void *lib, const char *name)
{
	void *p = dlsym(lib, name);

	if (!p)
		FAIL("the driver has no %s", name);
	return p;
}

/* Skips the program without a GPU. */
static void no_gpu(char *why, size_t len)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev;

	if (strait_device_find(ctx, "cuda:0", &dev))
		strait_device_missing_reason(ctx, "cuda:0", why, len);
	strait_context_close(ctx);
}

TEST_PROGRAM_NEEDS(no_gpu)

static inline void need_gpu(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);

	ASSERT_TRUE(lib);
#define APP_CALL(name, args) *(void **)(void *)&app.name = app_symbol(lib, #name);
	CUDA_ALL(APP_CALL)
#undef APP_CALL
	*(void **)(void *)&app.cuStreamBeginCapture_v2 = dlsym(lib, "cuStreamBeginCapture_v2");
	*(void **)(void *)&app.cuStreamEndCapture = dlsym(lib, "cuStreamEndCapture");
	*(void **)(void *)&app.cuGraphDestroy = dlsym(lib, "cuGraphDestroy");
	CU(cuInit(0));
}

/* Makes the primary context current, as the CUDA runtime does. */
static inline cu_context use_primary(void)
{
	cu_context ctx;

	CU(cuDevicePrimaryCtxRetain(&ctx, 0));
	CU(cuCtxSetCurrent(ctx));
	return ctx;
}

static inline cu_context now_current(void)
{
	cu_context ctx = NULL;

	CU(cuCtxGetCurrent(&ctx));
	return ctx;
}

/* Imports the application's memory as a region, reads into it and compares. */
static inline void check_import(struct strait_context *ctx, struct strait_device *dev, cu_ptr ptr, uint64_t len,
				const char *device)
{
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_device_info dev_info = { .size = sizeof(dev_info) };
	const char *path = make_file("import", len, 11);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDWR, 0);
	char *want = pattern_new(0, len, 11);
	struct strait_region *r;

	ASSERT_OK(strait_region_import(ctx, dev, (void *)(uintptr_t)ptr, len, &r));
	ASSERT_OK(strait_region_info(r, &info));
	ASSERT_OK(strait_device_info(info.device, &dev_info));
	ASSERT_STREQ(dev_info.name, device);
	ASSERT_EQ(move(STRAIT_READ, 0, ep, 0, r, 0, len).bytes, len);
	region_expect(r, 0, want, len);
	ASSERT_EQ(move(STRAIT_READ, 0, ep, 100, r, 3, 4000).bytes, 4000);
	region_expect(r, 3, want + 100, 4000);
	ASSERT_EQ(move(STRAIT_WRITE, 0, ep, 0, r, 0, len).bytes, len);
	memmove(want + 3, want + 100, 4000);
	file_expect(path, 0, want, len);
	ASSERT_OK(strait_region_check(r));
	strait_region_close(r);
	strait_endpoint_close(ep);
	free(want);
}

#endif
