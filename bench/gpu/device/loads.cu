/* SPDX-License-Identifier: MIT */
/* Loads of 8 bytes from frames that hold all of it, in four shapes, beside plain loads in the same shapes. */
#include "bench.cuh"

#define LEN GIB(8)
#define PAGE 65536u
#define RANDOM_LOADS 256u /* of each thread */
#define ROUNDS 3

enum { COALESCED, IN_PAGE, RANDOM, ONE_PAGE, SHAPES };
static const char *const names[SHAPES] = { "coalesced", "random in a page of the warp", "random",
					   "random in one page" };
/* Parts of plain loads that must be reached. */
static const double goals[SHAPES] = { 0.5, 0.5, 0.3, 0.3 };

struct plain {
	const strait_u64 *at;

	__device__ strait_u64 load(strait_u64 off) const
	{
		return at[off / 8];
	}
};

struct paged {
	const struct strait_view *v;
	struct strait_cursor c;

	__device__ strait_u64 load(strait_u64 off)
	{
		return strait_load_u64(v, &c, off);
	}
};

template <int shape, typename T> __device__ void load_all(T &a, strait_u64 len, strait_u64 *total)
{
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x, warp = thread / WARP,
		   lane = thread % WARP;
	strait_u64 warps = (strait_u64)gridDim.x * blockDim.x / WARP, sum = 0;

	/* Four loads, and then their sum: threads need not wait for each on its own. */
	if (shape == COALESCED) {
		for (strait_u64 page = warp; page < len / PAGE; page += warps)
			for (strait_u32 i = 0; i < PAGE; i += 4 * 8 * WARP) {
				strait_u64 x[4];

#pragma unroll
				for (strait_u32 k = 0; k < 4; k++)
					x[k] = a.load(page * PAGE + i + k * 8 * WARP + lane * 8);
				sum += x[0] + x[1] + x[2] + x[3];
			}
	} else {
		strait_u32 x = (strait_u32)mix(thread + 1) | 1, pages = (strait_u32)(len / PAGE);
		strait_u64 page = 0;

		for (strait_u32 i = 0; i < RANDOM_LOADS; i += 4) {
			strait_u64 y[4];

			if (shape == IN_PAGE && i % 64 == 0)
				page = mix(warp * 1000 + i) % pages;
#pragma unroll
			for (strait_u32 k = 0; k < 4; k++) {
				x = x * 1664525u + 1013904223u;
				if (shape == RANDOM)
					page = (strait_u64)__umulhi(x * 0x9e3779b9u, pages);
				y[k] = a.load(page * PAGE + (x >> 13 & (PAGE - 8)));
			}
			sum += y[0] + y[1] + y[2] + y[3];
		}
	}
	if (sum == 1)
		*total = sum;
}

template <int shape>
__global__ void __launch_bounds__(BLOCK) plain_kernel(const strait_u64 *at, strait_u64 len, strait_u64 *total)
{
	struct plain a = { at };

	load_all<shape>(a, len, total);
}

/* @blocks: of a multiprocessor, at least, which bounds the registers. */
template <int shape, int blocks>
__global__ void __launch_bounds__(BLOCK, blocks)
	view_kernel(const __grid_constant__ struct strait_view v, strait_u64 len, strait_u64 *total)
{
	struct paged a = { &v, STRAIT_CURSOR_INIT };

	load_all<shape>(a, len, total);
	if (a.c.error)
		*total = 1;
}

/* Makes all of it resident, and compares it. */
__global__ void resident(const __grid_constant__ struct strait_view v, strait_u64 len, strait_u64 *wrong)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x,
		   warps = (strait_u64)gridDim.x * blockDim.x / WARP;

	for (strait_u64 g = thread / WARP; g < len / 4096; g += warps)
		for (strait_u32 i = 0; i < 4096; i += 8 * WARP) {
			strait_u64 off = g * 4096 + i + thread % WARP * 8;

			if (strait_load_u64(&v, &c, off) != pattern(off / 8))
				atomicAdd(wrong, 1ull);
		}
}

template <typename K> static unsigned int grid_of(K kernel)
{
	int n = 0;

	CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, kernel, BLOCK, 0));
	return (unsigned int)n * multiprocessors();
}

static double loads_of(int shape, unsigned int grid)
{
	return shape == COALESCED ? (double)(LEN / 8) : (double)grid * BLOCK * RANDOM_LOADS;
}

template <int shape> static double plain_rate(const strait_u64 *at, strait_u64 *total)
{
	unsigned int grid = grid_of(plain_kernel<shape>);
	cudaEvent_t from, to;
	double best = 0;
	float ms;

	CUDA(cudaEventCreate(&from));
	CUDA(cudaEventCreate(&to));
	for (int i = 0; i < ROUNDS; i++) {
		CUDA(cudaEventRecord(from));
		plain_kernel<shape><<<grid, BLOCK>>>(at, LEN, total);
		CUDA(cudaEventRecord(to));
		CUDA(cudaDeviceSynchronize());
		CUDA(cudaEventElapsedTime(&ms, from, to));
		if (loads_of(shape, grid) / ms / 1e6 > best)
			best = loads_of(shape, grid) / ms / 1e6;
	}
	return best;
}

