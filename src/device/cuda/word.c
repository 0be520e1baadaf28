/* SPDX-License-Identifier: MIT */
/* Words in the page of a context: 32-bit counters in host memory that the GPU writes. */
#include "base/util.h"
#include "device/cuda/cuda.h"

#define WORD_STEP 64 /* a cache line */

_Atomic uint32_t *cuda_word_get(struct cuda_ctx *cc, uint32_t *value)
{
	_Atomic uint32_t *word = NULL;

	if (!cu.stream_write_value || !cc->page_addr)
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

void cuda_word_put(struct cuda_ctx *cc, _Atomic uint32_t *word)
{
	unsigned int i = (unsigned int)(((char *)word - (char *)cc->page) / WORD_STEP);

	pthread_mutex_lock(&cc->lock);
	cc->words[i / 64] &= ~(1ull << i % 64);
	pthread_mutex_unlock(&cc->lock);
}

cu_ptr cuda_word_addr(const struct cuda_ctx *cc, const _Atomic uint32_t *word)
{
	return cc->page_addr + (cu_ptr)((const char *)word - (const char *)cc->page);
}
