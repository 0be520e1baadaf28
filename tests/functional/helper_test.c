/* SPDX-License-Identifier: MIT */
/* Workers that help with a transfer, also those that were busy when it began. */
#include "common.h"

#define LEN MIB(32)
#define SEED 21
#define READS 8 /* after which the other transfer may end */

static atomic_bool may_write, writes;
static atomic_int reads, readers;
static _Thread_local bool counted;

static bool hold_writes(enum os_call call, int64_t *ret)
{
	if (call == OS_PWRITE) {
		atomic_store(&writes, true);
		while (!atomic_load(&may_write))
			sleep_ms(1);
	}
	if (call != OS_PREAD)
		return false;
	if (!counted)
		atomic_fetch_add(&readers, 1);
	counted = true;
	if (atomic_fetch_add(&reads, 1) + 1 == READS)
		atomic_store(&may_write, true);
	sleep_ms(2);
	return false;
}

/* With two workers, one of them busy with a write, a read is begun by the other one, and both end it. */
TEST(a_worker_that_becomes_idle_helps)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 2 };
	struct strait_context *ctx = context_new(&opts);
	struct strait_region *r = region_new(device_named(ctx, "emu"), LEN),
			     *other = region_new(device_named(ctx, "emu"), MIB(1));
	const char *path = make_file("read", LEN, SEED);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_BUFFERED);
	struct strait_endpoint *out = file_new(ctx, make_file("write", MIB(1), 1), O_RDWR, STRAIT_FILE_BUFFERED);
	struct strait_transfer write = { .op = STRAIT_WRITE, .endpoint = out, .region = other, .length = MIB(1) };
	struct strait_transfer read = {
		.op = STRAIT_READ, .routes = ROUTE(STAGED), .endpoint = ep, .region = r, .length = LEN
	};
	struct strait_queue *q = queue_new(ctx, 8);
	unsigned char *want = pattern_new(0, LEN, SEED);
	struct strait_result res[2];

	os_inject = hold_writes;
	ASSERT_OK(strait_queue_submit(q, &write, 1));
	while (!atomic_load(&writes))
		sleep_ms(1);
	ASSERT_OK(strait_queue_submit(q, &read, 1));
	ASSERT_EQ(strait_queue_wait(q, 2, 2, STRAIT_FOREVER, res), 2);
	os_inject = NULL;
	ASSERT_EQ(res[0].bytes + res[1].bytes, LEN + MIB(1));
	ASSERT_EQ(readers, 2);
	region_expect(r, 0, want, LEN);
	free(want);
	strait_queue_close(q);
	strait_region_close(r);
	strait_region_close(other);
	strait_endpoint_close(ep);
	strait_endpoint_close(out);
	strait_context_close(ctx);
}
