/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

static struct {
	int (*init)(unsigned int flags);
	int (*retain)(void **ctx, int dev);
	int (*set_current)(void *ctx);
	int (*alloc)(uint64_t *ptr, size_t len);
	int (*copy_out)(void *to, uint64_t from, size_t len);
	int (*set)(uint64_t at, unsigned char value, size_t len, void *stream);
	int (*stream_create)(void **stream, unsigned int flags);
	int (*stream_synchronize)(void *stream);
	void *ctx;
} cu;

int cuda_start(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);

	if (!lib)
		return -1;
	*(void **)&cu.init = symbol(lib, "cuInit");
	*(void **)&cu.retain = symbol(lib, "cuDevicePrimaryCtxRetain");
	*(void **)&cu.set_current = symbol(lib, "cuCtxSetCurrent");
	*(void **)&cu.alloc = symbol(lib, "cuMemAlloc_v2");
	*(void **)&cu.copy_out = symbol(lib, "cuMemcpyDtoH_v2");
	*(void **)&cu.set = symbol(lib, "cuMemsetD8Async");
	*(void **)&cu.stream_create = symbol(lib, "cuStreamCreate");
	*(void **)&cu.stream_synchronize = symbol(lib, "cuStreamSynchronize");
	if (cu.init(0) || cu.retain(&cu.ctx, 0) || cu.set_current(cu.ctx)) {
		cu.ctx = NULL;
		return -1;
	}
	return 0;
}

void cuda_attach(void)
{
	if (cu.ctx)
		cu.set_current(cu.ctx);
}

void *cuda_alloc(size_t len)
{
	uint64_t ptr = 0;

	if (!cu.ctx)
		return aligned_alloc(4096, len);
	return cu.alloc(&ptr, len) ? NULL : (void *)(uintptr_t)ptr;
}

/* A stream that does not wait for the default stream. */
void *cuda_stream(void)
{
	void *stream = NULL;

	return cu.ctx && !cu.stream_create(&stream, 1) ? stream : NULL;
}

void cuda_synchronize(void *stream)
{
	if (cu.ctx && cu.stream_synchronize(stream))
		say("cuStreamSynchronize failed", 0);
}

int cuda_copy_out(void *to, const void *from, size_t len)
{
	if (cu.ctx)
		return cu.copy_out(to, (uintptr_t)from, len);
	memcpy(to, from, len);
	return 0;
}

void cuda_fill(void *at, size_t len)
{
	if (!cu.ctx) {
		memset(at, FILLED, len);
		return;
	}
	cu.set((uintptr_t)at, FILLED, len, NULL);
	cu.stream_synchronize(NULL);
}
