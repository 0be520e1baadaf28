/* SPDX-License-Identifier: MIT */
/* Host memory to which kernels write their results. */
#include <stdlib.h>

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "os/os.h"

int cuda_scratch_get(struct cuda_ctx *cc, struct cuda_scratch **ret)
{
	struct cuda_scratch *s = NULL;
	cu_result r;
	int rc;

	pthread_mutex_lock(&cc->lock);
	if (!list_empty(&cc->scratch)) {
		s = list_first(&cc->scratch, struct cuda_scratch, node);
		list_del(&s->node);
	}
	pthread_mutex_unlock(&cc->lock);
	if (s) {
		*ret = s;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	rc = os_map_anon(CUDA_SCRATCH_BYTES, cc->cd->dev->numa_node, &s->ptr);
	if (rc) {
		free(s);
		return rc;
	}
	r = cu.host_register(s->ptr, CUDA_SCRATCH_BYTES, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP);
	if (!r) {
		r = cu.host_device_ptr(&s->dev_addr, s->ptr, 0);
		if (r)
			cu.host_unregister(s->ptr);
	}
	if (r) {
		os_unmap(s->ptr, CUDA_SCRATCH_BYTES);
		free(s);
		return cuda_errno(r);
	}
	os_dont_fork(s->ptr, CUDA_SCRATCH_BYTES);
	*ret = s;
	return 0;
}

void cuda_scratch_put(struct cuda_ctx *cc, struct cuda_scratch *s)
{
	pthread_mutex_lock(&cc->lock);
	list_add(&cc->scratch, &s->node);
	pthread_mutex_unlock(&cc->lock);
}

void cuda_scratch_free(struct cuda_ctx *cc, bool entered)
{
	list_for_each_safe(it, tmp, &cc->scratch) {
		struct cuda_scratch *s = list_entry(it, struct cuda_scratch, node);

		if (entered)
			cu.host_unregister(s->ptr);
		os_unmap(s->ptr, CUDA_SCRATCH_BYTES);
		free(s);
	}
}
