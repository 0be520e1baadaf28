/* SPDX-License-Identifier: MIT */
/* Contexts: entering and leaving them, detecting their destruction, references. */
#include <stdlib.h>

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "os/os.h"

#define PAGE_BYTES (CUDA_WORDS * 64)
#define SUSPECT_POLL_NS 1000000u

/*
 * Threads that ask the driver queue for one of its locks. Destroying a context takes the driver longer than this, so the
 * answer still holds for a program that destroys a context after its transfers.
 */
#define CHECKED_NS 20000u

cu_result cuda_push(cu_context ctx, struct cuda_entry *e)
{
	cu_context now = NULL;
	cu_result r;

	/* Pushing and popping take a lock of the driver, which the threads of a busy program would queue for. */
	e->pushed = cu.ctx_current(&now) || now != ctx;
	r = e->pushed ? cu.ctx_push(ctx) : CU_OK;
	if (r)
		return r;
	/* In relaxed mode this thread may make calls that would invalidate a capture of another thread. */
	e->capture_mode = CU_CAPTURE_RELAXED;
	e->capture = !cu.capture_mode(&e->capture_mode);
	return CU_OK;
}

void cuda_leave(struct cuda_entry *e)
{
	cu_context ctx;

	if (e->capture)
		cu.capture_mode(&e->capture_mode);
	if (e->pushed)
		cu.ctx_pop(&ctx);
}

/* Is the page still registered? Errors of other causes do not count as an answer. */
static bool ctx_page_known(struct cuda_ctx *cc)
{
	cu_ptr page = (cu_ptr)(uintptr_t)cc->page;
	cu_context ctx = NULL;
	unsigned int type = 0;
	cu_result r;

	if (cc->page_has_context)
		r = cu.ptr_attribute(&ctx, CU_PTR_CONTEXT, page);
	else
		r = cu.ptr_attribute(&type, CU_PTR_MEMORY_TYPE, page);
	if (!r)
		return cc->page_has_context ? ctx == cc->ctx : type == CU_MEMORY_HOST;
	return r != CU_INVALID_VALUE && cuda_errno(r) != -ENODEV;
}

/* A reset of the primary context unregisters the staging memory, so the device counts as removed. */
static void ctx_set_dead(struct cuda_ctx *cc)
{
	struct strait_device *dev = cc->cd->dev;

	if (atomic_exchange_explicit(&cc->dead, true, memory_order_acq_rel))
		return;
	if (!cc->primary) {
		log_debug(dev->provider->set->log, "%s: the application destroyed a CUDA context", dev->name);
		return;
	}
	atomic_store_explicit(&dev->removed, true, memory_order_release);
	log_warn(dev->provider->set->log, "%s: the GPU was reset: open a new Strait context to use it again",
		 dev->name);
}

bool cuda_ctx_alive(struct cuda_ctx *cc)
{
	if (atomic_load_explicit(&cc->dead, memory_order_acquire))
		return false;
	if (ctx_page_known(cc))
		return true;
	ctx_set_dead(cc);
	return false;
}

uint64_t cuda_suspect_ns = 200000000;

void cuda_suspect(struct cuda_ctx *cc, cu_result r)
{
	if (cuda_errno(r) == -ENODEV || cuda_errno(r) == -EINVAL)
		atomic_store_explicit(&cc->suspect, true, memory_order_relaxed);
}

/*
 * While a context is being destroyed, its streams are destroyed before the page is unregistered, and the driver crashes
 * if it is asked about such a stream. So after an error that destruction can cause, the page is polled for a while.
 */
static bool ctx_still_valid(struct cuda_ctx *cc)
{
	uint64_t now = os_now_ns(), end;

	if (!atomic_load_explicit(&cc->suspect, memory_order_relaxed)) {
		if (now - atomic_load_explicit(&cc->checked_ns, memory_order_relaxed) < CHECKED_NS)
			return !atomic_load_explicit(&cc->dead, memory_order_acquire);
		if (!cuda_ctx_alive(cc))
			return false;
		atomic_store_explicit(&cc->checked_ns, now, memory_order_relaxed);
		return true;
	}
	end = now + cuda_suspect_ns;
	while (cuda_ctx_alive(cc)) {
		if (os_now_ns() >= end) {
			atomic_store_explicit(&cc->suspect, false, memory_order_relaxed);
			return true;
		}
		os_sleep_ns(SUSPECT_POLL_NS);
	}
	return false;
}

bool cuda_valid_after_error(struct cuda_ctx *cc, cu_result r)
{
	cuda_suspect(cc, r);
	return ctx_still_valid(cc);
}

int cuda_enter(struct cuda_ctx *cc, struct cuda_entry *e)
{
	cu_result r;
	int rc;

	if (!ctx_still_valid(cc))
		return -ENODEV;
	r = cuda_push(cc->ctx, e);
	rc = cuda_errno(r);
	if (rc == -ENODEV)
		ctx_set_dead(cc);
	return rc;
}

int cuda_primary_check(struct cuda_device *cd)
{
	struct cuda_ctx *cc;

	pthread_mutex_lock(&cd->lock);
	cc = cd->primary;
	pthread_mutex_unlock(&cd->lock);
	return !cc || cuda_ctx_alive(cc) ? 0 : -ENODEV;
}

