/* SPDX-License-Identifier: MIT */
/*
 * Compare and CRC-32C on the GPU. Each warp processes a slice of the range and writes its result to host memory, where
 * the CPU combines the results. Without kernels the data is copied to the CPU.
 */
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/util.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernel.h"

#define SLICES 2048u	   /* maximum number of warps */
#define MIN_SLICE_ROWS 16u /* minimum slice of a warp */
#define BOUNCE MIB(1)
#define ONE 0x80000000u /* the polynomial 1 in the representation of crc32c_combine() */

static cu_result copy_to_host_wait(struct cuda_stream *s, void *dst, uint64_t src, uint64_t len)
{
	cu_result r = cu.copy_out(dst, src, len, s->handle);

	return cuda_drain_on_error(s, r ? r : cuda_wait_stream(s, STRAIT_FOREVER));
}

static uint64_t first_difference(const char *a, const char *b, uint64_t len)
{
	uint64_t i = 0;

	if (!memcmp(a, b, len))
		return len;
	while (a[i] == b[i])
		i++;
	return i;
}

static int compare_on_cpu(struct cuda_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t *where)
{
	char *buf = malloc(2 * BOUNCE);
	uint64_t done = 0, same, n;
	cu_result r = CU_OK;

	if (!buf)
		return -ENOMEM;
	while (done < len) {
		n = min_u64(len - done, BOUNCE);
		r = copy_to_host_wait(s, buf, a + done, n);
		if (!r)
			r = copy_to_host_wait(s, buf + BOUNCE, b + done, n);
		if (r)
			break;
		same = first_difference(buf, buf + BOUNCE, n);
		done += same;
		if (same < n)
			break;
	}
	free(buf);
	if (!r)
		*where = done;
	return cuda_stream_errno(s, r);
}

static int compare_on_gpu(struct cuda_stream *s, struct cuda_scratch *scratch, uint64_t a, uint64_t b, uint64_t len,
			  uint64_t *where)
{
	struct cuda_compare_args args = { .a = a, .b = b, .len = len, .found = scratch->dev_addr };
	const uint64_t *found = scratch->ptr;
	unsigned int warps;
	cu_result r;

	_Static_assert(SLICES * sizeof(*found) <= CUDA_SCRATCH_BYTES, "no room for the results");
	args.slice = max_u64(MIN_SLICE_ROWS, (len / CUDA_ROW + SLICES) / SLICES) * CUDA_ROW;
	warps = (unsigned int)((len + args.slice - 1) / args.slice);
	r = cuda_launch(s, CUDA_COMPARE, warps, &args);
	if (!r)
		r = cuda_wait_stream(s, STRAIT_FOREVER);
	if (cuda_drain_on_error(s, r))
		return cuda_stream_errno(s, r);
	*where = len;
	for (unsigned int i = 0; i < warps; i++) {
		if (found[i] != UINT64_MAX) {
			*where = found[i];
			break;
		}
	}
	return 0;
}

int cuda_compare(struct dev_stream *stream, uint64_t a, uint64_t b, uint64_t len, uint64_t *where)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_scratch *scratch;
	struct cuda_entry e;
	int rc;

	rc = cuda_enter(s->ctx, &e);
	if (rc)
		return rc;
	if (!cuda_kernels_ready(s->ctx)) {
		rc = compare_on_cpu(s, a, b, len, where);
	} else {
		rc = cuda_scratch_get(s->ctx, &scratch);
		if (!rc) {
			rc = compare_on_gpu(s, scratch, a, b, len, where);
			cuda_scratch_put(s->ctx, scratch);
		}
	}
	cuda_leave(&e);
	return rc;
}

int cuda_compare_pages(struct dev_stream *stream, uint64_t a, uint64_t b, uint64_t len, uint64_t bits)
{
	struct cuda_pages_args args = { .a = a, .b = b, .pages = len / COMPARE_PAGE, .bits = bits };
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	cu_result r;
	int rc;

	_Static_assert(COMPARE_PAGE == CUDA_COMPARE_BLOCK, "the kernel compares other blocks");
	if (!len)
		return 0;
	if (len % COMPARE_PAGE || (a | b) % 16)
		return -EINVAL;
	rc = cuda_enter(s->ctx, &e);
	if (rc)
		return rc;
	/* Kernels of another context than that of the memory cannot access it. */
	if (!s->ctx->primary || !cuda_kernels_ready(s->ctx)) {
		cuda_leave(&e);
		return -EOPNOTSUPP;
	}
	r = cuda_check_capture(s);
	if (!r)
		r = cuda_launch(s, CUDA_COMPARE_PAGES, (unsigned int)((args.pages + 31) / 32), &args);
	return cuda_stream_leave(s, &e, r);
}

