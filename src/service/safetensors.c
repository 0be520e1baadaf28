/* SPDX-License-Identifier: MIT */
#include <strait/safetensors.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strait/device.h>
#include <strait/endpoint.h>
#include <strait/region.h>
#include <time.h>

#include "base/util.h"
#include "common/json.h"

#define DEFAULT_ALIGN 256
#define MAX_ALIGN MIB(2)
#define MAX_HEADER MIB(100) /* as the format's own library has it */

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

struct tensor {
	char *name;
	char dtype[16];
	uint32_t bits;
	uint32_t rank;
	uint64_t shape[STRAIT_TENSOR_DIMS];
	uint64_t begin, end; /* in the data section */
	uint64_t region_offset;
};

struct pair {
	char *key, *value;
};

struct strait_safetensors {
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	uint64_t data; /* where the data section starts in the file */
	uint64_t data_len;
	uint64_t align;
	uint64_t bytes;
	struct tensor *tensors;
	unsigned int n, room;
	struct pair *meta;
	unsigned int n_meta, meta_room;
	char *why;
	size_t why_len;
};

__attribute__((format(printf, 2, 3))) static int bad(struct strait_safetensors *st, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (st->why && st->why_len)
		vsnprintf(st->why, st->why_len, fmt, ap);
	va_end(ap);
	return -EBADMSG;
}

/* Room for one more of @size bytes. */
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

/* Does the length follow from type and shape, and lie inside the data? */
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
		return bad(st, "tensor '%s' has %llu bytes where its type and shape make %llu", t->name,
			   (unsigned long long)(t->end - t->begin), (unsigned long long)(bits / 8));
	return 0;
}

/* One "name": { "dtype": ..., "shape": ..., "data_offsets": ... }. Takes @name. */
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
		st->meta[st->n_meta++] = (struct pair){ key, value };
	}
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

/*
 * Gives each tensor its place. As long as a tensor that keeps its distance to the one before is
 * aligned, it does, and both travel in one transfer.
 */
static int place_tensors(struct strait_safetensors *st)
{
	uint64_t pos = 0, prev_end = 0;

	if (st->n)
		qsort(st->tensors, st->n, sizeof(*st->tensors), by_place);
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
			   j.error ? j.error : "something follows the object");
	return place_tensors(st);
}

/* Reads bytes of the file into host memory. */
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

static int read_header(struct strait_safetensors *st)
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
			"its first eight bytes give a header of %llu bytes: this is no safetensors file, or a damaged one",
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

STRAIT_API int strait_safetensors_open(struct strait_context *ctx, struct strait_endpoint *ep, uint64_t align,
				       char *why, size_t why_len, struct strait_safetensors **ret)
{
	struct strait_safetensors *st;
	int rc;

	if (!ctx || !ep || !ret || (align && (!is_pow2(align) || align > MAX_ALIGN)))
		return -EINVAL;
	st = calloc(1, sizeof(*st));
	if (!st)
		return -ENOMEM;
	st->ctx = ctx;
	st->ep = ep;
	st->align = align ? align : DEFAULT_ALIGN;
	st->why = why;
	st->why_len = why_len;
	rc = read_header(st);
	st->why = NULL;
	if (rc) {
		strait_safetensors_close(st);
		return rc;
	}
	*ret = st;
	return 0;
}

STRAIT_API void strait_safetensors_close(struct strait_safetensors *st)
{
	if (!st)
		return;
	for (unsigned int i = 0; i < st->n; i++)
		free(st->tensors[i].name);
	for (unsigned int i = 0; i < st->n_meta; i++) {
		free(st->meta[i].key);
		free(st->meta[i].value);
	}
	free(st->tensors);
	free(st->meta);
	free(st);
}

STRAIT_API int strait_safetensors_count(const struct strait_safetensors *st)
{
	return st ? (int)st->n : -EINVAL;
}

STRAIT_API uint64_t strait_safetensors_bytes(const struct strait_safetensors *st)
{
	return st ? st->bytes : 1;
}

STRAIT_API int strait_safetensors_tensor(const struct strait_safetensors *st, unsigned int index,
					 struct strait_tensor_info *info)
{
	struct strait_tensor_info i = { .size = sizeof(i) };
	const struct tensor *t;

	if (!st || !info)
		return -EINVAL;
	if (index >= st->n)
		return -ENOENT;
	t = &st->tensors[index];
	i.name = t->name;
	memcpy(i.dtype, t->dtype, sizeof(i.dtype));
	i.element_bits = t->bits;
	i.rank = t->rank;
	memcpy(i.shape, t->shape, sizeof(i.shape));
	i.length = t->end - t->begin;
	i.file_offset = st->data + t->begin;
	i.region_offset = t->region_offset;
	return struct_out(info, &i, sizeof(i), STRAIT_TENSOR_INFO_SIZE_V1);
}

