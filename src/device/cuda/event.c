/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "base/util.h"
#include "device/cuda/cuda.h"

struct cuda_event {
	struct dev_event base;
	struct cuda_ctx *ctx;
	struct cuda_stream *stream; /* of the last recording; an error is stored as its status */
	cu_event handle;
};

int cuda_event_open(struct dev_stream *stream, struct dev_event **ret)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_event *ev;
	struct cuda_entry e;
	cu_result r;
	int rc;

	ev = calloc(1, sizeof(*ev));
	if (!ev)
		return -ENOMEM;
	rc = cuda_enter(s->ctx, &e);
	if (rc) {
		free(ev);
		return rc;
	}
	r = cu.event_create(&ev->handle, CU_EVENT_NO_TIMING);
	cuda_leave(&e);
	if (r) {
		free(ev);
		return cuda_stream_errno(s, r);
	}
	cuda_ctx_ref(s->ctx);
	ev->ctx = s->ctx;
	ev->stream = s;
	ev->base.dev = s->base.dev;
	*ret = &ev->base;
	return 0;
}

void cuda_event_close(struct dev_event *event)
{
	struct cuda_event *ev = container_of(event, struct cuda_event, base);
	struct cuda_entry e;

	if (!cuda_enter(ev->ctx, &e)) {
		cu.event_destroy(ev->handle);
		cuda_leave(&e);
	}
	cuda_ctx_put(ev->ctx);
	free(ev);
}

int cuda_event_record(struct dev_event *event, struct dev_stream *stream)
{
	struct cuda_event *ev = container_of(event, struct cuda_event, base);
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	cu_result r;
	int rc;

	rc = cuda_enter(ev->ctx, &e);
	if (rc)
		return rc;
	ev->stream = s;
	r = cuda_drain_on_error(s, cu.event_record(ev->handle, s->handle));
	return cuda_stream_leave(s, &e, r);
}

int cuda_event_wait(struct dev_event *event, int64_t timeout_ns)
{
	struct cuda_event *ev = container_of(event, struct cuda_event, base);
	struct cuda_entry e;
	cu_result r;
	int rc;

	rc = cuda_enter(ev->ctx, &e);
	if (rc)
		return rc;
	r = cuda_drain_on_error(ev->stream, cuda_wait_event(ev->handle, timeout_ns));
	cuda_leave(&e);
	return r == CU_NOT_READY ? -ETIMEDOUT : cuda_stream_errno(ev->stream, r);
}
