/* SPDX-License-Identifier: MIT */
/*
 * atomic_anon in CUDA: 512 threads of a GPU add 1000 times to one integer in memory that they share with the CPU, and each to a
 * counter of its own, each in another page, of which only a few fit into the frames.
 *
 *	nvcc -std=c++17 -arch=native -Iinclude -o atomic_anon examples/atomic_anon.cu -Lbuild -lstrait
 */
#include "view_cuda.cuh"

#define THREADS 512u
#define ADDS 1000u
#define PAGE 4096u

__global__ void add(const __grid_constant__ struct strait_view v, int *error)
{
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x;
	struct strait_cursor c = STRAIT_CURSOR_INIT;

	for (unsigned int i = 0; i < ADDS; i++)
		strait_atomic_add_u64(&v, &c, 0, 1);
	strait_atomic_add_u64(&v, &c, (1 + thread) * PAGE, ADDS);
	if (c.error)
		*error = c.error;
}

int main(void)
{
	uint64_t length = (THREADS + 1) * PAGE;
	strait_u64 own = 0, *cpu;
	struct paged p;
	int *error, wrong;

	paged_open(&p, NULL, length, true, 16 * 65536);
	must_cuda(cudaMallocManaged(&error, sizeof(*error)), "cudaMallocManaged");
	*error = 0;
	paged_begin(&p, STRAIT_INTENT_WRITE);
	add<<<4, THREADS / 4, 0, p.cuda>>>(p.view, error);
	paged_end(&p);
	must(*error, "add");
	must(strait_mapping_acquire(p.m, NULL, 0, length, STRAIT_INTENT_READ, (void **)&cpu), "strait_mapping_acquire");
	for (unsigned int t = 0; t < THREADS; t++)
		own += cpu[(1 + t) * PAGE / 8];
	printf("%u threads added %llu, and each to its own %llu\n", THREADS, cpu[0], own);
	wrong = cpu[0] != THREADS * ADDS || own != cpu[0];
	must(strait_mapping_release(p.m, NULL, 0, length, STRAIT_INTENT_READ), "strait_mapping_release");
	paged_close(&p);
	return wrong;
}
