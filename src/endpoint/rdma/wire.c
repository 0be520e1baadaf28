/* SPDX-License-Identifier: MIT */
#include "endpoint/rdma/wire.h"

#include <errno.h>
#include <string.h>

#include "base/cursor.h"
#include "base/util.h"

#define OFFER_VERSION 1u
#define NUMBER_BITS 0xffffffu /* of queue pairs and packets */

bool wire_equal(const void *a, const void *b, size_t len)
{
	const volatile uint8_t *x = a, *y = b;
	uint8_t differ = 0;

	for (size_t i = 0; i < len; i++)
		differ |= x[i] ^ y[i];
	return !differ;
}

size_t wire_encode(enum wire_type type, uint64_t seq, const void *payload, size_t len, const uint8_t mac[WIRE_MAC],
		   uint8_t out[WIRE_MAX])
{
	static const uint8_t none[WIRE_MAC];
	struct put_cursor c = { .p = out, .left = WIRE_MAX };

	if (len > WIRE_PAYLOAD_MAX)
		return 0;
	put_uint(&c, WIRE_MAGIC, 4);
	put_uint(&c, WIRE_VERSION, 2);
	put_uint(&c, type, 2);
	put_uint(&c, WIRE_HEAD + len + WIRE_MAC, 4);
	put_uint(&c, 0, 4);
	put_uint(&c, seq, 8);
	put_bytes(&c, payload, len);
	put_bytes(&c, mac ? mac : none, WIRE_MAC);
	return c.bad ? 0 : WIRE_MAX - c.left;
}

