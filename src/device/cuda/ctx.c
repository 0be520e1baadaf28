/* SPDX-License-Identifier: MIT */
/* Contexts: entering and leaving them, and what the provider has in each. */
#include <stdlib.h>

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "os/os.h"

#define PAGE (CUDA_WORDS * 64)
#define DOUBT_TICK_NS 1000000u

cu_result cuda_push(cu_context ctx, struct cuda_entry *e)
{
	cu_result r = cu.ctx_push(ctx);

	if (r)
		return r;
	/* Calls that a capture forbids are allowed to a thread in this mode, and leave the capture alone. */
	e->capture_mode = CU_CAPTURE_RELAXED;
	e->capture = !cu.capture_mode(&e->capture_mode);
	return CU_OK;
}

void cuda_leave(struct cuda_entry *e)
{
	cu_context ctx;

	if (e->capture)
		cu.capture_mode(&e->capture_mode);
	cu.ctx_pop(&ctx);
}

/* Does the driver still know the page? What it says when something else is wrong is no answer. */
static bool page_known(struct cuda_space *sp)
{
	cu_ptr page = (cu_ptr)(uintptr_t)sp->page;
	cu_context ctx = NULL;
	unsigned int type = 0;
	cu_result r;

	if (sp->page_has_context)
		r = cu.ptr_attribute(&ctx, CU_PTR_CONTEXT, page);
	else
		r = cu.ptr_attribute(&type, CU_PTR_MEMORY_TYPE, page);
	if (!r)
		return sp->page_has_context ? ctx == sp->ctx : type == CU_MEMORY_HOST;
	return r != CU_INVALID_VALUE && cuda_errno(r) != -ENODEV;
}

/* Without its primary context a device has lost the registered memory all transfers go through. */
static void set_dead(struct cuda_space *sp)
{
	struct strait_device *dev = sp->cd->dev;

	if (atomic_exchange_explicit(&sp->dead, true, memory_order_acq_rel))
		return;
	if (!sp->primary) {
		log_debug(dev->provider->set->log, "%s: a context of the application's is gone", dev->name);
		return;
	}
	atomic_store_explicit(&dev->removed, true, memory_order_release);
	log_warn(dev->provider->set->log, "%s: the GPU was reset: open a new context to use it again", dev->name);
}

bool cuda_space_alive(struct cuda_space *sp)
{
	if (atomic_load_explicit(&sp->dead, memory_order_acquire))
		return false;
	if (page_known(sp))
		return true;
	set_dead(sp);
	return false;
}

uint64_t cuda_doubt_ns = 200000000;

void cuda_doubt(struct cuda_space *sp, cu_result r)
{
	if (cuda_errno(r) == -ENODEV || cuda_errno(r) == -EINVAL)
		atomic_store_explicit(&sp->doubtful, true, memory_order_relaxed);
}

/*
 * While a context is being destroyed its streams go before the page does, and the driver does not survive being
 * asked about them. So after an error that may come from there the page is watched for a while.
 */
static bool survives(struct cuda_space *sp)
{
	uint64_t end;

	if (!atomic_load_explicit(&sp->doubtful, memory_order_relaxed))
		return cuda_space_alive(sp);
	end = os_now_ns() + cuda_doubt_ns;
	while (cuda_space_alive(sp)) {
		if (os_now_ns() >= end) {
			atomic_store_explicit(&sp->doubtful, false, memory_order_relaxed);
			return true;
		}
		os_sleep_ns(DOUBT_TICK_NS);
	}
	return false;
}

bool cuda_lives_on(struct cuda_space *sp, cu_result r)
{
	cuda_doubt(sp, r);
	return survives(sp);
}

int cuda_enter(struct cuda_space *sp, struct cuda_entry *e)
{
	cu_result r;
	int rc;

	if (!survives(sp))
		return -ENODEV;
	r = cuda_push(sp->ctx, e);
	rc = cuda_errno(r);
	if (rc == -ENODEV)
		set_dead(sp);
	return rc;
}

int cuda_primary_check(struct cuda_device *cd)
{
	struct cuda_space *sp;

	pthread_mutex_lock(&cd->lock);
	sp = cd->primary;
	pthread_mutex_unlock(&cd->lock);
	return !sp || cuda_space_alive(sp) ? 0 : -ENODEV;
}

/* Register the page that tells whether the context lives. */
static int register_page(struct cuda_space *sp)
{
	cu_context ctx = NULL;
	struct cuda_entry e;
	cu_result r;
	int rc;

	rc = os_map_anon(PAGE, sp->cd->dev->numa_node, &sp->page);
	if (rc)
		return rc;
	r = cuda_push(sp->ctx, &e);
	if (!r) {
		r = cu.host_register(sp->page, PAGE, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP);
		if (!r && cu.host_device_ptr(&sp->page_addr, sp->page, 0))
			sp->page_addr = 0;
		cuda_leave(&e);
	}
	if (r) {
		os_unmap(sp->page, PAGE);
		return cuda_errno(r);
	}
	os_dont_fork(sp->page, PAGE);
	sp->page_has_context = !cu.ptr_attribute(&ctx, CU_PTR_CONTEXT, (cu_ptr)(uintptr_t)sp->page) && ctx == sp->ctx;
	return 0;
}

