/* SPDX-License-Identifier: MIT */
/*
 * file_histogram in CUDA: threads of a GPU count the bytes of a file, of any size, that they read themselves.
 *
 *	nvcc -std=c++17 -arch=native -Iinclude -o file_histogram examples/file_histogram.cu -Lbuild -lstrait
 *	file_histogram FILE [BUDGET_MIB]
 */
#include "view_cuda.cuh"

__global__ void count(const __grid_constant__ struct strait_view v, unsigned long long *bins, int *error)
{
	__shared__ unsigned int mine[256];
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x,
		   threads = (strait_u64)gridDim.x * blockDim.x;
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	strait_u64 words = v.length / 8;

	mine[threadIdx.x] = 0;
	__syncthreads();
	/* Whole granules for each warp: it misses once for each. */
	for (strait_u64 g = thread / 32; g * 512 < words; g += threads / 32)
		for (strait_u64 i = g * 512 + thread % 32; i < words && i < (g + 1) * 512; i += 32) {
			strait_u64 x = strait_load_u64(&v, &c, i * 8);

			for (unsigned int b = 0; b < 64; b += 8)
				atomicAdd(&mine[x >> b & 255], 1u);
		}
	for (strait_u64 i = words * 8 + thread; i < v.length; i += threads)
		atomicAdd(&mine[strait_load_u8(&v, &c, i)], 1u);
	__syncthreads();
	atomicAdd(&bins[threadIdx.x], (unsigned long long)mine[threadIdx.x]);
	if (c.error)
		*error = c.error;
}

int main(int argc, char **argv)
{
	struct strait_frames_info info = {};
	unsigned long long *bins, total = 0;
	struct paged p;
	int *error;

	if (argc < 2) {
		fprintf(stderr, "usage: file_histogram FILE [BUDGET_MIB]\n");
		return 2;
	}
	paged_open(&p, argv[1], 0, false, (argc > 2 ? strtoull(argv[2], NULL, 0) : 64) << 20);
	must_cuda(cudaMallocManaged(&bins, 256 * sizeof(*bins)), "cudaMallocManaged");
	must_cuda(cudaMallocManaged(&error, sizeof(*error)), "cudaMallocManaged");
	memset(bins, 0, 256 * sizeof(*bins));
	*error = 0;
	paged_begin(&p, STRAIT_INTENT_READ);
	count<<<264, 256, 0, p.cuda>>>(p.view, bins, error);
	paged_end(&p);
	must(*error, argv[1]);
	info.size = sizeof(info);
	must(strait_frames_info(p.frames, &info), "strait_frames_info");
	for (unsigned int b = 0; b < 256; b++) {
		total += bins[b];
		if (bins[b])
			printf("%02x %llu\n", b, bins[b]);
	}
	printf("%llu bytes, %llu granules read in place, %llu by the host, %llu frames evicted, %llu granules written\n",
	       total, (unsigned long long)info.pulled, (unsigned long long)info.fetched,
	       (unsigned long long)info.evictions, (unsigned long long)info.stored);
	paged_close(&p);
	return 0;
}