template <int shape, int blocks> static double view_rate(struct rig *r, const char *name, strait_u64 *total)
{
	unsigned int grid = grid_of(view_kernel<shape, blocks>);
	double best = 0;

	for (int i = 0; i < ROUNDS; i++) {
		rig_begin(r, STRAIT_INTENT_READ);
		view_kernel<shape, blocks><<<grid, BLOCK, 0, r->cuda>>>(r->view, LEN, total);
		OK(rig_end(r, name));
		if (loads_of(shape, grid) / r->seconds / 1e9 > best)
			best = loads_of(shape, grid) / r->seconds / 1e9;
	}
	phase("%s, %d blocks of %u threads on a multiprocessor: %.1f G/s", name, blocks, BLOCK, best);
	return best;
}

template <int shape> static void view_row(struct rig *r, const char *mode, double plain, strait_u64 *total)
{
	double rate[4], best = 0;
	strait_u64 failed = 0;
	char name[80];

	snprintf(name, sizeof(name), "loads, %s, %s", mode, names[shape]);
	rate[0] = view_rate<shape, 3>(r, name, total);
	rate[1] = view_rate<shape, 4>(r, name, total);
	rate[2] = view_rate<shape, 6>(r, name, total);
	rate[3] = view_rate<shape, 8>(r, name, total);
	for (int i = 0; i < 4; i++)
		best = rate[i] > best ? rate[i] : best;
	CUDA(cudaMemcpy(&failed, total, 8, cudaMemcpyDeviceToHost));
	if (failed)
		quit("%s: a load failed", name);
	row(name, best, "G/s", plain, goals[shape] * plain);
}

static void registers(void)
{
	struct cudaFuncAttributes p, v;

	CUDA(cudaFuncGetAttributes(&p, plain_kernel<COALESCED>));
	CUDA(cudaFuncGetAttributes(&v, view_kernel<COALESCED, 3>));
	row("registers of the load path, more than plain", v.numRegs - p.numRegs, "", p.numRegs, -40);
	row("local memory of the load path", (double)v.localSizeBytes, "bytes", (double)p.localSizeBytes, 0);
}

static void mode_rows(const char *mode, uint64_t length, uint64_t budget, const double *plain, strait_u64 *total)
{
	const char *path = file_of("large", GIB(32));
	struct shape s = { path, length, false, PAGE, budget };
	strait_u64 wrong = 0;
	struct rig r;

	rig_open(&r, &s);
	phase("loads, %s: making it resident", mode);
	rig_begin(&r, STRAIT_INTENT_READ);
	resident<<<multiprocessors() * 4, BLOCK, 0, r.cuda>>>(r.view, LEN, total);
	OK(rig_end(&r, "making it resident"));
	CUDA(cudaMemcpy(&wrong, total, 8, cudaMemcpyDeviceToHost));
	phase("%u frames, pulled %llu, fetched %llu, evicted %llu, %.2f GB/s, %llu wrong", r.info.frames,
	      (unsigned long long)r.info.pulled, (unsigned long long)r.info.fetched,
	      (unsigned long long)r.info.evictions, (double)LEN / r.seconds / 1e9, wrong);
	if (wrong || r.info.error)
		quit("loads, %s: %llu words are wrong, error %d", mode, wrong, r.info.error);
	view_row<COALESCED>(&r, mode, plain[COALESCED], total);
	view_row<IN_PAGE>(&r, mode, plain[IN_PAGE], total);
	view_row<RANDOM>(&r, mode, plain[RANDOM], total);
	view_row<ONE_PAGE>(&r, mode, plain[ONE_PAGE], total);
	rig_close(&r);
}

void loads(void)
{
	double plain[SHAPES];
	strait_u64 *at, *total;

	registers();
	CUDA(cudaMalloc(&at, LEN));
	CUDA(cudaMemset(at, 0, LEN));
	CUDA(cudaMalloc(&total, 8));
	CUDA(cudaMemset(total, 0, 8));
	plain[COALESCED] = plain_rate<COALESCED>(at, total);
	plain[IN_PAGE] = plain_rate<IN_PAGE>(at, total);
	plain[RANDOM] = plain_rate<RANDOM>(at, total);
	plain[ONE_PAGE] = plain_rate<ONE_PAGE>(at, total);
	CUDA(cudaFree(at));
	/* A frame for each page; and fewer, but enough for what is touched: then each load checks that the frame is still its page's. */
	mode_rows("all fits", LEN, LEN, plain, total);
	mode_rows("evictable", LEN + MIB(128), LEN + MIB(64), plain, total);
	CUDA(cudaFree(total));
}
