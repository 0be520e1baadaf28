/* SPDX-License-Identifier: MIT */
/* Random operations against a model; tests/long has the same for minutes. */
#include "model.h"

static const struct variant {
	const char *name;
	struct model m;
} variants[] = {
	{ "one-thread", { .threads = 1, .rounds = 3000, .file_bytes = MIB(1) + 77 } },
	{ "threads", { .threads = 4, .rounds = 400, .file_bytes = KIB(600) } },
	{ "many-threads", { .threads = 48, .rounds = 30, .file_bytes = KIB(200) + 3 } },
	{ "one-chunk", { .threads = 3, .rounds = 300, .file_bytes = KIB(700), .pool = 1, .chunk = KIB(64) } },
	{ "no-uring", { .threads = 3, .rounds = 300, .file_bytes = MIB(1), .context = STRAIT_CONTEXT_NO_URING } },
};

TEST_VARIANTS_TIMEOUT(as_the_model_says, struct variant, variants, 120)
{
	struct model m = v->m;

	if (test_slow() > 4)
		m.rounds /= 3;
	model_run(&m);
}
