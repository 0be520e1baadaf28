/* SPDX-License-Identifier: MIT */
/* Which route is taken, that it is the required or predicted one, and that all is counted. */
#include "common.h"

#define LEN (MIB(16))

static struct strait_context *ctx;
static struct strait_endpoint *ep;
static struct strait_region *dev_region, *host_region;
static const char *path;
static unsigned char *want;

static void begin(int oflags, uint32_t flags)
{
	ctx = context_new(NULL);
	path = strdup(make_file("file", LEN, 1));
	want = pattern_new(0, LEN, 1);
	ep = file_new(ctx, path, oflags, flags);
	dev_region = region_new(device_named(ctx, "emu"), LEN);
	host_region = region_new(device_named(ctx, "host"), LEN);
}

static void end(void)
{
	strait_region_close(dev_region);
	strait_region_close(host_region);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(want);
	free((char *)path);
}

static struct strait_route_report query(uint32_t op, uint32_t routes, struct strait_region *r, uint64_t off,
					uint64_t len)
{
	struct strait_transfer t = {
		.op = op, .routes = routes, .endpoint = ep, .region = r, .endpoint_offset = off, .length = len
	};
	struct strait_route_report rep = { .size = sizeof(rep) };

	ASSERT_OK(strait_route_query(&t, &rep));
	return rep;
}

TEST(names)
{
	ASSERT_STREQ(strait_route_name(STRAIT_ROUTE_P2P), "p2p");
	ASSERT_STREQ(strait_route_name(STRAIT_ROUTE_PAGECACHE), "pagecache");
	ASSERT_STREQ(strait_route_name(STRAIT_ROUTE_STAGED), "staged");
	ASSERT_STREQ(strait_route_name(STRAIT_ROUTE_HOST), "host");
	ASSERT_STREQ(strait_route_name(STRAIT_ROUTE_COUNT), "none");
	ASSERT_STREQ(strait_route_name(-1), "none");
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
		ASSERT_EQ(strait_route_parse(strait_route_name(r)), r);
	ASSERT_EQ(strait_route_parse("none"), -EINVAL);
	ASSERT_EQ(strait_route_parse(""), -EINVAL);
	ASSERT_EQ(strait_route_parse(NULL), -EINVAL);
}

/* Half of the file cached: one transfer uses two routes. */
TEST(a_half_cached_file_uses_two_routes)
{
	static const uint32_t masks[] = { 0, ROUTE(STAGED), ROUTE(STAGED) | ROUTE(PAGECACHE) };

	begin(O_RDONLY, 0);
	if (!(file_info(ep).caps & STRAIT_FILE_CAN_DIRECT))
		SKIP("%s", strait_reason_text(file_info(ep).direct_reason));
	for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
		uint64_t before = stats_of(ctx).direct_bytes, direct;
		struct strait_route_report rep;
		struct strait_result res;

		warm(path);
		if (!evict(path, LEN / 2, LEN / 4) || cached(path, 0, LEN) != LEN - LEN / 4)
			SKIP("pages cannot be evicted here");
		rep = query(STRAIT_READ, masks[i], dev_region, 0, LEN);
		ASSERT_EQ(rep.cached_bytes, LEN - LEN / 4);
		ASSERT_OK(strait_region_fill(dev_region, 0, 0, LEN));
		res = move(STRAIT_READ, masks[i], ep, 0, dev_region, 0, LEN);
		ASSERT_EQ(res.bytes, LEN);
		region_expect(dev_region, 0, want, LEN);
		direct = stats_of(ctx).direct_bytes - before;
		ASSERT_EQ(direct, LEN / 4);
		ASSERT_EQ(res.routes & ~rep.mask, 0);
		ASSERT_GE(res.route_bytes[STRAIT_ROUTE_STAGED], LEN / 4);
		/* Direct I/O did not change the page cache. */
		ASSERT_LE(cached(path, LEN / 2, LEN / 4), LEN / 16);
	}
	end();
}

