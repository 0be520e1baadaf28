/* SPDX-License-Identifier: MIT */
/* Authenticated messages: of the application, and between the sessions themselves. */
#include "base/util.h"
#include "endpoint/rdma/session.h"

int message_send_type(struct strait_rdma_session *s, enum wire_type type, const void *data, size_t len,
		      uint64_t deadline)
{
	uint8_t out[WIRE_MAX];
	int n = qp_send_room(s, deadline);

	if (n)
		return n;
	/* Sealing counts the message: a session that could not send it is over. */
	n = wire_seal(&s->send, type, data, len, out);
	if (n > 0)
		n = qp_send(s, out, (size_t)n, deadline);
	if (n < 0)
		session_fail(s, n);
	return n;
}

int message_send(struct strait_rdma_session *s, const void *data, size_t len, uint64_t deadline)
{
	return len > STRAIT_RDMA_MESSAGE_MAX ? -EMSGSIZE : message_send_type(s, WIRE_DATA, data, len, deadline);
}

ssize_t message_recv_type(struct strait_rdma_session *s, enum wire_type type, void *buf, size_t len, uint64_t deadline)
{
	struct wire_msg m;
	const uint8_t *msg;
	size_t n;
	int rc;

	rc = qp_recv(s, deadline, &msg, &n);
	if (rc)
		return rc;
	rc = wire_open(&s->recv, msg, n, &m);
	if (!rc && m.type != type)
		rc = -EPROTO;
	if (rc) {
		session_fail(s, rc);
		return rc;
	}
	n = m.len;
	if (n <= len)
		memcpy(buf, m.payload, n);
	rc = qp_release(s);
	if (rc)
		return rc;
	return n <= len ? (ssize_t)n : -EMSGSIZE;
}

ssize_t message_recv(struct strait_rdma_session *s, void *buf, size_t len, uint64_t deadline)
{
	return message_recv_type(s, WIRE_DATA, buf, len, deadline);
}
