/* SPDX-License-Identifier: MIT */
#ifndef FAKECUDA_SIMT_H
#define FAKECUDA_SIMT_H

/*
 * Enough of CUDA's language to run a kernel on a CPU: a block of 256 threads, each a context of its own that yields
 * where threads wait for each other. Blocks run one after the other.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#pragma GCC diagnostic ignored "-Wunknown-pragmas" /* unroll */

#define SIMT_THREADS 256u
#define SIMT_STACK (64u << 10)

typedef struct {
	unsigned int x, y, z, w;
} uint4;

static struct {
	unsigned int x;
} threadIdx, blockIdx, blockDim = { SIMT_THREADS };

static struct {
	ucontext_t main, thread[SIMT_THREADS];
	char *stacks;
	bool done[SIMT_THREADS];
	unsigned int arrived[SIMT_THREADS / 32 + 1], turn[SIMT_THREADS / 32 + 1]; /* of each warp, and of the block */
	unsigned int value[SIMT_THREADS];
	void (*kernel)(const void *args);
	const void *args;
} simt;

static inline void simt_give_way(void)
{
	unsigned int me = threadIdx.x;

	swapcontext(&simt.thread[me], &simt.main);
	threadIdx.x = me;
}

/* Wait for all @n of a group. */
static inline void simt_meet(unsigned int group, unsigned int n)
{
	unsigned int turn = simt.turn[group];

	if (++simt.arrived[group] == n) {
		simt.arrived[group] = 0;
		simt.turn[group]++;
		return;
	}
	while (simt.turn[group] == turn)
		simt_give_way();
}

/* The values of all threads of the warp. */
static inline void simt_exchange(unsigned int value, unsigned int out[32])
{
	unsigned int warp = threadIdx.x / 32;

	simt.value[threadIdx.x] = value;
	simt_meet(warp, 32);
	memcpy(out, simt.value + warp * 32, 32 * sizeof(*out));
	/* No thread stores its next value before all have read this one. */
	simt_meet(warp, 32);
}

static inline unsigned int __ballot_sync(unsigned int mask, bool yes)
{
	unsigned int all[32], bits = 0;

	(void)mask;
	simt_exchange(yes, all);
	for (unsigned int i = 0; i < 32; i++)
		bits |= all[i] << i;
	return bits;
}

static inline unsigned int __shfl_sync(unsigned int mask, unsigned int value, unsigned int lane)
{
	unsigned int all[32];

	(void)mask;
	simt_exchange(value, all);
	return all[lane % 32];
}

static inline unsigned int __shfl_xor_sync(unsigned int mask, unsigned int value, unsigned int with)
{
	unsigned int all[32];

	(void)mask;
	simt_exchange(value, all);
	return all[(threadIdx.x ^ with) % 32];
}

static inline void __syncthreads(void)
{
	simt_meet(SIMT_THREADS / 32, SIMT_THREADS);
}

static inline unsigned int __funnelshift_r(unsigned int lo, unsigned int hi, unsigned int shift)
{
	return (unsigned int)(((uint64_t)hi << 32 | lo) >> (shift & 31));
}

static inline void __syncwarp(void)
{
	simt_meet(threadIdx.x / 32, 32);
}

static inline void __threadfence(void)
{
}

static inline void __threadfence_system(void)
{
}

static inline unsigned int atomicAdd(unsigned int *p, unsigned int n)
{
	unsigned int old = *p;

	*p += n;
	return old;
}

static inline int __ffs(int v)
{
	return __builtin_ffs(v);
}

static inline void simt_thread(void)
{
	simt.kernel(simt.args);
	simt.done[threadIdx.x] = true;
	swapcontext(&simt.thread[threadIdx.x], &simt.main);
}

static inline void simt_start(unsigned int thread)
{
	ucontext_t *c = &simt.thread[thread];

	getcontext(c);
	c->uc_stack.ss_sp = simt.stacks + thread * SIMT_STACK;
	c->uc_stack.ss_size = SIMT_STACK;
	c->uc_link = NULL;
	makecontext(c, simt_thread, 0);
}

static inline void simt_block(unsigned int block)
{
	unsigned int left = SIMT_THREADS;

	blockIdx.x = block;
	memset(simt.done, 0, sizeof(simt.done));
	for (unsigned int i = 0; i < SIMT_THREADS; i++)
		simt_start(i);
	while (left) {
		for (unsigned int i = 0; i < SIMT_THREADS; i++) {
			if (simt.done[i])
				continue;
			threadIdx.x = i;
			swapcontext(&simt.main, &simt.thread[i]);
			left -= simt.done[i];
		}
	}
}

static inline void simt_run(unsigned int warps, void (*kernel)(const void *args), const void *args)
{
	if (!simt.stacks)
		simt.stacks = malloc(SIMT_THREADS * SIMT_STACK);
	simt.kernel = kernel;
	simt.args = args;
	for (unsigned int b = 0; b * SIMT_THREADS / 32 < warps; b++)
		simt_block(b);
}

#define KERNEL static void
#define DEVICE static
#define ARGS const
#define __shared__ static

#endif
