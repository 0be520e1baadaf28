/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DEVICE_ATOMIC_H
#define STRAIT_DEVICE_ATOMIC_H

/*
 * Atomic operations of device code, in CUDA and in C. Read-modify-write operations are acquire and release at device scope;
 * those named sys order against the host, whose words are only loaded or stored. Needs no libcu++.
 */

#if !defined(__CUDACC_RTC__)
#include <stddef.h>
#endif
#if !defined(__CUDACC__)
#include <time.h>
#endif

typedef unsigned int strait_u32;
typedef unsigned long long strait_u64;

/* STRAIT_DEVICE_CALL: of misses, kept out of line so that hits need few registers. */
#if defined(__CUDACC__)
#define STRAIT_DEVICE static __device__ __forceinline__
#define STRAIT_DEVICE_CALL static __device__ __noinline__
#define STRAIT_VC_MEMBER __device__ __forceinline__
#else
#define STRAIT_DEVICE static inline __attribute__((unused))
#define STRAIT_DEVICE_CALL static inline __attribute__((unused))
#define STRAIT_VC_MEMBER inline
#endif

/* ---- atomic operations: device scope, except those named sys ---- */

#if defined(__CUDACC__)

STRAIT_DEVICE strait_u64 strait_vc_load64(const strait_u64 *p)
{
	strait_u64 v;

	asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

STRAIT_DEVICE strait_u64 strait_vc_load64_relaxed(const strait_u64 *p)
{
	strait_u64 v;

	asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

STRAIT_DEVICE strait_u32 strait_vc_load32(const strait_u32 *p)
{
	strait_u32 v;

	asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

STRAIT_DEVICE strait_u32 strait_vc_load32_relaxed(const strait_u32 *p)
{
	strait_u32 v;

	asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

STRAIT_DEVICE void strait_vc_store32(strait_u32 *p, strait_u32 v)
{
	asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
}

STRAIT_DEVICE void strait_vc_store64(strait_u64 *p, strait_u64 v)
{
	asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}

STRAIT_DEVICE strait_u64 strait_vc_add64(strait_u64 *p, strait_u64 v)
{
	strait_u64 old;

	asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
	return old;
}

STRAIT_DEVICE strait_u64 strait_vc_or64(strait_u64 *p, strait_u64 v)
{
	strait_u64 old;

	asm volatile("atom.acq_rel.gpu.global.or.b64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
	return old;
}

STRAIT_DEVICE strait_u32 strait_vc_or32(strait_u32 *p, strait_u32 v)
{
	strait_u32 old;

	asm volatile("atom.acq_rel.gpu.global.or.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
	return old;
}

STRAIT_DEVICE strait_u32 strait_vc_and32(strait_u32 *p, strait_u32 v)
{
	strait_u32 old;

	asm volatile("atom.acq_rel.gpu.global.and.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
	return old;
}

STRAIT_DEVICE strait_u64 strait_vc_cas64(strait_u64 *p, strait_u64 expected, strait_u64 v)
{
	strait_u64 old;

	asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
		     : "=l"(old)
		     : "l"(p), "l"(expected), "l"(v)
		     : "memory");
	return old;
}

STRAIT_DEVICE strait_u32 strait_vc_cas32(strait_u32 *p, strait_u32 expected, strait_u32 v)
{
	strait_u32 old;

	asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
		     : "=r"(old)
		     : "l"(p), "r"(expected), "r"(v)
		     : "memory");
	return old;
}

STRAIT_DEVICE strait_u64 strait_vc_load64_sys(const strait_u64 *p)
{
	strait_u64 v;

	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

STRAIT_DEVICE void strait_vc_store32_sys(strait_u32 *p, strait_u32 v)
{
	asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
}

/* Data words that loads read without a pin. Between them and the check of the page's word stands strait_vc_data_fence(). */
STRAIT_DEVICE strait_u64 strait_vc_data_load(const strait_u64 *p)
{
	return strait_vc_load64_relaxed(p);
}

STRAIT_DEVICE void strait_vc_data_store(strait_u64 *p, strait_u64 v)
{
	strait_vc_store64(p, v);
}

STRAIT_DEVICE void strait_vc_data_fence(void)
{
	asm volatile("fence.acq_rel.gpu;" : : : "memory");
}

STRAIT_DEVICE strait_u64 strait_vc_clock(void)
{
	strait_u64 t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

STRAIT_DEVICE void strait_vc_pause(strait_u32 round)
{
	__nanosleep(round < 4 ? 32u << round : 256u);
}

/* A number that differs between threads that run at the same time, to spread them over slots. */
STRAIT_DEVICE strait_u32 strait_vc_hint(void)
{
	strait_u32 sm;

	asm("mov.u32 %0, %%smid;" : "=r"(sm));
	return sm * 7 + threadIdx.x / 32;
}

#else

STRAIT_DEVICE strait_u64 strait_vc_load64(const strait_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

STRAIT_DEVICE strait_u64 strait_vc_load64_relaxed(const strait_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

STRAIT_DEVICE strait_u32 strait_vc_load32(const strait_u32 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

STRAIT_DEVICE strait_u32 strait_vc_load32_relaxed(const strait_u32 *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

STRAIT_DEVICE void strait_vc_store32(strait_u32 *p, strait_u32 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

STRAIT_DEVICE void strait_vc_store64(strait_u64 *p, strait_u64 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

STRAIT_DEVICE strait_u64 strait_vc_add64(strait_u64 *p, strait_u64 v)
{
	return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
}

STRAIT_DEVICE strait_u64 strait_vc_or64(strait_u64 *p, strait_u64 v)
{
	return __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL);
}

STRAIT_DEVICE strait_u32 strait_vc_or32(strait_u32 *p, strait_u32 v)
{
	return __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL);
}

STRAIT_DEVICE strait_u32 strait_vc_and32(strait_u32 *p, strait_u32 v)
{
	return __atomic_fetch_and(p, v, __ATOMIC_ACQ_REL);
}

STRAIT_DEVICE strait_u64 strait_vc_cas64(strait_u64 *p, strait_u64 expected, strait_u64 v)
{
	__atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return expected;
}

STRAIT_DEVICE strait_u32 strait_vc_cas32(strait_u32 *p, strait_u32 expected, strait_u32 v)
{
	__atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return expected;
}

STRAIT_DEVICE strait_u64 strait_vc_load64_sys(const strait_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

STRAIT_DEVICE void strait_vc_store32_sys(strait_u32 *p, strait_u32 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* A load that reads what a later binding stored also sees that binding in the page's word: release and acquire. */
STRAIT_DEVICE strait_u64 strait_vc_data_load(const strait_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

STRAIT_DEVICE void strait_vc_data_store(strait_u64 *p, strait_u64 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

STRAIT_DEVICE void strait_vc_data_fence(void)
{
}

STRAIT_DEVICE strait_u64 strait_vc_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (strait_u64)t.tv_sec * 1000000000u + (strait_u64)t.tv_nsec;
}

/* Sleeps soon: what the thread waits for may need its processor. */
STRAIT_DEVICE void strait_vc_pause(strait_u32 round)
{
	struct timespec nap = { 0, 20000 };

	if (round >= 32)
		nanosleep(&nap, (struct timespec *)0);
}

STRAIT_DEVICE strait_u32 strait_vc_hint(void)
{
	int here;

	return (strait_u32)((size_t)&here >> 12);
}

#endif

#endif
