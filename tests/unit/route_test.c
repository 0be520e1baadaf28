/* SPDX-License-Identifier: MIT */
/* The function that chooses a route: facts in, decision and reasons out. */
#include "engine/route.h"

#include <errno.h>

#include "base/util.h"
#include "harness/harness.h"
#include "uapi/strait.h"

#define P2P STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P)
#define PAGECACHE STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE)
#define STAGED STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED)
#define HOST STRAIT_ROUTE_MASK(STRAIT_ROUTE_HOST)

static const struct endpoint_facts plain = { .fs = "ext4",
					     .can_read = true,
					     .can_write = true,
					     .can_map = true,
					     .can_direct = true,
					     .can_buffered = true };
static const struct endpoint_facts read_only = { .fs = "ext4",
						 .can_read = true,
						 .can_map = true,
						 .can_buffered = true,
						 .direct_reason = STRAIT_WHY_FS_NO_DIRECT };
static const struct endpoint_facts write_only = { .fs = "ext4", .can_write = true, .can_buffered = true };
static const struct endpoint_facts direct = { .fs = "xfs",
					      .can_read = true,
					      .can_write = true,
					      .can_map = true,
					      .can_direct = true,
					      .can_buffered = true,
					      .force_direct = true };

static const struct row {
	const char *name;
	const struct endpoint_facts *ep;
	bool host, reg, small, unchanged;
	uint32_t op, routes;
	uint64_t length, cached;
	/* the result */
	uint32_t possible, mask;
	int route, code;
} rows[] = {
	{ "unknown", &plain, false, true, false, false, STRAIT_READ, 0, MIB(1), UINT64_MAX, PAGECACHE | STAGED,
	  PAGECACHE | STAGED, STRAIT_ROUTE_PAGECACHE, 0 },
	{ "all-cached", &plain, false, true, false, false, STRAIT_READ, 0, MIB(1), MIB(1), PAGECACHE | STAGED,
	  PAGECACHE | STAGED, STRAIT_ROUTE_PAGECACHE, 0 },
	{ "less-than-half", &plain, false, true, false, false, STRAIT_READ, 0, MIB(1), KIB(511), PAGECACHE | STAGED,
	  PAGECACHE | STAGED, STRAIT_ROUTE_STAGED, 0 },
	{ "not-cached", &plain, false, true, false, false, STRAIT_READ, 0, MIB(1), 0, PAGECACHE | STAGED, STAGED,
	  STRAIT_ROUTE_STAGED, 0 },
	{ "not-cached-but-required", &plain, false, true, false, false, STRAIT_READ, PAGECACHE, MIB(1), 0,
	  PAGECACHE | STAGED, PAGECACHE, STRAIT_ROUTE_PAGECACHE, 0 },
	{ "small", &plain, false, true, true, false, STRAIT_READ, 0, 100, 100, PAGECACHE | STAGED, STAGED,
	  STRAIT_ROUTE_STAGED, 0 },
	{ "small-and-required", &plain, false, true, true, false, STRAIT_READ, PAGECACHE, 100, 100, PAGECACHE | STAGED,
	  PAGECACHE, STRAIT_ROUTE_PAGECACHE, 0 },
	{ "small-and-cached", &plain, false, true, true, true, STRAIT_READ, 0, 100, 100, PAGECACHE | STAGED,
	  PAGECACHE | STAGED, STRAIT_ROUTE_STAGED, 0 },
	{ "no-registering", &plain, false, false, false, false, STRAIT_READ, 0, MIB(1), MIB(1), STAGED, STAGED,
	  STRAIT_ROUTE_STAGED, 0 },
	{ "no-registering-but-required", &plain, false, false, false, false, STRAIT_READ, PAGECACHE, MIB(1), MIB(1),
	  STAGED, 0, -1, -EOPNOTSUPP },
	{ "direct", &direct, false, true, false, false, STRAIT_READ, 0, MIB(1), MIB(1), PAGECACHE | STAGED, STAGED,
	  STRAIT_ROUTE_STAGED, 0 },
	{ "direct-but-pagecache-required", &direct, false, true, false, false, STRAIT_READ, PAGECACHE, MIB(1), MIB(1),
	  PAGECACHE | STAGED, PAGECACHE, STRAIT_ROUTE_PAGECACHE, 0 },
	{ "write", &plain, false, true, false, false, STRAIT_WRITE, 0, MIB(1), UINT64_MAX, STAGED, STAGED,
	  STRAIT_ROUTE_STAGED, 0 },
	{ "write-by-pagecache", &plain, false, true, false, false, STRAIT_WRITE, PAGECACHE, MIB(1), UINT64_MAX, STAGED,
	  0, -1, -EOPNOTSUPP },
	{ "host", &plain, true, false, false, false, STRAIT_READ, 0, MIB(1), 0, HOST, HOST, STRAIT_ROUTE_HOST, 0 },
	{ "host-write", &plain, true, false, false, false, STRAIT_WRITE, HOST, MIB(1), 0, HOST, HOST, STRAIT_ROUTE_HOST,
	  0 },
	{ "host-staged", &plain, true, false, false, false, STRAIT_READ, STAGED, MIB(1), 0, HOST, 0, -1, -EOPNOTSUPP },
	{ "device-by-host", &plain, false, true, false, false, STRAIT_READ, HOST, MIB(1), 0, PAGECACHE | STAGED, 0, -1,
	  -EOPNOTSUPP },
	{ "p2p", &plain, false, true, false, false, STRAIT_READ, P2P, MIB(1), 0, PAGECACHE | STAGED, 0, -1,
	  -EOPNOTSUPP },
	{ "p2p-or-staged", &plain, false, true, false, false, STRAIT_READ, P2P | STAGED, MIB(1), MIB(1),
	  PAGECACHE | STAGED, STAGED, STRAIT_ROUTE_STAGED, 0 },
	{ "write-to-read-only", &read_only, false, true, false, false, STRAIT_WRITE, 0, MIB(1), 0, 0, 0, -1, -EBADF },
	{ "write-to-read-only-required", &read_only, false, true, false, false, STRAIT_WRITE, STAGED, MIB(1), 0, 0, 0,
	  -1, -EBADF },
	{ "read-of-write-only", &write_only, true, false, false, false, STRAIT_READ, 0, MIB(1), 0, 0, 0, -1, -EBADF },
	{ "nothing-to-read", &plain, false, true, false, false, STRAIT_READ, 0, 0, 0, PAGECACHE | STAGED,
	  PAGECACHE | STAGED, STRAIT_ROUTE_PAGECACHE, 0 },
};