STRAIT_API int strait_safetensors_find(const struct strait_safetensors *st, const char *name)
{
	if (!st || !name)
		return -EINVAL;
	for (unsigned int i = 0; i < st->n; i++)
		if (!strcmp(st->tensors[i].name, name))
			return (int)i;
	return -ENOENT;
}

STRAIT_API const char *strait_safetensors_metadata(const struct strait_safetensors *st, const char *key)
{
	for (unsigned int i = 0; st && key && i < st->n_meta; i++)
		if (!strcmp(st->meta[i].key, key))
			return st->meta[i].value;
	return NULL;
}

/* The transfer that brings tensor @i and those behind it that keep their distance; @i moves on. */
static struct strait_transfer next_run(const struct strait_safetensors *st, unsigned int *i)
{
	const struct tensor *first = &st->tensors[*i], *last = first;

	while (++*i < st->n &&
	       st->tensors[*i].region_offset - first->region_offset == st->tensors[*i].begin - first->begin)
		last = &st->tensors[*i];
	return (struct strait_transfer){ .op = STRAIT_READ,
					 .endpoint = st->ep,
					 .endpoint_offset = st->data + first->begin,
					 .region_offset = first->region_offset,
					 .length = last->end - first->begin };
}

static void add_result(struct strait_result *sum, const struct strait_result *r, uint64_t want)
{
	sum->bytes += r->bytes;
	sum->routes |= r->routes;
	for (int k = 0; k < STRAIT_ROUTE_COUNT; k++)
		sum->route_bytes[k] += r->route_bytes[k];
	if (!sum->status) {
		sum->status = r->status ? r->status : r->bytes != want ? -ENODATA : 0;
		sum->device_status = r->device_status;
	}
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* STRAIT_FOREVER, and what comes near it, stays that. */
static int64_t deadline_of(int64_t timeout_ns)
{
	int64_t deadline;

	return __builtin_add_overflow(now_ns(), timeout_ns, &deadline) ? STRAIT_FOREVER : deadline;
}

static int64_t time_left(int64_t deadline)
{
	int64_t left = deadline == STRAIT_FOREVER ? STRAIT_FOREVER : deadline - now_ns();

	return left > 0 ? left : 0;
}

/* All runs on one queue, so that the next is under way while one ends. */
static int load_runs(struct strait_safetensors *st, struct strait_queue *q, struct strait_region *region,
		     uint32_t routes, int64_t deadline, struct strait_result *sum)
{
	struct strait_result r;
	unsigned int flying = 0, i = 0;
	int rc;

	while (i < st->n || flying) {
		if (i < st->n && !sum->status) {
			unsigned int at = i;
			struct strait_transfer t = next_run(st, &i);

			t.region = region;
			t.routes = routes;
			t.user_data = t.length;
			rc = strait_queue_submit(q, &t, 1);
			if (!rc) {
				flying++;
				continue;
			}
			i = at;
			if (rc != -EAGAIN)
				return rc;
		} else if (sum->status && !flying) {
			break;
		}
		rc = strait_queue_wait(q, 1, 1, time_left(deadline), &r);
		if (rc < 0)
			return rc;
		if (!rc)
			return -ETIMEDOUT;
		flying--;
		add_result(sum, &r, r.user_data);
	}
	return sum->status;
}

STRAIT_API int strait_safetensors_load(struct strait_safetensors *st, struct strait_region *region, uint32_t routes,
				       int64_t timeout_ns, struct strait_result *result)
{
	struct strait_queue_opts opts = { .size = sizeof(opts), .entries = 256 };
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_queue *q;
	struct strait_transfer t;
	struct strait_result r;
	unsigned int i = 0;
	int64_t deadline;
	int rc;

	if (!st || !region || !result || timeout_ns < 0)
		return -EINVAL;
	deadline = deadline_of(timeout_ns);
	memset(result, 0, sizeof(*result));
	rc = strait_region_info(region, &info);
	if (rc)
		return rc;
	if (info.length < st->bytes)
		return -EINVAL;
	if (!st->n)
		return 0;
	t = next_run(st, &i);
	if (i == st->n) {
		/* The common case: one transfer, on this thread. */
		t.region = region;
		t.routes = routes;
		rc = strait_transfer_run(&t, timeout_ns, &r);
		add_result(result, &r, t.length);
		return rc ? rc : result->status;
	}
	rc = strait_queue_open(st->ctx, &opts, &q);
	if (rc)
		return rc;
	rc = load_runs(st, q, region, routes, deadline, result);
	strait_queue_close(q);
	if (rc)
		result->status = rc;
	return rc;
}
