/* SPDX-License-Identifier: MIT */
/* Copies of many callers, combined into lists: each caller gets its own bytes, and its own error. */
#include "fakecuda/common.h"

#define CALLERS 12
#define FILE_BYTES (MIB(6) + 123)
#define MOST MIB(2)

struct reader {
	struct strait_endpoint *ep;
	struct strait_region *r;
	const unsigned char *want;
	uint64_t seed;
	unsigned int n, failed;
	pthread_barrier_t *begin;
};

static const uint64_t lengths[] = { KIB(40), KIB(64), KIB(256), KIB(300), MIB(1), MOST };

/* A result is all of the bytes, or an error. */
static void *read_some(void *arg)
{
	struct reader *c = arg;

	pthread_barrier_wait(c->begin);
	for (unsigned int i = 0; i < c->n; i++) {
		uint64_t len = lengths[prng_below(&c->seed, ARRAY_SIZE(lengths))],
			 off = prng_below(&c->seed, FILE_BYTES);
		uint64_t have = min_u64(len, FILE_BYTES - off);
		struct strait_result res = move(STRAIT_READ, ROUTE(STAGED), c->ep, off, c->r, 0, len);

		if (res.status) {
			ASSERT_LT(res.bytes, len);
			c->failed++;
			continue;
		}
		ASSERT_EQ(res.bytes, have);
		region_expect(c->r, 0, c->want + off, have);
	}
	return NULL;
}

static unsigned int read_all(struct strait_context *ctx, struct strait_endpoint *ep, const unsigned char *want,
			     uint64_t seed, unsigned int n)
{
	struct reader c[CALLERS];
	pthread_t t[CALLERS];
	unsigned int failed = 0;
	pthread_barrier_t begin;

	pthread_barrier_init(&begin, NULL, CALLERS);
	for (unsigned int i = 0; i < CALLERS; i++) {
		c[i] = (struct reader){ .ep = ep,
					.r = region_new(device_named(ctx, "cuda:0"), MOST),
					.want = want,
					.seed = seed + i,
					.n = n,
					.begin = &begin };
		thread_start(&t[i], read_some, &c[i]);
	}
	for (unsigned int i = 0; i < CALLERS; i++) {
		thread_join(t[i]);
		failed += c[i].failed;
		strait_region_close(c[i].r);
	}
	pthread_barrier_destroy(&begin);
	return failed;
}

TEST(callers_share_lists)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_endpoint *ep = file_new(ctx, make_file("file", FILE_BYTES, 1), O_RDONLY, 0);
	unsigned char *want = pattern_new(0, FILE_BYTES, 1);

	/* Copies last so long that callers meet. Which of them do is the scheduler's decision: until some have. */
	fake_machine.copy_us = 2000;
	for (unsigned int i = 0; !i || (!fake_launches() && i < 100); i++)
		ASSERT_EQ(read_all(ctx, ep, want, 1 + CALLERS * i, 10), 0);
	ASSERT_GT(fake_launches(), 0);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(want);
	expect_clean();
}

/* A list that cannot be submitted fails those that are in it, and nothing else; also when that happens many times. */
TEST(a_list_is_refused)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_endpoint *ep = file_new(ctx, make_file("file", FILE_BYTES, 1), O_RDONLY, 0);
	unsigned char *want = pattern_new(0, FILE_BYTES, 1);
	unsigned int refused = 0;

	fake_machine.copy_us = 500;
	for (unsigned int round = 0; round < 24 || (!refused && round < 200); round++) {
		fake_fail("cuLaunchKernel", 1 + round % 5, CU_LAUNCH_OUT_OF_RESOURCES);
		refused += read_all(ctx, ep, want, 100 * round, 3) > 0;
		fake_fail(NULL, 0, 0);
		ASSERT_EQ(read_all(ctx, ep, want, 100 * round + 50, 1), 0);
	}
	ASSERT_GT(refused, 0);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(want);
	expect_clean();
}
