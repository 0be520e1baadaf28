/* SPDX-License-Identifier: MIT */
/* Reading and checking the header of a safetensors file. It is not trusted: every length is checked. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strait/device.h>
#include <strait/endpoint.h>
#include <strait/region.h>

#include "base/util.h"
#include "common/json.h"
#include "service/safetensors.h"

#define MAX_HEADER MIB(100) /* the limit of the format's own library */

static const struct {
	const char *name;
	uint32_t bits;
} dtypes[] = {
	{ "BOOL", 8 },	  { "U8", 8 },		{ "I8", 8 },	      { "F8_E4M3", 8 }, { "F8_E5M2", 8 },
	{ "F8_E8M0", 8 }, { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 }, { "I16", 16 },	{ "U16", 16 },
	{ "F16", 16 },	  { "BF16", 16 },	{ "I32", 32 },	      { "U32", 32 },	{ "F32", 32 },
	{ "I64", 64 },	  { "U64", 64 },	{ "F64", 64 },	      { "C64", 64 },	{ "F4", 4 },
	{ "F6_E2M3", 6 }, { "F6_E3M2", 6 },
};

/* Write why the file is refused. */
__attribute__((format(printf, 2, 3))) static int bad(struct strait_safetensors *st, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (st->why && st->why_len)
		vsnprintf(st->why, st->why_len, fmt, ap);
	va_end(ap);
	return -EBADMSG;
}

/* Make room for one more element of @size bytes. */
static int grow(void **array, unsigned int n, unsigned int *room, size_t size)
{
	unsigned int more = *room ? *room * 2 : 64;
	void *p;

	if (n < *room)
		return 0;
	p = reallocarray(*array, more, size);
	if (!p)
		return -ENOMEM;
	*array = p;
	*room = more;
	return 0;
}

static int read_shape(struct json *j, struct tensor *t)
{
	json_read_enter(j, '[');
	while (json_read_next(j, ']')) {
		if (t->rank == STRAIT_TENSOR_DIMS)
			return -E2BIG;
		if (json_read_u64(j, &t->shape[t->rank]))
			t->rank++;
	}
	return 0;
}

static void read_offsets(struct json *j, struct tensor *t)
{
	uint64_t value[2] = { 0 };
	int n = 0;

	json_read_enter(j, '[');
	while (json_read_next(j, ']')) {
		if (n == 2 || !json_read_u64(j, &value[n++])) {
			j->error = j->error ? j->error : "data_offsets has more than two numbers";
			return;
		}
	}
	if (n != 2 && !j->error)
		j->error = "data_offsets needs two numbers";
	t->begin = value[0];
	t->end = value[1];
}

/* Does the length follow from type and shape, and does the tensor lie inside the data section? */
static int check_tensor(struct strait_safetensors *st, const struct tensor *t)
{
	uint64_t bits = t->bits;

	if (!bits)
		return bad(st, "tensor '%s' has the unknown type '%s'", t->name, t->dtype);
	for (uint32_t d = 0; d < t->rank; d++)
		if (__builtin_mul_overflow(bits, t->shape[d], &bits))
			return bad(st, "the shape of tensor '%s' overflows", t->name);
	if (t->begin > t->end || t->end > st->data_len)
		return bad(st, "tensor '%s' lies at %llu to %llu of %llu data bytes: the file is truncated or damaged",
			   t->name, (unsigned long long)t->begin, (unsigned long long)t->end,
			   (unsigned long long)st->data_len);
	if (bits % 8 || bits / 8 != t->end - t->begin)
		return bad(st, "tensor '%s' has %llu bytes, but its type and shape require %llu", t->name,
			   (unsigned long long)(t->end - t->begin), (unsigned long long)(bits / 8));
	return 0;
}

/* One "name": { "dtype": ..., "shape": ..., "data_offsets": ... }. @name is owned by the tensor, or freed. */
static int read_tensor(struct strait_safetensors *st, struct json *j, char *name)
{
	struct tensor t = { .name = name };
	unsigned int seen = 0;
	int rc = 0;

	json_read_enter(j, '{');
	while (!rc && json_read_next(j, '}')) {
		char *key = json_read_key(j);

		if (!key) {
			break;
		} else if (!strcmp(key, "dtype")) {
			char *s = json_read_string(j);

			str_copy(t.dtype, sizeof(t.dtype), s ? s : "");
			for (size_t i = 0; s && i < ARRAY_SIZE(dtypes); i++)
				if (!strcmp(s, dtypes[i].name))
					t.bits = dtypes[i].bits;
			free(s);
			seen |= 1;
		} else if (!strcmp(key, "shape")) {
			rc = read_shape(j, &t);
			seen |= 2;
		} else if (!strcmp(key, "data_offsets")) {
			read_offsets(j, &t);
			seen |= 4;
		} else {
			json_read_skip(j);
		}
		free(key);
	}
	if (rc)
		rc = bad(st, "tensor '%s' has more than %d dimensions", name, STRAIT_TENSOR_DIMS);
	else if (!j->error && seen != 7)
		rc = bad(st, "tensor '%s' lacks its dtype, shape or data_offsets", name);
	else if (!j->error)
		rc = check_tensor(st, &t);
	if (!rc && !j->error)
		rc = grow((void **)&st->tensors, st->n, &st->room, sizeof(*st->tensors));
	if (rc || j->error) {
		free(name);
		return rc;
	}
	st->tensors[st->n++] = t;
	return 0;
}

