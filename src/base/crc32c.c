/* SPDX-License-Identifier: MIT */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/*
 * Bit i of a word is the coefficient of x^(31 - i): the polynomial and all arithmetic are bit-reflected, as in
 * the instruction.
 */
#define POLY 0x82f63b78u
#define ONE 0x80000000u /* the polynomial 1 */

/* Three blocks of this size are checksummed in parallel, then combined: the instruction has a latency of 3 cycles. */
#define LONG 4096
#define SHORT 256

/* Extends a checksum by a fixed number of zero bytes, by table lookups. */
struct shift_table {
	uint32_t t[4][256];
};

static uint32_t slices[8][256];
static struct shift_table shift_long, shift_short;
static uint32_t (*update)(uint32_t crc, const unsigned char *p, size_t len);
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* a * b modulo the polynomial. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (uint32_t bit = ONE; bit; bit >>= 1) {
		if (a & bit)
			product ^= b;
		b = b & 1 ? (b >> 1) ^ POLY : b >> 1;
	}
	return product;
}

/* x^(8 * bytes) modulo the polynomial: multiplying by it appends that many zero bytes. */
static uint32_t zeros(uint64_t bytes)
{
	uint32_t square = ONE >> 8, result = ONE;

	for (; bytes; bytes >>= 1) {
		if (bytes & 1)
			result = multiply(result, square);
		square = multiply(square, square);
	}
	return result;
}

static inline uint64_t load64(const unsigned char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint32_t update_table(uint32_t crc, const unsigned char *p, size_t len)
{
	for (; len >= 8; len -= 8, p += 8) {
		uint32_t low = crc ^
			       ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);

		crc = slices[7][low & 255] ^ slices[6][low >> 8 & 255] ^ slices[5][low >> 16 & 255] ^
		      slices[4][low >> 24] ^ slices[3][p[4]] ^ slices[2][p[5]] ^ slices[1][p[6]] ^ slices[0][p[7]];
	}
	while (len--)
		crc = crc >> 8 ^ slices[0][(crc ^ *p++) & 255];
	return crc;
}

#if defined(__x86_64__)

static uint32_t shift(const struct shift_table *s, uint32_t crc)
{
	return s->t[0][crc & 255] ^ s->t[1][crc >> 8 & 255] ^ s->t[2][crc >> 16 & 255] ^ s->t[3][crc >> 24];
}

/* Three blocks of @block bytes; @s extends a checksum by @block zero bytes. */
__attribute__((target("sse4.2"))) static inline uint64_t three(uint64_t a, const unsigned char *p, size_t block,
							       const struct shift_table *s)
{
	uint64_t b = 0, c = 0;

	for (size_t i = 0; i < block; i += 8) {
		a = _mm_crc32_u64(a, load64(p + i));
		b = _mm_crc32_u64(b, load64(p + block + i));
		c = _mm_crc32_u64(c, load64(p + 2 * block + i));
	}
	b ^= shift(s, (uint32_t)a);
	return c ^ shift(s, (uint32_t)b);
}

__attribute__((target("sse4.2"))) static uint32_t update_sse42(uint32_t crc, const unsigned char *p, size_t len)
{
	uint64_t a = crc;

	for (; len >= 3 * LONG; len -= 3 * LONG, p += 3 * LONG)
		a = three(a, p, LONG, &shift_long);
	for (; len >= 3 * SHORT; len -= 3 * SHORT, p += 3 * SHORT)
		a = three(a, p, SHORT, &shift_short);
	for (; len >= 8; len -= 8, p += 8)
		a = _mm_crc32_u64(a, load64(p));
	while (len--)
		a = _mm_crc32_u8((uint32_t)a, *p++);
	return (uint32_t)a;
}

#endif

static void make_shift(struct shift_table *s, uint64_t bytes)
{
	uint32_t by = zeros(bytes);

	for (unsigned int k = 0; k < 4; k++)
		for (uint32_t v = 0; v < 256; v++)
			s->t[k][v] = multiply(by, v << (8 * k));
}

static void init(void)
{
	for (uint32_t v = 0; v < 256; v++)
		slices[0][v] = multiply(ONE >> 8, v);
	for (unsigned int k = 1; k < 8; k++)
		for (uint32_t v = 0; v < 256; v++)
			slices[k][v] = slices[k - 1][v] >> 8 ^ slices[0][slices[k - 1][v] & 255];
	make_shift(&shift_long, LONG);
	make_shift(&shift_short, SHORT);
	update = update_table;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		update = update_sse42;
#endif
}

uint32_t crc32c_update(uint32_t crc, const void *buf, size_t len)
{
	pthread_once(&once, init);
	return ~update(~crc, buf, len);
}

uint32_t crc32c_update_table(uint32_t crc, const void *buf, size_t len)
{
	pthread_once(&once, init);
	return ~update_table(~crc, buf, len);
}

uint32_t crc32c_combine(uint32_t crc1, uint32_t crc2, uint64_t len2)
{
	return multiply(zeros(len2), crc1) ^ crc2;
}
