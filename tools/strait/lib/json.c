/* SPDX-License-Identifier: MIT */
#include "lib/json.h"

#include <assert.h>
#include <inttypes.h>

/* The length of the UTF-8 sequence at @s; 0 if it is not valid, as overlong forms and surrogates are not. */
static unsigned int utf8_length(const unsigned char *s)
{
	static const struct {
		unsigned char first, last, low, high;
		unsigned int len;
	} forms[] = {
		{ 0x01, 0x7f, 0x00, 0x00, 1 }, { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	for (unsigned int i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (s[0] < forms[i].first || s[0] > forms[i].last)
			continue;
		if (forms[i].len > 1 && (s[1] < forms[i].low || s[1] > forms[i].high))
			return 0;
		for (unsigned int k = 2; k < forms[i].len; k++)
			if ((s[k] & 0xc0) != 0x80)
				return 0;
		return forms[i].len;
	}
	return 0;
}

static void put_string(struct json *j, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	fputc('"', j->out);
	while (*s) {
		unsigned int len = utf8_length(s);

		if (!len) {
			fputs("\\ufffd", j->out);
			len = 1;
		} else if (*s == '"' || *s == '\\') {
			fprintf(j->out, "\\%c", *s);
		} else if (*s == '\n') {
			fputs("\\n", j->out);
		} else if (*s == '\t') {
			fputs("\\t", j->out);
		} else if (*s < 0x20 || *s == 0x7f) {
			fprintf(j->out, "\\u%04x", *s);
		} else {
			fwrite(s, 1, len, j->out);
		}
		s += len;
	}
	fputc('"', j->out);
}

static void put_indent(struct json *j)
{
	fprintf(j->out, "\n%*s", (int)(2 * j->depth), "");
}

/* Before a value: the comma, the line break, the name. */
static void put_name(struct json *j, const char *name)
{
	if (j->some[j->depth])
		fputc(',', j->out);
	j->some[j->depth] = true;
	if (j->depth)
		put_indent(j);
	if (name) {
		put_string(j, name);
		fputs(": ", j->out);
	}
}

static void open_level(struct json *j, const char *name, char open, char close)
{
	put_name(j, name);
	fputc(open, j->out);
	j->depth++;
	assert(j->depth < sizeof(j->close));
	j->some[j->depth] = false;
	j->close[j->depth] = close;
}

void json_begin(struct json *j, FILE *out)
{
	*j = (struct json){ .out = out };
	json_object(j, NULL);
}

void json_finish(struct json *j)
{
	while (j->depth)
		json_close(j);
	fputc('\n', j->out);
}

void json_object(struct json *j, const char *name)
{
	open_level(j, name, '{', '}');
}

void json_array(struct json *j, const char *name)
{
	open_level(j, name, '[', ']');
}

void json_close(struct json *j)
{
	char close = j->close[j->depth];
	bool some = j->some[j->depth];

	j->depth--;
	if (some)
		put_indent(j);
	fputc(close, j->out);
}

void json_string(struct json *j, const char *name, const char *value)
{
	put_name(j, name);
	put_string(j, value);
}

void json_uint(struct json *j, const char *name, uint64_t value)
{
	put_name(j, name);
	fprintf(j->out, "%" PRIu64, value);
}

void json_int(struct json *j, const char *name, int64_t value)
{
	put_name(j, name);
	fprintf(j->out, "%" PRId64, value);
}

void json_number(struct json *j, const char *name, double value)
{
	if (value - value != 0) { /* infinite or not a number: JSON has neither */
		json_null(j, name);
		return;
	}
	put_name(j, name);
	fprintf(j->out, "%.6g", value);
}

void json_bool(struct json *j, const char *name, bool value)
{
	put_name(j, name);
	fputs(value ? "true" : "false", j->out);
}

void json_null(struct json *j, const char *name)
{
	put_name(j, name);
	fputs("null", j->out);
}
