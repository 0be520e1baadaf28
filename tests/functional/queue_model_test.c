/* SPDX-License-Identifier: MIT */
/* Random calls on queues against a model; tests/long has the same for minutes. */
#include "queue_model.h"

static const struct variant {
	const char *name;
	struct queue_model m;
} variants[] = {
	{ "one-thread", { .threads = 1, .rounds = 4000, .workers = 2, .entries = 64 } },
	{ "threads", { .threads = 6, .rounds = 1000, .workers = 4, .entries = 64 } },
	{ "one-worker", { .threads = 4, .rounds = 1000, .workers = 1, .entries = 300 } },
	{ "one-chunk", { .threads = 4, .rounds = 600, .workers = 2, .entries = 64, .pool = 1, .chunk = KIB(64) } },
	{ "slow-device", { .threads = 4, .rounds = 300, .workers = 2, .entries = 128, .latency_ns = 200000 } },
	{ "no-workers", { .threads = 4, .rounds = 600, .workers = 2, .entries = 64, .no_threads = true } },
};

/* Only the emulated device can be slowed down. */
static bool where_possible(const void *v)
{
	return !((const struct variant *)v)->m.latency_ns || where_emulated(v);
}

TEST_WHERE(as_the_model_says, where_possible)

TEST_VARIANTS_TIMEOUT(as_the_model_says, struct variant, variants, 120)
{
	struct queue_model m = v->m;

	if (test_slow() > 4)
		m.rounds /= 3;
	queue_model_run(&m);
}
