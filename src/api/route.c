/* SPDX-License-Identifier: MIT */
#include <strait/route.h>

#include "api/api.h"
#include "base/util.h"
#include "engine/route.h"
#include "engine/transfer/transfer.h"

static const char *const names[STRAIT_ROUTE_COUNT] = {
	[STRAIT_ROUTE_P2P] = "p2p",
	[STRAIT_ROUTE_PAGECACHE] = "pagecache",
	[STRAIT_ROUTE_STAGED] = "staged",
	[STRAIT_ROUTE_HOST] = "host",
};

STRAIT_API const char *strait_route_name(int route)
{
	return route >= 0 && route < STRAIT_ROUTE_COUNT ? names[route] : "none";
}

STRAIT_API int strait_route_parse(const char *name)
{
	API_CHECK(name);
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
		if (!strcmp(name, names[r]))
			return r;
	return -EINVAL;
}

STRAIT_API int strait_route_verdict_text(const struct strait_route_verdict *v, char *text, size_t len)
{
	const char *because, *untested = "";

	API_CHECK(v && text && len);
	because = strait_reason_text(v->because);
	/* The error does not belong to this reason: print it last. */
	if (v->because == STRAIT_WHY_NOT_ON_HARDWARE) {
		untested = because;
		because = "";
	}
	str_format(text, len, "%s%s%s%s%s%s%s", strait_reason_text(v->reason), *because ? "; " : "", because,
		   v->error ? ": " : "", v->error ? strerror(-v->error) : "", *untested ? "; " : "", untested);
	return 0;
}

STRAIT_API int strait_route_plan_text(uint32_t plan, char *text, size_t len)
{
	const bool file_io = plan & (STRAIT_PLAN_BUFFERED | STRAIT_PLAN_DIRECT);
	const char *io = "";

	API_CHECK(text && len);
	if (file_io && !(plan & STRAIT_PLAN_DIRECT))
		io = ", buffered I/O";
	else if (file_io && !(plan & STRAIT_PLAN_BUFFERED))
		io = ", direct I/O";
	else if (file_io)
		io = ", buffered I/O for cached bytes and direct I/O for the rest";
	str_format(text, len, "%s%s%s%s%s",
		   plan & STRAIT_PLAN_DRIVE ? "the drive transfers the aligned part by DMA; " : "",
		   plan & STRAIT_PLAN_REGISTERED ? "copies from cached registrations where there are any; " : "",
		   plan & STRAIT_PLAN_SMALL   ? "as one piece, on the calling thread" :
		   plan & STRAIT_PLAN_WINDOWS ? "in windows, on several threads" :
						"none",
		   plan & STRAIT_PLAN_REGISTER ? ", registering cached windows" : "", io);
	return 0;
}

STRAIT_API const char *strait_route_verdict_fix(const struct strait_route_verdict *v)
{
	const char *fix = v ? strait_reason_fix(v->reason) : "";

	return *fix || !v ? fix : strait_reason_fix(v->because);
}

static int report(const struct strait_transfer *t, struct strait_route_report *out)
{
	struct strait_route_report rep = { .size = sizeof(rep) };
	struct route_decision decision;
	struct route_facts facts;

	transfer_facts(t, true, &facts);
	route_decide(&facts, &decision);
	rep.route = decision.route;
	rep.mask = decision.mask;
	rep.plan = decision.code ? 0 : route_plan_flags(&decision.plan);
	rep.cached_bytes = facts.cached == UINT64_MAX ? 0 : facts.cached;
	route_explain(&facts, &decision, rep.verdict);
	return struct_out(out, &rep, sizeof(rep), STRAIT_ROUTE_REPORT_SIZE_V1);
}

STRAIT_API int strait_route_query(const struct strait_transfer *t, struct strait_route_report *rep)
{
	int rc;

	API_CHECK(t && rep && t->endpoint);
	API_ALIVE((struct strait_context *)t->endpoint->owner);
	rc = transfer_check(t->endpoint->owner, t);
	if (!rc)
		rc = transfer_begin(t);
	if (rc)
		return rc;
	rc = report(t, rep);
	transfer_end(t, 1);
	return rc;
}

STRAIT_API int strait_route_query_device(struct strait_endpoint *ep, struct strait_device *dev, uint32_t op,
					 struct strait_route_report *rep)
{
	/* An empty region suffices: the route depends on the device, not on the memory. */
	struct strait_region region = { .dev = dev };
	struct strait_transfer t = { .op = op, .endpoint = ep, .region = &region };
	int rc;

	API_CHECK(ep && dev && rep && op <= STRAIT_WRITE);
	API_ALIVE((struct strait_context *)ep->owner);
	API_CHECK(device_context(dev) == ep->owner);
	rc = ep->ops->length(ep, &t.length);
	if (rc)
		return rc;
	return report(&t, rep);
}
