/* SPDX-License-Identifier: MIT */
#ifndef COMMON_JSON_H
#define COMMON_JSON_H

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
	bool comments;	   /* of both of C's forms are white space, set after json_read_init() */
	const char *error; /* what is wrong, NULL so far; at json_read_offset() */
};

void json_read_init(struct json *j, const char *text, size_t len);
size_t json_read_offset(const struct json *j);
/* The number of the line that has been reached. */
unsigned int json_read_line(const struct json *j);

/*
 * Objects and arrays: enter, then next() before each member until it is false.
 *
 *     json_read_enter(j, '{');
 *     while (json_read_next(j, '}')) { key = json_read_key(j); ... value ... }
 */
bool json_read_enter(struct json *j, char open);
bool json_read_next(struct json *j, char close);

/* A string, unescaped, as memory of its own; NULL on error or want of memory. json_read_key() takes the colon, too. */
char *json_read_string(struct json *j);
char *json_read_key(struct json *j);
enum json_kind { JSON_NONE, JSON_OBJECT, JSON_ARRAY, JSON_STRING, JSON_NUMBER, JSON_BOOL, JSON_NULL };
/* What comes next; nothing is passed over but white space. */
enum json_kind json_read_kind(struct json *j);
bool json_read_bool(struct json *j, bool *value);
bool json_read_number(struct json *j, double *value);
/* A whole number that fits 64 bits. */
bool json_read_u64(struct json *j, uint64_t *value);
/* Passes over a value of any kind. */
bool json_read_skip(struct json *j);
/* True at the end of the text, but for white space. */
bool json_read_end(struct json *j);

#endif
