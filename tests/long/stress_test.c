/* SPDX-License-Identifier: MIT */
/* What functional/stress_test does, for longer and with larger files. */
#include "functional/stress.h"

static const struct variant {
	const char *name;
	struct stress s;
} variants[] = {
	{ "defaults", { .threads = 64, .rounds = 600, .file_bytes = MIB(12) + 77, .seed = 11 } },
	{ "tiny-pool",
	  { .threads = 64, .rounds = 300, .file_bytes = MIB(2), .seed = 12, .pool = 1, .chunk = KIB(64) } },
	{ "no-uring",
	  { .threads = 32, .rounds = 500, .file_bytes = MIB(9), .seed = 13, .context = STRAIT_CONTEXT_NO_URING } },
	{ "few-chunks",
	  { .threads = 48, .rounds = 400, .file_bytes = MIB(20), .seed = 14, .pool = MIB(1), .chunk = KIB(256) } },
};

TEST_VARIANTS_TIMEOUT(many_threads, struct variant, variants, 900)
{
	struct stress s = v->s;

	s.rounds /= test_slow();
	stress_run(&s);
}