static int read_metadata(struct strait_safetensors *st, struct json *j)
{
	json_read_enter(j, '{');
	while (json_read_next(j, '}')) {
		char *key = json_read_key(j), *value = key ? json_read_string(j) : NULL;

		if (!value || grow((void **)&st->meta, st->n_meta, &st->meta_room, sizeof(*st->meta))) {
			free(key);
			free(value);
			return j->error ? 0 : -ENOMEM;
		}
		st->meta[st->n_meta++] = (struct metadata){ key, value };
	}
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

/*
 * Give each tensor its offset in the region. A tensor that is aligned where it follows the one before as it does in the
 * file stays there, so that one transfer loads both.
 */
static int place_tensors(struct strait_safetensors *st)
{
	uint64_t pos = 0, prev_end = 0;

	if (st->n)
		qsort(st->tensors, st->n, sizeof(*st->tensors), by_offset);
	for (unsigned int i = 0; i < st->n; i++) {
		struct tensor *t = &st->tensors[i];

		if (t->begin < prev_end)
			return bad(st, "tensors '%s' and '%s' overlap", st->tensors[i - 1].name, t->name);
		if (t->begin != prev_end)
			return bad(st, "%llu bytes before tensor '%s' belong to no tensor",
				   (unsigned long long)(t->begin - prev_end), t->name);
		pos = align_up(pos, st->align);
		t->region_offset = pos;
		pos += t->end - t->begin;
		prev_end = t->end;
	}
	if (prev_end != st->data_len)
		return bad(st, "%llu bytes at the end belong to no tensor",
			   (unsigned long long)(st->data_len - prev_end));
	st->bytes = max_u64(pos, 1);
	return 0;
}

static int parse(struct strait_safetensors *st, const char *text, size_t len)
{
	struct json j;
	int rc = 0;

	json_read_init(&j, text, len);
	json_read_enter(&j, '{');
	while (!rc && json_read_next(&j, '}')) {
		char *key = json_read_key(&j);

		if (!key)
			break;
		if (!strcmp(key, "__metadata__")) {
			free(key);
			rc = read_metadata(st, &j);
		} else {
			rc = read_tensor(st, &j, key);
		}
	}
	if (rc)
		return rc;
	if (j.error || !json_read_end(&j))
		return bad(st, "the header is not JSON: byte %zu: %s", json_read_offset(&j),
			   j.error ? j.error : "unexpected data after the object");
	return place_tensors(st);
}

/* Read bytes of the file into host memory. */
static int read_host(struct strait_safetensors *st, uint64_t off, void *buf, size_t len)
{
	struct strait_region *region;
	struct strait_device *host;
	ssize_t n;
	int rc;

	rc = strait_device_find(st->ctx, "host", &host);
	if (!rc)
		rc = strait_region_import(st->ctx, host, buf, len, &region);
	if (rc)
		return rc;
	n = strait_read(st->ep, off, region, 0, len);
	strait_region_close(region);
	if (n < 0)
		return (int)n;
	return (size_t)n == len ? 0 : bad(st, "the file ends inside its header");
}

int safetensors_read_header(struct strait_safetensors *st)
{
	struct strait_file_info info = { .size = sizeof(info) };
	unsigned char raw[8];
	uint64_t len = 0;
	char *text;
	int rc;

	rc = strait_file_info(st->ep, &info);
	if (rc)
		return rc;
	if (info.length < 8)
		return bad(st, "the file has %llu bytes: too short for a safetensors file",
			   (unsigned long long)info.length);
	rc = read_host(st, 0, raw, sizeof(raw));
	if (rc)
		return rc;
	for (int i = 7; i >= 0; i--)
		len = len << 8 | raw[i];
	if (len > MAX_HEADER || len > info.length - 8 || len < 2)
		return bad(
			st,
			"its first eight bytes give a header length of %llu bytes: not a safetensors file, or damaged",
			(unsigned long long)len);
	text = malloc(len);
	if (!text)
		return -ENOMEM;
	st->data = 8 + len;
	st->data_len = info.length - st->data;
	rc = read_host(st, 8, text, len);
	if (!rc)
		rc = parse(st, text, len);
	free(text);
	return rc;
}
