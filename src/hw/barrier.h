/* SPDX-License-Identifier: MIT */
#ifndef HW_BARRIER_H
#define HW_BARRIER_H

/*
 * Ordering of memory accesses between the CPU and a PCI device. Functions are named by use; no other file has a fence.
 */

#include <stdint.h>

/*
 * Earlier writes to memory, host memory or write-combining device memory, are visible to the device before a later
 * register write.
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

/* Load a word that a device writes last: later loads see what the device wrote before it. */
static inline uint32_t hw_load_last(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Load a word of memory that a device may write at any time; hw_store64() stores one that it may read. */
static inline uint32_t hw_load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void hw_store64(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/*
 * Store a word that the device polls, then load the word that it answers with; the store is visible before the load is
 * made. When CPU and device both store and then load, at least one of them sees the other's store.
 */
static inline uint32_t hw_store_then_load(uint32_t *store, uint32_t value, const uint32_t *load)
{
	__atomic_store_n(store, value, __ATOMIC_SEQ_CST);
	return __atomic_load_n(load, __ATOMIC_SEQ_CST);
}

#endif
