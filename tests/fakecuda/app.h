/* SPDX-License-Identifier: MIT */
#ifndef FAKECUDA_APP_H
#define FAKECUDA_APP_H

/*
 * The CUDA driver's calls as an application makes them, in declarations of our own. The fake driver has all of them;
 * the tests on a GPU look them up in the real one.
 */

#include <stddef.h>
#include <stdint.h>

#include "device/cuda/api.h"

/* Where the memory of an allocation is; only devices are used here. */
struct cu_location {
	int type; /* 1: device */
	int id;
};

struct cu_mem_prop {
	int type; /* 1: pinned */
	int handle_types;
	struct cu_location location;
	void *win32;
	unsigned char flags[8];
};

struct cu_mem_access {
	struct cu_location location;
	int flags; /* 3: read and write */
};

struct cu_ipc_handle {
	char data[64];
};

/* Called by the provider. */
#define CUDA_USED(X)                                                                                                   \
	X(cuInit, (unsigned int flags))                                                                                \
	X(cuGetErrorName, (cu_result r, const char **name))                                                            \
	X(cuDeviceGetCount, (int *n))                                                                                  \
	X(cuDeviceGet, (cu_device * dev, int ordinal))                                                                 \
	X(cuDeviceGetName, (char *name, int len, cu_device dev))                                                       \
	X(cuDeviceTotalMem_v2, (size_t * bytes, cu_device dev))                                                        \
	X(cuDeviceGetAttribute, (int *value, int attribute, cu_device dev))                                            \
	X(cuDevicePrimaryCtxRetain, (cu_context * ctx, cu_device dev))                                                 \
	X(cuDevicePrimaryCtxRelease_v2, (cu_device dev))                                                               \
	X(cuDevicePrimaryCtxGetState, (cu_device dev, unsigned int *flags, int *active))                               \
	X(cuCtxPushCurrent_v2, (cu_context ctx))                                                                       \
	X(cuCtxPopCurrent_v2, (cu_context * ctx))                                                                      \
	X(cuCtxGetCurrent, (cu_context * ctx))                                                                         \
	X(cuCtxGetDevice, (cu_device * dev))                                                                           \
	X(cuThreadExchangeStreamCaptureMode, (int *mode))                                                              \
	X(cuMemGetInfo_v2, (size_t * free, size_t * total))                                                            \
	X(cuMemAlloc_v2, (cu_ptr * ptr, size_t len))                                                                   \
	X(cuMemFree_v2, (cu_ptr ptr))                                                                                  \
	X(cuMemRetainAllocationHandle, (cu_mem_handle * handle, void *ptr))                                            \
	X(cuMemRelease, (cu_mem_handle handle))                                                                        \
	X(cuMemGetHandleForAddressRange, (void *handle, cu_ptr ptr, size_t len, int type, unsigned long long flags))   \
	X(cuPointerGetAttribute, (void *value, int attribute, cu_ptr ptr))                                             \
	X(cuPointerGetAttributes, (unsigned int n, int *attributes, void **values, cu_ptr ptr))                        \
	X(cuPointerSetAttribute, (const void *value, int attribute, cu_ptr ptr))                                       \
	X(cuFlushGPUDirectRDMAWrites, (int target, int scope))                                                         \
	X(cuMemHostRegister_v2, (void *ptr, size_t len, unsigned int flags))                                           \
	X(cuMemHostUnregister, (void *ptr))                                                                            \
	X(cuMemHostGetDevicePointer_v2, (cu_ptr * dev, void *ptr, unsigned int flags))                                 \
	X(cuStreamCreate, (cu_stream * s, unsigned int flags))                                                         \
	X(cuStreamDestroy_v2, (cu_stream s))                                                                           \
	X(cuStreamQuery, (cu_stream s))                                                                                \
	X(cuStreamSynchronize, (cu_stream s))                                                                          \
	X(cuStreamGetCtx, (cu_stream s, cu_context * ctx))                                                             \
	X(cuStreamIsCapturing, (cu_stream s, int *status))                                                             \
	X(cuLaunchHostFunc, (cu_stream s, cu_host_fn * fn, void *arg))                                                 \
	X(cuStreamWaitValue32_v2, (cu_stream s, cu_ptr addr, uint32_t value, unsigned int flags))                      \
	X(cuStreamWriteValue32_v2, (cu_stream s, cu_ptr addr, uint32_t value, unsigned int flags))                     \
	X(cuEventCreate, (cu_event * e, unsigned int flags))                                                           \
	X(cuEventDestroy_v2, (cu_event e))                                                                             \
	X(cuEventRecord, (cu_event e, cu_stream s))                                                                    \
	X(cuEventQuery, (cu_event e))                                                                                  \
	X(cuEventSynchronize, (cu_event e))                                                                            \
	X(cuMemcpyAsync, (cu_ptr dst, cu_ptr src, size_t len, cu_stream s))                                            \
	X(cuMemcpyPeerAsync,                                                                                           \
	  (cu_ptr dst, cu_context dst_ctx, cu_ptr src, cu_context src_ctx, size_t len, cu_stream s))                   \
	X(cuMemcpyHtoDAsync_v2, (cu_ptr dst, const void *src, size_t len, cu_stream s))                                \
	X(cuMemcpyDtoHAsync_v2, (void *dst, cu_ptr src, size_t len, cu_stream s))                                      \
	X(cuMemsetD8Async, (cu_ptr dst, unsigned char value, size_t len, cu_stream s))                                 \
	X(cuModuleLoadData, (cu_module * m, const void *image))                                                        \
	X(cuModuleUnload, (cu_module m))                                                                               \
	X(cuModuleGetFunction, (cu_function * f, cu_module m, const char *name))                                       \
	X(cuFuncGetAttribute, (int *value, int attribute, cu_function f))                                              \
	X(cuLaunchKernel,                                                                                              \
	  (cu_function f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,         \
	   unsigned int bz, unsigned int shared, cu_stream s, void **params, void **extra))

