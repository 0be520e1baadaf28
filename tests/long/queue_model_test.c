/* SPDX-License-Identifier: MIT */
/* functional/queue_model_test, for minutes. */
#include "functional/queue_model.h"

static const struct variant {
	const char *name;
	struct queue_model m;
} variants[] = {
	{ "one-thread", { .threads = 1, .rounds = 240000, .workers = 2, .entries = 64 } },
	{ "threads", { .threads = 6, .rounds = 60000, .workers = 4, .entries = 64 } },
	{ "one-worker", { .threads = 4, .rounds = 60000, .workers = 1, .entries = 300 } },
	{ "one-chunk", { .threads = 4, .rounds = 36000, .workers = 2, .entries = 64, .pool = 1, .chunk = KIB(64) } },
	{ "slow-device", { .threads = 4, .rounds = 18000, .workers = 2, .entries = 128, .latency_ns = 200000 } },
	{ "no-workers", { .threads = 4, .rounds = 36000, .workers = 2, .entries = 64, .no_threads = true } },
};

/* Only the emulated device can be slowed down. */
static bool where_possible(const void *v)
{
	return !((const struct variant *)v)->m.latency_ns || where_emulated(v);
}

TEST_WHERE(as_the_model_says, where_possible)

TEST_VARIANTS_TIMEOUT(as_the_model_says, struct variant, variants, 1800)
{
	struct queue_model m = v->m;

	m.rounds /= test_slow();
	queue_model_run(&m);
}
