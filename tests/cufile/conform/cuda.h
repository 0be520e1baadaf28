/* SPDX-License-Identifier: MIT */
/* CUDA's kinds of memory and its streams. CUCALL(name) is how the program calls the driver. */
#include "cufile/conform/memory.h"

static const struct memory memories[] = {
	{ "cuda", MEM_CUDA, false },	 { "cuda-registered", MEM_CUDA, true }, { "managed", MEM_MANAGED, false },
	{ "pinned", MEM_PINNED, false }, { "pageable", MEM_HOST, false },
};

static void *memory_alloc(const struct memory *m, size_t len)
{
	cu_ptr ptr = 0;
	void *p = NULL;

	if (m->kind == MEM_HOST)
		return calloc(1, len);
	if (m->kind == MEM_PINNED) {
		ASSERT_EQ(CUCALL(cuMemHostAlloc)(&p, len, 0), CU_OK);
		return p;
	}
	if (m->kind == MEM_MANAGED)
		ASSERT_EQ(CUCALL(cuMemAllocManaged)(&ptr, len, 1), CU_OK);
	else
		ASSERT_EQ(CUCALL(cuMemAlloc_v2)(&ptr, len), CU_OK);
	return (void *)(uintptr_t)ptr;
}

static void memory_free(const struct memory *m, void *p)
{
	if (m->kind == MEM_HOST)
		free(p);
	else if (m->kind == MEM_PINNED)
		ASSERT_EQ(CUCALL(cuMemFreeHost)(p), CU_OK);
	else
		ASSERT_EQ(CUCALL(cuMemFree_v2)((cu_ptr)(uintptr_t)p), CU_OK);
}

static void memory_put(const struct memory *m, void *p, const void *from, size_t len)
{
	if (m->kind == MEM_HOST || m->kind == MEM_PINNED)
		memcpy(p, from, len);
	else if (len) {
		/* A short copy returns before its bytes are there, unless the memory has SYNC_MEMOPS, which pools have not. */
		ASSERT_EQ(CUCALL(cuMemcpyHtoD_v2)((cu_ptr)(uintptr_t)p, from, len), CU_OK);
		ASSERT_EQ(CUCALL(cuStreamSynchronize)(NULL), CU_OK);
	}
}

static void memory_get(const struct memory *m, void *to, const void *p, size_t len)
{
	if (m->kind == MEM_HOST || m->kind == MEM_PINNED)
		memcpy(to, p, len);
	else if (len)
		ASSERT_EQ(CUCALL(cuMemcpyDtoH_v2)(to, (cu_ptr)(uintptr_t)p, len), CU_OK);
}

/* One that does not wait for the default stream. */
static CUstream stream_new(const struct memory *m)
{
	cu_stream s;

	ASSERT_EQ(CUCALL(cuStreamCreate)(&s, 1), CU_OK);
	return (CUstream)s;
}

static void stream_free(const struct memory *m, CUstream s)
{
	ASSERT_EQ(CUCALL(cuStreamDestroy_v2)((cu_stream)s), CU_OK);
}

static void stream_sync(const struct memory *m, CUstream s)
{
	ASSERT_EQ(CUCALL(cuStreamSynchronize)((cu_stream)s), CU_OK);
}

static void stream_call(const struct memory *m, CUstream s, void (*fn)(void *arg), void *arg)
{
	ASSERT_EQ(CUCALL(cuLaunchHostFunc)((cu_stream)s, fn, arg), CU_OK);
}