/* A line that fits, from reasons that have a text. */
static const char *expect_text(const struct strait_route_verdict *v)
{
	static char text[256];

	ASSERT_NE(strait_reason_text(v->reason)[0], '\0');
	ASSERT_EQ(!strait_reason_text(v->because)[0], !v->because);
	ASSERT_OK(strait_route_verdict_text(v, text, sizeof(text)));
	ASSERT_LT(strlen(text), sizeof(text) - 1);
	ASSERT_TRUE(strait_route_verdict_fix(v));
	return text;
}

TEST_VARIANTS(decides, struct row, rows)
{
	struct route_facts f = { .host_memory = v->host,
				 .can_register_file = v->reg,
				 .ep = v->ep,
				 .op = v->op,
				 .routes = v->routes,
				 .length = v->length,
				 .cached = v->cached,
				 .small = v->small,
				 .unchanged = v->unchanged,
				 .module = -ENOENT };
	struct strait_route_verdict verdict[STRAIT_ROUTE_COUNT];
	struct route_decision d;

	route_decide(&f, &d);
	ASSERT_EQ(d.possible, v->possible);
	ASSERT_EQ(d.mask, v->mask);
	ASSERT_EQ(d.route, v->route);
	ASSERT_EQ(d.code, v->code);
	ASSERT_EQ(d.plan.mask, v->mask);

	/* Every route gets a reason, and usable ones no error. */
	memset(verdict, 0xff, sizeof(verdict));
	route_explain(&f, &d, verdict);
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
		const struct strait_route_verdict *w = &verdict[r];
		bool possible = d.possible & STRAIT_ROUTE_MASK(r),
		     asked = !v->routes || (v->routes & STRAIT_ROUTE_MASK(r));

		ASSERT_EQ(w->usable, possible);
		ASSERT_NE(w->reason, STRAIT_WHY_NONE);
		expect_text(w);
		if (possible && asked)
			ASSERT_EQ(w->code, 0);
		else
			ASSERT_LT(w->code, 0);
	}
}

