/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_RDMA_WIRE_H
#define ENDPOINT_RDMA_WIRE_H

/*
 * Messages of the control channel and offers of memory: encoding, decoding, authentication. Pure: no I/O, no clock, no
 * allocation. Nothing that a peer sends is trusted; every decoder takes a length and reads nothing past it.
 *
 * A message is one RDMA SEND:
 *
 *	magic 4 | version 2 | type 2 | length 4 | reserved 4 | sequence 8 | payload | MAC 32
 *
 * Integers are little-endian, length counts the whole message, reserved is 0.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC 0x31525453u
#define WIRE_VERSION 2u
#define WIRE_HEAD 24u
#define WIRE_MAC 32u
#define WIRE_KEY 32u
#define WIRE_SESSION 16u
#define WIRE_MAX 1024u
#define WIRE_PAYLOAD_MAX (WIRE_MAX - WIRE_HEAD - WIRE_MAC)

enum wire_type {
	WIRE_HELLO = 1,	    /* connector: nonce, role */
	WIRE_CHALLENGE = 2, /* listener: nonce, role; proves its key */
	WIRE_PROOF = 3,	    /* connector: proves its key */
	WIRE_WELCOME = 4,   /* listener: the session begins; the first message with the session's keys */
	WIRE_REFUSED = 5,   /* listener: an error code instead of the next message of the handshake */
	WIRE_DATA = 6,	    /* a message of the application */
	WIRE_LANES = 7,	    /* further queue pairs of the sender */
	WIRE_READY = 8,	    /* the connector's queue pairs are connected */
};

/* HMAC-SHA-256: 0, or a negative errno. */
typedef int wire_hmac_fn(const void *key, size_t key_len, const void *data, size_t len, uint8_t mac[WIRE_MAC]);

struct wire_msg {
	enum wire_type type;
	uint64_t seq;
	const uint8_t *payload; /* in the decoded buffer */
	size_t len;
	const uint8_t *mac;
};

/* One direction of an authenticated session. */
struct wire_channel {
	wire_hmac_fn *hmac;
	uint8_t key[WIRE_KEY];
	uint64_t seq; /* of the next message */
};

/* Takes the same time for all contents. */
bool wire_equal(const void *a, const void *b, size_t len);

/* Without authentication: the handshake's. Returns the length of the message, 0 if @len is too long. */
size_t wire_encode(enum wire_type type, uint64_t seq, const void *payload, size_t len, const uint8_t mac[WIRE_MAC],
		   uint8_t out[WIRE_MAX]);
/* -EBADMSG for everything but one whole message; -EPROTONOSUPPORT for another version. The MAC is not checked. */
int wire_decode(const void *buf, size_t len, struct wire_msg *msg);

/* Encode with sequence number and MAC. Returns the length, or a negative errno. */
int wire_seal(struct wire_channel *ch, enum wire_type type, const void *payload, size_t len, uint8_t out[WIRE_MAX]);
/* Decode and check: -EACCES for a wrong MAC, -EPROTO for another sequence number than the next, else as wire_decode(). */
int wire_open(struct wire_channel *ch, const void *buf, size_t len, struct wire_msg *msg);

/* A further queue pair: its number and the first sequence number of its packets, both of 24 bits. */
#define WIRE_LANES_MAX 7u
#define WIRE_LANES_BYTES (1 + 8 * WIRE_LANES_MAX)

struct wire_lane {
	uint32_t qp, psn;
};

/* The payload of LANES: its length. @n is at most WIRE_LANES_MAX. */
size_t wire_lanes_encode(const struct wire_lane *lane, uint32_t n, uint8_t out[WIRE_LANES_BYTES]);
/* -EBADMSG for anything that is not exactly one such payload. */
int wire_lanes_decode(const void *payload, size_t len, struct wire_lane lane[WIRE_LANES_MAX], uint32_t *n);

/*
 * An offer of memory: which bytes the peer may access, how and until when. Its text form has a MAC and is bound to one
 * session, so that an application may carry it by any means.
 */
#define WIRE_OFFER_BYTES 88u
#define WIRE_OFFER_TEXT (2 * WIRE_OFFER_BYTES + 1)

struct wire_offer {
	uint8_t session[WIRE_SESSION];
	uint32_t rights; /* STRAIT_RDMA_PEER_* */
	uint32_t rkey;
	uint64_t addr; /* as the key's owner registered it */
	uint64_t length;
	uint64_t expires_ms; /* after the start of the session */
};

int wire_offer_encode(wire_hmac_fn *hmac, const uint8_t key[WIRE_KEY], const struct wire_offer *o,
		      char text[WIRE_OFFER_TEXT]);
/*
 * -EBADMSG: not an offer; -EACCES: wrong MAC, or of another session. @len is the length of @text, which need not end
 * with NUL. The caller checks rights, range and time by wire_offer_allows().
 */
int wire_offer_decode(wire_hmac_fn *hmac, const uint8_t key[WIRE_KEY], const uint8_t session[WIRE_SESSION],
		      const char *text, size_t len, struct wire_offer *o);
/* 0; -EPERM: without this right; -EINVAL: outside the offer; -ESTALE: it has expired. */
int wire_offer_allows(const struct wire_offer *o, uint32_t right, uint64_t off, uint64_t len, uint64_t now_ms);

#endif