/* Registers the page that tells whether the context exists. */
static int ctx_register_page(struct cuda_ctx *cc)
{
	cu_context ctx = NULL;
	struct cuda_entry e;
	cu_result r;
	int rc;

	rc = os_map_anon(PAGE_BYTES, cc->cd->dev->numa_node, &cc->page);
	if (rc)
		return rc;
	r = cuda_push(cc->ctx, &e);
	if (!r) {
		r = cu.host_register(cc->page, PAGE_BYTES, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP);
		if (!r && cu.host_device_ptr(&cc->page_addr, cc->page, 0))
			cc->page_addr = 0;
		cuda_leave(&e);
	}
	if (r) {
		os_unmap(cc->page, PAGE_BYTES);
		return cuda_errno(r);
	}
	os_dont_fork(cc->page, PAGE_BYTES);
	cc->page_has_context = !cu.ptr_attribute(&ctx, CU_PTR_CONTEXT, (cu_ptr)(uintptr_t)cc->page) && ctx == cc->ctx;
	return 0;
}

static int ctx_new_locked(struct cuda_device *cd, cu_context ctx, bool primary, struct cuda_ctx **ret)
{
	struct cuda_ctx *cc = calloc(1, sizeof(*cc));
	int rc;

	if (!cc)
		return -ENOMEM;
	cc->cd = cd;
	cc->ctx = ctx;
	cc->primary = primary;
	cc->module_status = CUDA_KERNELS_UNTRIED;
	list_init(&cc->scratch);
	atomic_init(&cc->refs, 1);
	atomic_init(&cc->dead, false);
	rc = ctx_register_page(cc);
	if (rc) {
		free(cc);
		return rc;
	}
	pthread_mutex_init(&cc->lock, NULL);
	list_add_tail(&cd->contexts, &cc->node);
	*ret = cc;
	return 0;
}

static int need_primary_locked(struct cuda_device *cd)
{
	cu_context ctx;
	cu_result r;
	int rc;

	if (cd->primary)
		return cuda_ctx_alive(cd->primary) ? 0 : -ENODEV;
	r = cu.primary_retain(&ctx, cd->ordinal);
	if (r)
		return cuda_errno(r);
	rc = ctx_new_locked(cd, ctx, true, &cd->primary);
	if (rc)
		cu.primary_release(cd->ordinal);
	return rc;
}

/* Is @ctx the primary context of the device? Does not create that context. */
static bool is_primary_locked(struct cuda_device *cd, cu_context ctx)
{
	cu_context primary = NULL;
	unsigned int flags;
	int active;

	if (cd->primary)
		return ctx == cd->primary->ctx;
	if (cu.primary_state(cd->ordinal, &flags, &active) || !active || cu.primary_retain(&primary, cd->ordinal))
		return false;
	cu.primary_release(cd->ordinal);
	return ctx == primary;
}

int cuda_ctx_get(struct cuda_device *cd, cu_context ctx, struct cuda_ctx **ret)
{
	struct cuda_ctx *cc = NULL;
	int rc = 0;

	if (cuda_removed(cd))
		return -ENODEV;
	pthread_mutex_lock(&cd->lock);
	if (!ctx || is_primary_locked(cd, ctx)) {
		rc = need_primary_locked(cd);
		cc = cd->primary;
	} else {
		list_for_each(it, &cd->contexts) {
			struct cuda_ctx *has = list_entry(it, struct cuda_ctx, node);

			/* A new context may have the handle of a destroyed one. */
			if (has->ctx == ctx && cuda_ctx_alive(has))
				cc = has;
		}
	}
	if (!rc && cc)
		cuda_ctx_ref(cc);
	else if (!rc)
		rc = ctx_new_locked(cd, ctx, false, &cc);
	pthread_mutex_unlock(&cd->lock);
	if (!rc)
		*ret = cc;
	return rc;
}

int cuda_ctx_adopt(struct cuda_device *cd, cu_context ctx, struct cuda_ctx **ret)
{
	int rc;

	pthread_mutex_lock(&cd->lock);
	rc = ctx_new_locked(cd, ctx, false, ret);
	if (!rc)
		(*ret)->own = true;
	pthread_mutex_unlock(&cd->lock);
	return rc;
}

void cuda_ctx_ref(struct cuda_ctx *cc)
{
	atomic_fetch_add_explicit(&cc->refs, 1, memory_order_relaxed);
}

/* The last reference was dropped. Objects in a destroyed context are gone already. */
static void ctx_free(struct cuda_ctx *cc)
{
	struct cuda_entry e;
	bool entered = !cuda_enter(cc, &e);

	for (unsigned int i = 0; entered && i < cc->n_wait_events; i++)
		cu.event_destroy(cc->wait_events[i]);
	cuda_scratch_free(cc, entered);
	if (entered) {
		cuda_kernels_unload(cc);
		cu.host_unregister(cc->page);
		cuda_leave(&e);
	}
	os_unmap(cc->page, PAGE_BYTES);
	/* A reset does not drop the reference of primary_retain(). */
	if (cc->primary)
		cu.primary_release(cc->cd->ordinal);
	if (cc->own)
		cu.ctx_destroy(cc->ctx);
	pthread_mutex_destroy(&cc->lock);
	free(cc);
}

void cuda_ctx_put(struct cuda_ctx *cc)
{
	struct cuda_device *cd = cc->cd;
	bool last;

	pthread_mutex_lock(&cd->lock);
	last = atomic_fetch_sub_explicit(&cc->refs, 1, memory_order_acq_rel) == 1;
	if (last)
		list_del(&cc->node);
	pthread_mutex_unlock(&cd->lock);
	if (last)
		ctx_free(cc);
}
