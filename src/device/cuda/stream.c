/* SPDX-License-Identifier: MIT */
/*
 * Streams: created by the provider (non-blocking) or imported from the application.
 *
 * An error of work on the GPU is sticky: every later call in the context returns it until the context is destroyed. So
 * stream_wait does not clear the error of a stream.
 */
#include <stdlib.h>

#include "base/util.h"
#include "device/cuda/cuda.h"

int cuda_stream_errno(struct cuda_stream *s, cu_result r)
{
	if (r) {
		s->base.status = r;
		cuda_suspect(s->ctx, r);
	}
	return cuda_errno(r);
}

int cuda_stream_leave(struct cuda_stream *s, struct cuda_entry *e, cu_result r)
{
	cuda_leave(e);
	return cuda_stream_errno(s, r);
}

static struct cuda_stream *stream_new(struct strait_device *dev, struct cuda_ctx *cc)
{
	struct cuda_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->base.dev = dev;
	s->ctx = cc;
	list_init(&s->calls);
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

static void stream_free(struct cuda_stream *s)
{
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* Creates a stream in the context. Consumes the caller's reference on @cc, also on failure. */
static int stream_open_in(struct strait_device *dev, struct cuda_ctx *cc, struct dev_stream **ret)
{
	struct cuda_stream *s;
	struct cuda_entry e;
	cu_result r;
	int rc;

	s = stream_new(dev, cc);
	if (!s) {
		rc = -ENOMEM;
		goto put_ctx;
	}
	rc = cuda_enter(cc, &e);
	if (rc)
		goto free_stream;
	r = cu.stream_create(&s->handle, CU_STREAM_NON_BLOCKING);
	cuda_leave(&e);
	rc = cuda_errno(r);
	if (rc)
		goto free_stream;
	*ret = &s->base;
	return 0;
free_stream:
	stream_free(s);
put_ctx:
	cuda_ctx_put(cc);
	return rc;
}

int cuda_stream_open(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret)
{
	struct cuda_ctx *cc = m ? (struct cuda_ctx *)m->context : NULL;
	int rc = 0;

	if (cc)
		cuda_ctx_ref(cc);
	else
		rc = cuda_ctx_get(cuda_device(dev), NULL, &cc);
	return rc ? rc : stream_open_in(dev, cc, ret);
}

/*
 * The streams of a context share a few hardware queues, so a copy can be queued behind a stream that waits for it. Work
 * of another context is not.
 */
int cuda_stream_open_isolated(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret)
{
	struct cuda_ctx *cc;

	if (cuda_ctx_get_windows(cuda_device(dev), &cc))
		return cuda_stream_open(dev, m, ret);
	return stream_open_in(dev, cc, ret);
}

int cuda_stream_scratch(struct dev_stream *stream, uint64_t len, uint64_t *addr)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	cu_result r;
	int rc;

	rc = cuda_enter(s->ctx, &e);
	if (rc)
		return rc;
	r = cu.mem_alloc(&s->scratch, len);
	*addr = s->scratch;
	return cuda_stream_leave(s, &e, r);
}

/* The context of a stream. A default stream belongs to the current context if that is of @cd, else NULL: primary. */
static cu_result native_stream_context(struct cuda_device *cd, cu_stream native, cu_context *ret)
{
	cu_device dev = -1;
	cu_context ctx = NULL;
	cu_result r;

	if (native && native != CU_STREAM_LEGACY && native != CU_STREAM_PER_THREAD)
		return cu.stream_ctx(native, ret);
	r = cu.ctx_current(&ctx);
	if (r)
		return r;
	if (ctx) {
		r = cu.ctx_device(&dev);
		if (r)
			return r;
	}
	*ret = dev == cd->ordinal ? ctx : NULL;
	return CU_OK;
}

int cuda_stream_import(struct strait_device *dev, void *native, struct dev_stream **ret)
{
	struct cuda_device *cd = cuda_device(dev);
	struct cuda_ctx *cc;
	struct cuda_stream *s;
	cu_device of = -1;
	struct cuda_entry e;
	cu_context ctx;
	cu_result r;
	int rc;

	r = native_stream_context(cd, native, &ctx);
	if (!r && ctx) {
		r = cuda_push(ctx, &e);
		if (!r) {
			r = cu.ctx_device(&of);
			cuda_leave(&e);
		}
		if (!r && of != cd->ordinal)
			return -EINVAL;
	}
	if (r)
		return cuda_errno(r);
	rc = cuda_ctx_get(cd, ctx, &cc);
	if (rc)
		return rc;
	s = stream_new(dev, cc);
	if (!s) {
		cuda_ctx_put(cc);
		return -ENOMEM;
	}
	s->handle = native;
	s->imported = true;
	pthread_mutex_lock(&cc->lock);
	cc->first_seen_by_stream |= cc->module_status == CUDA_KERNELS_UNTRIED;
	pthread_mutex_unlock(&cc->lock);
	*ret = &s->base;
	return 0;
}

/* A transfer on a captured stream would become part of a graph and run again with it, so it is refused. */
cu_result cuda_check_capture(struct cuda_stream *s)
{
	int status = 0;
	cu_result r;

	if (!s->imported)
		return CU_OK;
	r = cu.stream_capturing(s->handle, &status);
	return !r && status ? CU_CAPTURE_UNSUPPORTED : r;
}

int cuda_stream_enter(struct cuda_stream *s, struct cuda_entry *e)
{
	int rc = cuda_enter(s->ctx, e);
	cu_result r;

	if (rc)
		return rc;
	r = cuda_check_capture(s);
	return r ? cuda_stream_leave(s, e, r) : 0;
}

/* @wait: wait for the work first; the native stream must still exist. */
static void stream_end(struct cuda_stream *s, bool wait)
{
	struct cuda_entry e;
	bool entered = !cuda_enter(s->ctx, &e);

	if (entered && wait && !cuda_check_capture(s))
		cuda_drain_on_error(s, cuda_wait_stream(s, STRAIT_FOREVER));
	cuda_stream_unwatch(s);
	cuda_calls_end(s, entered);
	if (entered) {
		if (!s->imported)
			cu.stream_destroy(s->handle);
		if (s->scratch) {
			cuda_load_gate_begin();
			cu.mem_free(s->scratch);
			cuda_load_gate_end();
		}
		/* All notices were called before stream_detach, so the GPU has made all writes to the word. */
		if (s->notify_word)
			cuda_word_put(s->ctx, s->notify_word);
		cuda_mark_close(s);
		cuda_leave(&e);
	}
	cuda_ctx_put(s->ctx);
	stream_free(s);
}

void cuda_stream_close(struct dev_stream *stream)
{
	stream_end(cuda_stream(stream), true);
}

void cuda_stream_detach(struct dev_stream *stream)
{
	stream_end(cuda_stream(stream), false);
}

bool cuda_stream_lost(struct dev_stream *stream)
{
	return !cuda_ctx_alive(cuda_stream(stream)->ctx);
}

int cuda_stream_wait(struct dev_stream *stream, int64_t timeout_ns)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc;

	rc = cuda_stream_enter(s, &e);
	if (!rc) {
		cu_result r = cuda_drain_on_error(s, cuda_wait_stream(s, timeout_ns));

		cuda_leave(&e);
		if (r == CU_NOT_READY)
			return -ETIMEDOUT;
		rc = cuda_stream_errno(s, r);
	}
	if (rc && rc != -EOPNOTSUPP)
		cuda_calls_run_pending(s);
	return rc;
}

int cuda_stream_call(struct dev_stream *stream, strait_stream_fn *fn, void *arg)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc = cuda_stream_enter(s, &e);

	return rc ? rc : cuda_stream_leave(s, &e, cuda_call_put(s, fn, arg, false));
}

int cuda_stream_wait_word(struct dev_stream *stream, _Atomic uint32_t *word, uint64_t dev_addr, uint32_t value)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc;

	if (!cu.stream_wait_value)
		return -EOPNOTSUPP;
	rc = cuda_primary_check(s->ctx->cd);
	if (!rc)
		rc = cuda_stream_enter(s, &e);
	if (rc)
		return rc;
	return cuda_stream_leave(s, &e, cu.stream_wait_value(s->handle, dev_addr, value, CU_WAIT_GEQ));
}
