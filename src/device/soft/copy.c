/* SPDX-License-Identifier: MIT */
/*
 * Copies into device memory. memcpy() of a large block reads the destination into the cache before it overwrites it;
 * non-temporal stores do not. That gains a quarter of the throughput when the source, a staging buffer, is cached.
 */
#include "base/util.h"
#include "device/soft/engine.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define STREAMING 1
#include <immintrin.h>
#else
#define STREAMING 0
#endif

#if STREAMING

/* Shorter copies fit the cache, where the CPU may read them next. */
#define STREAMING_MIN KIB(256)

/* Copies @len bytes, a multiple of 256, to @dst, which is aligned to 64 bytes. */
typedef void blocks_fn(char *dst, const char *src, size_t len);

__attribute__((target("avx512f"))) static void blocks_avx512(char *dst, const char *src, size_t len)
{
	for (; len; len -= 256, dst += 256, src += 256) {
		__m512i a = _mm512_loadu_si512(src);
		__m512i b = _mm512_loadu_si512(src + 64);
		__m512i c = _mm512_loadu_si512(src + 128);
		__m512i d = _mm512_loadu_si512(src + 192);

		_mm512_stream_si512((__m512i *)dst, a);
		_mm512_stream_si512((__m512i *)(dst + 64), b);
		_mm512_stream_si512((__m512i *)(dst + 128), c);
		_mm512_stream_si512((__m512i *)(dst + 192), d);
	}
}

__attribute__((target("avx2"))) static void blocks_avx2(char *dst, const char *src, size_t len)
{
	for (; len; len -= 128, dst += 128, src += 128) {
		__m256i a = _mm256_loadu_si256((const __m256i *)src);
		__m256i b = _mm256_loadu_si256((const __m256i *)(src + 32));
		__m256i c = _mm256_loadu_si256((const __m256i *)(src + 64));
		__m256i d = _mm256_loadu_si256((const __m256i *)(src + 96));

		_mm256_stream_si256((__m256i *)dst, a);
		_mm256_stream_si256((__m256i *)(dst + 32), b);
		_mm256_stream_si256((__m256i *)(dst + 64), c);
		_mm256_stream_si256((__m256i *)(dst + 96), d);
	}
}

static void blocks_sse2(char *dst, const char *src, size_t len)
{
	for (; len; len -= 64, dst += 64, src += 64) {
		__m128i a = _mm_loadu_si128((const __m128i *)src);
		__m128i b = _mm_loadu_si128((const __m128i *)(src + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(src + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(src + 48));

		_mm_stream_si128((__m128i *)dst, a);
		_mm_stream_si128((__m128i *)(dst + 16), b);
		_mm_stream_si128((__m128i *)(dst + 32), c);
		_mm_stream_si128((__m128i *)(dst + 48), d);
	}
}

/* The @nth kind of non-temporal stores, widest first; NULL: this CPU does not have it. */
static blocks_fn *blocks_kind(unsigned int nth)
{
	switch (nth) {
	case 0:
		return __builtin_cpu_supports("avx512f") ? blocks_avx512 : NULL;
	case 1:
		return __builtin_cpu_supports("avx2") ? blocks_avx2 : NULL;
	default:
		return blocks_sse2;
	}
}

static void copy_with(blocks_fn *blocks, char *dst, const char *src, size_t len)
{
	size_t head = -(uintptr_t)dst & 63, body;

	if (head > len)
		head = len;
	body = align_down(len - head, 256);
	memcpy(dst, src, head);
	blocks(dst + head, src + head, body);
	memcpy(dst + head + body, src + head + body, len - head - body);
	/* Non-temporal stores are not ordered before the lock or flag that announces the copy. */
	_mm_sfence();
}

void soft_copy_streaming(void *dst, const void *src, size_t len)
{
	blocks_fn *blocks = NULL;

	if (len < STREAMING_MIN) {
		memcpy(dst, src, len);
		return;
	}
	for (unsigned int nth = 0; !blocks; nth++)
		blocks = blocks_kind(nth);
	copy_with(blocks, dst, src, len);
}

bool soft_copy_streaming_kind(unsigned int nth, void *dst, const void *src, size_t len)
{
	blocks_fn *blocks = nth < SOFT_COPY_KINDS ? blocks_kind(nth) : NULL;

	if (!blocks)
		return false;
	copy_with(blocks, dst, src, len);
	return true;
}

#else

void soft_copy_streaming(void *dst, const void *src, size_t len)
{
	memcpy(dst, src, len);
}

bool soft_copy_streaming_kind(unsigned int nth, void *dst, const void *src, size_t len)
{
	return false;
}

#endif
