/* SPDX-License-Identifier: MIT */
/*
 * The provider's own context, in which file windows are registered: see cuda_ctx_get_windows().
 *
 * Creating it takes more than 0.1 s, in which the driver holds up copies of other threads. Registering windows beside
 * reading them saves a few percent of the time and a third of the processors, so the context pays only for a process that
 * reads much: cuda_register_ready() counts, windows are staged, and once WORTH_BYTES were, a thread creates it. A caller
 * that can do nothing else, and the thread that registers windows for the registration cache, create it at once or wait
 * for it in cuda_ctx_get_windows(). No lock is held meanwhile but the driver's own.
 */
#include <string.h>

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "os/os.h"

#define WORTH_BYTES GIB(32) /* takes some 0.6 s to stage */

void cuda_windows_init(struct cuda_windows *w)
{
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->made, NULL);
	atomic_init(&w->ready, false);
}

void cuda_windows_fini(struct cuda_windows *w)
{
	if (w->thread_started)
		pthread_join(w->thread, NULL);
	if (w->ctx)
		cuda_ctx_put(w->ctx);
	if (w->spare)
		cu.ctx_destroy(w->spare);
	pthread_cond_destroy(&w->made);
	pthread_mutex_destroy(&w->lock);
}

/* Called by the one thread that has set .making. */
static int windows_make(struct cuda_device *cd, struct cuda_ctx **ret)
{
	struct cuda_windows *w = &cd->windows;
	cu_context popped;
	cu_result r;
	int rc;

	if (!cu.ctx_create || !cu.ctx_destroy)
		return -EOPNOTSUPP;
	if (!w->spare) {
		r = cu.ctx_create(&w->spare, 0, cd->ordinal);
		if (r) {
			w->spare = NULL;
			return cuda_errno(r);
		}
		cu.ctx_pop(&popped); /* cuCtxCreate() made it current */
	}
	/*
	 * On failure the context is left for the next attempt: cuCtxDestroy() waits for all streams of the device,
	 * and one of them may wait for the transfer that runs here.
	 */
	rc = cuda_ctx_adopt(cd, w->spare, ret);
	if (!rc)
		w->spare = NULL;
	return rc;
}

/* With .making set and the lock held, which is dropped meanwhile. */
static int windows_make_locked(struct cuda_device *cd)
{
	struct cuda_windows *w = &cd->windows;
	uint64_t began = os_now_ns();
	struct cuda_ctx *cc = NULL;
	int rc;

	pthread_mutex_unlock(&w->lock);
	rc = windows_make(cd, &cc);
	log_debug(cd->dev->provider->set->log, "%s: a context to register file windows: %s after %.1f ms",
		  cd->dev->name, rc ? strerror(-rc) : "created", (double)(os_now_ns() - began) / 1e6);
	pthread_mutex_lock(&w->lock);
	w->ctx = cc;
	w->making = false;
	/* After a failure as well: the next attempt to register a window says why it fails. */
	atomic_store_explicit(&w->ready, true, memory_order_release);
	pthread_cond_broadcast(&w->made);
	return rc;
}

static void *windows_main(void *arg)
{
	struct cuda_device *cd = arg;

	pthread_mutex_lock(&cd->windows.lock);
	windows_make_locked(cd);
	pthread_mutex_unlock(&cd->windows.lock);
	return NULL;
}

int cuda_ctx_get_windows(struct cuda_device *cd, struct cuda_ctx **ret)
{
	struct cuda_windows *w = &cd->windows;
	int rc = 0;

	if (cuda_removed(cd))
		return -ENODEV;
	pthread_mutex_lock(&w->lock);
	while (w->making)
		pthread_cond_wait(&w->made, &w->lock);
	if (!w->ctx) {
		w->making = true;
		rc = windows_make_locked(cd);
	}
	if (!rc) {
		cuda_ctx_ref(w->ctx);
		*ret = w->ctx;
	}
	pthread_mutex_unlock(&w->lock);
	return rc;
}

bool cuda_register_ready(struct strait_device *dev, uint64_t staged)
{
	struct cuda_device *cd = cuda_device(dev);
	struct cuda_windows *w = &cd->windows;

	if (atomic_load_explicit(&w->ready, memory_order_acquire))
		return true;
	staged += atomic_fetch_add_explicit(&w->staged, staged, memory_order_relaxed);
	if (staged < WORTH_BYTES)
		return false;
	pthread_mutex_lock(&w->lock);
	if (!w->making && !w->thread_started) {
		w->thread_started = w->making = !os_thread("strait-context", windows_main, cd, &w->thread);
		/* Without a thread the first registration creates the context. */
		if (!w->thread_started)
			atomic_store_explicit(&w->ready, true, memory_order_release);
	}
	pthread_mutex_unlock(&w->lock);
	return atomic_load_explicit(&w->ready, memory_order_acquire);
}
