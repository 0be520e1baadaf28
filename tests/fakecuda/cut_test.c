/* SPDX-License-Identifier: MIT */
/*
 * A file that was declared immutable is truncated while its registered pages are copied. The driver reads short copies
 * by the CPU, which gets a signal for such a page: it must not be given any.
 */
#include "fakecuda/common.h"

#define TAIL 20000
#define LEN (MIB(8) + TAIL)

static const char *path;
static atomic_bool armed;

static void cut(void)
{
	if (atomic_exchange(&armed, false))
		ASSERT_EQ(truncate(path, 0), 0);
}

struct user {
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_region *r;
	unsigned char *want;
};

/* The whole file is in cached windows. */
static void begin(struct user *u)
{
	path = strdup(make_file("file", LEN, 1));
	u->ctx = context_new(NULL);
	u->r = region_new(device_named(u->ctx, "cuda:0"), LEN);
	u->ep = file_new(u->ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	u->want = pattern_new(0, LEN, 1);
	for (int i = 0; i < 100 && stats_of(u->ctx).registered_bytes < LEN; i++)
		ASSERT_EQ(strait_read(u->ep, 0, u->r, 0, LEN), LEN);
	ASSERT_GE(stats_of(u->ctx).registered_bytes, LEN);
	fake_machine.in_copy = cut;
}

static void end(struct user *u)
{
	fake_machine.in_copy = NULL;
	strait_region_close(u->r);
	strait_endpoint_close(u->ep);
	strait_context_close(u->ctx);
	free(u->want);
	free((char *)path);
	expect_clean();
}

/* Longer than the copy engine's minimum, except for the end of the file. */
TEST(the_end_of_the_file)
{
	struct strait_result res;
	struct user u;

	begin(&u);
	res = move(STRAIT_READ, 0, u.ep, MIB(8), u.r, 0, MIB(1));
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, TAIL);
	region_expect(u.r, 0, u.want + MIB(8), TAIL);
	atomic_store(&armed, true);
	res = move(STRAIT_READ, 0, u.ep, MIB(8), u.r, 0, MIB(1));
	ASSERT_FALSE(atomic_load(&armed));
	ASSERT_EQ(res.status, 0);
	ASSERT_LE(res.bytes, TAIL);
	res = move(STRAIT_READ, 0, u.ep, MIB(8), u.r, 0, MIB(1));
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, 0);
	end(&u);
}

TEST(the_end_of_the_file_on_a_stream)
{
	uint64_t off = MIB(8), at = 0, len = MIB(1);
	struct strait_stream_transfer t = { .size = sizeof(t), .flags = STRAIT_STREAM_FIXED };
	struct strait_stream *s;
	int64_t result = -99;
	struct user u;

	begin(&u);
	t.endpoint = u.ep;
	t.region = u.r;
	t.endpoint_offset = &off;
	t.region_offset = &at;
	t.length = &len;
	t.result = &result;
	ASSERT_OK(strait_stream_open(device_named(u.ctx, "cuda:0"), &s));
	ASSERT_OK(strait_stream_transfer(s, &t));
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(result, TAIL);
	region_expect(u.r, 0, u.want + MIB(8), TAIL);
	atomic_store(&armed, true);
	ASSERT_OK(strait_stream_transfer(s, &t));
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_FALSE(atomic_load(&armed));
	ASSERT_TRUE(result >= 0 && result <= TAIL);
	strait_stream_close(s);
	end(&u);
}

/* Batches of short transfers use plain copies where the driver cannot load the kernels. */
TEST(lists_without_kernels)
{
	enum { N = 32 };
	struct strait_transfer t[N];
	struct strait_result res[N];
	struct strait_queue *q;
	struct user u;

	fake_fail("cuModuleLoadData", 1, CU_NOT_SUPPORTED);
	begin(&u);
	ASSERT_TRUE(fake_failed());
	ASSERT_OK(strait_queue_open(u.ctx, NULL, &q));
	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < N; i++)
			t[i] = (struct strait_transfer){ .op = STRAIT_READ,
							 .endpoint = u.ep,
							 .region = u.r,
							 .endpoint_offset = i * 70001,
							 .region_offset = i * 65536,
							 .length = 5000 + i,
							 .user_data = i };
		atomic_store(&armed, round == 1);
		ASSERT_OK(strait_queue_submit(q, t, N));
		ASSERT_EQ(strait_queue_wait(q, N, N, STRAIT_FOREVER, res), N);
		ASSERT_FALSE(atomic_load(&armed));
		for (int i = 0; i < N; i++) {
			uint64_t k = res[i].user_data;

			ASSERT_EQ(res[i].status, 0);
			ASSERT_LE(res[i].bytes, 5000 + k);
			if (round)
				continue;
			ASSERT_EQ(res[i].bytes, 5000 + k);
			ASSERT_EQ(res[i].routes, ROUTE(PAGECACHE));
			region_expect(u.r, k * 65536, u.want + k * 70001, 5000 + k);
		}
	}
	ASSERT_EQ(fake_launches(), 0);
	strait_queue_close(q);
	end(&u);
}
