/* SPDX-License-Identifier: MIT */
/* Transfers by two routes at the same time: one thread registers page cache while others read it. */
#include "common.h"

#define LEN (MIB(26) + 123)

static struct {
	atomic_uint calls;
	unsigned int nth, more;
	int64_t ret;
	unsigned int delay_register, delay_read; /* in ms */
} plan;

/* How many calls have failed as planned, and how many reads there were in this transfer. */
static atomic_uint planned, reads;

/* Registering takes long, so that readers reach the window, pass it or wait for it: until one has read, on a busy machine. */
static void delay_register(void)
{
	unsigned int ms = 0;

	do {
		sleep_ms(plan.delay_register);
		ms += plan.delay_register;
	} while (!plan.delay_read && !atomic_load(&reads) && ms < 2000);
}

static bool slow_register(enum os_call call, int64_t *ret)
{
	unsigned int n;

	if (call == OS_PREAD) {
		atomic_fetch_add(&reads, 1);
		if (plan.delay_read)
			sleep_ms(plan.delay_read);
	}
	if (call != OS_MADVISE)
		return false;
	n = atomic_fetch_add(&plan.calls, 1) + 1;
	if (plan.delay_register)
		delay_register();
	if (n < plan.nth || n - plan.nth > plan.more)
		return false;
	atomic_fetch_add(&planned, 1);
	*ret = plan.ret;
	return true;
}

static const struct variant {
	const char *name;
	unsigned int threads;
	uint64_t pool;
	unsigned int delay_register, delay_read;
} variants[] = {
	{ "quick", 3, 0, 0, 0 },     { "slow-registering", 3, 0, 20, 0 }, { "slow-reading", 3, 0, 0, 1 },
	{ "one-chunk", 3, 1, 5, 0 }, { "one-thread", 1, 0, 0, 0 },	  { "both-slow", 4, MIB(2), 5, 1 },
};

struct rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *r;
	struct strait_endpoint *ep;
	unsigned char *want;
};

static void rig_open(struct rig *g, const struct variant *v)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = v->threads, .pool_bytes = v->pool };

	g->ctx = context_new(&opts);
	g->dev = device_named(g->ctx, "emu");
	g->r = region_new(g->dev, LEN);
	g->ep = file_new(g->ctx, make_file("file", LEN, 1), O_RDONLY, 0);
	g->want = pattern_new(0, LEN, 1);
	plan.delay_register = v->delay_register;
	plan.delay_read = v->delay_read;
	/* The memory of the pool is prepared by the same call as pages are: do not count it. */
	ASSERT_EQ(strait_read(g->ep, 0, g->r, 0, 100), 100);
	/* A GPU is ready to register after the first read that demands it. */
	ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), g->ep, 0, g->r, 0, 4096).bytes, 4096);
}

static void rig_close(struct rig *g)
{
	strait_endpoint_close(g->ep);
	strait_region_close(g->r);
	strait_context_close(g->ctx);
	free(g->want);
}

static struct strait_result run(struct rig *g, unsigned int nth, unsigned int more, int64_t ret, uint64_t off)
{
	struct strait_result res;

	ASSERT_OK(strait_region_fill(g->r, 0, 0x5d, LEN));
	plan.nth = nth;
	plan.more = more;
	plan.ret = ret;
	atomic_store(&plan.calls, 0);
	atomic_store(&reads, 0);
	os_inject = slow_register;
	res = move(STRAIT_READ, 0, g->ep, off, g->r, 0, LEN - off);
	os_inject = NULL;
	return res;
}

TEST_VARIANTS(both_routes_carry_bytes, struct variant, variants)
{
	bool staged = false, pagecache = false;
	struct rig g;

	rig_open(&g, v);
	for (uint64_t off = 0; off<20000; off += test_slow()> 4 ? 13999 : 4999) {
		struct strait_result res = run(&g, UINT32_MAX, 0, 0, off);

		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, LEN - off);
		ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_STAGED] + res.route_bytes[STRAIT_ROUTE_PAGECACHE], LEN - off);
		region_expect(g.r, 0, g.want + off, LEN - off);
		staged |= res.route_bytes[STRAIT_ROUTE_STAGED] != 0;
		pagecache |= res.route_bytes[STRAIT_ROUTE_PAGECACHE] != 0;
	}
	/* Where both routes are possible the faster thread decides; these cases allow one. */
	if (v->threads == 1 || v->delay_read)
		ASSERT_TRUE(pagecache);
	if (v->threads > 1 && v->delay_register && !v->delay_read)
		ASSERT_TRUE(staged);
	ASSERT_EQ(stats_of(g.ctx).registered_bytes, 0);
	rig_close(&g);
}

