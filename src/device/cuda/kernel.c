/* SPDX-License-Identifier: MIT */
/* Loading and launching the kernels, per context. */
#include "device/cuda/kernel.h"

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "device/cuda/ptx.h"
#include "device/cuda/sass.h"
#include "os/os.h"

const void *cuda_sass_for(const struct cuda_sass *table, unsigned int arch)
{
	const void *image = NULL;

	for (; table->image; table++)
		if (table->arch / 10 == arch / 10 && table->arch <= arch)
			image = table->image;
	return image;
}

/* Loads machine code if the library has it for the GPU. Otherwise the driver compiles the PTX, which takes 0.1 s. */
static cu_result module_load(struct cuda_ctx *cc)
{
	const void *image = cuda_sass_for(cuda_sass, cc->cd->arch);
	cu_result r = image ? cu.module_load(&cc->module, image) : CU_NOT_SUPPORTED;

	if (r && cuda_errno(r) != -ENOMEM)
		r = cu.module_load(&cc->module, cuda_ptx);
	return r;
}

static cu_result kernels_load(struct cuda_ctx *cc)
{
	static const char *const names[CUDA_KERNELS] = {
		[CUDA_COPY_LIST] = "strait_copy_list",
		[CUDA_COPY_MARKED] = "strait_copy_marked",
		[CUDA_COMPARE] = "strait_compare",
		[CUDA_CRC32C] = "strait_crc32c",
		[CUDA_COMPARE_PAGES] = "strait_compare_pages",
	};
	cu_result r;
	int regs;

	r = module_load(cc);
	if (r)
		return r;
	for (unsigned int i = 0; i < CUDA_KERNELS && !r; i++) {
		r = cu.module_function(&cc->kernel[i], cc->module, names[i]);
		/* The query makes a lazily loading driver load it now: at the first launch it could wait for the GPU. */
		if (!r)
			r = cu.function_attribute(&regs, CU_FUNC_NUM_REGS, cc->kernel[i]);
	}
	if (r) {
		cu.module_unload(cc->module);
		cc->module = NULL;
	}
	return r;
}

/* See cuda_kernels_expect(). */
static void kernels_load_once(struct cuda_ctx *cc, bool wanted)
{
	struct strait_device *dev = cc->cd->dev;
	uint64_t began;
	bool mine;
	cu_result r;
	int rc;

	pthread_mutex_lock(&cc->lock);
	mine = cc->module_status == CUDA_KERNELS_UNTRIED && (wanted || !cc->first_seen_by_stream) &&
	       cuda_load_gate_try_begin();
	if (mine)
		cc->module_status = CUDA_KERNELS_LOADING;
	pthread_mutex_unlock(&cc->lock);
	if (!mine)
		return;
	began = os_now_ns();
	r = kernels_load(cc);
	cuda_load_gate_end();
	log_debug(dev->provider->set->log, "%s: device code %s in %.1f ms", dev->name, r ? "refused" : "loaded",
		  (double)(os_now_ns() - began) / 1e6);
	rc = cuda_errno(r);
	if (rc && rc != -ENOMEM)
		log_warn(dev->provider->set->log,
			 "%s: the driver cannot load the kernels (%s): the CPU and plain copies replace them",
			 dev->name, cuda_error_name(r));
	pthread_mutex_lock(&cc->lock);
	/* Try again later if the GPU is out of memory. */
	cc->module_status = rc == -ENOMEM ? CUDA_KERNELS_UNTRIED : rc;
	pthread_mutex_unlock(&cc->lock);
}

bool cuda_kernels_ready(struct cuda_ctx *cc)
{
	int rc;

	pthread_mutex_lock(&cc->lock);
	rc = cc->module_status;
	pthread_mutex_unlock(&cc->lock);
	return !rc;
}

/* The @nth context that is not the provider's own, with a reference. */
static struct cuda_ctx *nth_application_ctx(struct cuda_device *cd, unsigned int nth)
{
	struct cuda_ctx *found = NULL;

	pthread_mutex_lock(&cd->lock);
	list_for_each(it, &cd->contexts) {
		struct cuda_ctx *cc = list_entry(it, struct cuda_ctx, node);

		if (cc->own || nth--)
			continue;
		found = cc;
		cuda_ctx_ref(found);
		break;
	}
	pthread_mutex_unlock(&cd->lock);
	return found;
}

void cuda_kernels_expect(struct cuda_ctx *cc, bool wanted)
{
	struct cuda_entry e;

	if (cuda_enter(cc, &e))
		return;
	kernels_load_once(cc, wanted);
	cuda_leave(&e);
}

/* Loads the kernels in each existing context of the application. */
void cuda_prepare_copy_lists(struct strait_device *dev)
{
	struct cuda_device *cd = cuda_device(dev);
	struct cuda_ctx *cc;
	unsigned int flags;
	int active;

	if (!cu.primary_state(cd->ordinal, &flags, &active) && active && !cuda_ctx_get(cd, NULL, &cc))
		cuda_ctx_put(cc);
	for (unsigned int i = 0; (cc = nth_application_ctx(cd, i)); i++) {
		cuda_kernels_expect(cc, true);
		cuda_ctx_put(cc);
	}
}

void cuda_kernels_unload(struct cuda_ctx *cc)
{
	if (cc->module)
		cu.module_unload(cc->module);
	cc->module = NULL;
}

cu_result cuda_launch(struct cuda_stream *s, enum cuda_kernel k, unsigned int warps, void *args)
{
	unsigned int blocks = (warps + CUDA_BLOCK_WARPS - 1) / CUDA_BLOCK_WARPS;
	void *params[] = { args };

	return cu.launch(s->ctx->kernel[k], blocks, 1, 1, CUDA_WARP * CUDA_BLOCK_WARPS, 1, 1, 0, s->handle, params,
			 NULL);
}
