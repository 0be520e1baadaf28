/* SPDX-License-Identifier: MIT */
/* The kernels, in each context they are needed in. */
#include "device/cuda/kernel.h"

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "device/cuda/ptx.h"
#include "os/os.h"

/*
 * To load kernels or free memory the driver waits until all work of the context is done, and admits no other call
 * meanwhile, whatever its context. A stream that waits for a copy of ours would wait for ever. So for all of the
 * process: either streams wait for copies, or kernels are loaded and memory is freed. Loading is put off while a stream
 * waits; freeing waits for the streams, and further transfers on streams wait for it.
 */
static struct {
	pthread_cond_t loaded, quiet;
	unsigned int ordered;
	unsigned int loading; /* threads that load or free, or wait to free */
} turn = { .loaded = PTHREAD_COND_INITIALIZER, .quiet = PTHREAD_COND_INITIALIZER };

/* The threads that were at it are not in the child. */
static void turn_forked(void)
{
	turn.ordered = turn.loading = 0;
	pthread_cond_init(&turn.loaded, NULL);
	pthread_cond_init(&turn.quiet, NULL);
}

OS_FORK_LOCK(turn_lock, turn_forked)

void cuda_ordered_begin(struct strait_device *dev)
{
	pthread_mutex_lock(&turn_lock);
	while (turn.loading)
		pthread_cond_wait(&turn.loaded, &turn_lock);
	turn.ordered++;
	pthread_mutex_unlock(&turn_lock);
}

void cuda_ordered_end(struct strait_device *dev)
{
	pthread_mutex_lock(&turn_lock);
	if (!--turn.ordered)
		pthread_cond_broadcast(&turn.quiet);
	pthread_mutex_unlock(&turn_lock);
}

void cuda_exclusive_begin(void)
{
	pthread_mutex_lock(&turn_lock);
	turn.loading++;
	while (turn.ordered)
		pthread_cond_wait(&turn.quiet, &turn_lock);
	pthread_mutex_unlock(&turn_lock);
}

void cuda_exclusive_end(void)
{
	pthread_mutex_lock(&turn_lock);
	if (!--turn.loading)
		pthread_cond_broadcast(&turn.loaded);
	pthread_mutex_unlock(&turn_lock);
}

static bool loading_begin(void)
{
	bool can;

	pthread_mutex_lock(&turn_lock);
	can = !turn.ordered;
	turn.loading += can;
	pthread_mutex_unlock(&turn_lock);
	return can;
}

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

/* @wanted: not only in case of need. */
static void load_once(struct cuda_space *sp, bool wanted)
{
	struct strait_device *dev = sp->cd->dev;
	bool mine;
	cu_result r;
	int rc;

	pthread_mutex_lock(&sp->lock);
	mine = sp->module_status == CUDA_KERNELS_UNTRIED && (wanted || !sp->by_stream) && loading_begin();
	if (mine)
		sp->module_status = CUDA_KERNELS_LOADING;
	pthread_mutex_unlock(&sp->lock);
	if (!mine)
		return;
	r = load(sp);
	cuda_exclusive_end();
	rc = cuda_errno(r);
	if (rc && rc != -ENOMEM)
		log_warn(dev->provider->set->log,
			 "%s: the driver does not take the kernels (%s): the CPU and plain copies do their work",
			 dev->name, cuda_error_name(r));
	pthread_mutex_lock(&sp->lock);
	/* Want of memory may pass. */
	sp->module_status = rc == -ENOMEM ? CUDA_KERNELS_UNTRIED : rc;
	pthread_mutex_unlock(&sp->lock);
}

bool cuda_kernels_ready(struct cuda_space *sp)
{
	int rc;

	pthread_mutex_lock(&sp->lock);
	rc = sp->module_status;
	pthread_mutex_unlock(&sp->lock);
	return !rc;
}

/* The @nth of the contexts that are the application's. */
static struct cuda_space *nth_space(struct cuda_device *cd, unsigned int nth)
{
	struct cuda_space *found = NULL;

	pthread_mutex_lock(&cd->lock);
	list_for_each(it, &cd->spaces) {
		struct cuda_space *sp = list_entry(it, struct cuda_space, node);

		if (sp->own || nth--)
			continue;
		found = sp;
		cuda_space_ref(found);
		break;
	}
	pthread_mutex_unlock(&cd->lock);
	return found;
}

void cuda_kernels_expect(struct cuda_space *sp, bool wanted)
{
	struct cuda_entry e;

	if (cuda_enter(sp, &e))
		return;
	load_once(sp, wanted);
	cuda_leave(&e);
}

/* In each context that is there. */
void cuda_expect_lists(struct strait_device *dev)
{
	struct cuda_device *cd = cuda_device(dev);
	struct cuda_space *sp;
	unsigned int flags;
	int active;

	if (!cu.primary_state(cd->ordinal, &flags, &active) && active && !cuda_space_get(cd, NULL, &sp))
		cuda_space_put(sp);
	for (unsigned int i = 0; (sp = nth_space(cd, i)); i++) {
		cuda_kernels_expect(sp, true);
		cuda_space_put(sp);
	}
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
