/* SPDX-License-Identifier: MIT */
/* functional/model_test, for longer and with larger files. */
#include "functional/model.h"

static const struct variant {
	const char *name;
	struct model m;
} variants[] = {
	{ "one-thread", { .threads = 1, .rounds = 12000, .file_bytes = MIB(3) + 77 } },
	{ "threads", { .threads = 6, .rounds = 6000, .file_bytes = MIB(1) + 5 } },
	{ "many-threads", { .threads = 64, .rounds = 500, .file_bytes = KIB(300) } },
	{ "long-files", { .threads = 3, .rounds = 1000, .file_bytes = MIB(24) } },
	{ "one-chunk", { .threads = 6, .rounds = 3000, .file_bytes = KIB(900), .pool = 1, .chunk = KIB(64) } },
	{ "few-chunks", { .threads = 16, .rounds = 1000, .file_bytes = MIB(2), .pool = MIB(1), .chunk = KIB(256) } },
	{ "no-uring", { .threads = 6, .rounds = 3000, .file_bytes = MIB(2), .context = STRAIT_CONTEXT_NO_URING } },
};

/* Bytes of the device's memory. The regions of all threads must fit. */
static uint64_t device_memory(void)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_device_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_device_info(device_named(ctx, "emu:0"), &info));
	strait_context_close(ctx);
	return info.mem_total;
}

TEST_VARIANTS_TIMEOUT(as_the_model_says, struct variant, variants, 1200)
{
	struct model m = v->m;

	m.rounds /= test_slow();
	if (device_memory() < GIB(1))
		m.file_bytes = min_u64(m.file_bytes, MIB(12));
	model_run(&m);
}