static const struct p2p_row {
	const char *name;
	enum route_reason why;
	uint32_t reason;
	uint32_t said, because;
} p2p_rows[] = {
	{ "not-asked", ROUTE_OK, 0, STRAIT_WHY_NO_MODULE, 0 },
	{ "no-module", ROUTE_NO_MODULE, 0, STRAIT_WHY_NO_MODULE, 0 },
	{ "no-pages", ROUTE_NO_PAGES, 0, STRAIT_WHY_NO_PAGES, 0 },
	{ "no-import", ROUTE_NO_IMPORT, 0, STRAIT_WHY_NO_IMPORT, 0 },
	{ "no-bridge", ROUTE_NO_BRIDGE, 0, STRAIT_WHY_NO_BRIDGE, 0 },
	{ "no-direct", ROUTE_NO_DIRECT, 0, STRAIT_WHY_NO_DIRECT, 0 },
	{ "refused", ROUTE_REFUSED, STRAIT_REASON_NOT_PCI, STRAIT_WHY_MODULE_REFUSES, STRAIT_WHY_MODULE_NOT_PCI },
	{ "refused-why-ever", ROUTE_REFUSED, 200, STRAIT_WHY_MODULE_REFUSES, STRAIT_WHY_UNKNOWN },
	{ "unverified", ROUTE_UNVERIFIED, 0, STRAIT_WHY_UNVERIFIED, 0 },
	{ "pair", ROUTE_PAIR, 0, STRAIT_WHY_NOT_ARRIVED, 0 },
	{ "unaligned", ROUTE_UNALIGNED, 0, STRAIT_WHY_UNALIGNED, 0 },
};

/* Each reason against p2p has its own text, and another route is used. */
TEST_VARIANTS(says_why_not_p2p, struct p2p_row, p2p_rows)
{
	struct route_facts f = { .ep = &plain,
				 .op = STRAIT_WRITE,
				 .length = MIB(1),
				 .cached = UINT64_MAX,
				 .module = -ENOENT,
				 .p2p_why = v->why,
				 .p2p_reason = v->reason };
	struct strait_route_verdict verdict[STRAIT_ROUTE_COUNT];
	struct route_decision d;

	route_decide(&f, &d);
	ASSERT_EQ(d.route, STRAIT_ROUTE_STAGED);
	route_explain(&f, &d, verdict);
	ASSERT_FALSE(verdict[STRAIT_ROUTE_P2P].usable);
	ASSERT_EQ(verdict[STRAIT_ROUTE_P2P].code, -EOPNOTSUPP);
	ASSERT_EQ(verdict[STRAIT_ROUTE_P2P].reason, v->said);
	ASSERT_EQ(verdict[STRAIT_ROUTE_P2P].because, v->because);
	ASSERT_EQ(verdict[STRAIT_ROUTE_P2P].error, v->said == STRAIT_WHY_NO_MODULE ? -ENOENT : 0);
	expect_text(&verdict[STRAIT_ROUTE_P2P]);
	f.routes = P2P;
	route_decide(&f, &d);
	ASSERT_EQ(d.code, -EOPNOTSUPP);
}

