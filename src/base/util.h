/* SPDX-License-Identifier: MIT */
#ifndef BASE_UTIL_H
#define BASE_UTIL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* align_down() and align_up(): @align is a power of two. align_up() overflows near UINT64_MAX. */
static inline uint64_t align_down(uint64_t v, uint64_t align)
{
	return v & ~(align - 1);
}

static inline uint64_t align_up(uint64_t v, uint64_t align)
{
	return (v + align - 1) & ~(align - 1);
}

static inline bool is_pow2(uint64_t v)
{
	return v && !(v & (v - 1));
}

/* Does [off, off + len) lie inside [0, size)? Never overflows. */
static inline bool range_inside(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

/* The whole pages that [addr, addr + len) touches; @head bytes of them lie before @addr. */
struct page_span {
	uint64_t start, length, head;
};

static inline struct page_span page_span(uint64_t addr, uint64_t len, uint64_t page)
{
	uint64_t start = align_down(addr, page);

	return (struct page_span){ start, align_up(addr + len, page) - start, addr - start };
}

/* Is off + len representable as an off_t, which is what every file offset ends up as? */
static inline bool range_fits_off_t(uint64_t off, uint64_t len)
{
	return off <= INT64_MAX && len <= INT64_MAX - off;
}

/* Hint to the CPU in a spin loop. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * Structs of the public interface that start with `size`, which the caller sets. @first is the first published size
 * (STRAIT_..._SIZE_V1), @known_size the size that this library knows.
 *
 * struct_in() reads one: members past the end of a shorter struct are 0; -E2BIG if a longer one is not zero past
 * @known_size. struct_out() fills one: up to its size, with zeros past @known_size. Both return -EINVAL for a struct
 * shorter than @first; calls with side effects check that by struct_room() first.
 */
bool struct_room(const void *user, size_t first);
int struct_in(void *known, size_t known_size, const void *user, size_t first);
int struct_out(void *user, const void *known, size_t known_size, size_t first);

/*
 * Complete a table of operations: @table becomes @has, with the entry of @defaults in every slot that @has leaves NULL.
 * A table has nothing but pointers, @size bytes in all.
 */
void ops_overlay(void *table, const void *defaults, const void *has, size_t size);

void str_copy(char *dst, size_t size, const char *src);
void str_format(char *dst, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
