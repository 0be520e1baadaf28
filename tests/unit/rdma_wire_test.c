/* SPDX-License-Identifier: MIT */
/*
 * The control channel against random and hostile input, without any RDMA device: messages, handshake, offers, and the
 * requests and replies of the file protocol.
 */
#include <errno.h>
#include <stdlib.h>
#include <strait/rdma.h>
#include <string.h>

#include "endpoint/rdma/handshake.h"
#include "endpoint/rdma/mac.h"
#include "endpoint/rdma/wire.h"
#include "harness/harness.h"
#include "os/os.h"
#include "service/rdma_proto.h"

/* Every byte of key and data changes it. Not HMAC: these tests need no library. */
static int test_hmac(const void *key, size_t key_len, const void *data, size_t len, uint8_t mac[WIRE_MAC])
{
	uint64_t h[4] = { 1, 2, 3, 4 };
	const uint8_t *k = key, *d = data;

	for (size_t i = 0; i < key_len + len; i++) {
		uint64_t byte = i < key_len ? k[i] : d[i - key_len];

		for (unsigned int j = 0; j < 4; j++)
			h[j] = (h[j] ^ (byte + i + j)) * 0x100000001b3ull + (h[j] >> 29);
	}
	memcpy(mac, h, WIRE_MAC);
	return 0;
}

static const char key_a[] = "a key of sufficient length", key_b[] = "another key of that length";

static struct hs_view view_of(uint8_t local, uint8_t peer, uint32_t local_qp, uint32_t peer_qp)
{
	struct hs_view v = { .local_qp = local_qp, .peer_qp = peer_qp };

	memset(v.local, local, HS_ADDRESS);
	memset(v.peer, peer, HS_ADDRESS);
	return v;
}

static uint64_t nonces = 1;

static void make(struct handshake *hs, bool listener, const char *key, const struct hs_view *view)
{
	uint8_t nonce[HS_NONCE];

	prng_fill(nonce, sizeof(nonce), nonces++);
	ASSERT_EQ(hs_init(hs, test_hmac, listener, listener ? STRAIT_RDMA_INITIATES : STRAIT_RDMA_OFFERS, key,
			  strlen(key), view, nonce),
		  0);
}

/* A connector and a listener of one connection. */
static void make_pair(struct handshake *c, struct handshake *l, const char *c_key, const char *l_key)
{
	struct hs_view cv = view_of(1, 2, 17, 18), lv = view_of(2, 1, 18, 17);

	make(c, false, c_key, &cv);
	make(l, true, l_key, &lv);
}

struct hs_packet {
	uint8_t data[WIRE_MAX];
	size_t len;
};

/* The whole handshake; all messages, in their order. */
static void shake(struct handshake *c, struct handshake *l, struct hs_packet m[4])
{
	int n = hs_begin(c, m[0].data);

	ASSERT_GT(n, 0);
	m[0].len = (size_t)n;
	ASSERT_EQ(hs_input(l, m[0].data, m[0].len, m[1].data, &m[1].len), 0);
	ASSERT_EQ(hs_input(c, m[1].data, m[1].len, m[2].data, &m[2].len), 0);
	ASSERT_EQ(hs_input(l, m[2].data, m[2].len, m[3].data, &m[3].len), 0);
	ASSERT_EQ(l->state, HS_DONE);
}

TEST(hmac_is_that_of_rfc_4231)
{
	static const uint8_t expected[WIRE_MAC] = { 0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
						    0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
						    0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43 };
	static const uint8_t empty[WIRE_MAC] = { 0xb6, 0x13, 0x67, 0x9a, 0x08, 0x14, 0xd9, 0xec, 0x77, 0x2f, 0x95,
						 0xd7, 0x78, 0xc3, 0x5f, 0xc5, 0xff, 0x16, 0x97, 0xc4, 0x93, 0x71,
						 0x56, 0x53, 0xc6, 0xc7, 0x12, 0x14, 0x42, 0x92, 0xc5, 0xad };
	uint8_t mac[WIRE_MAC];
	char why[256];

	if (mac_load(why, sizeof(why)))
		SKIP("%s", why);
	ASSERT_EQ(mac_hmac("Jefe", 4, "what do ya want for nothing?", 28, mac), 0);
	ASSERT_MEMEQ(mac, expected, WIRE_MAC);
	ASSERT_EQ(mac_hmac(NULL, 0, "", 0, mac), 0);
	ASSERT_MEMEQ(mac, empty, WIRE_MAC);
}

