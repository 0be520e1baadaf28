/* SPDX-License-Identifier: MIT */
/* Small copies that are complete when the call returns. */
#include "device/cuda/cuda.h"

static int copy_now_finish(struct cuda_stream *s, struct cuda_entry *e, cu_result r)
{
	if (!r)
		r = cuda_wait_soon(s);
	cuda_drain_on_error(s, r);
	return cuda_stream_leave(s, e, r);
}

int cuda_copy_now(struct dev_stream *stream, uint64_t addr, void *host, uint64_t len, bool out)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc = cuda_enter(s->ctx, &e);

	if (rc)
		return rc;
	return copy_now_finish(s, &e,
			       out ? cu.copy_out(host, addr, len, s->handle) : cu.copy_in(addr, host, len, s->handle));
}

int cuda_copy_within_now(struct dev_stream *stream, uint64_t dst, uint64_t src, uint64_t len)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc = cuda_enter(s->ctx, &e);

	return rc ? rc : copy_now_finish(s, &e, cu.copy(dst, src, len, s->handle));
}
