/* SPDX-License-Identifier: MIT */
/* Registrations and offers of a session, and their end before memory is freed. */
#include <stdlib.h>

#include "base/util.h"
#include "endpoint/rdma/mac.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"

#define NS_PER_MS 1000000u

static int make_locked(struct strait_rdma_session *s, struct strait_region *r, uint64_t off, uint64_t len, int access,
		       struct registration **ret)
{
	struct registration *reg = calloc(1, sizeof(*reg));
	int rc;

	if (!reg)
		return -ENOMEM;
	rc = ladder_register(s->pd, r, off, len, IBV_ACCESS_LOCAL_WRITE | access, reg);
	if (rc) {
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

static void drop_locked(struct registration *reg)
{
	list_del(&reg->node);
	verbs.ibv_dereg_mr(reg->mr);
	free(reg);
}

int reg_local(struct strait_rdma_session *s, struct strait_region *r, struct registration **ret)
{
	int rc;

	pthread_mutex_lock(&s->reg_lock);
	list_for_each(it, &s->regs) {
		struct registration *reg = list_entry(it, struct registration, node);

		if (reg->region == r && !reg->offered) {
			pthread_mutex_unlock(&s->reg_lock);
			*ret = reg;
			return 0;
		}
	}
	rc = make_locked(s, r, 0, r->mem.len, 0, ret);
	pthread_mutex_unlock(&s->reg_lock);
	return rc;
}

void reg_used(struct strait_rdma_session *s, struct registration *reg, uint64_t ticket)
{
	pthread_mutex_lock(&s->reg_lock);
	reg->last_ticket = ticket;
	pthread_mutex_unlock(&s->reg_lock);
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
	pthread_mutex_lock(&s->reg_lock);
	rc = make_locked(s, r, off, len, access, &o->reg);
	if (!rc) {
		rc = write_text(s, o->reg, rights, lifetime_ns, o->text);
		if (rc)
			drop_locked(o->reg);
	}
	if (!rc) {
		o->session = s;
		o->owner = s->owner;
		o->dev = r->dev;
		o->reach = o->reg->reach;
		list_add(&s->offers, &o->node);
	}
	pthread_mutex_unlock(&s->reg_lock);
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

	if (s) {
		pthread_mutex_lock(&s->reg_lock);
		list_del(&o->node);
		if (o->reg)
			drop_locked(o->reg);
		pthread_mutex_unlock(&s->reg_lock);
	}
	free(o);
}

/* No request of this side uses it, and the peer has no access. */
static bool is_idle(struct strait_rdma_session *s, const struct registration *reg)
{
	return !reg->offered && reg->last_ticket <= atomic_load_explicit(&s->completed, memory_order_acquire);
}

/*
 * The memory is about to be freed. If requests may still access it the queue pair goes to its error state, in which it
 * accesses none, and the session is over; deregistering waits for what the device was doing.
 */
void session_drop(struct region_watcher *w, struct strait_region *r)
{
	struct strait_rdma_session *s = container_of(w, struct strait_rdma_session, watcher);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	pthread_mutex_lock(&s->reg_lock);
	list_for_each_safe(it, tmp, &s->regs) {
		struct registration *reg = list_entry(it, struct registration, node);

		if (reg->region != r)
			continue;
		if (!is_idle(s, reg)) {
			session_fail(s, -ENODEV);
			verbs.ibv_modify_qp(s->qp, &attr, IBV_QP_STATE);
		}
		list_for_each(at, &s->offers) {
			struct strait_rdma_offer *o = list_entry(at, struct strait_rdma_offer, node);

			if (o->reg == reg)
				o->reg = NULL;
		}
		drop_locked(reg);
	}
	pthread_mutex_unlock(&s->reg_lock);
}

void reg_close_all(struct strait_rdma_session *s)
{
	pthread_mutex_lock(&s->reg_lock);
	list_for_each_safe(it, tmp, &s->offers) {
		struct strait_rdma_offer *o = list_entry(it, struct strait_rdma_offer, node);

		list_del(&o->node);
		o->session = NULL;
		o->reg = NULL;
	}
	list_for_each_safe(it, tmp, &s->regs)
		drop_locked(list_entry(it, struct registration, node));
	pthread_mutex_unlock(&s->reg_lock);
}
