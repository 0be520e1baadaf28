/* SPDX-License-Identifier: MIT */
/*
 * Waiting for short work. It is polled with cuStreamQuery(), which reports the end some 0.7 us sooner than
 * cuStreamSynchronize() does. A word that the GPU writes by cuStreamWriteValue32() is no better to poll,
 * and with several streams at work each such write delays the copies of all by microseconds.
 */
#include "device/cuda/cuda.h"
#include "os/os.h"

#define SPIN_NS 300000u /* then cuStreamSynchronize() waits, as the context of the application says */

int cuda_stream_mark(struct dev_stream *stream)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc = cuda_enter(s->ctx, &e);

	if (rc)
		return rc;
	return cuda_stream_leave(s, &e, cuda_drain_on_error(s, s->done ? cu.event_record(s->done, s->handle) : CU_OK));
}

/* An event may be queried without a current context, and after its context was destroyed. */
int cuda_stream_mark_passed(struct dev_stream *stream)
{
	struct cuda_stream *s = cuda_stream(stream);

	return s->done ? !cu.event_query(s->done) : -EOPNOTSUPP;
}

cu_result cuda_wait_soon(struct cuda_stream *s)
{
	uint64_t end = 0;
	cu_result r;

	while ((r = cu.stream_query(s->handle)) == CU_NOT_READY) {
		if (!end)
			end = os_now_ns() + SPIN_NS;
		else if (os_now_ns() >= end)
			return cu.stream_sync(s->handle);
	}
	return r;
}

int cuda_stream_wait_soon(struct dev_stream *stream)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc = cuda_enter(s->ctx, &e);

	return rc ? rc : cuda_stream_leave(s, &e, cuda_drain_on_error(s, cuda_wait_soon(s)));
}