/* With the device's lock held, as are the next two. */
static int space_new(struct cuda_device *cd, cu_context ctx, bool primary, struct cuda_space **ret)
{
	struct cuda_space *sp = calloc(1, sizeof(*sp));
	int rc;

	if (!sp)
		return -ENOMEM;
	sp->cd = cd;
	sp->ctx = ctx;
	sp->primary = primary;
	sp->module_status = CUDA_KERNELS_UNTRIED;
	list_init(&sp->scratch);
	atomic_init(&sp->refs, 1);
	atomic_init(&sp->dead, false);
	rc = register_page(sp);
	if (rc) {
		free(sp);
		return rc;
	}
	pthread_mutex_init(&sp->lock, NULL);
	list_add_tail(&cd->spaces, &sp->node);
	*ret = sp;
	return 0;
}

static int need_primary(struct cuda_device *cd)
{
	cu_context ctx;
	cu_result r;
	int rc;

	if (cd->primary)
		return cuda_space_alive(cd->primary) ? 0 : -ENODEV;
	r = cu.primary_retain(&ctx, cd->ordinal);
	if (r)
		return cuda_errno(r);
	rc = space_new(cd, ctx, true, &cd->primary);
	if (rc)
		cu.primary_release(cd->ordinal);
	return rc;
}

/* Is @ctx the device's primary context? Without making that one if it is not there. */
static bool is_primary(struct cuda_device *cd, cu_context ctx)
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

int cuda_space_get(struct cuda_device *cd, cu_context ctx, struct cuda_space **ret)
{
	struct cuda_space *sp = NULL;
	int rc = 0;

	if (cuda_gone(cd))
		return -ENODEV;
	pthread_mutex_lock(&cd->lock);
	if (!ctx || is_primary(cd, ctx)) {
		rc = need_primary(cd);
		sp = cd->primary;
	} else {
		list_for_each(it, &cd->spaces) {
			struct cuda_space *has = list_entry(it, struct cuda_space, node);

			/* Another context may have got the address of one that is gone. */
			if (has->ctx == ctx && cuda_space_alive(has))
				sp = has;
		}
	}
	if (!rc && sp)
		cuda_space_ref(sp);
	else if (!rc)
		rc = space_new(cd, ctx, false, &sp);
	pthread_mutex_unlock(&cd->lock);
	if (!rc)
		*ret = sp;
	return rc;
}

/* With the device's lock held. */
static int make_windows(struct cuda_device *cd)
{
	cu_context popped;
	cu_result r;
	int rc;

	if (!cu.ctx_create || !cu.ctx_destroy)
		return -EOPNOTSUPP;
	if (!cd->spare) {
		r = cu.ctx_create(&cd->spare, 0, cd->ordinal);
		if (r) {
			cd->spare = NULL;
			return cuda_errno(r);
		}
		cu.ctx_pop(&popped); /* making it made it current */
	}
	/*
	 * If this fails the context stays, for the next time: to destroy one waits for all streams of the device,
	 * and one of them may wait for what is being done here.
	 */
	rc = space_new(cd, cd->spare, false, &cd->windows);
	if (!rc) {
		cd->windows->own = true;
		cd->spare = NULL;
	}
	return rc;
}

int cuda_space_windows(struct cuda_device *cd, struct cuda_space **ret)
{
	int rc = 0;

	if (cuda_gone(cd))
		return -ENODEV;
	pthread_mutex_lock(&cd->lock);
	if (!cd->windows)
		rc = make_windows(cd);
	if (!rc) {
		cuda_space_ref(cd->windows);
		*ret = cd->windows;
	}
	pthread_mutex_unlock(&cd->lock);
	return rc;
}

void cuda_space_ref(struct cuda_space *sp)
{
	atomic_fetch_add_explicit(&sp->refs, 1, memory_order_relaxed);
}

/* Nobody else has it any more. In a context that is gone there is nothing to give back. */
static void space_free(struct cuda_space *sp)
{
	struct cuda_entry e;
	bool entered = !cuda_enter(sp, &e);

	for (unsigned int i = 0; entered && i < sp->n_wait_events; i++)
		cu.event_destroy(sp->wait_events[i]);
	cuda_scratch_free(sp, entered);
	if (entered) {
		cuda_kernels_unload(sp);
		cu.host_unregister(sp->page);
		cuda_leave(&e);
	}
	os_unmap(sp->page, PAGE);
	/* A reset does not release it. */
	if (sp->primary)
		cu.primary_release(sp->cd->ordinal);
	if (sp->own)
		cu.ctx_destroy(sp->ctx);
	pthread_mutex_destroy(&sp->lock);
	free(sp);
}

void cuda_space_put(struct cuda_space *sp)
{
	struct cuda_device *cd = sp->cd;
	bool last;

	pthread_mutex_lock(&cd->lock);
	last = atomic_fetch_sub_explicit(&sp->refs, 1, memory_order_acq_rel) == 1;
	if (last)
		list_del(&sp->node);
	pthread_mutex_unlock(&cd->lock);
	if (last)
		space_free(sp);
}
