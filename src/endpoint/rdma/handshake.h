/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_RDMA_HANDSHAKE_H
#define ENDPOINT_RDMA_HANDSHAKE_H

/*
 * The handshake that begins a session: a pure state machine without I/O, clock or allocation.
 *
 *	connector                                   listener
 *	CONNECT      -- HELLO nonce, role -->       LISTEN
 *	SENT_HELLO   <-- CHALLENGE nonce, role, MAC --  SENT_CHALLENGE
 *	SENT_PROOF   -- PROOF MAC -->               (checks)
 *	DONE         <-- WELCOME (session keys) --  DONE
 *
 * Any message that is not the expected one, or does not verify, leads to FAILED, which is final. The listener answers
 * a failed check by REFUSED, and the connector takes that as an error whatever its state.
 *
 * Both MACs cover the same transcript: version, both nonces, roles, addresses and queue pair numbers, each as the side
 * that computes the MAC knows them, preceded by a label of the side. A replayed message fails by the nonce, a reflected
 * one by the label, and one relayed between two connections by addresses and queue pair numbers. The keys of the two
 * directions and of offers are derived from the same transcript.
 *
 * Owner: the thread that authenticates the session. No other thread accesses it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "endpoint/rdma/wire.h"

#define HS_NONCE 32u
#define HS_ADDRESS 18u /* an IPv6 or mapped IPv4 address, and the port, both in network order */
#define HS_KEY_MAX 256u

enum hs_state {
	HS_CONNECT,
	HS_LISTEN,
	HS_SENT_HELLO,
	HS_SENT_CHALLENGE,
	HS_SENT_PROOF,
	HS_DONE,
	HS_FAILED,
};

/* What a side knows of the connection without being told by its peer. */
struct hs_view {
	uint8_t local[HS_ADDRESS], peer[HS_ADDRESS];
	uint32_t local_qp, peer_qp;
};

struct handshake {
	wire_hmac_fn *hmac;
	enum hs_state state;
	bool listener;
	uint32_t role; /* STRAIT_RDMA_OFFERS or _INITIATES: this side's. The peer must have the other one */
	struct hs_view view;
	uint8_t key[HS_KEY_MAX];
	size_t key_len;
	uint8_t nonce[HS_NONCE], peer_nonce[HS_NONCE];
	int refused; /* the listener's reason, a negative errno, once REFUSED was received */

	/* In DONE. */
	uint8_t session[WIRE_SESSION];
	uint8_t offer_key[WIRE_KEY];
	struct wire_channel send, recv;
};

/*
 * @nonce must be random, and fresh for each handshake. @key may be empty: then the caller has made sure by other means
 * that the peer is entitled. -EINVAL for a key that is too long.
 */
int hs_init(struct handshake *hs, wire_hmac_fn *hmac, bool listener, uint32_t role, const void *key, size_t key_len,
	    const struct hs_view *view, const uint8_t nonce[HS_NONCE]);

/* The connector's first message: its length, or a negative errno. */
int hs_begin(struct handshake *hs, uint8_t out[WIRE_MAX]);

/*
 * Take a message of the peer. *@out_len is the length of the message to send, 0 if there is none; it is to be sent also
 * when the return value is an error. Return: 0; -EBADMSG, -EPROTO, -EPROTONOSUPPORT: no such message is possible here;
 * -EACCES: the peer has another key, or the connection is not the one it knows; -ECONNREFUSED: the peer refused.
 */
int hs_input(struct handshake *hs, const void *buf, size_t len, uint8_t out[WIRE_MAX], size_t *out_len);

/* Overwrite all keys. */
void hs_clear(struct handshake *hs);

#endif