int wire_decode(const void *buf, size_t len, struct wire_msg *msg)
{
	struct get_cursor c = { .p = buf, .left = len };
	uint32_t magic, version, type, length, reserved;
	struct wire_msg m;

	if (len < WIRE_HEAD + WIRE_MAC || len > WIRE_MAX)
		return -EBADMSG;
	magic = (uint32_t)get_uint(&c, 4);
	version = (uint32_t)get_uint(&c, 2);
	type = (uint32_t)get_uint(&c, 2);
	length = (uint32_t)get_uint(&c, 4);
	reserved = (uint32_t)get_uint(&c, 4);
	m.seq = get_uint(&c, 8);
	if (magic != WIRE_MAGIC)
		return -EBADMSG;
	if (version != WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (length != len || reserved || type < WIRE_HELLO || type > WIRE_READY)
		return -EBADMSG;
	m.type = (enum wire_type)type;
	m.len = len - WIRE_HEAD - WIRE_MAC;
	m.payload = get_view(&c, m.len);
	m.mac = get_view(&c, WIRE_MAC);
	if (c.bad)
		return -EBADMSG;
	*msg = m;
	return 0;
}

int wire_seal(struct wire_channel *ch, enum wire_type type, const void *payload, size_t len, uint8_t out[WIRE_MAX])
{
	size_t total = wire_encode(type, ch->seq, payload, len, NULL, out);
	int rc;

	if (!total)
		return -EMSGSIZE;
	rc = ch->hmac(ch->key, WIRE_KEY, out, total - WIRE_MAC, out + total - WIRE_MAC);
	if (rc)
		return rc;
	ch->seq++;
	return (int)total;
}

int wire_open(struct wire_channel *ch, const void *buf, size_t len, struct wire_msg *msg)
{
	uint8_t mac[WIRE_MAC];
	struct wire_msg m;
	int rc = wire_decode(buf, len, &m);

	if (!rc)
		rc = ch->hmac(ch->key, WIRE_KEY, buf, len - WIRE_MAC, mac);
	if (rc)
		return rc;
	if (!wire_equal(mac, m.mac, WIRE_MAC))
		return -EACCES;
	if (m.seq != ch->seq)
		return -EPROTO;
	ch->seq++;
	*msg = m;
	return 0;
}

size_t wire_lanes_encode(const struct wire_lane *lane, uint32_t n, uint8_t out[WIRE_LANES_BYTES])
{
	struct put_cursor c = { .p = out, .left = WIRE_LANES_BYTES };

	put_uint(&c, n, 1);
	for (uint32_t i = 0; i < n; i++) {
		put_uint(&c, lane[i].qp, 4);
		put_uint(&c, lane[i].psn, 4);
	}
	return c.bad ? 0 : WIRE_LANES_BYTES - c.left;
}

int wire_lanes_decode(const void *payload, size_t len, struct wire_lane lane[WIRE_LANES_MAX], uint32_t *n)
{
	struct get_cursor c = { .p = payload, .left = len };
	uint32_t count = (uint32_t)get_uint(&c, 1);

	if (c.bad || count > WIRE_LANES_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++) {
		lane[i].qp = (uint32_t)get_uint(&c, 4);
		lane[i].psn = (uint32_t)get_uint(&c, 4);
		c.bad |= !lane[i].qp || lane[i].qp > NUMBER_BITS || lane[i].psn > NUMBER_BITS;
	}
	if (c.bad || c.left)
		return -EBADMSG;
	*n = count;
	return 0;
}

static char hex_digit(unsigned int v)
{
	return (char)(v < 10 ? '0' + v : 'a' + (v - 10));
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int wire_offer_encode(wire_hmac_fn *hmac, const uint8_t key[WIRE_KEY], const struct wire_offer *o,
		      char text[WIRE_OFFER_TEXT])
{
	uint8_t raw[WIRE_OFFER_BYTES];
	struct put_cursor c = { .p = raw, .left = sizeof(raw) - WIRE_MAC };
	int rc;

	put_uint(&c, OFFER_VERSION, 4);
	put_uint(&c, o->rights, 4);
	put_bytes(&c, o->session, WIRE_SESSION);
	put_uint(&c, o->rkey, 4);
	put_uint(&c, 0, 4);
	put_uint(&c, o->addr, 8);
	put_uint(&c, o->length, 8);
	put_uint(&c, o->expires_ms, 8);
	rc = hmac(key, WIRE_KEY, raw, sizeof(raw) - WIRE_MAC, raw + sizeof(raw) - WIRE_MAC);
	if (rc)
		return rc;
	for (unsigned int i = 0; i < sizeof(raw); i++) {
		text[2 * i] = hex_digit(raw[i] >> 4);
		text[2 * i + 1] = hex_digit(raw[i] & 15);
	}
	text[2 * sizeof(raw)] = '\0';
	return 0;
}

int wire_offer_decode(wire_hmac_fn *hmac, const uint8_t key[WIRE_KEY], const uint8_t session[WIRE_SESSION],
		      const char *text, size_t len, struct wire_offer *o)
{
	uint8_t raw[WIRE_OFFER_BYTES], mac[WIRE_MAC];
	struct get_cursor c = { .p = raw, .left = sizeof(raw) };
	uint32_t version, reserved;
	struct wire_offer got;
	int rc;

	if (len != 2 * sizeof(raw))
		return -EBADMSG;
	for (unsigned int i = 0; i < sizeof(raw); i++) {
		int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EBADMSG;
		raw[i] = (uint8_t)(high << 4 | low);
	}
	rc = hmac(key, WIRE_KEY, raw, sizeof(raw) - WIRE_MAC, mac);
	if (rc)
		return rc;
	if (!wire_equal(mac, raw + sizeof(raw) - WIRE_MAC, WIRE_MAC))
		return -EACCES;
	version = (uint32_t)get_uint(&c, 4);
	got.rights = (uint32_t)get_uint(&c, 4);
	get_bytes(&c, got.session, WIRE_SESSION);
	got.rkey = (uint32_t)get_uint(&c, 4);
	reserved = (uint32_t)get_uint(&c, 4);
	got.addr = get_uint(&c, 8);
	got.length = get_uint(&c, 8);
	got.expires_ms = get_uint(&c, 8);
	if (c.bad || version != OFFER_VERSION || reserved || !got.length || got.length > UINT64_MAX - got.addr)
		return -EBADMSG;
	if (!wire_equal(got.session, session, WIRE_SESSION))
		return -EACCES;
	*o = got;
	return 0;
}

int wire_offer_allows(const struct wire_offer *o, uint32_t right, uint64_t off, uint64_t len, uint64_t now_ms)
{
	if ((o->rights & right) != right)
		return -EPERM;
	if (!len || !range_inside(off, len, o->length))
		return -EINVAL;
	return now_ms > o->expires_ms ? -ESTALE : 0;
}
