/* SPDX-License-Identifier: MIT */
/* Offers of a client that its server has: as many as there are slots. */
#include <errno.h>
#include <strait/device.h>
#include <strait/region.h>

#include "base/util.h"
#include "service/rdma_client.h"

static int stage_alloc(struct strait_rdma_client *c)
{
	struct strait_device *host;
	int rc;

	if (c->stage)
		return 0;
	rc = strait_device_find(c->ctx, "host", &host);
	if (!rc)
		rc = strait_region_alloc(host, WINDOW_BYTES * WINDOWS, &c->stage);
	return rc ? rc : strait_region_map(c->stage, &c->stage_cpu);
}

static void close_offer(struct client_offer *o)
{
	strait_rdma_offer_close(o->offer);
	*o = (struct client_offer){ 0 };
}

void client_offers_close(struct strait_rdma_client *c)
{
	for (unsigned int i = 0; i < PROTO_SLOTS; i++)
		close_offer(&c->offer[i]);
}

/* One stage serves all regions: its parts are in use during a call only. */
static int offer_stage(struct strait_rdma_client *c, struct client_offer *o)
{
	int rc = stage_alloc(c);

	for (unsigned int i = 0; i < PROTO_SLOTS; i++)
		if (c->offer[i].staged)
			close_offer(&c->offer[i]);
	o->staged = true;
	return rc ? rc :
		    strait_rdma_offer(c->session, c->stage, 0, WINDOW_BYTES * WINDOWS, o->rights, STRAIT_FOREVER,
				      &o->offer);
}

static int make_offer(struct strait_rdma_client *c, struct client_offer *o)
{
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_rdma_info session = { .size = sizeof(session) };
	int rc = strait_region_info(o->region, &info);

	if (rc)
		return rc;
	rc = strait_rdma_offer(c->session, o->region, 0, info.length, o->rights, STRAIT_FOREVER, &o->offer);
	/* Why not, for the result. */
	if ((rc == -EOPNOTSUPP || rc == -ENOMEM) && !strait_rdma_info(c->session, &session))
		strait_rdma_probe(session.nic, o->region, &o->reach);
	return rc == -EOPNOTSUPP ? offer_stage(c, o) : rc;
}

/* The slot of the offer, or the one to use for it. */
static uint32_t find_slot(const struct strait_rdma_client *c, const struct strait_region *region, uint32_t rights)
{
	uint32_t oldest = 0;

	for (uint32_t i = 0; i < PROTO_SLOTS; i++) {
		const struct client_offer *o = &c->offer[i];

		if (o->offer && o->region == region && o->rights == rights)
			return i;
		if (o->last_used < c->offer[oldest].last_used)
			oldest = i;
	}
	return oldest;
}

int client_offer_get(struct strait_rdma_client *c, struct strait_region *region, uint32_t rights, int64_t timeout_ns,
		     bool *made, struct strait_rdma_reach *reach, uint32_t *slot)
{
	struct strait_rdma_reach direct = { .size = sizeof(direct) };
	struct proto_request q = { .op = PROTO_OFFER, .slot = find_slot(c, region, rights) };
	struct client_offer *o = &c->offer[q.slot], next = { .region = region, .rights = rights };
	struct proto_reply r;
	int rc;

	*slot = q.slot;
	*made = !o->offer || o->region != region || o->rights != rights;
	if (!*made) {
		o->last_used = ++c->uses;
		*reach = o->reach;
		return 0;
	}
	/* Memory of two regions need not be locked at once where one slot is left. */
	close_offer(o);
	next.reach.size = sizeof(next.reach);
	rc = make_offer(c, &next);
	*reach = next.reach;
	if (!rc)
		rc = strait_rdma_offer_text(next.offer, q.offer, &direct);
	if (!rc)
		rc = client_call(c, &q, timeout_ns, &r);
	if (rc) {
		close_offer(&next);
		return rc;
	}
	if (!next.staged)
		*reach = next.reach = direct;
	next.last_used = ++c->uses;
	*o = next;
	return 0;
}
