/* SPDX-License-Identifier: MIT */
#include "common/json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 32

static bool fail(struct json *j, const char *what)
{
	if (!j->error)
		j->error = what;
	return false;
}

/* False if there is none, or none that ends. */
static bool comment(struct json *j)
{
	const char *p = j->p, *stop;

	if (!j->comments || j->end - p < 2 || p[0] != '/' || (p[1] != '/' && p[1] != '*'))
		return false;
	stop = p[1] == '/' ? memchr(p, '\n', (size_t)(j->end - p)) : memmem(p + 2, (size_t)(j->end - p) - 2, "*/", 2);
	if (!stop && p[1] == '*')
		return fail(j, "a comment does not end");
	j->p = !stop ? j->end : stop + (p[1] == '*' ? 2 : 1);
	return true;
}

static void blanks(struct json *j)
{
	do
		while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
			j->p++;
	while (comment(j));
}

void json_read_init(struct json *j, const char *text, size_t len)
{
	*j = (struct json){ .p = text, .start = text, .end = text + len };
}

size_t json_read_offset(const struct json *j)
{
	return (size_t)(j->p - j->start);
}

unsigned int json_read_line(const struct json *j)
{
	unsigned int n = 1;

	for (const char *p = j->start; p < j->p; p++)
		n += *p == '\n';
	return n;
}

bool json_read_enter(struct json *j, char open)
{
	blanks(j);
	if (j->error)
		return false;
	if (j->p == j->end || *j->p != open)
		return fail(j, open == '{' ? "an object is expected" : "an array is expected");
	if (++j->depth > MAX_DEPTH)
		return fail(j, "values are nested too deeply");
	j->p++;
	return true;
}

bool json_read_next(struct json *j, char close)
{
	bool first;

	if (j->error)
		return false;
	/* Just behind the opening bracket there is no comma. Nothing else can stand there. */
	first = j->p > j->start && (j->p[-1] == '{' || j->p[-1] == '[');
	blanks(j);
	if (j->p == j->end)
		return fail(j, "the text ends inside a value");
	if (*j->p == close) {
		j->p++;
		j->depth--;
		return false;
	}
	if (first)
		return true;
	if (*j->p != ',')
		return fail(j, "a comma or closing bracket is expected");
	j->p++;
	blanks(j);
	return true;
}

static int hex4(const char *p)
{
	int v = 0;

	for (int i = 0; i < 4; i++) {
		char c = p[i];

		v <<= 4;
		if (c >= '0' && c <= '9')
			v |= c - '0';
		else if (c >= 'a' && c <= 'f')
			v |= c - 'a' + 10;
		else if (c >= 'A' && c <= 'F')
			v |= c - 'A' + 10;
		else
			return -1;
	}
	return v;
}

static char *put_utf8(char *out, unsigned int c)
{
	if (c < 0x80) {
		*out++ = (char)c;
	} else if (c < 0x800) {
		*out++ = (char)(0xc0 | c >> 6);
		*out++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*out++ = (char)(0xe0 | c >> 12);
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	} else {
		*out++ = (char)(0xf0 | c >> 18);
		*out++ = (char)(0x80 | (c >> 12 & 0x3f));
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	}
	return out;
}

/* \uXXXX, perhaps two of them. Called with p behind the u. */
static char *unescape_unicode(struct json *j, char *out)
{
	int c, low;

	if (j->end - j->p < 4 || (c = hex4(j->p)) < 0)
		return fail(j, "a \\u escape is malformed"), NULL;
	j->p += 4;
	if (c >= 0xd800 && c < 0xdc00) {
		if (j->end - j->p < 6 || j->p[0] != '\\' || j->p[1] != 'u' || (low = hex4(j->p + 2)) < 0xdc00 ||
		    low > 0xdfff)
			return fail(j, "half of a surrogate pair is missing"), NULL;
		j->p += 6;
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	} else if (c >= 0xdc00 && c < 0xe000) {
		return fail(j, "half of a surrogate pair is missing"), NULL;
	}
	if (!c)
		return fail(j, "a string holds a NUL"), NULL;
	return put_utf8(out, (unsigned int)c);
}

static char *unescape(struct json *j, char *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;

	if (j->p == j->end)
		return fail(j, "the text ends inside a string"), NULL;
	if (*j->p == 'u') {
		j->p++;
		return unescape_unicode(j, out);
	}
	at = *j->p ? strchr(from, *j->p) : NULL;
	if (!at)
		return fail(j, "an escape is unknown"), NULL;
	j->p++;
	*out++ = to[at - from];
	return out;
}

