/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "lib/cli.h"
#include "verbs/verify/verify.h"

/* Lengths around the boundaries that matter: bytes, sectors, pages, staging buffers. */
static const uint64_t lengths[] = {
	1, 511, 4095, 4096, 65537, MIB + 3, 7, 512, 4097, 131071, 2 * MIB, 3, 65536, 513, 8 * MIB - 1, 8192, 1000,
};

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

void verify_plan_make(struct verify_plan *plan, uint64_t start, uint64_t len, uint64_t seed)
{
	unsigned int room = 0, at = (unsigned int)(next_random(&seed) % ARRAY_SIZE(lengths));

	*plan = (struct verify_plan){ 0 };
	for (uint64_t done = 0; done < len;) {
		uint64_t n = min_u64(lengths[at++ % ARRAY_SIZE(lengths)], len - done);

		if (plan->n == room) {
			room = room ? 2 * room : 64;
			plan->piece = xrealloc(plan->piece, room * sizeof(*plan->piece));
		}
		plan->piece[plan->n++] = (struct verify_piece){ start + done, n };
		done += n;
	}
	for (unsigned int i = plan->n; i > 1; i--) {
		unsigned int k = (unsigned int)(next_random(&seed) % i);
		struct verify_piece p = plan->piece[k];

		plan->piece[k] = plan->piece[i - 1];
		plan->piece[i - 1] = p;
	}
}

void verify_plan_free(struct verify_plan *plan)
{
	free(plan->piece);
	*plan = (struct verify_plan){ 0 };
}
