/* SPDX-License-Identifier: MIT */
/* Connections by the RDMA connection manager. */
#include <stdlib.h>

#include "base/util.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"

static int event_error(const struct rdma_cm_event *e)
{
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		return e->status == -ETIMEDOUT ? -ETIMEDOUT : -EHOSTUNREACH;
	case RDMA_CM_EVENT_REJECTED:
		return -ECONNREFUSED;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return -ENODEV;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return -ECONNRESET;
	default:
		return 0;
	}
}

/* The connection manager's next event: -ETIMEDOUT; the session's error. Acknowledged by the caller. */
static int next_event(struct strait_rdma_session *s, uint64_t deadline, struct rdma_cm_event **ret)
{
	for (;;) {
		int rc = atomic_load(&s->error);

		if (rc)
			return rc;
		if (!verbs.rdma_get_cm_event(s->events, ret))
			return 0;
		if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		rc = session_sleep(s, -1, deadline);
		if (rc)
			return rc;
	}
}

static int wait_for(struct strait_rdma_session *s, enum rdma_cm_event_type want, uint64_t deadline)
{
	struct rdma_cm_event *e;
	int rc;

	for (;;) {
		bool found;

		rc = next_event(s, deadline, &e);
		if (rc)
			return rc;
		found = e->event == want;
		rc = found ? 0 : event_error(e);
		verbs.rdma_ack_cm_event(e);
		if (found || rc)
			return rc;
	}
}

void session_cm_events(struct strait_rdma_session *s)
{
	struct rdma_cm_event *e;

	while (!verbs.rdma_get_cm_event(s->events, &e)) {
		int err = event_error(e);

		verbs.rdma_ack_cm_event(e);
		if (err)
			session_fail(s, err);
	}
}

static int set_timeout(struct strait_rdma_session *s)
{
	uint8_t exponent = (uint8_t)s->opts.ack_timeout;

	return verbs.rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &exponent, sizeof(exponent)) ?
		       -errno :
		       0;
}

static int timeout_ms(uint64_t deadline)
{
	int64_t left = os_time_left(deadline) / 1000000;

	return left > 60000 ? 60000 : (int)left + 1;
}

static int connect_to(struct strait_rdma_session *s, struct sockaddr *peer, uint64_t deadline)
{
	struct rdma_conn_param param = { .responder_resources = READS_IN_FLIGHT,
					 .initiator_depth = READS_IN_FLIGHT,
					 .retry_count = RETRIES,
					 .rnr_retry_count = RNR_RETRIES };
	int rc;

	if (verbs.rdma_resolve_addr(s->id, NULL, peer, timeout_ms(deadline)))
		return errno == ENODEV ? -EHOSTUNREACH : -errno;
	rc = wait_for(s, RDMA_CM_EVENT_ADDR_RESOLVED, deadline);
	if (rc)
		return rc;
	if (!s->opts.key && !address_is_own(peer)) {
		log_error(s->log, "rdma: without a key only addresses of this machine are connected to");
		return -EACCES;
	}
	if (verbs.rdma_resolve_route(s->id, timeout_ms(deadline)))
		return -errno;
	rc = wait_for(s, RDMA_CM_EVENT_ROUTE_RESOLVED, deadline);
	if (!rc)
		rc = set_timeout(s);
	if (!rc)
		rc = qp_open(s);
	if (rc)
		return rc;
	if (verbs.rdma_connect(s->id, &param))
		return -errno;
	return wait_for(s, RDMA_CM_EVENT_ESTABLISHED, deadline);
}

static int answer(struct strait_rdma_session *s, uint64_t deadline)
{
	struct rdma_conn_param param = { .responder_resources = s->peer_reads,
					 .initiator_depth = READS_IN_FLIGHT,
					 .retry_count = RETRIES,
					 .rnr_retry_count = RNR_RETRIES };
	int rc = set_timeout(s);

	if (!rc)
		rc = qp_open(s);
	if (rc)
		return rc;
	if (verbs.rdma_accept(s->id, &param))
		return -errno;
	s->state = SESSION_CONNECTED;
	return wait_for(s, RDMA_CM_EVENT_ESTABLISHED, deadline);
}

int session_connect(struct strait_rdma_session *s, const char *address, uint64_t deadline)
{
	struct sockaddr_storage peer;
	int rc;

	if (s->listener) {
		rc = answer(s, deadline);
	} else {
		rc = address_resolve(address, s->opts.port, false, &peer);
		if (!rc && verbs.rdma_create_id(s->events, &s->id, s, RDMA_PS_TCP))
			rc = -errno;
		if (!rc)
			rc = connect_to(s, (struct sockaddr *)&peer, deadline);
	}
	if (rc) {
		session_fail(s, rc);
		return rc;
	}
	s->state = SESSION_CONNECTED;
	s->established = true;
	return 0;
}