TEST(required_routes_are_the_only_ones_taken)
{
	begin(O_RDWR, 0);
	for (int k = 0; k < 2; k++) {
		for (uint64_t len = 100; len <= LEN; len = len < LEN ? min_u64(len * 20, LEN) : LEN + 1) {
			struct strait_result res;

			if (k)
				evict(path, 0, 0);
			res = move(STRAIT_READ, ROUTE(STAGED), ep, 0, dev_region, 0, len);
			ASSERT_EQ(res.status, 0);
			ASSERT_EQ(res.routes, ROUTE(STAGED));
			ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_STAGED], len);
			if (k)
				evict(path, 0, 0);
			res = move(STRAIT_READ, ROUTE(PAGECACHE), ep, 0, dev_region, 0, len);
			ASSERT_EQ(res.status, 0);
			ASSERT_EQ(res.routes, ROUTE(PAGECACHE));
			ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_PAGECACHE], len);
			res = move(STRAIT_READ, ROUTE(HOST), ep, 0, host_region, 0, len);
			ASSERT_EQ(res.status, 0);
			ASSERT_EQ(res.routes, ROUTE(HOST));
			res = move(STRAIT_WRITE, ROUTE(STAGED) | ROUTE(PAGECACHE), ep, 0, dev_region, 0, len);
			ASSERT_EQ(res.status, 0);
			ASSERT_EQ(res.routes, ROUTE(STAGED));
		}
	}
	file_expect(path, 0, want, LEN);
	end();
}

TEST(impossible_routes_are_refused)
{
	static const uint64_t lens[] = { 0, 100, LEN };

	begin(O_RDWR, 0);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		uint64_t len = lens[i];
		struct strait_stats before = stats_of(ctx), after;

		ASSERT_OK(strait_region_fill(dev_region, 0, 9, LEN));
		ASSERT_EQ(move(STRAIT_READ, ROUTE(P2P), ep, 0, dev_region, 0, len).status, -EOPNOTSUPP);
		ASSERT_EQ(move(STRAIT_WRITE, ROUTE(P2P), ep, 0, dev_region, 0, len).status, -EOPNOTSUPP);
		ASSERT_EQ(move(STRAIT_READ, ROUTE(HOST), ep, 0, dev_region, 0, len).status, -EOPNOTSUPP);
		ASSERT_EQ(move(STRAIT_READ, ROUTE(HOST) | ROUTE(P2P), ep, 0, dev_region, 0, len).status, -EOPNOTSUPP);
		ASSERT_EQ(move(STRAIT_WRITE, ROUTE(PAGECACHE), ep, 0, dev_region, 0, len).status, -EOPNOTSUPP);
		ASSERT_EQ(move(STRAIT_READ, ROUTE(STAGED), ep, 0, host_region, 0, len).status, -EOPNOTSUPP);
		ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), ep, 0, host_region, 0, len).status, -EOPNOTSUPP);
		region_expect_byte(dev_region, 0, 9, LEN);
		file_expect(path, 0, want, LEN);
		after = stats_of(ctx);
		ASSERT_EQ(after.errors - before.errors, 7);
		ASSERT_EQ(after.transfers - before.transfers, 7);
		for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
			ASSERT_EQ(after.route[r].transfers, before.route[r].transfers);
	}
	end();
}

static void no_route(uint32_t op, uint32_t routes, struct strait_region *r)
{
	struct strait_route_report rep = query(op, routes, r, 0, LEN);

	ASSERT_EQ(rep.route, -1);
	ASSERT_EQ(rep.mask, 0);
	for (int i = 0; i < STRAIT_ROUTE_COUNT; i++) {
		ASSERT_NE(rep.verdict[i].reason, STRAIT_WHY_NONE);
		if (routes & STRAIT_ROUTE_MASK(i))
			ASSERT_EQ(rep.verdict[i].code, move(op, routes, ep, 0, r, 0, LEN).status);
	}
}

