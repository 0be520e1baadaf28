/* SPDX-License-Identifier: MIT */
#ifndef SERVICE_JSON_H
#define SERVICE_JSON_H

/*
 * A JSON reader that walks text once, without building a tree. The text is untrusted: every call stops at
 * its end, and nesting is bounded. After the first error everything fails.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
	const char *p, *end, *start;
	int depth;
	const char *error; /* what is wrong, NULL so far; at json_offset() */
};

void json_init(struct json *j, const char *text, size_t len);
size_t json_offset(const struct json *j);

/*
 * Objects and arrays: enter, then next() before each member until it is false.
 *
 *     json_enter(j, '{');
 *     while (json_next(j, '}')) { key = json_key(j); ... value ... }
 */
bool json_enter(struct json *j, char open);
bool json_next(struct json *j, char close);

/* A string, unescaped, as memory of its own; NULL on error or want of memory. json_key() takes the colon, too. */
char *json_string(struct json *j);
char *json_key(struct json *j);
/* A whole number that fits 64 bits. */
bool json_u64(struct json *j, uint64_t *value);
/* Passes over a value of any kind. */
bool json_skip(struct json *j);
/* True at the end of the text, but for white space. */
bool json_end(struct json *j);

#endif