char *json_read_string(struct json *j)
{
	const char *q;
	char *s, *out;

	blanks(j);
	if (j->error)
		return NULL;
	if (j->p == j->end || *j->p != '"')
		return fail(j, "a string is expected"), NULL;
	for (q = ++j->p; q < j->end && *q != '"'; q++)
		if (*q == '\\')
			q++;
	if (q >= j->end)
		return fail(j, "the text ends inside a string"), NULL;
	/* Escapes only get shorter. */
	out = s = malloc((size_t)(q - j->p) + 1);
	if (!s)
		return fail(j, "out of memory"), NULL;
	while (*j->p != '"') {
		if ((unsigned char)*j->p < 0x20) {
			fail(j, "a control character stands in a string");
			break;
		}
		if (*j->p != '\\') {
			*out++ = *j->p++;
			continue;
		}
		j->p++;
		out = unescape(j, out);
		if (!out)
			break;
	}
	if (j->error) {
		free(s);
		return NULL;
	}
	j->p++;
	*out = '\0';
	return s;
}

char *json_read_key(struct json *j)
{
	char *s = json_read_string(j);

	if (!s)
		return NULL;
	blanks(j);
	if (j->p == j->end || *j->p != ':') {
		fail(j, "a colon is expected");
		free(s);
		return NULL;
	}
	j->p++;
	return s;
}

bool json_read_u64(struct json *j, uint64_t *value)
{
	uint64_t v = 0;

	blanks(j);
	if (j->error)
		return false;
	if (j->p == j->end || *j->p < '0' || *j->p > '9')
		return fail(j, "a whole number is expected");
	for (; j->p < j->end && *j->p >= '0' && *j->p <= '9'; j->p++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*j->p - '0'), &v))
			return fail(j, "a number is too large");
	if (j->p < j->end && (*j->p == '.' || *j->p == 'e' || *j->p == 'E'))
		return fail(j, "a whole number is expected");
	*value = v;
	return true;
}

enum json_kind json_read_kind(struct json *j)
{
	blanks(j);
	if (j->error || j->p == j->end)
		return JSON_NONE;
	switch (*j->p) {
	case '{':
		return JSON_OBJECT;
	case '[':
		return JSON_ARRAY;
	case '"':
		return JSON_STRING;
	case 't':
	case 'f':
		return JSON_BOOL;
	case 'n':
		return JSON_NULL;
	default:
		return *j->p == '-' || (*j->p >= '0' && *j->p <= '9') ? JSON_NUMBER : JSON_NONE;
	}
}

static bool word(struct json *j, const char *w)
{
	size_t n = strlen(w);

	if ((size_t)(j->end - j->p) < n || memcmp(j->p, w, n))
		return false;
	j->p += n;
	return true;
}

bool json_read_bool(struct json *j, bool *value)
{
	bool yes;

	blanks(j);
	if (j->error)
		return false;
	yes = word(j, "true");
	if (!yes && !word(j, "false"))
		return fail(j, "true or false is expected");
	*value = yes;
	return true;
}

bool json_read_number(struct json *j, double *value)
{
	char text[64], *end;
	size_t n = 0;

	if (json_read_kind(j) != JSON_NUMBER)
		return fail(j, "a number is expected");
	while (n < sizeof(text) - 1 && j->p + n < j->end && strchr("+-.0123456789eE", j->p[n]) && j->p[n])
		n++;
	memcpy(text, j->p, n);
	text[n] = '\0';
	*value = strtod(text, &end);
	if (end == text || *end)
		return fail(j, "a number is malformed");
	j->p += n;
	return true;
}

static bool skip_word(struct json *j)
{
	const char *q = j->p;

	while (j->p < j->end && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *j->p) && *j->p)
		j->p++;
	return j->p > q || fail(j, "a value is expected");
}

bool json_read_skip(struct json *j)
{
	bool object;
	char *s;

	blanks(j);
	if (j->error || j->p == j->end)
		return fail(j, "a value is expected");
	switch (*j->p) {
	case '{':
	case '[':
		object = *j->p == '{';
		if (!json_read_enter(j, *j->p))
			return false;
		while (json_read_next(j, object ? '}' : ']')) {
			s = object ? json_read_key(j) : NULL;
			free(s);
			if ((object && !s) || !json_read_skip(j))
				return false;
		}
		return !j->error;
	case '"':
		s = json_read_string(j);
		free(s);
		return s != NULL;
	default:
		return skip_word(j);
	}
}

bool json_read_end(struct json *j)
{
	blanks(j);
	return !j->error && j->p == j->end;
}
