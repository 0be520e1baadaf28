/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernel.h"
#include "os/os.h"

#define LIST_ENGINE_BYTES MIB(1) /* average length of segments from which on a copy engine copies a list */
#define SEG_BYTES GIB(1)	 /* maximum length of one segment of the copy kernel */

/*
 * From pageable memory the driver stages the source before it returns; into pageable memory it returns when the copy is
 * complete.
 */
int cuda_copy_in(struct dev_stream *stream, uint64_t dst, const void *src, uint64_t len)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	cu_result r;
	int rc;

	rc = cuda_enter(s->ctx, &e);
	if (rc)
		return rc;
	r = cuda_check_capture(s);
	if (!r)
		r = cu.copy_in(dst, src, len, s->handle);
	return cuda_stream_leave(s, &e, r);
}

int cuda_copy_out(struct dev_stream *stream, void *dst, uint64_t src, uint64_t len)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	cu_result r;
	int rc;

	rc = cuda_enter(s->ctx, &e);
	if (rc)
		return rc;
	r = cu.copy_out(dst, src, len, s->handle);
	return cuda_stream_leave(s, &e, r);
}

int cuda_fill(struct dev_stream *stream, uint64_t dst, uint8_t value, uint64_t len)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	cu_result r;
	int rc;

	rc = cuda_enter(s->ctx, &e);
	if (rc)
		return rc;
	r = cu.fill(dst, value, len, s->handle);
	return cuda_stream_leave(s, &e, r);
}

static cu_result launch_copy_list(struct cuda_stream *s, struct cuda_copy_args *args, uint32_t n, uint32_t pieces)
{
	args->n = n;
	args->pieces = pieces;
	return n ? cuda_launch(s, CUDA_COPY_LIST, pieces, args) : CU_OK;
}

/* The list is passed in the kernel's parameters; a long list takes several launches. */
static cu_result copy_by_kernel(struct cuda_stream *s, const struct copy_seg *segs, unsigned int n)
{
	struct cuda_copy_args args; /* not initialized: it is large, and only the used part is read */
	uint32_t used = 0, pieces = 0;
	cu_result r = CU_OK;

	for (unsigned int i = 0; i < n && !r; i++) {
		struct copy_seg seg = segs[i];

		while (seg.len && !r) {
			uint32_t len = (uint32_t)min_u64(seg.len, SEG_BYTES);

			args.seg[used++] = (struct cuda_copy_arg){ seg.dst, seg.src, len, pieces };
			pieces += (len + CUDA_COPY_PIECE - 1) / CUDA_COPY_PIECE;
			seg = (struct copy_seg){ seg.dst + len, seg.src + len, seg.len - len };
			if (used == CUDA_COPY_SEGS) {
				r = launch_copy_list(s, &args, used, pieces);
				used = pieces = 0;
			}
		}
	}
	return r ? r : launch_copy_list(s, &args, used, pieces);
}

/*
 * Copies file pages through a bounce buffer. process_vm_readv() fails where a load would raise SIGBUS. That is not an
 * error of the driver: it is stored in @err.
 */
static cu_result copy_via_bounce(struct cuda_stream *s, uint64_t dst, const char *src, uint64_t len, int *err)
{
	char *buf = malloc(len);
	cu_result r = CU_OPERATING_SYSTEM;

	*err = buf ? 0 : -ENOMEM;
	for (uint64_t done = 0; !*err && done < len;) {
		ssize_t n = os_vm_read(buf + done, src + done, len - done);

		if (n <= 0)
			*err = n < 0 ? (int)n : -EFAULT;
		else
			done += (uint64_t)n;
	}
	if (!*err)
		r = cu.copy_in(dst, buf, len, s->handle);
	free(buf);
	return r;
}

/*
 * A short copy from a file window at CPU address @file. For short copies the driver reads the source with the CPU, even
 * if it is registered, which raises SIGBUS for a truncated file. A kernel reads the pinned pages instead.
 */
