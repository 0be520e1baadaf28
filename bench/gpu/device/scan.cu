/* SPDX-License-Identifier: MIT */
/* A file that is far larger than the frames, summed once: through frames, in place, and by double-buffered reads. */
#include "bench.cuh"

#define CHUNK MIB(256)

__global__ void __launch_bounds__(BLOCK, 3) scan_frames(const __grid_constant__ struct strait_view v, strait_u64 *total)
{
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x,
		   warps = (strait_u64)gridDim.x * blockDim.x / WARP;
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	strait_u64 sum = 0;

	for (strait_u64 g = thread / WARP; g < v.length / 4096; g += warps)
		for (strait_u32 i = 0; i < 4096; i += 8 * WARP)
			sum += strait_load_u64(&v, &c, g * 4096 + i + thread % WARP * 8);
	if (c.error)
		sum = 0;
	atomicAdd(total, sum);
}

__global__ void __launch_bounds__(BLOCK) scan_place(const __grid_constant__ struct strait_view v, strait_u64 *total)
{
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x,
		   warps = (strait_u64)gridDim.x * blockDim.x / WARP;
	strait_u64 sum = 0, x[8];
	int rc = 0;

	for (strait_u64 g = thread / WARP; g < v.length / 4096; g += warps)
		for (strait_u32 half = 0; half < 4096; half += 2048) {
#pragma unroll
			for (strait_u32 k = 0; k < 8; k++)
				rc |= strait_view_peek(&v, g * 4096 + half + k * 256 + thread % WARP * 8, &x[k], 8);
#pragma unroll
			for (strait_u32 k = 0; k < 8; k++)
				sum += x[k];
		}
	if (rc)
		sum = 0;
	atomicAdd(total, sum);
}

__global__ void scan_plain(const strait_u64 *at, strait_u64 words, strait_u64 *total)
{
	strait_u64 sum = 0;

	for (strait_u64 i = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x; i < words;
	     i += (strait_u64)gridDim.x * blockDim.x)
		sum += at[i];
	atomicAdd(total, sum);
}

static strait_u64 *total;

static void expect_sum(const char *what, uint64_t len)
{
	strait_u64 has = 0, n = len / 8, want;

	/* The sum of the pattern's arithmetic sequence. */
	want = (n % 2 ? n * ((n - 1) / 2) : n / 2 * (n - 1)) * 0x9e3779b97f4a7c15ull + n;
	CUDA(cudaMemcpy(&has, total, 8, cudaMemcpyDeviceToHost));
	CUDA(cudaMemset(total, 0, 8));
	if (has != want)
		quit("%s: the sum is %llx, not %llx", what, has, want);
}

/* Two buffers, a stream each: one is read into while the other is summed. */
static double plain_scan(const char *path, uint64_t len)
{
	struct strait_stream_transfer t[2];
	struct strait_region *region[2];
	struct strait_stream *stream[2];
	uint64_t zero = 0, chunk = CHUNK, *off = (uint64_t *)calloc(len / CHUNK, 8);
	int64_t *result = (int64_t *)calloc(len / CHUNK, 8);
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_device *dev;
	cudaStream_t cuda[2];
	void *at[2];
	double from;

	OK(strait_context_open(NULL, &ctx));
	OK(strait_device_find(ctx, "cuda:0", &dev));
	OK(strait_file_open(ctx, path, O_RDONLY | O_CLOEXEC, 0, 0, &ep));
	for (int i = 0; i < 2; i++) {
		CUDA(cudaMalloc(&at[i], CHUNK));
		OK(strait_region_import(ctx, dev, at[i], CHUNK, &region[i]));
		CUDA(cudaStreamCreateWithFlags(&cuda[i], cudaStreamNonBlocking));
		OK(strait_stream_import(dev, cuda[i], &stream[i]));
		t[i] = {};
		t[i].size = sizeof(t[i]);
		t[i].op = STRAIT_READ;
		t[i].endpoint = ep;
		t[i].region = region[i];
		t[i].region_offset = &zero;
		t[i].length = &chunk;
		t[i].flags = STRAIT_STREAM_FIXED;
	}
	from = now();
	for (uint64_t n = 0; n < len / CHUNK; n++) {
		int i = n % 2;

		off[n] = n * CHUNK;
		t[i].endpoint_offset = &off[n];
		t[i].result = &result[n];
		OK(strait_stream_transfer(stream[i], &t[i]));
		scan_plain<<<multiprocessors() * 8, BLOCK, 0, cuda[i]>>>((const strait_u64 *)at[i], CHUNK / 8, total);
	}
	for (int i = 0; i < 2; i++)
		OK(strait_stream_wait(stream[i], WAIT_NS));
	from = now() - from;
	for (uint64_t n = 0; n < len / CHUNK; n++)
		if (result[n] != (int64_t)CHUNK)
			quit("a read: %lld", (long long)result[n]);
	expect_sum("plain scan", len);
	for (int i = 0; i < 2; i++) {
		strait_stream_close(stream[i]);
		strait_region_close(region[i]);
		CUDA(cudaFree(at[i]));
		CUDA(cudaStreamDestroy(cuda[i]));
	}
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(off);
	free(result);
	return (double)len / from / 1e9;
}

void scan(void)
{
	uint64_t len = GIB(32);
	const char *path = file_of("large", len);
	struct shape s = { path, 0, false, KIB(64), GIB(4) };
	double plain, from, opened;
	struct rig r;

	CUDA(cudaMalloc(&total, 8));
	CUDA(cudaMemset(total, 0, 8));
	phase("double-buffered reads");
	plain_scan(path, len);
	plain = plain_scan(path, len);
	row("scan of 32 GiB, double-buffered reads", plain, "GB/s", 0, 0);
	from = now();
	rig_open(&r, &s);
	opened = now() - from;
	rig_begin(&r, STRAIT_INTENT_READ);
	scan_frames<<<multiprocessors() * 3, BLOCK, 0, r.cuda>>>(r.view, total);
	OK(rig_end(&r, "scan"));
	from = now() - from;
	expect_sum("scan", len);
	phase("opened in %.3f s, %llu granules pulled, %llu frames evicted, kernel %.3f s", opened,
	      (unsigned long long)r.info.pulled, (unsigned long long)r.info.evictions, r.seconds);
	row("scan, frames, with registering", (double)len / from / 1e9, "GB/s", plain, 28);
	rig_begin(&r, STRAIT_INTENT_READ);
	scan_frames<<<multiprocessors() * 3, BLOCK, 0, r.cuda>>>(r.view, total);
	OK(rig_end(&r, "scan"));
	expect_sum("scan", len);
	row("scan, frames", (double)len / r.seconds / 1e9, "GB/s", plain, 45);
	rig_begin(&r, STRAIT_INTENT_READ);
	scan_place<<<multiprocessors() * 4, BLOCK, 0, r.cuda>>>(r.view, total);
	OK(rig_end(&r, "scan in place"));
	expect_sum("scan in place", len);
	row("scan, in place", (double)len / r.seconds / 1e9, "GB/s", plain, 50);
	rig_close(&r);
	CUDA(cudaFree(total));
}