/* Memory through a driver that was not verified on hardware: reported until a block has arrived. */
TEST_VARIANTS(says_what_is_not_verified, struct p2p_row, p2p_rows)
{
	bool known = v->why == ROUTE_NO_DIRECT || v->why == ROUTE_REFUSED || v->why == ROUTE_PAIR ||
		     v->why == ROUTE_UNALIGNED || v->why == ROUTE_NO_PAGES;
	struct route_facts f = { .ep = &plain, .length = MIB(1), .p2p_bridged = true };
	struct strait_route_verdict verdict[STRAIT_ROUTE_COUNT];
	struct route_decision d;

	f.p2p_why = v->why;
	route_decide(&f, &d);
	route_explain(&f, &d, verdict);
	ASSERT_EQ(verdict[STRAIT_ROUTE_P2P].because != STRAIT_WHY_NOT_ON_HARDWARE, known);
	ASSERT_EQ(!strstr(expect_text(&verdict[STRAIT_ROUTE_P2P]), "not verified on hardware"), known);
	f.p2p_usable = true;
	route_decide(&f, &d);
	route_explain(&f, &d, verdict);
	ASSERT_EQ(verdict[STRAIT_ROUTE_P2P].because, STRAIT_WHY_NONE);
}

/* Every reason of the module has a number and a text. */
TEST(words_for_all_reasons_of_the_module)
{
	struct route_facts f = { .ep = &plain, .length = MIB(1), .p2p_why = ROUTE_REFUSED };
	struct strait_route_verdict verdict[STRAIT_ROUTE_COUNT], *v = &verdict[STRAIT_ROUTE_P2P];
	struct route_decision d;

	for (f.p2p_reason = 0; f.p2p_reason <= STRAIT_REASON_COUNT; f.p2p_reason++) {
		route_decide(&f, &d);
		route_explain(&f, &d, verdict);
		ASSERT_EQ(v->because, f.p2p_reason < STRAIT_REASON_COUNT ? STRAIT_WHY_MODULE_NO_REASON + f.p2p_reason :
									   STRAIT_WHY_UNKNOWN);
		ASSERT_EQ(!strstr(expect_text(v), "does not know"), f.p2p_reason < STRAIT_REASON_COUNT);
	}
	ASSERT_EQ(STRAIT_WHY_MODULE_ALIGNMENT - STRAIT_WHY_MODULE_NO_REASON, STRAIT_REASON_ALIGNMENT);
}

/* A reason of a later library: the text says so. */
TEST(a_reason_that_is_not_known)
{
	struct strait_route_verdict v = { .reason = 99999 };
	char text[8];

	ASSERT_TRUE(strstr(strait_reason_text(99999), "does not know"));
	ASSERT_STREQ(strait_reason_fix(99999), "");
	ASSERT_STREQ(strait_reason_text(STRAIT_WHY_NONE), "");
	ASSERT_OK(strait_route_verdict_text(&v, text, sizeof(text)));
	ASSERT_EQ(strlen(text), sizeof(text) - 1);
	ASSERT_EQ(strait_route_verdict_text(&v, text, 0), -EINVAL);
	ASSERT_EQ(strait_route_verdict_text(NULL, text, 8), -EINVAL);
	ASSERT_STREQ(strait_route_verdict_fix(NULL), "");
}

/* If usable it is preferred; other routes take the ends. */
TEST(p2p_comes_first)
{
	struct route_facts f = {
		.can_register_file = true, .ep = &plain, .length = MIB(1), .cached = MIB(1), .p2p_usable = true
	};
	struct strait_route_verdict verdict[STRAIT_ROUTE_COUNT];
	struct route_decision d;

	route_decide(&f, &d);
	ASSERT_EQ(d.route, STRAIT_ROUTE_P2P);
	ASSERT_EQ(d.mask, P2P | PAGECACHE | STAGED);
	route_explain(&f, &d, verdict);
	ASSERT_EQ(verdict[STRAIT_ROUTE_P2P].reason, STRAIT_WHY_DRIVE_DMA);
	ASSERT_EQ(verdict[STRAIT_ROUTE_STAGED].reason, STRAIT_WHY_ENDS);
	/* Unless most of the range is cached; if required, it is used nevertheless. */
	f.p2p_cached = true;
	route_decide(&f, &d);
	ASSERT_EQ(d.route, STRAIT_ROUTE_PAGECACHE);
	route_explain(&f, &d, verdict);
	ASSERT_TRUE(verdict[STRAIT_ROUTE_P2P].usable);
	ASSERT_EQ(verdict[STRAIT_ROUTE_P2P].code, 0);
	ASSERT_EQ(verdict[STRAIT_ROUTE_P2P].reason, STRAIT_WHY_CACHED);
	f.routes = P2P;
	route_decide(&f, &d);
	ASSERT_EQ(d.mask, P2P);
	f.p2p_cached = false;
	f.routes = STAGED;
	route_decide(&f, &d);
	ASSERT_EQ(d.mask, STAGED);
	f.routes = 0;
	f.host_memory = true;
	route_decide(&f, &d);
	ASSERT_EQ(d.mask, HOST);
}

