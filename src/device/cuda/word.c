/* SPDX-License-Identifier: MIT */
/* Words in the page of a context: 32-bit counters in host memory that the GPU writes. */
#include "base/util.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernel.h"

#define WORD_STEP CUDA_MARK_STEP /* a cache line */

_Static_assert(CUDA_WORDS == CUDA_MARKS && CUDA_WORDS * WORD_STEP <= CUDA_PAGE, "words of a page");

_Atomic uint32_t *cuda_word_get(struct cuda_ctx *cc, uint32_t *value)
{
	_Atomic uint32_t *word = NULL;

	if (!cc->page_addr)
		return NULL;
	pthread_mutex_lock(&cc->lock);
	for (unsigned int k = 0; k < ARRAY_SIZE(cc->words) && !word; k++) {
		if (!~cc->words[k])
			continue;
		unsigned int i = (unsigned int)__builtin_ctzll(~cc->words[k]);

		cc->words[k] |= 1ull << i;
		word = (_Atomic uint32_t *)(void *)((char *)cc->page + (k * 64 + i) * WORD_STEP);
		*value = atomic_load_explicit(word, memory_order_relaxed);
	}
	pthread_mutex_unlock(&cc->lock);
	return word;
}

unsigned int cuda_word_number(const struct cuda_ctx *cc, const _Atomic uint32_t *word)
{
	return (unsigned int)(((const char *)word - (const char *)cc->page) / WORD_STEP);
}

void cuda_word_put(struct cuda_ctx *cc, const _Atomic uint32_t *word)
{
	unsigned int i = cuda_word_number(cc, word);

	pthread_mutex_lock(&cc->lock);
	cc->words[i / 64] &= ~(1ull << i % 64);
	pthread_mutex_unlock(&cc->lock);
}

cu_ptr cuda_word_addr(const struct cuda_ctx *cc, const _Atomic uint32_t *word)
{
	return cc->page_addr + (cu_ptr)((const char *)word - (const char *)cc->page);
}