static cu_result copy_short(struct cuda_stream *s, const struct copy_seg *seg, const void *file, bool kernels, int *err)
{
	return kernels ? copy_by_kernel(s, seg, 1) : copy_via_bounce(s, seg->dst, file, seg->len, err);
}

static cu_result copy_each(struct cuda_stream *s, const struct copy_seg *segs, unsigned int n, bool kernels, int *err)
{
	cu_result r = CU_OK;

	for (unsigned int i = 0; i < n && !r; i++) {
		const struct copy_seg *seg = &segs[i];
		const void *file = seg->len < COPY_ENGINE_BYTES ? cuda_file_window_ptr(s->ctx->cd, seg->src) : NULL;

		if (file && seg->len)
			r = copy_short(s, seg, file, kernels, err);
		else if (seg->len)
			r = cu.copy(seg->dst, seg->src, seg->len, s->handle);
	}
	return r;
}

/* Ends cuda_enter(). After an error, waits for copies in flight. */
static int copy_leave(struct cuda_stream *s, struct cuda_entry *e, cu_result r, int err)
{
	cuda_drain_on_error(s, r);
	cuda_leave(e);
	return err ? err : cuda_stream_errno(s, r);
}

int cuda_enter_for_host_access(struct cuda_stream *s, struct cuda_entry *e)
{
	int rc = s->ctx->primary ? 0 : cuda_primary_check(s->ctx->cd);

	return rc ? rc : cuda_enter(s->ctx, e);
}

int cuda_copy_list(struct dev_stream *stream, const struct copy_seg *segs, unsigned int n)
{
	struct cuda_stream *s = cuda_stream(stream);
	uint64_t total = 0;
	struct cuda_entry e;
	int rc, err = 0;
	bool kernels;
	cu_result r;

	for (unsigned int i = 0; i < n; i++)
		total += segs[i].len;
	if (!total)
		return 0;
	rc = cuda_enter_for_host_access(s, &e);
	if (rc)
		return rc;
	kernels = cuda_kernels_ready(s->ctx);
	/* For long segments a copy engine is faster than a kernel. */
	if (total / n >= LIST_ENGINE_BYTES || !kernels)
		r = copy_each(s, segs, n, kernels, &err);
	else
		r = copy_by_kernel(s, segs, n);
	return copy_leave(s, &e, r, err);
}

/* The driver stages the bytes in host memory where one device cannot access the other's memory. */
int cuda_copy_peer(struct dev_stream *stream, const struct provider_mem *to, struct strait_device *from_dev,
		   const struct provider_mem *from, const struct copy_seg *segs, unsigned int n)
{
	cu_context dst = ((struct cuda_ctx *)to->context)->ctx, src = ((struct cuda_ctx *)from->context)->ctx;
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	cu_result r = CU_OK;
	int rc;

	if (!cu.copy_peer)
		return -EOPNOTSUPP;
	rc = cuda_enter(s->ctx, &e);
	if (rc)
		return rc;
	for (unsigned int i = 0; i < n && !r; i++)
		r = cu.copy_peer(segs[i].dst, dst, segs[i].src, src, segs[i].len, s->handle);
	return copy_leave(s, &e, r, 0);
}

int cuda_copy_pages(struct dev_stream *stream, uint64_t dst, const struct host_reg *reg, uint64_t off, uint64_t len)
{
	const struct copy_seg seg = { dst, reg->dev_addr + off, len };
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc, err = 0;
	bool kernels;
	cu_result r;

	if (len >= COPY_ENGINE_BYTES)
		return cuda_copy_in(stream, dst, (char *)reg->ptr + off, len);
	rc = cuda_enter_for_host_access(s, &e);
	if (rc)
		return rc;
	/* A kernel in the provider's own context cannot access the memory of the region. */
	kernels = !s->ctx->own && cuda_kernels_ready(s->ctx);
	r = copy_short(s, &seg, (char *)reg->ptr + off, kernels, &err);
	return copy_leave(s, &e, r, err);
}
