/* SPDX-License-Identifier: MIT */
/* Registrations and offers of a session, and their end before memory is freed. */
#include <stdlib.h>

#include "base/util.h"
#include "endpoint/rdma/mac.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"

#define NS_PER_MS 1000000u

static int make(struct strait_rdma_session *s, struct strait_region *r, uint64_t off, uint64_t len, int access,
		struct registration **ret)
{
	struct registration *reg = calloc(1, sizeof(*reg));
	int rc;

	if (!reg)
		return -ENOMEM;
	rc = ladder_register(s->pd, r, off, len, IBV_ACCESS_LOCAL_WRITE | access, reg);
	if (rc) {
		if (rc == -ENOMEM)
			log_error(s->log, "rdma: the region cannot be registered: %s", reg->reach.reason);
		else
			log_info(s->log, "rdma: the region cannot be registered: %s", reg->reach.reason);
		free(reg);
		return rc;
	}
	reg->region = r;
	reg->offset = off;
	reg->length = len;
	reg->offered = access;
	list_add(&s->regs, &reg->node);
	atomic_fetch_add(&s->registrations, 1);
	*ret = reg;
	return 0;
}

/* A device that does not deregister memory must not access it: without its queue pair it does not. */
static void drop(struct strait_rdma_session *s, struct registration *reg)
{
	int err = verbs.ibv_dereg_mr(reg->mr);

	list_del(&reg->node);
	if (err) {
		log_error(s->log, "rdma: %llu bytes remain registered: %s", (unsigned long long)reg->length,
			  strerror(err));
		session_fail(s, -EIO);
		qp_drain(s);
	}
	free(reg);
}

int reg_local(struct strait_rdma_session *s, struct strait_region *r, struct registration **ret)
{
	list_for_each(it, &s->regs) {
		struct registration *reg = list_entry(it, struct registration, node);

		if (reg->region == r && !reg->offered) {
			*ret = reg;
			return 0;
		}
	}
	return make(s, r, 0, r->mem.len, 0, ret);
}

static int write_text(struct strait_rdma_session *s, const struct registration *reg, uint32_t rights,
		      int64_t lifetime_ns, char text[WIRE_OFFER_TEXT])
{
	uint64_t age = (os_now_ns() - s->began) / NS_PER_MS;
	struct wire_offer o = { .rights = rights, .rkey = reg->mr->rkey, .addr = reg->addr, .length = reg->length };

	memcpy(o.session, s->session, WIRE_SESSION);
	o.expires_ms = lifetime_ns == STRAIT_FOREVER ? UINT64_MAX : age + (uint64_t)lifetime_ns / NS_PER_MS;
	return wire_offer_encode(mac_hmac, s->offer_key, &o, text);
}

int reg_offer(struct strait_rdma_session *s, struct strait_region *r, uint64_t off, uint64_t len, uint32_t rights,
	      int64_t lifetime_ns, struct strait_rdma_offer **ret)
{
	int access = (rights & STRAIT_RDMA_PEER_READS ? IBV_ACCESS_REMOTE_READ : 0) |
		     (rights & STRAIT_RDMA_PEER_WRITES ? IBV_ACCESS_REMOTE_WRITE : 0);
	struct strait_rdma_offer *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return -ENOMEM;
	rc = region_use(r, off, len);
	if (rc) {
		free(o);
		return rc;
	}
	rc = make(s, r, off, len, access, &o->reg);
	if (!rc) {
		rc = write_text(s, o->reg, rights, lifetime_ns, o->text);
		if (rc)
			drop(s, o->reg);
	}
	if (!rc) {
		atomic_fetch_add(&s->refs, 1);
		o->session = s;
		o->owner = s->owner;
		o->dev = r->dev;
		o->reach = o->reg->reach;
		list_add(&s->offers, &o->node);
	}
	region_unuse(r);
	if (rc)
		free(o);
	else
		*ret = o;
	return rc;
}

void reg_offer_close(struct strait_rdma_offer *o)
{
	struct strait_rdma_session *s = o->session;

	session_lock(s);
	list_del(&o->node);
	if (o->reg)
		drop(s, o->reg);
	pthread_mutex_unlock(&s->lock);
	session_unref(s);
	free(o);
}

/* No request of this side uses it, and the peer has no access. */
static bool is_idle(struct strait_rdma_session *s, const struct registration *reg)
{
	return !reg->offered && reg->last_ticket <= s->completed;
}

static bool is_used(struct strait_rdma_session *s, const struct strait_region *r)
{
	list_for_each(it, &s->regs) {
		struct registration *reg = list_entry(it, struct registration, node);

		if (reg->region == r && !is_idle(s, reg))
			return true;
	}
	return false;
}

/*
 * The memory is about to be freed. If requests may still access it the queue pair goes to its error state and completes
 * all that was posted, and the session is over; then the device accesses no memory any more, and it is deregistered.
 */
void session_drop(struct region_watcher *w, struct strait_region *r)
{
	struct strait_rdma_session *s = container_of(w, struct strait_rdma_session, watcher);

	session_lock(s);
	if (is_used(s, r)) {
		session_fail(s, -ENODEV);
		qp_drain(s);
	}
	list_for_each_safe(it, tmp, &s->regs) {
		struct registration *reg = list_entry(it, struct registration, node);

		if (reg->region != r)
			continue;
		list_for_each(at, &s->offers) {
			struct strait_rdma_offer *o = list_entry(at, struct strait_rdma_offer, node);

			if (o->reg == reg)
				o->reg = NULL;
		}
		drop(s, reg);
	}
	pthread_mutex_unlock(&s->lock);
}

void reg_close_all(struct strait_rdma_session *s)
{
	list_for_each(it, &s->offers)
		list_entry(it, struct strait_rdma_offer, node)->reg = NULL;
	list_for_each_safe(it, tmp, &s->regs)
		drop(s, list_entry(it, struct registration, node));
}
