/* SPDX-License-Identifier: MIT */
/* The kernels, in each context they are needed in. */
#include "region/cuda_kernel.h"

#include "base/util.h"
#include "region/cuda.h"
#include "region/cuda_ptx.h"

static cu_result load(struct cuda_space *sp)
{
	static const char *const names[CUDA_KERNELS] = {
		[CUDA_COPY_LIST] = "strait_copy_list",
		[CUDA_COMPARE] = "strait_compare",
		[CUDA_CRC32C] = "strait_crc32c",
	};
	cu_result r;
	int regs;

	r = cu.module_load(&sp->module, cuda_ptx);
	if (r)
		return r;
	for (unsigned int i = 0; i < CUDA_KERNELS && !r; i++) {
		r = cu.module_function(&sp->kernel[i], sp->module, names[i]);
		/* Asking makes the driver load it now, not at its first launch, where it could wait for the GPU. */
		if (!r)
			r = cu.function_attribute(&regs, CU_FUNC_NUM_REGS, sp->kernel[i]);
	}
	if (r) {
		cu.module_unload(sp->module);
		sp->module = NULL;
	}
	return r;
}

int cuda_kernels_load(struct cuda_space *sp)
{
	struct strait_device *dev = sp->cd->dev;
	cu_result r;
	int rc;

	pthread_mutex_lock(&sp->lock);
	if (sp->module_status == 1) {
		r = load(sp);
		rc = cuda_errno(r);
		/* Want of memory may pass. */
		if (rc != -ENOMEM)
			sp->module_status = rc;
		if (rc && rc != -ENOMEM)
			log_warn(
				dev->provider->set->log,
				"%s: the driver does not take the kernels (%s): the CPU and plain copies do their work",
				dev->name, cuda_error_name(r));
	}
	rc = sp->module_status == 1 ? -ENOMEM : sp->module_status;
	pthread_mutex_unlock(&sp->lock);
	return rc;
}

void cuda_kernels_unload(struct cuda_space *sp)
{
	if (sp->module)
		cu.module_unload(sp->module);
	sp->module = NULL;
}

cu_result cuda_launch(struct cuda_stream *s, enum cuda_kernel k, unsigned int warps, void *args)
{
	unsigned int blocks = (warps + CUDA_BLOCK_WARPS - 1) / CUDA_BLOCK_WARPS;
	void *params[] = { args };

	return cu.launch(s->space->kernel[k], blocks, 1, 1, CUDA_WARP * CUDA_BLOCK_WARPS, 1, 1, 0, s->handle, params,
			 NULL);
}
