/* SPDX-License-Identifier: MIT */
#ifndef HW_BARRIER_H
#define HW_BARRIER_H

/*
 * What one side of a PCI link must do for the other to see its writes in order. Named by use; nowhere
 * else is there a fence.
 */

#include <stdint.h>

/*
 * Everything written to memory before, host memory or a device's behind a write-combining mapping, is
 * there before a register is written.
 */
static inline void hw_before_doorbell(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__asm__ volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dsb st" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* A word that a device writes last: what is read afterwards is at least as new. */
static inline uint32_t hw_load_last(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* A word of memory that a device may read or write at any time. */
static inline uint32_t hw_load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void hw_store64(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/*
 * A word that a device polls, and one it answers with: the store is seen by the device before the load
 * is made. So of two who each store and then load, one sees the other.
 */
static inline uint32_t hw_store_then_load(uint32_t *store, uint32_t value, const uint32_t *load)
{
	__atomic_store_n(store, value, __ATOMIC_SEQ_CST);
	return __atomic_load_n(load, __ATOMIC_SEQ_CST);
}

#endif
