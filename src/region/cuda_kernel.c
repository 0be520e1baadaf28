/* SPDX-License-Identifier: MIT */
/* The kernels, in each context they are needed in. */
#include "region/cuda_kernel.h"

#include <time.h>

#include "base/util.h"
#include "os/os.h"
#include "region/cuda.h"
#include "region/cuda_ptx.h"

#define LOAD_NS 100000000ull

enum { UNTRIED = 1, LOADING };

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

/* Inside cuda_enter(), by the one who has set LOADING. */
static void load_now(struct cuda_space *sp)
{
	struct strait_device *dev = sp->cd->dev;
	cu_result r = load(sp);
	int rc = cuda_errno(r);

	if (rc && rc != -ENOMEM)
		log_warn(dev->provider->set->log,
			 "%s: the driver does not take the kernels (%s): the CPU and plain copies do their work",
			 dev->name, cuda_error_name(r));
	pthread_mutex_lock(&sp->lock);
	/* Want of memory may pass. */
	sp->module_status = rc == -ENOMEM ? UNTRIED : rc;
	pthread_cond_broadcast(&sp->loaded);
	pthread_mutex_unlock(&sp->lock);
}

static void *load_main(void *arg)
{
	struct cuda_space *sp = arg;
	struct cuda_device *cd = sp->cd;
	struct cuda_entry e;

	if (cuda_enter(sp, &e)) {
		pthread_mutex_lock(&sp->lock);
		sp->module_status = -ENODEV;
		pthread_cond_broadcast(&sp->loaded);
		pthread_mutex_unlock(&sp->lock);
	} else {
		load_now(sp);
		cuda_leave(&e);
	}
	cuda_space_put(sp);
	pthread_mutex_lock(&cd->lock);
	cd->loaders--;
	pthread_cond_broadcast(&cd->idle);
	pthread_mutex_unlock(&cd->lock);
	return NULL;
}

/* With the lock held. */
static void wait_loaded(struct cuda_space *sp)
{
	uint64_t end = os_now_ns() + LOAD_NS;
	struct timespec ts = { (time_t)(end / 1000000000u), (long)(end % 1000000000u) };

	while (sp->module_status == LOADING && !pthread_cond_timedwait(&sp->loaded, &sp->lock, &ts))
		;
}

static void loader_count(struct cuda_device *cd, int n)
{
	pthread_mutex_lock(&cd->lock);
	cd->loaders += (unsigned int)n;
	pthread_mutex_unlock(&cd->lock);
}

/*
 * The driver loads when all work of the context is done, and the work may be waiting for the very caller. So a thread
 * waits for that, and who asks does without kernels until it has come.
 */
int cuda_kernels_load(struct cuda_space *sp)
{
	unsigned long thread;
	bool mine, done;
	int rc;

	pthread_mutex_lock(&sp->lock);
	mine = sp->module_status == UNTRIED;
	if (mine)
		sp->module_status = LOADING;
	rc = sp->module_status == LOADING ? -EAGAIN : sp->module_status;
	pthread_mutex_unlock(&sp->lock);
	if (!mine)
		return rc;
	cuda_space_ref(sp);
	loader_count(sp->cd, 1);
	rc = os_thread("strait-load", load_main, sp, &thread);
	if (rc) {
		loader_count(sp->cd, -1);
		load_now(sp);
		cuda_space_put(sp); /* not the last: the caller's is */
	}
	pthread_mutex_lock(&sp->lock);
	wait_loaded(sp);
	done = sp->module_status != LOADING;
	pthread_mutex_unlock(&sp->lock);
	if (!rc && done)
		pthread_join((pthread_t)thread, NULL);
	else if (!rc)
		pthread_detach((pthread_t)thread);
	pthread_mutex_lock(&sp->lock);
	rc = sp->module_status == LOADING ? -EAGAIN : sp->module_status == UNTRIED ? -ENOMEM : sp->module_status;
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