/* Registering a window fails, before or after readers have reached it. */
TEST_VARIANTS(registering_fails, struct variant, variants)
{
	static const int64_t rets[] = { -EFAULT, -ENOMEM, -EOPNOTSUPP };
	struct rig g;

	rig_open(&g, v);
	for (size_t i = 0; i < ARRAY_SIZE(rets); i++) {
		for (unsigned int nth = 1; nth <= 4; nth++) {
			struct strait_result res;

			/* Where the test takes long, one of each: the first, the second, all from the fourth on. */
			if (test_slow() > 4 && nth != (i == 2 ? 4 : i + 1))
				continue;
			res = run(&g, nth, nth == 4 ? UINT32_MAX : 0, rets[i], nth * 777);
			ASSERT_EQ(res.status, 0);
			ASSERT_EQ(res.bytes, LEN - nth * 777);
			region_expect(g.r, 0, g.want + nth * 777, res.bytes);
		}
	}
	/* Where both routes are possible, readers may have been faster each time. */
	if (v->threads == 1 || v->delay_read)
		ASSERT_GT(atomic_load(&planned), 0);
	rig_close(&g);
}

/* A read fails while windows ahead of it are being registered. */
static unsigned int fail_at;

static bool failing_read(enum os_call call, int64_t *ret)
{
	if (call != OS_PREAD)
		return slow_register(call, ret);
	if (atomic_fetch_add(&reads, 1) + 1 < fail_at)
		return false;
	atomic_fetch_add(&planned, 1);
	*ret = -EIO;
	return true;
}

TEST_VARIANTS(reading_fails, struct variant, variants)
{
	struct rig g;

	rig_open(&g, v);
	for (fail_at = 1; fail_at<40; fail_at += test_slow()> 4 ? 17 : 6) {
		struct strait_result res;

		ASSERT_OK(strait_region_fill(g.r, 0, 0x5d, LEN));
		atomic_store(&reads, 0);
		atomic_store(&plan.calls, 0);
		plan.nth = UINT32_MAX;
		os_inject = failing_read;
		res = move(STRAIT_READ, 0, g.ep, 0, g.r, 0, LEN);
		os_inject = NULL;
		ASSERT_EQ(res.status, res.bytes == LEN ? 0 : -EIO);
		region_expect(g.r, 0, g.want, res.bytes);
		region_expect_byte(g.r, res.bytes, 0x5d, LEN - res.bytes);
	}
	if (v->threads > 1 && v->delay_register && !v->delay_read)
		ASSERT_GT(atomic_load(&planned), 0);
	rig_close(&g);
}

TEST_WHERE(ended_early, where_emulated)

/* A device error or a deadline: nothing stays registered, and the next transfer succeeds. */
TEST_VARIANTS(ended_early, struct variant, variants)
{
	struct strait_emu_model slow = { .size = sizeof(slow), .bytes_per_second = MIB(400) };
	struct strait_emu_model fast = { .size = sizeof(fast) };
	unsigned int early = 0;
	struct rig g;

	rig_open(&g, v);
	for (int i = 0; i < (test_slow() > 4 ? 2 : 6); i++) {
		struct strait_transfer t = { .endpoint = g.ep, .region = g.r, .length = LEN };
		struct strait_result res;

		if (i % 2) {
			emu_inject_copy_error(g.dev, i * 3, -EIO);
			strait_transfer_run(&t, STRAIT_FOREVER, &res);
			emu_inject_copy_error(g.dev, INT64_MAX, 0);
			if (res.bytes < LEN)
				ASSERT_EQ(res.status, -EIO);
		} else {
			ASSERT_OK(strait_emu_set_model(g.dev, &slow));
			strait_transfer_run(&t, 4000000 * (i + 1), &res);
			ASSERT_OK(strait_emu_set_model(g.dev, &fast));
			if (res.bytes < LEN)
				ASSERT_EQ(res.status, -ETIMEDOUT);
		}
		early += res.bytes < LEN;
		region_expect(g.r, 0, g.want, res.bytes);
		res = run(&g, UINT32_MAX, 0, 0, 0);
		ASSERT_EQ(res.status, 0);
		region_expect(g.r, 0, g.want, LEN);
	}
	ASSERT_GT(early, 0);
	rig_close(&g);
}