static int crc_on_cpu(struct cuda_stream *s, uint64_t addr, uint64_t len, uint32_t *crc)
{
	uint32_t value = *crc;
	char *buf = malloc(BOUNCE);
	cu_result r = CU_OK;
	uint64_t n;

	if (!buf)
		return -ENOMEM;
	for (; len && !r; addr += n, len -= n) {
		n = min_u64(len, BOUNCE);
		r = copy_to_host_wait(s, buf, addr, n);
		if (!r)
			value = crc32c_update(value, buf, n);
	}
	free(buf);
	if (!r)
		*crc = value;
	return cuda_stream_errno(s, r);
}

/* x^(8 * bytes) modulo the polynomial. */
static uint32_t crc_append_zeros(uint64_t bytes)
{
	return crc32c_combine(ONE, 0, bytes);
}

static void crc_args_fill(struct cuda_crc_args *args, uint64_t addr, uint64_t rows, uint64_t results)
{
	uint64_t slice = MIN_SLICE_ROWS;

	/* A power of two, for which crc_append_zeros() is fast. */
	while (slice * SLICES < rows)
		slice *= 2;
	*args = (struct cuda_crc_args){
		.addr = addr,
		.rows = rows,
		.slice = slice,
		.crc = results,
		.row = crc_append_zeros(CUDA_ROW),
		.full = crc_append_zeros(slice * CUDA_ROW),
		.last = crc_append_zeros(((rows - 1) % slice + 1) * CUDA_ROW),
		.word = crc_append_zeros(4),
	};
	for (unsigned int i = 0; i < CUDA_WARP; i++)
		args->lane[i] = crc_append_zeros((CUDA_WARP - 1 - i) * 16);
}

/* Continues @state over the rows with the results of the blocks; the CRC is linear in both. */
static uint32_t crc_join(uint32_t state, const struct cuda_crc_args *args, const uint32_t *result)
{
	uint64_t block = args->slice * CUDA_BLOCK_WARPS;

	for (uint64_t row = 0; row < args->rows; row += block)
		state = crc32c_combine(state, *result++, min_u64(block, args->rows - row) * CUDA_ROW);
	return state;
}

/* The CPU processes the bytes before the first and after the last whole row. */
static int crc_on_gpu(struct cuda_stream *s, struct cuda_scratch *scratch, uint64_t addr, uint64_t len, uint32_t *crc)
{
	uint64_t head = min_u64(len, -addr % 16), rows = (len - head) / CUDA_ROW, tail = (len - head) % CUDA_ROW;
	char *ends = (char *)scratch->ptr + SLICES / CUDA_BLOCK_WARPS * sizeof(uint32_t);
	struct cuda_crc_args args = { .rows = 0 };
	cu_result r = CU_OK;
	uint32_t value;

	_Static_assert(SLICES / CUDA_BLOCK_WARPS * sizeof(uint32_t) + 16 + CUDA_ROW <= CUDA_SCRATCH_BYTES,
		       "no room for the results");
	if (head)
		r = cu.copy_out(ends, addr, head, s->handle);
	if (!r && tail)
		r = cu.copy_out(ends + 16, addr + head + rows * CUDA_ROW, tail, s->handle);
	if (!r && rows) {
		crc_args_fill(&args, addr + head, rows, scratch->dev_addr);
		r = cuda_launch(s, CUDA_CRC32C, (unsigned int)((rows + args.slice - 1) / args.slice), &args);
	}
	if (!r)
		r = cuda_wait_stream(s, STRAIT_FOREVER);
	if (cuda_drain_on_error(s, r))
		return cuda_stream_errno(s, r);
	value = crc32c_update(*crc, ends, head);
	value = ~crc_join(~value, &args, scratch->ptr);
	*crc = crc32c_update(value, ends + 16, tail);
	return 0;
}

int cuda_crc32c(struct dev_stream *stream, uint64_t addr, uint64_t len, uint32_t *crc)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_scratch *scratch;
	struct cuda_entry e;
	int rc;

	rc = cuda_enter(s->ctx, &e);
	if (rc)
		return rc;
	if (!cuda_kernels_ready(s->ctx)) {
		rc = crc_on_cpu(s, addr, len, crc);
	} else {
		rc = cuda_scratch_get(s->ctx, &scratch);
		if (!rc) {
			rc = crc_on_gpu(s, scratch, addr, len, crc);
			cuda_scratch_put(s->ctx, scratch);
		}
	}
	cuda_leave(&e);
	return rc;
}
