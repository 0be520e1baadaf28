/* SPDX-License-Identifier: MIT */
#ifndef CLI_JSON_H
#define CLI_JSON_H

/*
 * Writes one JSON value to a stream. Inside an object every call names its member; inside an array the
 * name is NULL. Each byte that is not valid UTF-8 becomes U+FFFD.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *out;
	unsigned int depth;
	bool some[16];	/* does the level have a value yet? */
	char close[16]; /* the character that ends the level */
};

/* Between these two one object is open. */
void json_begin(struct json *j, FILE *out);
void json_finish(struct json *j);

void json_object(struct json *j, const char *name);
void json_array(struct json *j, const char *name);
void json_close(struct json *j); /* the innermost object or array */

void json_string(struct json *j, const char *name, const char *value);
void json_uint(struct json *j, const char *name, uint64_t value);
void json_int(struct json *j, const char *name, int64_t value);
void json_number(struct json *j, const char *name, double value); /* null if it is not finite */
void json_bool(struct json *j, const char *name, bool value);
void json_null(struct json *j, const char *name);

#endif