TEST(explanations)
{
	struct strait_route_report rep;
	struct strait_endpoint *rw;

	begin(O_RDONLY, 0);
	rw = ep;
	rep = query(STRAIT_READ, 0, dev_region, 0, LEN);
	if (access("/dev/strait", F_OK)) {
		ASSERT_FALSE(rep.verdict[STRAIT_ROUTE_P2P].usable);
		ASSERT_EQ(rep.verdict[STRAIT_ROUTE_P2P].code, -EOPNOTSUPP);
		ASSERT_EQ(rep.verdict[STRAIT_ROUTE_P2P].reason, STRAIT_WHY_NO_MODULE);
		ASSERT_LT(rep.verdict[STRAIT_ROUTE_P2P].error, 0);
		ASSERT_NE(strait_route_verdict_fix(&rep.verdict[STRAIT_ROUTE_P2P])[0], '\0');
	}
	ASSERT_TRUE(rep.verdict[STRAIT_ROUTE_STAGED].usable);
	ASSERT_EQ(rep.verdict[STRAIT_ROUTE_STAGED].code, 0);
	ASSERT_TRUE(rep.verdict[STRAIT_ROUTE_PAGECACHE].usable);
	ASSERT_EQ(rep.verdict[STRAIT_ROUTE_HOST].reason, STRAIT_WHY_NOT_HOST);
	/* Not requested is a different reason than not possible. */
	rep = query(STRAIT_READ, ROUTE(STAGED), dev_region, 0, LEN);
	ASSERT_EQ(rep.mask, ROUTE(STAGED));
	ASSERT_TRUE(rep.verdict[STRAIT_ROUTE_PAGECACHE].usable);
	ASSERT_EQ(rep.verdict[STRAIT_ROUTE_PAGECACHE].reason, STRAIT_WHY_NOT_REQUESTED);
	rep = query(STRAIT_READ, 0, host_region, 0, LEN);
	ASSERT_EQ(rep.route, STRAIT_ROUTE_HOST);
	ASSERT_EQ(rep.mask, ROUTE(HOST));
	/* Not open for writing. */
	no_route(STRAIT_WRITE, 0, dev_region);
	ASSERT_EQ(query(STRAIT_WRITE, 0, dev_region, 0, 1).verdict[STRAIT_ROUTE_STAGED].code, -EBADF);
	ep = file_new(ctx, path, O_RDWR, 0);
	no_route(STRAIT_READ, ROUTE(P2P), dev_region);
	no_route(STRAIT_WRITE, ROUTE(PAGECACHE), dev_region);
	no_route(STRAIT_READ, ROUTE(HOST), dev_region);
	no_route(STRAIT_READ, ROUTE(STAGED) | ROUTE(P2P), host_region);
	strait_endpoint_close(rw);
	end();
}

/* The transfer takes the route that the query predicted, in cases with one outcome. */
TEST(the_answer_is_what_happens)
{
	static const uint64_t lens[] = { 1, 4096, KIB(64), KIB(64) + 1, MIB(1), LEN };

	begin(O_RDWR, 0);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		for (int k = 0; k < 4; k++) {
			struct strait_region *r = k == 3 ? host_region : dev_region;
			uint32_t op = k == 2 ? STRAIT_WRITE : STRAIT_READ;
			struct strait_route_report rep;
			struct strait_result res;

			if (k == 1 && !evict(path, 0, 0))
				continue;
			if (k == 0)
				warm(path);
			rep = query(op, 0, r, 0, lens[i]);
			if (k == 0)
				ASSERT_EQ(rep.cached_bytes, lens[i]);
			if (k == 1)
				ASSERT_EQ(rep.cached_bytes, 0);
			res = move(op, 0, ep, 0, r, 0, lens[i]);
			ASSERT_EQ(res.status, 0);
			ASSERT_EQ(res.routes & ~rep.mask, 0);
			/* Of several routes, some may carry nothing. */
			if (is_pow2(rep.mask))
				ASSERT_EQ(res.routes, rep.mask);
			ASSERT_TRUE(rep.mask & STRAIT_ROUTE_MASK(rep.route));
			ASSERT_EQ(lens[i] <= KIB(64) ? rep.mask & ROUTE(PAGECACHE) : 0, 0);
		}
	}
	/* Past the end no route carries anything. */
	ASSERT_EQ(query(STRAIT_READ, 0, dev_region, LEN, 100).cached_bytes, 0);
	end();
}

