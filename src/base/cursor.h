/* SPDX-License-Identifier: MIT */
#ifndef BASE_CURSOR_H
#define BASE_CURSOR_H

/*
 * Little-endian encoding into, and decoding from, a bounded buffer. A step past the end sets @bad, changes nothing and
 * yields zeros: the caller checks @bad once, after the last step.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct put_cursor {
	uint8_t *p;
	size_t left;
	bool bad;
};

struct get_cursor {
	const uint8_t *p;
	size_t left;
	bool bad;
};

static inline void put_bytes(struct put_cursor *c, const void *data, size_t len)
{
	if (c->bad || len > c->left) {
		c->bad = true;
		return;
	}
	if (len)
		memcpy(c->p, data, len);
	c->p += len;
	c->left -= len;
}

static inline void put_uint(struct put_cursor *c, uint64_t v, unsigned int bytes)
{
	uint8_t raw[8];

	for (unsigned int i = 0; i < bytes; i++)
		raw[i] = (uint8_t)(v >> (8 * i));
	put_bytes(c, raw, bytes);
}

/* The next @len bytes in place; NULL past the end. */
static inline const uint8_t *get_view(struct get_cursor *c, size_t len)
{
	const uint8_t *at = c->p;

	if (c->bad || len > c->left) {
		c->bad = true;
		return NULL;
	}
	c->p += len;
	c->left -= len;
	return at;
}

static inline void get_bytes(struct get_cursor *c, void *to, size_t len)
{
	const uint8_t *at = get_view(c, len);

	if (at && len)
		memcpy(to, at, len);
	else
		memset(to, 0, len);
}

static inline uint64_t get_uint(struct get_cursor *c, unsigned int bytes)
{
	const uint8_t *at = get_view(c, bytes);
	uint64_t v = 0;

	for (unsigned int i = 0; at && i < bytes; i++)
		v |= (uint64_t)at[i] << (8 * i);
	return v;
}

#endif
