/* SPDX-License-Identifier: MIT */
/* Small copies that are complete when the call returns. */
#include "device/cuda/cuda.h"

/*
 * The GPU writes a word after the copy: polling it is faster than querying an event, and needs no interrupt. If the
 * write does not arrive in time, the event is queried: unlike a stream, it may be queried after its context was
 * destroyed.
 */
static cu_result copy_wait_done(struct cuda_stream *s)
{
	cu_result r = cu.event_record(s->done, s->handle);

	if (r || !s->word)
		return r ? r : cuda_wait_event(s->done, STRAIT_FOREVER);
	r = cu.stream_write_value(s->handle, cuda_word_addr(s->ctx, s->word), ++s->value, 0);
	if (!r && cuda_spin_word(s->word, s->value))
		return CU_OK;
	/* Some virtual and shared GPUs do not support writes of words. */
	if (cuda_errno(r) == -EOPNOTSUPP)
		cuda_stream_put_word(s);
	return cuda_wait_event(s->done, STRAIT_FOREVER);
}

static int copy_now_finish(struct cuda_stream *s, struct cuda_entry *e, cu_result r)
{
	if (!r)
		r = s->done ? copy_wait_done(s) : cuda_wait_stream(s, STRAIT_FOREVER);
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