/* Called by applications only. */
#define CUDA_APP(X)                                                                                                    \
	X(cuCtxCreate_v2, (cu_context * ctx, unsigned int flags, cu_device dev))                                       \
	X(cuCtxDestroy_v2, (cu_context ctx))                                                                           \
	X(cuCtxSetCurrent, (cu_context ctx))                                                                           \
	X(cuCtxSynchronize, (void))                                                                                    \
	X(cuDevicePrimaryCtxReset_v2, (cu_device dev))                                                                 \
	X(cuMemAllocManaged, (cu_ptr * ptr, size_t len, unsigned int flags))                                           \
	X(cuMemHostAlloc, (void **ptr, size_t len, unsigned int flags))                                                \
	X(cuMemFreeHost, (void *ptr))                                                                                  \
	X(cuMemAllocAsync, (cu_ptr * ptr, size_t len, cu_stream s))                                                    \
	X(cuMemFreeAsync, (cu_ptr ptr, cu_stream s))                                                                   \
	X(cuMemcpyHtoD_v2, (cu_ptr dst, const void *src, size_t len))                                                  \
	X(cuMemcpyDtoH_v2, (void *dst, cu_ptr src, size_t len))                                                        \
	X(cuMemAddressReserve, (cu_ptr * ptr, size_t len, size_t align, cu_ptr hint, unsigned long long flags))        \
	X(cuMemAddressFree, (cu_ptr ptr, size_t len))                                                                  \
	X(cuMemCreate, (cu_mem_handle * handle, size_t len, const struct cu_mem_prop *prop, unsigned long long flags)) \
	X(cuMemMap, (cu_ptr ptr, size_t len, size_t off, cu_mem_handle handle, unsigned long long flags))              \
	X(cuMemSetAccess, (cu_ptr ptr, size_t len, const struct cu_mem_access *access, size_t n))                      \
	X(cuMemUnmap, (cu_ptr ptr, size_t len))                                                                        \
	X(cuIpcGetMemHandle, (struct cu_ipc_handle * handle, cu_ptr ptr))                                              \
	X(cuIpcOpenMemHandle_v2, (cu_ptr * ptr, struct cu_ipc_handle handle, unsigned int flags))                      \
	X(cuIpcCloseMemHandle, (cu_ptr ptr))

#define CUDA_ALL(X) CUDA_USED(X) CUDA_APP(X)

#endif