TEST(both_sides_get_the_same_keys)
{
	struct handshake c, l;
	struct hs_packet m[4];
	size_t n;

	make_pair(&c, &l, key_a, key_a);
	shake(&c, &l, m);
	ASSERT_EQ(hs_input(&c, m[3].data, m[3].len, m[0].data, &n), 0);
	ASSERT_EQ(n, 0);
	ASSERT_EQ(c.state, HS_DONE);
	ASSERT_MEMEQ(c.send.key, l.recv.key, WIRE_KEY);
	ASSERT_MEMEQ(c.recv.key, l.send.key, WIRE_KEY);
	ASSERT_MEMEQ(c.offer_key, l.offer_key, WIRE_KEY);
	ASSERT_MEMEQ(c.session, l.session, WIRE_SESSION);
	ASSERT_FALSE(wire_equal(c.send.key, c.recv.key, WIRE_KEY));
	/* Nothing more is taken. */
	ASSERT_EQ(hs_input(&c, m[3].data, m[3].len, m[0].data, &n), -EPROTO);
	ASSERT_EQ(c.state, HS_DONE);
}

TEST(a_wrong_key_is_refused_by_both_sides)
{
	struct handshake c, l;
	uint8_t out[WIRE_MAX], next[WIRE_MAX];
	size_t len, n;
	int rc;

	make_pair(&c, &l, key_a, key_b);
	rc = hs_begin(&c, out);
	ASSERT_EQ(hs_input(&l, out, (size_t)rc, next, &n), 0);
	/* The connector does not prove its key to a listener that has another. */
	ASSERT_EQ(hs_input(&c, next, n, out, &len), -EACCES);
	ASSERT_EQ(len, 0);
	ASSERT_EQ(c.state, HS_FAILED);
	/* A connector that goes on all the same. */
	len = wire_encode(WIRE_PROOF, 1, NULL, 0, NULL, out);
	ASSERT_EQ(hs_input(&l, out, len, next, &n), -EACCES);
	ASSERT_EQ(l.state, HS_FAILED);
	ASSERT_GT(n, 0);
	make_pair(&c, &l, key_a, key_b);
	hs_begin(&c, out);
	ASSERT_EQ(hs_input(&c, next, n, out, &len), -ECONNREFUSED);
	ASSERT_EQ(c.refused, -EACCES);
}

TEST(a_replayed_handshake_is_refused)
{
	struct handshake c, l;
	struct hs_packet m[4];
	uint8_t out[WIRE_MAX];
	size_t n;

	make_pair(&c, &l, key_a, key_a);
	shake(&c, &l, m);
	/* To a new listener: its nonce is another. */
	make_pair(&c, &l, key_a, key_a);
	ASSERT_EQ(hs_input(&l, m[0].data, m[0].len, out, &n), 0);
	ASSERT_EQ(hs_input(&l, m[2].data, m[2].len, out, &n), -EACCES);
	/* To a new connector. */
	make_pair(&c, &l, key_a, key_a);
	hs_begin(&c, out);
	ASSERT_EQ(hs_input(&c, m[1].data, m[1].len, out, &n), -EACCES);
}

TEST(a_reflected_handshake_is_refused)
{
	struct handshake c, l, other;
	struct hs_view cv = view_of(1, 2, 17, 18);
	struct hs_packet m[4];
	uint8_t hello[WIRE_MAX], out[WIRE_MAX], mac[WIRE_MAC];
	struct wire_msg msg;
	size_t n;
	int rc;

	/* The connector's own message. */
	make_pair(&c, &l, key_a, key_a);
	rc = hs_begin(&c, hello);
	ASSERT_EQ(hs_input(&c, hello, (size_t)rc, out, &n), -EPROTO);
	/* Its own nonce with the other role, in a challenge whose MAC the attacker had another listener make. */
	make_pair(&c, &l, key_a, key_a);
	rc = hs_begin(&c, hello);
	make(&other, true, key_a, &cv);
	ASSERT_EQ(hs_input(&other, hello, (size_t)rc, out, &n), 0);
	ASSERT_EQ(wire_decode(out, n, &msg), 0);
	memcpy(mac, msg.mac, WIRE_MAC);
	memcpy(m[0].data, c.nonce, HS_NONCE);
	m[0].data[HS_NONCE] = STRAIT_RDMA_INITIATES;
	n = wire_encode(WIRE_CHALLENGE, 0, m[0].data, HS_NONCE + 1, mac, m[1].data);
	ASSERT_EQ(hs_input(&c, m[1].data, n, out, &n), -EACCES);
	/* The listener's MAC as the connector's proof. */
	make_pair(&c, &l, key_a, key_a);
	rc = hs_begin(&c, hello);
	ASSERT_EQ(hs_input(&l, hello, (size_t)rc, out, &n), 0);
	ASSERT_EQ(wire_decode(out, n, &msg), 0);
	memcpy(mac, msg.mac, WIRE_MAC);
	n = wire_encode(WIRE_PROOF, 1, NULL, 0, mac, m[1].data);
	ASSERT_EQ(hs_input(&l, m[1].data, n, out, &n), -EACCES);
}

