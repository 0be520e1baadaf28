/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DEVICE_ATOMIC_H
#define STRAIT_DEVICE_ATOMIC_H

/*
 * Atomic operations of device code, in CUDA and in C. Device scope, except those named sys, which order against the host, whose
 * words are only loaded or stored. Read-modify-write operations are acquire and release unless their name says less: on a GPU a
 * release waits for the stores of the thread, and an acquire empties the first-level cache. Needs no libcu++.
 *
 * Operations named _first are followed by accesses that depend on their value: by the address, or by a branch. On a GPU such an
 * access leaves the multiprocessor after the value has come. If it is of those here, and not a plain load, it goes to the
 * second-level cache as the first one did, so no more order is needed. In C they are acquire.
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

STRAIT_DEVICE strait_u64 strait_vc_load64_first(const strait_u64 *p)
{
	return strait_vc_load64_relaxed(p);
}

#define STRAIT_VC_RMW(name, bits, reg, instruction)                                                                    \
	STRAIT_DEVICE strait_u##bits strait_vc_##name(strait_u##bits *p, strait_u##bits v)                             \
	{                                                                                                              \
		strait_u##bits old;                                                                                    \
                                                                                                                       \
		asm volatile("atom." instruction " %0, [%1], %2;" : "=" reg(old) : "l"(p), reg(v) : "memory");         \
		return old;                                                                                            \
	}
STRAIT_VC_RMW(add64, 64, "l", "acq_rel.gpu.global.add.u64")
STRAIT_VC_RMW(add64_first, 64, "l", "relaxed.gpu.global.add.u64")
STRAIT_VC_RMW(add64_relaxed, 64, "l", "relaxed.gpu.global.add.u64")
STRAIT_VC_RMW(or64, 64, "l", "acq_rel.gpu.global.or.b64")
STRAIT_VC_RMW(or32, 32, "r", "acq_rel.gpu.global.or.b32")
STRAIT_VC_RMW(or32_release, 32, "r", "release.gpu.global.or.b32")
STRAIT_VC_RMW(and32, 32, "r", "acq_rel.gpu.global.and.b32")
#undef STRAIT_VC_RMW

/* Without the value before. */
#define STRAIT_VC_RED(name, instruction)                                                                               \
	STRAIT_DEVICE void strait_vc_##name(strait_u64 *p, strait_u64 v)                                               \
	{                                                                                                              \
		asm volatile("red." instruction " [%0], %1;" : : "l"(p), "l"(v) : "memory");                           \
	}
STRAIT_VC_RED(give64_release, "release.gpu.global.add.u64")
STRAIT_VC_RED(count64, "relaxed.gpu.global.add.u64")
STRAIT_VC_RED(set64, "relaxed.gpu.global.or.b64")
STRAIT_VC_RED(clear64, "relaxed.gpu.global.and.b64")
#undef STRAIT_VC_RED

#define STRAIT_VC_CMPXCHG(name, bits, reg, order)                                                                      \
	STRAIT_DEVICE strait_u##bits strait_vc_##name(strait_u##bits *p, strait_u##bits expected, strait_u##bits v)    \
	{                                                                                                              \
		strait_u##bits old;                                                                                    \
                                                                                                                       \
		asm volatile("atom." order ".gpu.global.cas.b" #bits " %0, [%1], %2, %3;"                              \
			     : "=" reg(old)                                                                            \
			     : "l"(p), reg(expected), reg(v)                                                           \
			     : "memory");                                                                              \
		return old;                                                                                            \
	}
STRAIT_VC_CMPXCHG(cas64, 64, "l", "acq_rel")
STRAIT_VC_CMPXCHG(cas64_first, 64, "l", "relaxed")
STRAIT_VC_CMPXCHG(cas32, 32, "r", "acq_rel")
STRAIT_VC_CMPXCHG(cas32_first, 32, "r", "relaxed")
#undef STRAIT_VC_CMPXCHG

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
	return sm * 67 + threadIdx.x / 32 * 11 + threadIdx.x % 32;
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

STRAIT_DEVICE strait_u64 strait_vc_load64_first(const strait_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

#define STRAIT_VC_RMW(name, bits, op, order)                                                                           \
	STRAIT_DEVICE strait_u##bits strait_vc_##name(strait_u##bits *p, strait_u##bits v)                             \
	{                                                                                                              \
		return __atomic_fetch_##op(p, v, order);                                                               \
	}
STRAIT_VC_RMW(add64, 64, add, __ATOMIC_ACQ_REL)
STRAIT_VC_RMW(add64_first, 64, add, __ATOMIC_ACQUIRE)
STRAIT_VC_RMW(add64_relaxed, 64, add, __ATOMIC_RELAXED)
STRAIT_VC_RMW(or64, 64, or, __ATOMIC_ACQ_REL)
STRAIT_VC_RMW(or32, 32, or, __ATOMIC_ACQ_REL)
STRAIT_VC_RMW(or32_release, 32, or, __ATOMIC_RELEASE)
STRAIT_VC_RMW(and32, 32, and, __ATOMIC_ACQ_REL)
#undef STRAIT_VC_RMW

#define STRAIT_VC_RED(name, op, order)                                                                                 \
	STRAIT_DEVICE void strait_vc_##name(strait_u64 *p, strait_u64 v)                                               \
	{                                                                                                              \
		__atomic_fetch_##op(p, v, order);                                                                      \
	}
STRAIT_VC_RED(give64_release, add, __ATOMIC_RELEASE)
STRAIT_VC_RED(count64, add, __ATOMIC_RELAXED)
STRAIT_VC_RED(set64, or, __ATOMIC_RELAXED)
STRAIT_VC_RED(clear64, and, __ATOMIC_RELAXED)
#undef STRAIT_VC_RED

#define STRAIT_VC_CMPXCHG(name, bits, order)                                                                           \
	STRAIT_DEVICE strait_u##bits strait_vc_##name(strait_u##bits *p, strait_u##bits expected, strait_u##bits v)    \
	{                                                                                                              \
		__atomic_compare_exchange_n(p, &expected, v, 0, order, __ATOMIC_ACQUIRE);                              \
		return expected;                                                                                       \
	}
STRAIT_VC_CMPXCHG(cas64, 64, __ATOMIC_ACQ_REL)
STRAIT_VC_CMPXCHG(cas64_first, 64, __ATOMIC_ACQUIRE)
STRAIT_VC_CMPXCHG(cas32, 32, __ATOMIC_ACQ_REL)
STRAIT_VC_CMPXCHG(cas32_first, 32, __ATOMIC_ACQUIRE)
#undef STRAIT_VC_CMPXCHG

STRAIT_DEVICE strait_u64 strait_vc_load64_sys(const strait_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

STRAIT_DEVICE void strait_vc_store32_sys(strait_u32 *p, strait_u32 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
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
	return 0;
}

#endif

#endif