TEST(asking_about_a_device)
{
	struct strait_route_report rep = { .size = sizeof(rep) };
	struct strait_context *other = context_new(NULL);

	begin(O_RDONLY, 0);
	warm(path);
	ASSERT_OK(strait_route_query_device(ep, device_named(ctx, "emu"), STRAIT_READ, &rep));
	ASSERT_EQ(rep.cached_bytes, LEN);
	ASSERT_EQ(rep.route, STRAIT_ROUTE_PAGECACHE);
	ASSERT_OK(strait_route_query_device(ep, device_named(ctx, "host"), STRAIT_READ, &rep));
	ASSERT_EQ(rep.route, STRAIT_ROUTE_HOST);
	ASSERT_OK(strait_route_query_device(ep, device_named(ctx, "emu"), STRAIT_WRITE, &rep));
	ASSERT_EQ(rep.route, -1);
	ASSERT_EQ(strait_route_query_device(ep, device_named(ctx, "emu"), 2, &rep), -EINVAL);
	ASSERT_EQ(strait_route_query_device(ep, device_named(other, "emu"), STRAIT_READ, &rep), -EINVAL);
	ASSERT_EQ(strait_route_query_device(NULL, device_named(ctx, "emu"), STRAIT_READ, &rep), -EINVAL);
	ASSERT_EQ(strait_route_query_device(ep, NULL, STRAIT_READ, &rep), -EINVAL);
	ASSERT_EQ(strait_route_query_device(ep, device_named(ctx, "emu"), STRAIT_READ, NULL), -EINVAL);
	strait_context_close(other);
	end();
}

TEST(counters_add_up)
{
	struct strait_stats all = stats_of(NULL), one, sum = { .size = sizeof(sum) };
	uint64_t state = 1, moved[2] = { 0, 0 }, n[2] = { 0, 0 }, rounds = 0;
	struct strait_context *others[2];

	begin(O_RDWR, 0);
	others[0] = ctx;
	for (int k = 0; k < 2; k++) {
		if (k) {
			others[1] = context_new(NULL);
			strait_region_close(dev_region);
			strait_endpoint_close(ep);
			ep = file_new(others[1], path, O_RDWR, 0);
			dev_region = region_new(device_named(others[1], "emu"), LEN);
		}
		for (int i = 0; i < 30; i++) {
			uint32_t op = i % 3 == 0;
			uint64_t len = prng_below(&state, i % 2 ? LEN : KIB(64)) + 1;

			ASSERT_EQ(move(op, 0, ep, 0, dev_region, 0, len).bytes, len);
			moved[op] += len;
			n[op]++;
			rounds++;
		}
		move(STRAIT_READ, ROUTE(P2P), ep, 0, dev_region, 0, 1);
	}
	for (int k = 0; k < 2; k++) {
		one = stats_of(others[k]);
		ASSERT_EQ(one.transfers, rounds / 2 + 1);
		ASSERT_EQ(one.errors, 1);
		ASSERT_EQ(one.canceled, 0);
		ASSERT_GT(one.small, 0);
		ASSERT_GT(one.pool_bytes, 0);
		for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
			sum.route[r].read_bytes += one.route[r].read_bytes;
			sum.route[r].write_bytes += one.route[r].write_bytes;
		}
	}
	/* Where the drive reaches the device's memory, what has left the page cache meanwhile goes by route p2p. */
	ASSERT_EQ(sum.route[STRAIT_ROUTE_STAGED].read_bytes + sum.route[STRAIT_ROUTE_PAGECACHE].read_bytes +
			  sum.route[STRAIT_ROUTE_P2P].read_bytes,
		  moved[0]);
	ASSERT_EQ(sum.route[STRAIT_ROUTE_STAGED].write_bytes + sum.route[STRAIT_ROUTE_P2P].write_bytes, moved[1]);
	ASSERT_EQ(sum.route[STRAIT_ROUTE_PAGECACHE].write_bytes, 0);
	ASSERT_EQ(sum.route[STRAIT_ROUTE_HOST].read_bytes + sum.route[STRAIT_ROUTE_HOST].write_bytes, 0);
	one = stats_of(NULL);
	ASSERT_EQ(one.transfers - all.transfers, rounds + 2);
	ASSERT_EQ(one.errors - all.errors, 2);
	ASSERT_EQ(one.route[STRAIT_ROUTE_STAGED].write_bytes - all.route[STRAIT_ROUTE_STAGED].write_bytes +
			  one.route[STRAIT_ROUTE_P2P].write_bytes - all.route[STRAIT_ROUTE_P2P].write_bytes,
		  moved[1]);
	ctx = others[0];
	strait_context_close(others[1]);
	end();
	/* Counters of closed contexts stay; memory they held is no longer counted. */
	sum = stats_of(NULL);
	ASSERT_EQ(sum.transfers, one.transfers);
	ASSERT_EQ(sum.route[STRAIT_ROUTE_STAGED].read_bytes, one.route[STRAIT_ROUTE_STAGED].read_bytes);
	ASSERT_EQ(sum.pool_bytes, 0);
	ASSERT_EQ(sum.registered_bytes, 0);
}
