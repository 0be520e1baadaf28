/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_CUDA_API_H
#define DEVICE_CUDA_API_H

/*
 * The part of the CUDA driver's binary interface that the provider uses, declared here: the library builds without the
 * CUDA toolkit and loads the driver at run time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
typedef int cu_device;
typedef uint64_t cu_ptr;
typedef uint64_t cu_mem_handle;
typedef struct cu_context_st *cu_context;
typedef struct cu_stream_st *cu_stream;
typedef struct cu_event_st *cu_event;
typedef struct cu_module_st *cu_module;
typedef struct cu_function_st *cu_function;
typedef void cu_host_fn(void *arg);

enum {
	CU_OK = 0,
	CU_INVALID_VALUE = 1,
	CU_OUT_OF_MEMORY = 2,
	CU_NOT_INITIALIZED = 3,
	CU_DEINITIALIZED = 4,
	CU_STUB_LIBRARY = 34,
	CU_DEVICE_UNAVAILABLE = 46,
	CU_NO_DEVICE = 100,
	CU_INVALID_DEVICE = 101,
	CU_INVALID_CONTEXT = 201,
	CU_OPERATING_SYSTEM = 304,
	CU_INVALID_HANDLE = 400,
	CU_NOT_FOUND = 500,
	CU_NOT_READY = 600,
	CU_ILLEGAL_ADDRESS = 700,
	CU_LAUNCH_OUT_OF_RESOURCES = 701,
	CU_CONTEXT_IS_DESTROYED = 709,
	CU_ALREADY_REGISTERED = 712,
	CU_NOT_REGISTERED = 713,
	CU_NOT_PERMITTED = 800,
	CU_NOT_SUPPORTED = 801,
	CU_SYSTEM_NOT_READY = 802,
	CU_SYSTEM_DRIVER_MISMATCH = 803,
	CU_CAPTURE_UNSUPPORTED = 900,
	CU_CAPTURE_WRONG_THREAD = 908,
};

/* CUdevice_attribute */
enum {
	CU_DEV_PCI_BUS = 33,
	CU_DEV_PCI_DEVICE = 34,
	CU_DEV_PCI_DOMAIN = 50,
	CU_DEV_CAPABILITY_MAJOR = 75,
	CU_DEV_CAPABILITY_MINOR = 76,
	CU_DEV_CONCURRENT_MANAGED = 89,
	CU_DEV_READ_ONLY_HOST_REGISTER = 113,
	CU_DEV_RDMA_FLUSH_OPTIONS = 117,
	CU_DEV_RDMA_WRITES_ORDERING = 118,
	CU_DEV_DMABUF = 124,
};

/* CUpointer_attribute */
enum {
	CU_PTR_CONTEXT = 1,
	CU_PTR_MEMORY_TYPE = 2,
	CU_PTR_DEVICE_POINTER = 3,
	CU_PTR_HOST_POINTER = 4,
	CU_PTR_SYNC_MEMOPS = 6,
	CU_PTR_BUFFER_ID = 7,
	CU_PTR_IS_MANAGED = 8,
	CU_PTR_DEVICE_ORDINAL = 9,
	CU_PTR_RANGE_START = 11,
	CU_PTR_RANGE_SIZE = 12,
	CU_PTR_MAPPED = 13,
	CU_PTR_MAPPING_SIZE = 18,
	CU_PTR_MAPPING_BASE = 19,
};

enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };

#define CU_STREAM_NON_BLOCKING 1u
#define CU_STREAM_LEGACY ((cu_stream)1)
#define CU_STREAM_PER_THREAD ((cu_stream)2)
#define CU_EVENT_BLOCKING_SYNC 1u
#define CU_EVENT_NO_TIMING 2u
#define CU_WAIT_GEQ 0u
#define CU_CAPTURE_RELAXED 2
#define CU_HOST_PORTABLE 1u
#define CU_HOST_DEVICEMAP 2u
#define CU_HOST_IOMEMORY 4u
#define CU_HOST_READ_ONLY 8u
#define CU_RANGE_DMABUF 1
#define CU_FLUSH_OPTION_HOST 1
#define CU_FLUSH_CURRENT 0
#define CU_FLUSH_TO_OWNER 100
#define CU_FUNC_NUM_REGS 4

