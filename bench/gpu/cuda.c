/* SPDX-License-Identifier: MIT */
/* The calls of the CUDA driver that measure the limits of the machine, loaded at run time. */
#include <dlfcn.h>
#include <errno.h>

#include "bench.h"

static int (*init)(unsigned int);
static int (*primary_retain)(void **, int);
static int (*set_current)(void *);
static int (*host_alloc)(void **, size_t, unsigned int);
static int (*copy_htod)(uint64_t, const void *, size_t);
static void *context;

int cuda_load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);

	if (!lib)
		return -ENOENT;
	*(void **)&init = dlsym(lib, "cuInit");
	*(void **)&primary_retain = dlsym(lib, "cuDevicePrimaryCtxRetain");
	*(void **)&set_current = dlsym(lib, "cuCtxSetCurrent");
	*(void **)&host_alloc = dlsym(lib, "cuMemHostAlloc");
	*(void **)&copy_htod = dlsym(lib, "cuMemcpyHtoD_v2");
	if (!init || !primary_retain || !set_current || !host_alloc || !copy_htod)
		return -ENOSYS;
	if (init(0) || primary_retain(&context, 0) || set_current(context))
		return -EIO;
	return 0;
}

void cuda_attach(void)
{
	set_current(context);
}

void *cuda_pinned(size_t len)
{
	void *p = NULL;

	return host_alloc(&p, len, 1) ? NULL : p;
}

int cuda_copy_in(uint64_t dst, const void *src, size_t len)
{
	return copy_htod(dst, src, len);
}
