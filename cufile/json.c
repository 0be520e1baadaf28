/* SPDX-License-Identifier: MIT */
/* A reader of JSON with comments, for files of settings: values are reported with their path. */
#include "core.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DEPTH 16
#define MAX_TEXT 1024

struct reader {
	const char *at;
	int line;
	int depth;
	char path[MAX_TEXT];
	cf_json_fn *fn;
	void *arg;
};

static bool value(struct reader *r, int index);

/* White space and comments; false when a comment does not end. */
static bool skip(struct reader *r)
{
	for (;; r->at++) {
		if (r->at[0] == '/' && r->at[1] == '/') {
			while (r->at[1] && r->at[1] != '\n')
				r->at++;
		} else if (r->at[0] == '/' && r->at[1] == '*') {
			for (r->at += 2; r->at[0] && !(r->at[0] == '*' && r->at[1] == '/'); r->at++)
				r->line += r->at[0] == '\n';
			if (!r->at[0])
				return false;
			r->at++;
		} else if (r->at[0] == '\n') {
			r->line++;
		} else if (r->at[0] != ' ' && r->at[0] != '\t' && r->at[0] != '\r') {
			return true;
		}
	}
}

static bool take(struct reader *r, char c)
{
	if (!skip(r) || *r->at != c)
		return false;
	r->at++;
	return true;
}

/* Escapes other than \uXXXX, which no setting needs, are resolved. */
static bool string(struct reader *r, char *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	size_t n = 0;

	if (!take(r, '"'))
		return false;
	for (; *r->at != '"'; r->at++) {
		char c = *r->at;

		if (!c || c == '\n' || n + 1 >= MAX_TEXT)
			return false;
		if (c == '\\') {
			const char *e = *++r->at ? strchr(from, *r->at) : NULL;

			if (!e)
				return false;
			c = to[e - from];
		}
		out[n++] = c;
	}
	out[n] = 0;
	r->at++;
	return true;
}

static bool members(struct reader *r)
{
	size_t len = strlen(r->path);
	char name[MAX_TEXT];

	if (take(r, '}'))
		return true;
	do {
		if (!string(r, name) || !take(r, ':') || len + strlen(name) + 2 > sizeof(r->path))
			return false;
		if (len)
			r->path[len] = '.';
		memcpy(r->path + len + (len ? 1 : 0), name, strlen(name) + 1);
		if (!value(r, -1))
			return false;
		r->path[len] = 0;
	} while (take(r, ','));
	return take(r, '}');
}

static bool elements(struct reader *r)
{
	struct cf_json_value v = { .path = r->path, .index = -1, .kind = CF_JSON_EMPTY };
	int i = 0;

	if (take(r, ']')) {
		r->fn(r->arg, &v);
		return true;
	}
	do
		if (!value(r, i++))
			return false;
	while (take(r, ','));
	return take(r, ']');
}

static bool word(struct reader *r, const char *w)
{
	size_t n = strlen(w);

	if (strncmp(r->at, w, n) || isalnum((unsigned char)r->at[n]))
		return false;
	r->at += n;
	return true;
}

static bool scalar(struct reader *r, struct cf_json_value *v, char *text)
{
	char *end;

	if (*r->at == '"') {
		v->kind = CF_JSON_STRING;
		v->text = text;
		return string(r, text);
	}
	if (word(r, "true") || word(r, "false")) {
		v->kind = CF_JSON_BOOL;
		v->number = r->at[-2] == 'u';
		return true;
	}
	if (word(r, "null"))
		return true;
	if (*r->at != '-' && !isdigit((unsigned char)*r->at))
		return false;
	v->kind = CF_JSON_NUMBER;
	v->number = strtod(r->at, &end);
	if (end == r->at)
		return false;
	r->at = end;
	return true;
}

static bool value(struct reader *r, int index)
{
	struct cf_json_value v = { .path = r->path, .index = index, .kind = CF_JSON_NULL };
	char text[MAX_TEXT];
	bool ok;

	if (!skip(r) || r->depth >= MAX_DEPTH)
		return false;
	if (*r->at == '{' || *r->at == '[') {
		r->depth++;
		ok = *r->at++ == '{' ? members(r) : elements(r);
		r->depth--;
		return ok;
	}
	if (!scalar(r, &v, text))
		return false;
	r->fn(r->arg, &v);
	return true;
}

int cf_json_read(const char *text, cf_json_fn *fn, void *arg)
{
	struct reader r = { .at = text, .line = 1, .fn = fn, .arg = arg };

	return value(&r, -1) && skip(&r) && !*r.at ? 0 : r.line;
}
