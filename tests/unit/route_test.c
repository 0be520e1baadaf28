/* SPDX-License-Identifier: MIT */
/* The function that chooses a route: facts in, decision and reasons out. */
#include "engine/route.h"

#include <errno.h>

#include "base/util.h"
#include "harness/harness.h"

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
						 .direct_why = "because" };
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
	/* what comes out */
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
	{ "small-and-kept", &plain, false, true, true, true, STRAIT_READ, 0, 100, 100, PAGECACHE | STAGED,
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

TEST_VARIANTS(decides, struct row, rows)
{
	struct route_facts f = { .host_memory = v->host,
				 .can_register_file = v->reg,
				 .device = "emu:0",
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

	/* Every route gets a reason, usable ones no error, and each text fits its field. */
	memset(verdict, 0xff, sizeof(verdict));
	route_explain(&f, &d, verdict);
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
		const struct strait_route_verdict *w = &verdict[r];
		bool possible = d.possible & STRAIT_ROUTE_MASK(r),
		     asked = !v->routes || (v->routes & STRAIT_ROUTE_MASK(r));

		ASSERT_EQ(w->usable, possible);
		ASSERT_NE(w->why[0], '\0');
		ASSERT_LT(strnlen(w->why, sizeof(w->why)), sizeof(w->why) - 1);
		ASSERT_LT(strnlen(w->fix, sizeof(w->fix)), sizeof(w->fix) - 1);
		if (possible && asked)
			ASSERT_EQ(w->code, 0);
		else
			ASSERT_LT(w->code, 0);
	}
}
