/* SPDX-License-Identifier: MIT */
/*
 * Waiting for short work. cuStreamSynchronize() polls what the copy itself reports, without a lock, unless the
 * application asked for a context that sleeps. A word that the GPU writes by cuStreamWriteValue32() is no better to poll,
 * and with several streams at work each such write delays the copies of all by microseconds.
 */
#include "device/cuda/cuda.h"

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

int cuda_stream_wait_soon(struct dev_stream *stream)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc = cuda_enter(s->ctx, &e);

	return rc ? rc : cuda_stream_leave(s, &e, cuda_drain_on_error(s, cu.stream_sync(s->handle)));
}
