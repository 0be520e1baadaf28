/* SPDX-License-Identifier: MIT */
#include "endpoint/rdma/handshake.h"

#include <errno.h>
#include <string.h>

#include <strait/rdma.h>

#include "base/cursor.h"

#define TRANSCRIPT_MAX 256u

int hs_init(struct handshake *hs, wire_hmac_fn *hmac, bool listener, uint32_t role, const void *key, size_t key_len,
	    const struct hs_view *view, const uint8_t nonce[HS_NONCE])
{
	if (key_len > HS_KEY_MAX)
		return -EINVAL;
	memset(hs, 0, sizeof(*hs));
	hs->hmac = hmac;
	hs->listener = listener;
	hs->state = listener ? HS_LISTEN : HS_CONNECT;
	hs->role = role;
	hs->view = *view;
	if (key_len)
		memcpy(hs->key, key, key_len);
	hs->key_len = key_len;
	memcpy(hs->nonce, nonce, HS_NONCE);
	return 0;
}

static uint32_t other_role(uint32_t role)
{
	return role == STRAIT_RDMA_OFFERS ? STRAIT_RDMA_INITIATES : STRAIT_RDMA_OFFERS;
}

/* HMAC of the label and the transcript, the connector's part of it first. */
static int derive(const struct handshake *hs, const char *label, uint8_t out[WIRE_MAC])
{
	uint8_t text[TRANSCRIPT_MAX];
	struct put_cursor c = { .p = text, .left = sizeof(text) };
	bool first = !hs->listener;

	put_uint(&c, strlen(label), 1);
	put_bytes(&c, label, strlen(label));
	put_uint(&c, WIRE_VERSION, 2);
	put_bytes(&c, first ? hs->nonce : hs->peer_nonce, HS_NONCE);
	put_bytes(&c, first ? hs->peer_nonce : hs->nonce, HS_NONCE);
	put_uint(&c, first ? hs->role : other_role(hs->role), 1);
	put_bytes(&c, first ? hs->view.local : hs->view.peer, HS_ADDRESS);
	put_bytes(&c, first ? hs->view.peer : hs->view.local, HS_ADDRESS);
	put_uint(&c, first ? hs->view.local_qp : hs->view.peer_qp, 4);
	put_uint(&c, first ? hs->view.peer_qp : hs->view.local_qp, 4);
	return c.bad ? -EMSGSIZE : hs->hmac(hs->key, hs->key_len, text, sizeof(text) - c.left, out);
}

static int session_keys(struct handshake *hs)
{
	uint8_t id[WIRE_MAC];
	int rc = derive(hs, "strait rdma session", id);

	memcpy(hs->session, id, WIRE_SESSION);
	if (!rc)
		rc = derive(hs, "strait rdma offers", hs->offer_key);
	if (!rc)
		rc = derive(hs, "strait rdma to listener", hs->listener ? hs->recv.key : hs->send.key);
	if (!rc)
		rc = derive(hs, "strait rdma to connector", hs->listener ? hs->send.key : hs->recv.key);
	hs->send.hmac = hs->recv.hmac = hs->hmac;
	return rc;
}

/* Nonce and role: the payload of HELLO and CHALLENGE. */
static size_t introduce(const struct handshake *hs, uint8_t payload[HS_NONCE + 1])
{
	memcpy(payload, hs->nonce, HS_NONCE);
	payload[HS_NONCE] = (uint8_t)hs->role;
	return HS_NONCE + 1;
}

static int introduced(struct handshake *hs, const struct wire_msg *m)
{
	if (m->len != HS_NONCE + 1 || m->payload[HS_NONCE] != other_role(hs->role))
		return -EBADMSG;
	/* A peer that sends this side's nonce back reflects the handshake. */
	if (wire_equal(m->payload, hs->nonce, HS_NONCE))
		return -EACCES;
	memcpy(hs->peer_nonce, m->payload, HS_NONCE);
	return 0;
}

static int check(const struct handshake *hs, const char *label, const struct wire_msg *m)
{
	uint8_t mac[WIRE_MAC];
	int rc = derive(hs, label, mac);

	if (rc)
		return rc;
	return wire_equal(mac, m->mac, WIRE_MAC) ? 0 : -EACCES;
}

#define LISTENER_PROOF "strait rdma listener"
#define CONNECTOR_PROOF "strait rdma connector"

int hs_begin(struct handshake *hs, uint8_t out[WIRE_MAX])
{
	uint8_t payload[HS_NONCE + 1];
	size_t len = introduce(hs, payload);

	if (hs->state != HS_CONNECT)
		return -EINVAL;
	hs->state = HS_SENT_HELLO;
	return (int)wire_encode(WIRE_HELLO, 0, payload, len, NULL, out);
}

