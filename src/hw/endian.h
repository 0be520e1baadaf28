/* SPDX-License-Identifier: MIT */
#ifndef HW_ENDIAN_H
#define HW_ENDIAN_H

/* Little-endian words in structs and pages that devices read and write. */

#include <stdint.h>
#include <string.h>

#ifdef __CHECKER__
#define HW_BITWISE __attribute__((bitwise))
#define HW_FORCE __attribute__((force))
#else
#define HW_BITWISE
#define HW_FORCE
#endif

typedef uint16_t HW_BITWISE hw_le16;
typedef uint32_t HW_BITWISE hw_le32;
typedef uint64_t HW_BITWISE hw_le64;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HW_SWAP16(v) (v)
#define HW_SWAP32(v) (v)
#define HW_SWAP64(v) (v)
#else
#define HW_SWAP16(v) __builtin_bswap16(v)
#define HW_SWAP32(v) __builtin_bswap32(v)
#define HW_SWAP64(v) __builtin_bswap64(v)
#endif

static inline hw_le32 hw_le32_of(uint32_t v)
{
	return (HW_FORCE hw_le32)HW_SWAP32(v);
}

static inline hw_le64 hw_le64_of(uint64_t v)
{
	return (HW_FORCE hw_le64)HW_SWAP64(v);
}

static inline uint32_t hw_of_le32(hw_le32 v)
{
	return HW_SWAP32((HW_FORCE uint32_t)v);
}

/* Little-endian words at any offset of a page. */
static inline uint16_t hw_get16(const void *page, unsigned int off)
{
	uint16_t v;

	memcpy(&v, (const char *)page + off, sizeof(v));
	return HW_SWAP16(v);
}

static inline uint32_t hw_get32(const void *page, unsigned int off)
{
	uint32_t v;

	memcpy(&v, (const char *)page + off, sizeof(v));
	return HW_SWAP32(v);
}

static inline uint64_t hw_get64(const void *page, unsigned int off)
{
	uint64_t v;

	memcpy(&v, (const char *)page + off, sizeof(v));
	return HW_SWAP64(v);
}

static inline void hw_put32(void *page, unsigned int off, uint32_t v)
{
	v = HW_SWAP32(v);
	memcpy((char *)page + off, &v, sizeof(v));
}

static inline void hw_put64(void *page, unsigned int off, uint64_t v)
{
	v = HW_SWAP64(v);
	memcpy((char *)page + off, &v, sizeof(v));
}

#endif