static const struct relay {
	const char *name;
	uint8_t c_peer, l_peer;
	uint32_t c_qp, l_qp;
} relays[] = {
	{ "other addresses", 9, 9, 18, 17 },
	{ "address of the listener", 9, 1, 18, 17 },
	{ "other queue pairs", 2, 1, 40, 41 },
	{ "queue pair of the connector", 2, 1, 18, 41 },
};

/* A man in the middle passes the messages of two connections on unchanged. */
TEST_VARIANTS(a_relayed_handshake_is_refused, struct relay, relays)
{
	struct hs_view cv = view_of(1, v->c_peer, 17, v->c_qp), lv = view_of(2, v->l_peer, 18, v->l_qp);
	uint8_t out[WIRE_MAX], next[WIRE_MAX];
	struct handshake c, l;
	size_t n;
	int rc;

	make(&c, false, key_a, &cv);
	make(&l, true, key_a, &lv);
	rc = hs_begin(&c, out);
	ASSERT_EQ(hs_input(&l, out, (size_t)rc, next, &n), 0);
	ASSERT_EQ(hs_input(&c, next, n, out, &n), -EACCES);
}

TEST(every_changed_bit_of_the_handshake_is_noticed)
{
	struct handshake c, l;
	struct hs_packet m[4];
	uint8_t out[WIRE_MAX], next[WIRE_MAX];
	size_t n, len;

	make_pair(&c, &l, key_a, key_a);
	shake(&c, &l, m);
	for (unsigned int bit = 0; bit < 8 * (WIRE_HEAD + HS_NONCE + 1 + WIRE_MAC); bit++) {
		int rc;

		make_pair(&c, &l, key_a, key_a);
		rc = hs_begin(&c, out);
		ASSERT_EQ(hs_input(&l, out, (size_t)rc, next, &n), 0);
		next[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ASSERT_LT(hs_input(&c, next, n, out, &len), 0);
		ASSERT_EQ(c.state, HS_FAILED);
	}
}

/* The session's channels of a finished handshake. */
static void channels(struct wire_channel *to, struct wire_channel *from)
{
	struct handshake c, l;
	struct hs_packet m[4];

	make_pair(&c, &l, key_a, key_a);
	shake(&c, &l, m);
	*to = c.send;
	*from = l.recv;
}

TEST(messages_are_taken_once_and_in_order)
{
	uint8_t a[WIRE_MAX], b[WIRE_MAX], payload[WIRE_PAYLOAD_MAX + 1] = { 7 };
	struct wire_channel to, from, back;
	struct wire_msg m;
	int na, nb;

	channels(&to, &from);
	back = to;
	na = (int)ASSERT_OK(wire_seal(&to, WIRE_DATA, payload, WIRE_PAYLOAD_MAX, a));
	nb = (int)ASSERT_OK(wire_seal(&to, WIRE_DATA, "x", 1, b));
	ASSERT_EQ(na, WIRE_MAX);
	ASSERT_EQ(wire_seal(&to, WIRE_DATA, payload, WIRE_PAYLOAD_MAX + 1, a), -EMSGSIZE);
	/* Out of order, then in order, then again. */
	ASSERT_EQ(wire_open(&from, b, (size_t)nb, &m), -EPROTO);
	ASSERT_EQ(wire_open(&from, a, (size_t)na, &m), 0);
	ASSERT_EQ(m.len, WIRE_PAYLOAD_MAX);
	ASSERT_EQ(wire_open(&from, a, (size_t)na, &m), -EPROTO);
	ASSERT_EQ(wire_open(&from, b, (size_t)nb, &m), 0);
	ASSERT_EQ(m.len, 1);
	/* Reflected: the keys of the directions differ. */
	channels(&to, &from);
	na = wire_seal(&to, WIRE_DATA, "x", 1, a);
	back.seq = 0;
	ASSERT_EQ(wire_open(&back, a, (size_t)na, &m), -EACCES);
}

/* Under the address sanitizer a read past the end of the exact allocation is found. */
static void *copy_of(const void *data, size_t len)
{
	void *p = malloc(len ? len : 1);

	ASSERT_TRUE(p != NULL);
	memcpy(p, data, len);
	return p;
}

/* A number of rounds, or as many as RDMA_FUZZ_SECONDS allow. */
struct fuzz {
	uint64_t state; /* of the generator */
	uint64_t left, until;
};

static struct fuzz fuzz_begin(unsigned int usual)
{
	const char *seconds = getenv("RDMA_FUZZ_SECONDS"), *seed = getenv("RDMA_FUZZ_SEED");
	struct fuzz f = { .state = seed ? strtoull(seed, NULL, 0) : 1, .left = usual };

	if (seconds) {
		f.until = os_now_ns() + strtoull(seconds, NULL, 0) * 1000000000u;
		f.left = UINT64_MAX;
	}
	return f;
}

static bool fuzz_more(struct fuzz *f)
{
	return f->left-- && (!f->until || f->left % 256 || os_now_ns() < f->until);
}

/* Change some bytes, cut, or lengthen. */
static size_t damage(uint8_t *msg, size_t len, size_t room, uint64_t *state)
{
	switch (prng_below(state, 4)) {
	case 0:
		for (uint64_t i = 1 + prng_below(state, 4); i; i--)
			msg[prng_below(state, len)] = (uint8_t)prng_next(state);
		return len;
	case 1:
		return prng_below(state, len + 1);
	case 2:
		return len + prng_below(state, room - len + 1);
	default:
		prng_fill(msg, room, prng_next(state));
		if (prng_below(state, 2) && room >= 12) {
			/* A plausible header: magic, version, type, length. */
			len = prng_below(state, room + 1);
			memcpy(msg, "STR1\2\0", 6);
			msg[6] = (uint8_t)prng_below(state, 9);
			msg[7] = 0;
			msg[8] = (uint8_t)len;
			msg[9] = (uint8_t)(len >> 8);
			msg[10] = msg[11] = 0;
			return len;
		}
		return prng_below(state, room + 1);
	}
}

TEST_TIMEOUT(hostile_messages_are_refused, 900)
{
	struct fuzz f = fuzz_begin(20000);

	while (fuzz_more(&f)) {
		uint8_t msg[WIRE_MAX + 64], out[WIRE_MAX];
		struct wire_channel to, from;
		struct handshake c, l;
		struct wire_msg m;
		size_t len, out_len;
		void *p;
		int rc;

		make_pair(&c, &l, key_a, key_a);
		switch (prng_below(&f.state, 3)) {
		case 0: /* to a listener */
			rc = hs_begin(&c, msg);
			len = damage(msg, (size_t)rc, sizeof(msg), &f.state);
			p = copy_of(msg, len);
			rc = hs_input(&l, p, len, out, &out_len);
			ASSERT_TRUE(l.state != HS_DONE && out_len <= WIRE_MAX);
			break;
		case 1: /* to a connector */
			rc = hs_begin(&c, msg);
			ASSERT_EQ(hs_input(&l, msg, (size_t)rc, out, &out_len), 0);
			memcpy(msg, out, out_len);
			len = damage(msg, out_len, sizeof(msg), &f.state);
			p = copy_of(msg, len);
			rc = hs_input(&c, p, len, out, &out_len);
			ASSERT_TRUE(rc || !memcmp(p, msg, len));
			ASSERT_TRUE(c.state != HS_DONE);
			break;
		default: /* in a session */
			channels(&to, &from);
			rc = wire_seal(&to, WIRE_DATA, "hello", 5, msg);
			memcpy(out, msg, (size_t)rc);
			len = damage(msg, (size_t)rc, sizeof(msg), &f.state);
			p = copy_of(msg, len);
			if (len != (size_t)rc || memcmp(msg, out, len))
				ASSERT_LT(wire_open(&from, p, len, &m), 0);
			break;
		}
		free(p);
	}
}

/* A damaged message in place of the next one, or one of an earlier or later step. @to is a copy: the handshake goes on. */
static void attack(struct handshake to, const struct hs_packet m[4], unsigned int step, uint64_t *state)
{
	uint8_t msg[WIRE_MAX + 64], out[WIRE_MAX];
	const struct hs_packet *from = prng_below(state, 3) ? &m[step] : &m[prng_below(state, 4)];
	bool done = to.state == HS_DONE, same;
	size_t len, out_len;
	void *p;
	int rc;

	memcpy(msg, from->data, from->len);
	len = from == &m[step] || prng_below(state, 2) ? damage(msg, from->len, sizeof(msg), state) : from->len;
	same = len == m[step].len && !memcmp(msg, m[step].data, len);
	p = copy_of(msg, len);
	rc = hs_input(&to, p, len, out, &out_len);
	ASSERT_LE(out_len, WIRE_MAX);
	/* The first message proves nothing, and is answered with a challenge. All others are those of the peer, or refused. */
	ASSERT_TRUE(rc || same || (step == 0 && to.state == HS_SENT_CHALLENGE));
	ASSERT_TRUE(rc || !done);
	if (rc) {
		ASSERT_EQ(to.state, done ? HS_DONE : HS_FAILED);
		ASSERT_EQ(hs_input(&to, m[step].data, m[step].len, out, &out_len), -EPROTO);
		ASSERT_EQ(out_len, 0);
	}
	free(p);
}

TEST_TIMEOUT(hostile_messages_are_refused_in_every_state, 900)
{
	struct fuzz f = fuzz_begin(5000);

	while (fuzz_more(&f)) {
		struct handshake c, l, c_again, l_again;
		struct hs_packet m[4];
		uint8_t out[WIRE_MAX];
		size_t out_len;

		make_pair(&c, &l, key_a, key_a);
		c_again = c;
		l_again = l;
		shake(&c, &l, m);
		for (unsigned int i = 0; i < 3; i++) {
			attack(c, m, 3, &f.state); /* it is done: nothing more is expected */
			attack(l, m, 2, &f.state);
		}
		c = c_again;
		l = l_again;
		ASSERT_GT(hs_begin(&c, out), 0);
		for (unsigned int step = 0; step < 4; step++) {
			struct handshake *to = step % 2 ? &c : &l;

			for (unsigned int i = 0; i < 3; i++)
				attack(*to, m, step, &f.state);
			ASSERT_EQ(hs_input(to, m[step].data, m[step].len, out, &out_len), 0);
		}
		ASSERT_TRUE(c.state == HS_DONE && l.state == HS_DONE);
	}
}

TEST_TIMEOUT(hostile_file_requests_are_refused, 900)
{
	struct fuzz f = fuzz_begin(50000);

	while (fuzz_more(&f)) {
		struct proto_request q = { .op = (enum proto_op)(1 + prng_below(&f.state, 5)),
					   .slot = (uint32_t)prng_below(&f.state, PROTO_SLOTS),
					   .length = 1 + prng_below(&f.state, 1 << 20),
					   .file_offset = prng_next(&f.state) >> 2,
					   .path = "a/path" },
				     got;
		uint8_t msg[STRAIT_RDMA_MESSAGE_MAX];
		struct proto_reply r;
		size_t len = proto_put_request(&q, msg);
		void *p;
		int rc;

		if (prng_below(&f.state, 8))
			len = damage(msg, len, sizeof(msg), &f.state);
		p = copy_of(msg, len);
		rc = proto_get_request(p, len, &got);
		ASSERT_TRUE(rc == 0 || rc == -EBADMSG);
		if (!rc) {
			ASSERT_LT(got.slot, PROTO_SLOTS);
			ASSERT_LE(strlen(got.path), PROTO_PATH);
			ASSERT_LE(got.length, PROTO_LENGTH_MAX);
			/* What was accepted has exactly one encoding. */
			ASSERT_EQ(proto_put_request(&got, msg), len);
			ASSERT_MEMEQ(msg, p, len);
		}
		rc = proto_get_reply(p, len, &r);
		ASSERT_TRUE(rc == -EBADMSG || r.status <= 0);
		free(p);
	}
}

/* Queue pairs that a peer says it has, in a message that may have any bytes: an authenticated peer may be faulty. */
TEST_TIMEOUT(hostile_lists_of_queue_pairs_are_refused, 900)
{
	struct fuzz f = fuzz_begin(50000);

	while (fuzz_more(&f)) {
		struct wire_lane lane[WIRE_LANES_MAX], got[WIRE_LANES_MAX];
		uint32_t n = (uint32_t)prng_below(&f.state, WIRE_LANES_MAX + 1), m = 99;
		uint8_t payload[WIRE_LANES_BYTES + 16], again[WIRE_LANES_BYTES];
		bool whole = !prng_below(&f.state, 8);
		size_t len;
		void *p;
		int rc;

		for (uint32_t i = 0; i < n; i++)
			lane[i] = (struct wire_lane){ 1 + (uint32_t)prng_below(&f.state, 0xffffff),
						      (uint32_t)prng_below(&f.state, 1 << 24) };
		len = wire_lanes_encode(lane, n, payload);
		ASSERT_EQ(len, 1 + 8 * n);
		if (!whole)
			len = damage(payload, len, sizeof(payload), &f.state);
		p = copy_of(payload, len);
		rc = wire_lanes_decode(p, len, got, &m);
		ASSERT_TRUE(rc == 0 || (rc == -EBADMSG && m == 99 && !whole));
		if (!rc) {
			ASSERT_LE(m, WIRE_LANES_MAX);
			/* What was accepted has exactly one encoding. */
			ASSERT_EQ(wire_lanes_encode(got, m, again), len);
			ASSERT_MEMEQ(again, p, len);
		}
		free(p);
	}
}

TEST(replies_survive_the_wire)
{
	struct proto_reply r = { .id = 7, .status = -ENODATA, .bytes = 1ull << 40, .mtime = 5 }, got;
	uint8_t msg[STRAIT_RDMA_MESSAGE_MAX];
	size_t len = proto_put_reply(&r, msg);

	ASSERT_EQ(proto_get_reply(msg, len, &got), 0);
	ASSERT_MEMEQ(&got, &r, sizeof(r));
	ASSERT_EQ(proto_get_reply(msg, len - 1, &got), -EBADMSG);
}

TEST(offers_are_bound_to_session_and_time)
{
	struct wire_offer o = { .rights = STRAIT_RDMA_PEER_WRITES,
				.rkey = 5,
				.addr = 1 << 20,
				.length = 4096,
				.expires_ms = 1000 },
			  got;
	uint8_t key[WIRE_KEY] = "key", other[WIRE_KEY] = "other", session[WIRE_SESSION] = "other";
	char text[WIRE_OFFER_TEXT];
	uint64_t state = 3;

	memcpy(o.session, "session", 8);
	ASSERT_EQ(wire_offer_encode(test_hmac, key, &o, text), 0);
	ASSERT_EQ(strlen(text), STRAIT_RDMA_OFFER_TEXT - 1);
	ASSERT_EQ(wire_offer_decode(test_hmac, key, o.session, text, strlen(text), &got), 0);
	ASSERT_MEMEQ(&got, &o, sizeof(o));
	ASSERT_EQ(wire_offer_decode(test_hmac, other, o.session, text, strlen(text), &got), -EACCES);
	ASSERT_EQ(wire_offer_decode(test_hmac, key, session, text, strlen(text), &got), -EACCES);
	ASSERT_EQ(wire_offer_decode(test_hmac, key, o.session, text, strlen(text) - 1, &got), -EBADMSG);
	ASSERT_EQ(wire_offer_allows(&o, STRAIT_RDMA_PEER_WRITES, 0, 4096, 1000), 0);
	ASSERT_EQ(wire_offer_allows(&o, STRAIT_RDMA_PEER_READS, 0, 4096, 0), -EPERM);
	ASSERT_EQ(wire_offer_allows(&o, STRAIT_RDMA_PEER_WRITES, 1, 4096, 0), -EINVAL);
	ASSERT_EQ(wire_offer_allows(&o, STRAIT_RDMA_PEER_WRITES, UINT64_MAX, 2, 0), -EINVAL);
	ASSERT_EQ(wire_offer_allows(&o, STRAIT_RDMA_PEER_WRITES, 0, 1, 1001), -ESTALE);
	for (unsigned int i = 0; i < 2000; i++) {
		char bad[WIRE_OFFER_TEXT];
		unsigned int at = (unsigned int)prng_below(&state, sizeof(bad) - 1);

		memcpy(bad, text, sizeof(bad));
		bad[at] = (char)prng_below(&state, 256);
		if (bad[at] != text[at])
			ASSERT_LT(wire_offer_decode(test_hmac, key, o.session, bad, sizeof(bad) - 1, &got), 0);
	}
}
