/* SPDX-License-Identifier: MIT */
/* A listener: takes connections, bounds those that are not authenticated yet. */
#include <stdlib.h>

#include "base/util.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"

#define BACKLOG 64

int listener_open(struct device_set *set, const struct strait_rdma_opts *opts, struct strait_rdma_listener **ret)
{
	struct strait_rdma_listener *l = calloc(1, sizeof(*l));
	struct sockaddr_storage at;
	int rc;

	if (!l)
		return -ENOMEM;
	rc = rdma_opts_copy(opts, &l->opts, l->key_copy);
	if (!rc)
		rc = address_resolve(opts->address, l->opts.port, true, &at);
	if (rc)
		goto free_listener;
	l->set = set;
	l->log = set->log;
	atomic_init(&l->refs, 1);
	l->events = verbs.rdma_create_event_channel();
	if (!l->events) {
		rc = -errno;
		goto free_listener;
	}
	rc = os_set_nonblocking(l->events->fd);
	if (!rc && verbs.rdma_create_id(l->events, &l->id, l, RDMA_PS_TCP))
		rc = -errno;
	if (rc)
		goto destroy_channel;
	if (verbs.rdma_bind_addr(l->id, (struct sockaddr *)&at) || verbs.rdma_listen(l->id, BACKLOG)) {
		rc = -errno;
		goto destroy_id;
	}
	*ret = l;
	return 0;
destroy_id:
	verbs.rdma_destroy_id(l->id);
destroy_channel:
	verbs.rdma_destroy_event_channel(l->events);
free_listener:
	free(l);
	return rc;
}

void listener_unref(struct strait_rdma_listener *l)
{
	if (atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	verbs.rdma_destroy_id(l->id);
	verbs.rdma_destroy_event_channel(l->events);
	explicit_bzero(l, sizeof(*l));
	free(l);
}

/* Take @id as a session. On failure it is the caller's to reject. */
static int adopt(struct strait_rdma_listener *l, struct rdma_cm_id *id, uint8_t peer_reads,
		 struct strait_rdma_session **ret)
{
	struct strait_rdma_session *s;
	int rc = session_new(l->set, &l->opts, &s);

	if (rc)
		return rc;
	if (verbs.rdma_migrate_id(id, s->events)) {
		rc = -errno;
		session_close(s);
		return rc;
	}
	id->context = s;
	s->id = id;
	s->peer_reads = peer_reads < READS_IN_FLIGHT ? peer_reads : READS_IN_FLIGHT;
	s->listener = l;
	atomic_fetch_add(&l->refs, 1);
	atomic_fetch_add(&l->half_open, 1);
	*ret = s;
	return 0;
}

/* The next event: -ETIMEDOUT. Acknowledged by the caller. */
static int next_event(struct strait_rdma_listener *l, uint64_t deadline, struct rdma_cm_event **ret)
{
	for (;;) {
		int rc;

		if (!verbs.rdma_get_cm_event(l->events, ret))
			return 0;
		if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		rc = os_wait_any(&l->events->fd, 1, os_time_left(deadline));
		if (rc)
			return rc;
	}
}

static bool may_connect(struct strait_rdma_listener *l, struct rdma_cm_id *id)
{
	char peer[64];

	address_text(rdma_get_peer_addr(id), peer, sizeof(peer));
	if (!l->opts.key && !address_is_own(rdma_get_peer_addr(id))) {
		log_warn(l->log, "rdma: %s is rejected: without a key only this machine's addresses are accepted",
			 peer);
		return false;
	}
	if (atomic_load(&l->half_open) >= l->opts.half_open) {
		log_warn(l->log, "rdma: %s is rejected: %u connections are not authenticated yet", peer,
			 l->opts.half_open);
		return false;
	}
	return true;
}

int listener_accept(struct strait_rdma_listener *l, int64_t timeout_ns, struct strait_rdma_session **ret)
{
	uint64_t deadline = os_deadline(timeout_ns);
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	uint8_t peer_reads;
	bool request;
	int rc;

	for (;;) {
		rc = next_event(l, deadline, &e);
		if (rc)
			return rc;
		request = e->event == RDMA_CM_EVENT_CONNECT_REQUEST;
		id = e->id;
		peer_reads = e->param.conn.initiator_depth;
		/* Migrating the identifier waits until its events are acknowledged. */
		verbs.rdma_ack_cm_event(e);
		if (!request)
			continue;
		rc = may_connect(l, id) ? adopt(l, id, peer_reads, ret) : -ECONNREFUSED;
		if (!rc)
			return 0;
		verbs.rdma_reject(id, NULL, 0);
		verbs.rdma_destroy_id(id);
		if (rc != -ECONNREFUSED)
			return rc;
	}
}
