/* SPDX-License-Identifier: MIT */
/* Everything at once, by many threads; tests/long has the same for longer. */
#include "stress.h"

static const struct variant {
	const char *name;
	struct stress s;
} variants[] = {
	{ "defaults", { .threads = 64, .rounds = 25, .file_bytes = MIB(1) + 77, .seed = 1 } },
	{ "tiny-pool",
	  { .threads = 64, .rounds = 12, .file_bytes = KIB(700), .seed = 2, .pool = 1, .chunk = KIB(64) } },
	{ "no-uring",
	  { .threads = 16, .rounds = 25, .file_bytes = MIB(2), .seed = 3, .context = STRAIT_CONTEXT_NO_URING } },
};

TEST_VARIANTS_TIMEOUT(many_threads, struct variant, variants, 120)
{
	struct stress s = v->s;

	if (test_slow() > 4)
		s.rounds = s.rounds / 2;
	stress_run(&s);
}
