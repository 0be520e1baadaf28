/* SPDX-License-Identifier: MIT */
/* Reads cufile.json: JSON in which comments are allowed. */
#include <cufile_settings.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

#define MAX_FILE (1 << 20)
#define MAX_PATH 1024

char *settings_file_load(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text;
	size_t n;

	if (!f)
		return NULL;
	text = malloc(MAX_FILE + 1);
	n = text ? fread(text, 1, MAX_FILE, f) : 0;
	fclose(f);
	if (text)
		text[n] = 0;
	return text;
}

struct parser {
	struct json j;
	char path[MAX_PATH];
	setting_fn *fn;
	void *arg;
};

static bool parse_value(struct parser *w, int index);

static bool parse_object(struct parser *w)
{
	size_t len = strlen(w->path);
	bool ok = true;

	if (!json_read_enter(&w->j, '{'))
		return false;
	while (ok && json_read_next(&w->j, '}')) {
		char *name = json_read_key(&w->j);

		ok = name && len + strlen(name) + 2 <= sizeof(w->path);
		if (ok) {
			if (len)
				w->path[len] = '.';
			memcpy(w->path + len + (len ? 1 : 0), name, strlen(name) + 1);
			ok = parse_value(w, -1);
			w->path[len] = 0;
		}
		free(name);
	}
	return ok && !w->j.error;
}

static bool parse_array(struct parser *w)
{
	struct setting_value v = { .path = w->path, .index = -1, .kind = SETTING_ARRAY };
	bool ok = true;
	int i = 0;

	if (!json_read_enter(&w->j, '['))
		return false;
	while (ok && json_read_next(&w->j, ']'))
		ok = parse_value(w, i++);
	if (ok && !w->j.error && !i)
		w->fn(w->arg, &v);
	return ok && !w->j.error;
}

static bool parse_scalar(struct parser *w, int index)
{
	struct setting_value v = { .path = w->path, .index = index };
	bool ok, yes = false;
	char *text = NULL;

	switch (json_read_kind(&w->j)) {
	case JSON_STRING:
		v.kind = SETTING_STRING;
		v.text = text = json_read_string(&w->j);
		ok = text != NULL;
		break;
	case JSON_BOOL:
		v.kind = SETTING_BOOL;
		ok = json_read_bool(&w->j, &yes);
		v.number = yes;
		break;
	case JSON_NUMBER:
		v.kind = SETTING_NUMBER;
		ok = json_read_number(&w->j, &v.number);
		break;
	case JSON_NULL:
		v.kind = SETTING_NULL;
		ok = json_read_skip(&w->j);
		break;
	default:
		ok = false;
	}
	if (ok)
		w->fn(w->arg, &v);
	free(text);
	return ok;
}

static bool parse_value(struct parser *w, int index)
{
	enum json_kind kind = json_read_kind(&w->j);

	return kind == JSON_OBJECT ? parse_object(w) : kind == JSON_ARRAY ? parse_array(w) : parse_scalar(w, index);
}

int settings_file_parse(const char *text, setting_fn *fn, void *arg)
{
	struct parser w = { .fn = fn, .arg = arg };

	json_read_init(&w.j, text, strlen(text));
	w.j.comments = true;
	return parse_value(&w, -1) && json_read_end(&w.j) ? 0 : (int)json_read_line(&w.j);
}
