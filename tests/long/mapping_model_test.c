/* SPDX-License-Identifier: MIT */
/* functional/mapping_model_test, for minutes: more than 10^7 calls in all. */
#include "functional/mapping_model.h"

static const struct variant {
	const char *name;
	struct mapping_model m;
} variants[] = {
	{ "one-thread", { .threads = 1, .rounds = 1000000, .granules = 64 } },
	{ "threads", { .threads = 4, .rounds = 400000, .granules = 64 } },
	{ "contended", { .threads = 6, .rounds = 200000, .granules = 12 } },
	{ "chunks", { .threads = 3, .rounds = 300000, .granules = 1400 } },
	{ "compare", { .threads = 4, .rounds = 200000, .granules = 64, .flags = STRAIT_MAPPING_COMPARE } },
	{ "budget", { .threads = 3, .rounds = 200000, .granules = 256, .budget = KIB(512) } },
	{ "copy", { .threads = 4, .rounds = 400000, .granules = 64, .flags = STRAIT_MAPPING_COPY } },
	{ "copy-budget",
	  { .threads = 4, .rounds = 200000, .granules = 256, .flags = STRAIT_MAPPING_COPY, .copy_budget = KIB(128) } },
	{ "copy-mixed",
	  { .threads = 4, .rounds = 200000, .granules = 64, .flags = STRAIT_MAPPING_COPY, .mixed = true } },
	{ "copy-user", { .threads = 4, .rounds = 200000, .granules = 64, .flags = STRAIT_MAPPING_COPY, .user = true } },
	{ "anonymous", { .threads = 4, .rounds = 200000, .granules = 64, .anonymous = true } },
};

TEST_VARIANTS_TIMEOUT(as_the_model_says, struct variant, variants, 1800)
{
	struct mapping_model m = v->m;

	m.rounds /= test_slow();
	mapping_model_run(&m);
}