static int on_hello(struct handshake *hs, const struct wire_msg *m, uint8_t out[WIRE_MAX], size_t *out_len)
{
	uint8_t payload[HS_NONCE + 1], mac[WIRE_MAC];
	int rc = introduced(hs, m);

	if (!rc)
		rc = derive(hs, LISTENER_PROOF, mac);
	if (rc)
		return rc;
	*out_len = wire_encode(WIRE_CHALLENGE, 0, payload, introduce(hs, payload), mac, out);
	hs->state = HS_SENT_CHALLENGE;
	return 0;
}

static int on_challenge(struct handshake *hs, const struct wire_msg *m, uint8_t out[WIRE_MAX], size_t *out_len)
{
	uint8_t mac[WIRE_MAC];
	int rc = introduced(hs, m);

	if (!rc)
		rc = check(hs, LISTENER_PROOF, m);
	if (!rc)
		rc = derive(hs, CONNECTOR_PROOF, mac);
	if (!rc)
		rc = session_keys(hs);
	if (rc)
		return rc;
	*out_len = wire_encode(WIRE_PROOF, 1, NULL, 0, mac, out);
	hs->state = HS_SENT_PROOF;
	return 0;
}

static int on_proof(struct handshake *hs, const struct wire_msg *m, uint8_t out[WIRE_MAX], size_t *out_len)
{
	int rc = m->len ? -EBADMSG : check(hs, CONNECTOR_PROOF, m);

	if (!rc)
		rc = session_keys(hs);
	if (!rc)
		rc = wire_seal(&hs->send, WIRE_WELCOME, NULL, 0, out);
	if (rc < 0)
		return rc;
	*out_len = (size_t)rc;
	hs->state = HS_DONE;
	return 0;
}

static int on_welcome(struct handshake *hs, const void *buf, size_t len)
{
	struct wire_msg m;
	int rc = wire_open(&hs->recv, buf, len, &m);

	if (!rc && m.len)
		rc = -EBADMSG;
	if (!rc)
		hs->state = HS_DONE;
	return rc;
}

/* A code of the peer that is not the one expected of a listener is not passed on. */
static int on_refused(struct handshake *hs, const struct wire_msg *m)
{
	struct get_cursor c = { .p = m->payload, .left = m->len };
	uint64_t code = get_uint(&c, 4);

	if (c.bad || c.left)
		return -EBADMSG;
	hs->refused = code == EACCES || code == EPROTO || code == EBADMSG || code == EPROTONOSUPPORT ? -(int)code :
												       -ECONNREFUSED;
	return -ECONNREFUSED;
}

static int step(struct handshake *hs, const void *buf, size_t len, uint8_t out[WIRE_MAX], size_t *out_len)
{
	struct wire_msg m;
	int rc = wire_decode(buf, len, &m);

	if (rc)
		return rc;
	if (m.type == WIRE_REFUSED && !hs->listener)
		return on_refused(hs, &m);
	if (hs->state == HS_LISTEN && m.type == WIRE_HELLO && !m.seq)
		return on_hello(hs, &m, out, out_len);
	if (hs->state == HS_SENT_HELLO && m.type == WIRE_CHALLENGE && !m.seq)
		return on_challenge(hs, &m, out, out_len);
	if (hs->state == HS_SENT_CHALLENGE && m.type == WIRE_PROOF && m.seq == 1)
		return on_proof(hs, &m, out, out_len);
	if (hs->state == HS_SENT_PROOF && m.type == WIRE_WELCOME)
		return on_welcome(hs, buf, len);
	return -EPROTO;
}

int hs_input(struct handshake *hs, const void *buf, size_t len, uint8_t out[WIRE_MAX], size_t *out_len)
{
	uint8_t code[4];
	struct put_cursor c = { .p = code, .left = sizeof(code) };
	int rc;

	*out_len = 0;
	if (hs->state == HS_FAILED || hs->state == HS_DONE)
		return -EPROTO;
	rc = step(hs, buf, len, out, out_len);
	if (!rc)
		return 0;
	hs->state = HS_FAILED;
	if (hs->listener) {
		put_uint(&c, (uint64_t)-rc, 4);
		*out_len = wire_encode(WIRE_REFUSED, 0, code, sizeof(code), NULL, out);
	}
	return rc;
}

void hs_clear(struct handshake *hs)
{
	volatile uint8_t *p = (volatile uint8_t *)hs;

	for (size_t i = 0; i < sizeof(*hs); i++)
		p[i] = 0;
}