/*
 * All driver calls: member of struct cuda_api, symbol, CUDA version of the variant with these arguments, whether the
 * call is optional, arguments.
 */
#define CUDA_CALLS(X)                                                                                                  \
	X(init, "cuInit", 2000, false, (unsigned int flags))                                                           \
	X(error_name, "cuGetErrorName", 6000, false, (cu_result r, const char **name))                                 \
	X(device_count, "cuDeviceGetCount", 2000, false, (int *n))                                                     \
	X(device_get, "cuDeviceGet", 2000, false, (cu_device * dev, int ordinal))                                      \
	X(device_name, "cuDeviceGetName", 2000, false, (char *name, int len, cu_device dev))                           \
	X(device_memory, "cuDeviceTotalMem", 3020, false, (size_t * bytes, cu_device dev))                             \
	X(device_attribute, "cuDeviceGetAttribute", 2000, false, (int *value, int attribute, cu_device dev))           \
	X(primary_retain, "cuDevicePrimaryCtxRetain", 7000, false, (cu_context * ctx, cu_device dev))                  \
	X(primary_release, "cuDevicePrimaryCtxRelease", 11000, false, (cu_device dev))                                 \
	X(primary_state, "cuDevicePrimaryCtxGetState", 7000, false, (cu_device dev, unsigned int *flags, int *active)) \
	X(ctx_create, "cuCtxCreate", 3020, true, (cu_context * ctx, unsigned int flags, cu_device dev))                \
	X(ctx_destroy, "cuCtxDestroy", 4000, true, (cu_context ctx))                                                   \
	X(ctx_push, "cuCtxPushCurrent", 4000, false, (cu_context ctx))                                                 \
	X(ctx_pop, "cuCtxPopCurrent", 4000, false, (cu_context * ctx))                                                 \
	X(ctx_current, "cuCtxGetCurrent", 4000, false, (cu_context * ctx))                                             \
	X(ctx_device, "cuCtxGetDevice", 2000, false, (cu_device * dev))                                                \
	X(capture_mode, "cuThreadExchangeStreamCaptureMode", 10010, false, (int *mode))                                \
	X(mem_info, "cuMemGetInfo", 3020, false, (size_t * free, size_t * total))                                      \
	X(mem_alloc, "cuMemAlloc", 3020, false, (cu_ptr * ptr, size_t len))                                            \
	X(mem_free, "cuMemFree", 3020, false, (cu_ptr ptr))                                                            \
	X(mem_handle_retain, "cuMemRetainAllocationHandle", 11000, true, (cu_mem_handle * handle, void *ptr))          \
	X(mem_handle_release, "cuMemRelease", 10020, true, (cu_mem_handle handle))                                     \
	X(range_handle, "cuMemGetHandleForAddressRange", 11070, true,                                                  \
	  (void *handle, cu_ptr ptr, size_t len, int type, unsigned long long flags))                                  \
	X(ptr_attribute, "cuPointerGetAttribute", 4000, false, (void *value, int attribute, cu_ptr ptr))               \
	X(ptr_attributes, "cuPointerGetAttributes", 7000, false,                                                       \
	  (unsigned int n, int *attributes, void **values, cu_ptr ptr))                                                \
	X(ptr_set_attribute, "cuPointerSetAttribute", 6000, false, (const void *value, int attribute, cu_ptr ptr))     \
	X(flush_writes, "cuFlushGPUDirectRDMAWrites", 11030, true, (int target, int scope))                            \
	X(host_register, "cuMemHostRegister", 6050, false, (void *ptr, size_t len, unsigned int flags))                \
	X(host_unregister, "cuMemHostUnregister", 4000, false, (void *ptr))                                            \
	X(host_device_ptr, "cuMemHostGetDevicePointer", 3020, false, (cu_ptr * dev, void *ptr, unsigned int flags))    \
	X(stream_create, "cuStreamCreate", 2000, false, (cu_stream * s, unsigned int flags))                           \
	X(stream_destroy, "cuStreamDestroy", 4000, false, (cu_stream s))                                               \
	X(stream_query, "cuStreamQuery", 2000, false, (cu_stream s))                                                   \
	X(stream_sync, "cuStreamSynchronize", 2000, false, (cu_stream s))                                              \
	X(stream_ctx, "cuStreamGetCtx", 9020, false, (cu_stream s, cu_context * ctx))                                  \
	X(stream_capturing, "cuStreamIsCapturing", 10000, false, (cu_stream s, int *status))                           \
	X(stream_call, "cuLaunchHostFunc", 10000, false, (cu_stream s, cu_host_fn * fn, void *arg))                    \
	X(stream_wait_value, "cuStreamWaitValue32", 11070, true,                                                       \
	  (cu_stream s, cu_ptr addr, uint32_t value, unsigned int flags))                                              \
	X(stream_write_value, "cuStreamWriteValue32", 11070, true,                                                     \
	  (cu_stream s, cu_ptr addr, uint32_t value, unsigned int flags))                                              \
	X(event_create, "cuEventCreate", 2000, false, (cu_event * e, unsigned int flags))                              \
	X(event_destroy, "cuEventDestroy", 4000, false, (cu_event e))                                                  \
	X(event_record, "cuEventRecord", 2000, false, (cu_event e, cu_stream s))                                       \
	X(event_query, "cuEventQuery", 2000, false, (cu_event e))                                                      \
	X(event_sync, "cuEventSynchronize", 2000, false, (cu_event e))                                                 \
	X(copy, "cuMemcpyAsync", 4000, false, (cu_ptr dst, cu_ptr src, size_t len, cu_stream s))                       \
	X(copy_peer, "cuMemcpyPeerAsync", 4000, true,                                                                  \
	  (cu_ptr dst, cu_context dst_ctx, cu_ptr src, cu_context src_ctx, size_t len, cu_stream s))                   \
	X(copy_in, "cuMemcpyHtoDAsync", 3020, false, (cu_ptr dst, const void *src, size_t len, cu_stream s))           \
	X(copy_out, "cuMemcpyDtoHAsync", 3020, false, (void *dst, cu_ptr src, size_t len, cu_stream s))                \
	X(fill, "cuMemsetD8Async", 3020, false, (cu_ptr dst, unsigned char value, size_t len, cu_stream s))            \
	X(module_load, "cuModuleLoadData", 2000, false, (cu_module * m, const void *image))                            \
	X(module_unload, "cuModuleUnload", 2000, false, (cu_module m))                                                 \
	X(module_function, "cuModuleGetFunction", 2000, false, (cu_function * f, cu_module m, const char *name))       \
	X(function_attribute, "cuFuncGetAttribute", 2020, false, (int *value, int attribute, cu_function f))           \
	X(launch, "cuLaunchKernel", 4000, false,                                                                       \
	  (cu_function f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,         \
	   unsigned int block_y, unsigned int block_z, unsigned int shared, cu_stream s, void **params, void **extra))

struct cuda_api {
#define CUDA_CALL(name, symbol, version, optional, args) cu_result(*name) args;
	CUDA_CALLS(CUDA_CALL)
#undef CUDA_CALL
};

/* Filled by cuda_api_load(). The driver is never unloaded: its threads run in it. */
extern struct cuda_api cu;

/*
 * Loads and initializes the driver, once per process. On failure writes to @why what is missing and how to provide it;
 * it may be called again.
 */
int cuda_api_load(char *why, size_t len);

/* The negative errno for a result, 0 for CU_OK. */
int cuda_errno(cu_result r);
/* cuda_errno() for ops->open, where -ENOMEM means that the process is out of memory: a GPU out of memory is -EIO. */
int cuda_open_errno(cu_result r);
const char *cuda_error_name(cu_result r);

#endif
