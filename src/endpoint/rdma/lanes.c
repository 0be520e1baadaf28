/* SPDX-License-Identifier: MIT */
/*
 * Further queue pairs of a session, for its reads and writes. They are made once the peer is authenticated:
 *
 *	connector                                     listener
 *	LANES: the queue pairs that it made  -->      makes as many, or fewer; connects them
 *	connects those that have a partner   <--      LANES: the queue pairs that it made
 *	READY                                -->      may use them
 *
 * Both know that the other side's are connected before they use their own. They have the path, limits and timeouts that
 * the connection manager gave the first one. iWARP cannot connect them so: a session has one queue pair there.
 */
#include <stdlib.h>

#include "base/util.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"

#define PSN_BITS 0xffffffu

_Static_assert(WIRE_LANES_MAX + 1 == LANES_MAX, "the first queue pair is not in the message");

static int to_init(struct strait_rdma_session *s, struct ibv_qp *qp, const struct ibv_qp_attr *first)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .pkey_index = first->pkey_index,
				 .port_num = first->port_num };

	/* The peer of the side that initiates has no access. */
	if (s->opts.role == STRAIT_RDMA_OFFERS)
		a.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	return -verbs.ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_connected(struct ibv_qp *qp, const struct ibv_qp_attr *first, const struct wire_lane *own,
			const struct wire_lane *peer)
{
	struct ibv_qp_attr a = *first;
	int rc;

	a.qp_state = IBV_QPS_RTR;
	a.dest_qp_num = peer->qp;
	a.rq_psn = peer->psn;
	rc = -verbs.ibv_modify_qp(qp, &a,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = own->psn;
	if (!rc)
		rc = -verbs.ibv_modify_qp(qp, &a,
					  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return rc;
}

static int make_one(struct strait_rdma_session *s, const struct ibv_qp_attr *first, struct wire_lane *own)
{
	struct ibv_qp_init_attr init = qp_init_attr(s);
	struct ibv_qp *qp;
	int rc;

	init.cap.max_inline_data = s->inline_max;
	init.cap.max_recv_wr = 1; /* messages go to the first one; not every device makes a queue of none */
	qp = verbs.ibv_create_qp(s->pd, &init);
	if (!qp)
		return -errno;
	rc = os_random(&own->psn, sizeof(own->psn));
	if (!rc)
		rc = to_init(s, qp, first);
	if (rc) {
		verbs.ibv_destroy_qp(qp);
		return rc;
	}
	own->psn &= PSN_BITS;
	own->qp = qp->qp_num;
	s->lane[s->lanes++] = (struct lane){ .qp = qp };
	return 0;
}

/* Make up to @n. A device that has no more is no reason to fail: how many there are. */
static uint32_t make(struct strait_rdma_session *s, const struct ibv_qp_attr *first, uint32_t n,
		     struct wire_lane own[WIRE_LANES_MAX])
{
	for (uint32_t i = 0; i < n; i++) {
		int rc = make_one(s, first, &own[i]);

		if (!rc)
			continue;
		log_warn(s->log, "rdma: %u queue pairs instead of %u: %s", s->lanes, n + 1, strerror(-rc));
		return i;
	}
	return n;
}

/* Keep the first @n. */
static void keep(struct strait_rdma_session *s, uint32_t n)
{
	while (s->lanes > n + 1)
		verbs.ibv_destroy_qp(s->lane[--s->lanes].qp);
}

static int connect_all(struct strait_rdma_session *s, const struct ibv_qp_attr *first, const struct wire_lane *own,
		       const struct wire_lane *peer, uint32_t n)
{
	/* The message may have arrived before the session's end: its queue pairs stay as they are. */
	int rc = atomic_load(&s->error);

	for (uint32_t i = 0; !rc && i < n; i++)
		rc = to_connected(s->lane[i + 1].qp, first, &own[i], &peer[i]);
	return rc;
}

static int send_lanes(struct strait_rdma_session *s, const struct wire_lane *own, uint32_t n, uint64_t deadline)
{
	uint8_t payload[WIRE_LANES_BYTES];

	return message_send_type(s, WIRE_LANES, payload, wire_lanes_encode(own, n, payload), deadline);
}

/* The payload of the next message, which must be of this type and fit. */
static ssize_t receive(struct strait_rdma_session *s, enum wire_type type, void *buf, size_t len, uint64_t deadline)
{
	ssize_t n = message_recv_type(s, type, buf, len, deadline);

	return n == -EMSGSIZE ? -EBADMSG : n;
}

static int recv_lanes(struct strait_rdma_session *s, struct wire_lane peer[WIRE_LANES_MAX], uint32_t *n,
		      uint64_t deadline)
{
	uint8_t payload[WIRE_LANES_BYTES];
	ssize_t len = receive(s, WIRE_LANES, payload, sizeof(payload), deadline);

	return len < 0 ? (int)len : wire_lanes_decode(payload, (size_t)len, peer, n);
}

static int ask(struct strait_rdma_session *s, const struct ibv_qp_attr *first, uint32_t want, uint64_t deadline)
{
	struct wire_lane own[WIRE_LANES_MAX], peer[WIRE_LANES_MAX];
	uint32_t n = make(s, first, want, own), agreed;
	int rc = send_lanes(s, own, n, deadline);

	if (!rc)
		rc = recv_lanes(s, peer, &agreed, deadline);
	if (!rc && agreed > n)
		rc = -EPROTO;
	if (rc)
		return rc;
	keep(s, agreed);
	rc = connect_all(s, first, own, peer, agreed);
	return rc ? rc : message_send_type(s, WIRE_READY, NULL, 0, deadline);
}

static int answer(struct strait_rdma_session *s, const struct ibv_qp_attr *first, uint32_t most, uint64_t deadline)
{
	struct wire_lane own[WIRE_LANES_MAX], peer[WIRE_LANES_MAX];
	uint8_t none[1];
	ssize_t len;
	uint32_t n;
	int rc = recv_lanes(s, peer, &n, deadline);

	if (rc)
		return rc;
	n = make(s, first, n < most ? n : most, own);
	rc = connect_all(s, first, own, peer, n);
	if (!rc)
		rc = send_lanes(s, own, n, deadline);
	if (rc)
		return rc;
	len = receive(s, WIRE_READY, none, sizeof(none), deadline);
	return len > 0 ? -EBADMSG : (int)len;
}

int lanes_open(struct strait_rdma_session *s, uint64_t deadline)
{
	bool iwarp = s->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	uint32_t more = iwarp ? 0 : s->opts.queue_pairs - 1;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr first;
	int rc = -verbs.ibv_query_qp(s->lane[0].qp, &first,
				     IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV | IBV_QP_PATH_MTU |
					     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT |
					     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
				     &init);

	if (rc)
		return rc;
	return s->listener ? answer(s, &first, more, deadline) : ask(s, &first, more, deadline);
}

void lanes_close(struct strait_rdma_session *s)
{
	if (s->lanes)
		keep(s, 0);
}
