/* SPDX-License-Identifier: MIT */
/*
 * Marks on streams are events. A word that the GPU writes by cuStreamWriteValue32() would be quicker to poll, but with
 * several streams at work each such write delays the copies of all by microseconds.
 */
#include "device/cuda/cuda.h"

static cu_result mark(struct cuda_stream *s)
{
	return s->done ? cu.event_record(s->done, s->handle) : CU_OK;
}

static cu_result wait_mark(struct cuda_stream *s)
{
	return s->done ? cuda_wait_event_soon(s->done) : cuda_wait_stream(s, STRAIT_FOREVER);
}

cu_result cuda_mark_and_wait(struct cuda_stream *s)
{
	cu_result r = mark(s);

	return r ? r : wait_mark(s);
}

int cuda_stream_mark(struct dev_stream *stream)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc = cuda_enter(s->ctx, &e);

	return rc ? rc : cuda_stream_leave(s, &e, cuda_drain_on_error(s, mark(s)));
}

/* An event may be queried without a current context, and after its context was destroyed. */
int cuda_stream_mark_passed(struct dev_stream *stream)
{
	struct cuda_stream *s = cuda_stream(stream);

	return s->done ? !cu.event_query(s->done) : -EOPNOTSUPP;
}

int cuda_stream_mark_wait(struct dev_stream *stream)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc = cuda_enter(s->ctx, &e);

	return rc ? rc : cuda_stream_leave(s, &e, cuda_drain_on_error(s, wait_mark(s)));
}
