/* SPDX-License-Identifier: MIT */
/* The structure layout of NVIDIA's interface, checked at compile time: programs are built against it. */
#include "core.h"

#define SIZE(type, n) _Static_assert(sizeof(type) == (n), #type)
#define AT(type, member, n) _Static_assert(offsetof(type, member) == (n), #type "." #member)

SIZE(CUfileError_t, 8);
AT(CUfileError_t, cu_err, 4);
SIZE(CUfileDescr_t, 24);
AT(CUfileDescr_t, handle, 8);
AT(CUfileDescr_t, fs_ops, 16);
SIZE(CUfileFSOps_t, 40);
SIZE(cufileRDMAInfo_t, 16);
SIZE(CUfileDrvProps_t, 56);
AT(CUfileDrvProps_t, nvfs.poll_thresh_size, 8);
AT(CUfileDrvProps_t, nvfs.max_direct_io_size, 16);
AT(CUfileDrvProps_t, nvfs.dstatusflags, 24);
AT(CUfileDrvProps_t, nvfs.dcontrolflags, 28);
AT(CUfileDrvProps_t, fflags, 32);
AT(CUfileDrvProps_t, max_device_cache_size, 36);
AT(CUfileDrvProps_t, per_buffer_cache_size, 40);
AT(CUfileDrvProps_t, max_device_pinned_mem_size, 44);
AT(CUfileDrvProps_t, max_batch_io_size, 48);
AT(CUfileDrvProps_t, max_batch_io_timeout_msecs, 52);
SIZE(CUfileIOParams_t, 64);
AT(CUfileIOParams_t, u.batch.devPtr_base, 8);
AT(CUfileIOParams_t, u.batch.file_offset, 16);
AT(CUfileIOParams_t, u.batch.devPtr_offset, 24);
AT(CUfileIOParams_t, u.batch.size, 32);
AT(CUfileIOParams_t, fh, 40);
AT(CUfileIOParams_t, opcode, 48);
AT(CUfileIOParams_t, cookie, 56);
SIZE(CUfileIOEvents_t, 24);
AT(CUfileIOEvents_t, status, 8);
AT(CUfileIOEvents_t, ret, 16);
SIZE(CUfileIOVec_t, 16);
SIZE(CUfileOpCounter_t, 16);
AT(CUfileStatsLevel3_t, num_gpus, 1024);
AT(CUfileStatsLevel3_t, per_gpu_stats, 1032);