/* What executors do without looking at the facts again. */
TEST(plans)
{
	struct route_facts f = { .can_register_file = true, .ep = &plain, .length = MIB(64), .cached = UINT64_MAX };
	char text[256];
	struct route_decision d;

	/* A cached file: one lane registers, the other lanes read. */
	route_decide(&f, &d);
	ASSERT_TRUE(d.plan.mixed && d.plan.regcache && d.plan.coalesced && !d.plan.small && !d.plan.self_dma);
	ASSERT_EQ(d.plan.registers, ROUTE_REGISTER_CACHED);
	ASSERT_EQ(route_plan_flags(&d.plan) & (STRAIT_PLAN_WINDOWS | STRAIT_PLAN_REGISTER | STRAIT_PLAN_SMALL),
		  STRAIT_PLAN_WINDOWS | STRAIT_PLAN_REGISTER);
	/* An immutable file: registrations are reused, so no lane reads beside them. */
	f.unchanged = true;
	route_decide(&f, &d);
	ASSERT_TRUE(!d.plan.mixed && d.plan.regcache);
	/* Only pagecache is allowed. */
	f.routes = PAGECACHE;
	route_decide(&f, &d);
	ASSERT_EQ(d.plan.registers, ROUTE_REGISTER_ALL);
	ASSERT_FALSE(d.plan.mixed || d.plan.coalesced);
	/* pagecache is not allowed. */
	f.routes = STAGED;
	route_decide(&f, &d);
	ASSERT_FALSE(d.plan.regcache || d.plan.mixed);
	ASSERT_EQ(d.plan.registers, ROUTE_REGISTER_NONE);
	/* Direct I/O was requested. */
	f.routes = 0;
	f.ep = &direct;
	route_decide(&f, &d);
	ASSERT_EQ(d.plan.io, ROUTE_IO_DIRECT);
	ASSERT_FALSE(d.plan.regcache || d.plan.mixed);
	f.op = STRAIT_WRITE;
	route_decide(&f, &d);
	ASSERT_EQ(d.plan.io, ROUTE_IO_DIRECT);
	f.ep = &plain;
	route_decide(&f, &d);
	ASSERT_EQ(d.plan.io, ROUTE_IO_BUFFERED);
	ASSERT_EQ(d.plan.registers, ROUTE_REGISTER_NONE);
	/* The drive moves the bytes: alone, and with another route for the ends. */
	f = (struct route_facts){ .ep = &plain, .length = MIB(1), .cached = UINT64_MAX, .p2p_usable = true };
	route_decide(&f, &d);
	ASSERT_TRUE(d.plan.self_dma && !d.plan.coalesced);
	ASSERT_TRUE(route_plan_flags(&d.plan) & STRAIT_PLAN_WINDOWS);
	f.routes = P2P;
	route_decide(&f, &d);
	ASSERT_EQ(route_plan_flags(&d.plan), STRAIT_PLAN_DRIVE);
	/* Every plan has a text that fits. */
	for (uint32_t plan = 0; plan < 1u << 7; plan++) {
		ASSERT_OK(strait_route_plan_text(plan, text, sizeof(text)));
		ASSERT_TRUE(text[0] && strlen(text) < sizeof(text) - 1);
	}
	ASSERT_EQ(strait_route_plan_text(0, NULL, 0), -EINVAL);
}
