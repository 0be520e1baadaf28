/* SPDX-License-Identifier: MIT */
/* Random calls on coherent mappings against a model; tests/long has the same for minutes. */
#include "mapping_model.h"

static const struct variant {
	const char *name;
	struct mapping_model m;
} variants[] = {
	{ "one-thread", { .threads = 1, .rounds = 4000, .granules = 64 } },
	{ "threads", { .threads = 4, .rounds = 1500, .granules = 64 } },
	{ "contended", { .threads = 6, .rounds = 800, .granules = 12 } },
	{ "chunks", { .threads = 3, .rounds = 1500, .granules = 1400 } },
	{ "peers", { .threads = 4, .rounds = 1500, .granules = 64, .peers = true } },
	{ "peers-contended", { .threads = 6, .rounds = 800, .granules = 12, .peers = true } },
	{ "peers-budget", { .threads = 3, .rounds = 1000, .granules = 256, .budget = KIB(512), .peers = true } },
	{ "compare", { .threads = 4, .rounds = 1000, .granules = 64, .flags = STRAIT_MAPPING_COMPARE } },
	{ "budget", { .threads = 3, .rounds = 1000, .granules = 256, .budget = KIB(512) } },
	{ "budget-compare",
	  { .threads = 3, .rounds = 800, .granules = 256, .budget = KIB(512), .flags = STRAIT_MAPPING_COMPARE } },
	{ "copy", { .threads = 4, .rounds = 1500, .granules = 64, .flags = STRAIT_MAPPING_COPY } },
	{ "copy-contended", { .threads = 6, .rounds = 800, .granules = 12, .flags = STRAIT_MAPPING_COPY } },
	{ "copy-chunks", { .threads = 3, .rounds = 1500, .granules = 1400, .flags = STRAIT_MAPPING_COPY } },
	{ "copy-mixed", { .threads = 4, .rounds = 1500, .granules = 64, .flags = STRAIT_MAPPING_COPY, .mixed = true } },
	{ "copy-user", { .threads = 4, .rounds = 1500, .granules = 64, .flags = STRAIT_MAPPING_COPY, .user = true } },
	{ "copy-plain",
	  { .threads = 4, .rounds = 1000, .granules = 64, .flags = STRAIT_MAPPING_COPY | STRAIT_MAPPING_COMPARE } },
	{ "copy-budget",
	  { .threads = 4, .rounds = 1500, .granules = 256, .flags = STRAIT_MAPPING_COPY, .copy_budget = KIB(128) } },
	{ "copy-user-budget",
	  { .threads = 4,
	    .rounds = 1500,
	    .granules = 256,
	    .flags = STRAIT_MAPPING_COPY,
	    .copy_budget = KIB(128),
	    .user = true } },
	{ "copy-anonymous",
	  { .threads = 4, .rounds = 1000, .granules = 64, .anonymous = true, .flags = STRAIT_MAPPING_COPY } },
	{ "anonymous", { .threads = 4, .rounds = 1000, .granules = 64, .anonymous = true } },
	{ "anonymous-compare",
	  { .threads = 4, .rounds = 800, .granules = 64, .anonymous = true, .flags = STRAIT_MAPPING_COMPARE } },
};

TEST_VARIANTS_TIMEOUT(as_the_model_says, struct variant, variants, 120)
{
	struct mapping_model m = v->m;

	if (m.peers && !where_emulated(NULL))
		SKIP("the machine has one device");
	setenv("STRAIT_EMU_DEVICES", "2", 1);
	if (test_slow() > 4)
		m.rounds /= 3;
	mapping_model_run(&m);
}
