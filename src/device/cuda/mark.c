/* SPDX-License-Identifier: MIT */
/*
 * Copies that report to several waiters, and waiting for short work.
 *
 * The kernel of a list counts the bytes it has copied for each mark, and stores to the mark's word when they are complete.
 * A waiter polls its word without a call of the driver, whose calls exclude each other. cuStreamWriteValue32() is no
 * replacement: with several streams at work each such write delays the copies of all by microseconds. Other work is polled
 * with cuStreamQuery(), which reports the end some 0.7 us sooner than cuStreamSynchronize() does.
 */
#include "base/util.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernel.h"
#include "os/os.h"

#define SPIN_NS 300000u /* then cuStreamSynchronize() waits, as the context of the application says */

_Static_assert(MARKED_COPIES == CUDA_MARKED_SEGS, "segments of a list");

int cuda_mark_open(struct dev_stream *stream)
{
	struct cuda_stream *s = cuda_stream(stream);

	if (s->ctx->own || !s->ctx->page_addr)
		return -EOPNOTSUPP;
	if (!cuda_kernels_ready(s->ctx))
		return -EAGAIN;
	stream->mark.word = cuda_word_get(s->ctx, &stream->mark.value);
	return stream->mark.word ? 0 : -EAGAIN;
}

/* After an error the kernel's count may not be 0: then the mark is not used again. */
void cuda_mark_close(struct cuda_stream *s)
{
	const struct dev_mark *m = &s->base.mark;

	if (m->word && atomic_load_explicit(m->word, memory_order_acquire) == m->value)
		cuda_word_put(s->ctx, m->word);
}

static uint32_t pieces_of(uint64_t len)
{
	return len ? (uint32_t)((len + CUDA_COPY_PIECE - 1) / CUDA_COPY_PIECE) : 1;
}

static void fill_args(const struct cuda_ctx *cc, const struct marked_copy *copies, unsigned int n,
		      struct cuda_marked_args *a)
{
	a->words = cc->page_addr;
	a->n = n;
	a->pieces = 0;
	for (unsigned int i = 0; i < n; i++) {
		const struct marked_copy *c = &copies[i];

		a->seg[i] = (struct cuda_marked_arg){ .dst = c->seg.dst,
						      .src = c->seg.src,
						      .len = (uint32_t)c->seg.len,
						      .first = a->pieces,
						      .filler = c->filler,
						      .total = c->total,
						      .value = c->mark->value,
						      .mark = cuda_word_number(cc, c->mark->word) };
		a->pieces += pieces_of(c->seg.len);
	}
}

int cuda_copy_marked(struct dev_stream *stream, const struct marked_copy *copies, unsigned int n)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_marked_args args; /* not initialized: it is large, and only the used part is read */
	struct cuda_entry e;
	int rc = cuda_enter_for_host_access(s, &e);

	if (rc)
		return rc;
	fill_args(s->ctx, copies, n, &args);
	return cuda_stream_leave(s, &e, cuda_launch(s, CUDA_COPY_MARKED, args.pieces, &args));
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
