/* SPDX-License-Identifier: MIT */
/*
 * Random sequences of calls, compared with a model of every file and region in host memory. In the environment
 * STRAIT_FUZZ_SEED replaces the seeds below, STRAIT_FUZZ_STEPS the number of steps.
 */
#include "functional/common.h"

#define FILES 3
#define REGIONS 5
#define ENDPOINTS 6
#define MAX_LEN (MIB(3) + 500)

struct file_model {
	char path[4200];
	unsigned char *bytes;
	uint64_t len;
};

struct region_model {
	struct strait_region *r;
	unsigned char *bytes;
	uint64_t len;
	bool host, revoked;
	void *imported; /* memory of strait_emu_malloc(), or malloc() for the host */
};

struct endpoint_model {
	struct strait_endpoint *ep;
	unsigned int file;
	int acc;
	uint32_t flags;
};

struct world {
	uint64_t state, steps;
	struct strait_context *ctx;
	struct strait_device *emu, *host;
	struct file_model f[FILES];
	struct region_model r[REGIONS];
	struct endpoint_model e[ENDPOINTS];
	struct strait_queue *q;
	struct strait_stream *s;
};

static uint64_t any(struct world *w, uint64_t n)
{
	return prng_below(&w->state, n);
}

static uint64_t any_len(struct world *w, uint64_t max)
{
	static const uint64_t kinds[] = { 2, 600, 5000, 70000, 700000, MAX_LEN };

	return any(w, min_u64(kinds[any(w, ARRAY_SIZE(kinds))], max) + 1);
}

static void open_context(struct world *w)
{
	static const uint64_t chunks[] = { 0, KIB(64), KIB(128), MIB(1) };
	struct strait_context_opts opts = { .size = sizeof(opts),
					    .threads = (uint32_t)any(w, 5),
					    .chunk_bytes = chunks[any(w, 4)],
					    .pool_bytes = any(w, 3) ? any(w, MIB(4)) : 0,
					    .pinned_budget = any(w, 2) ? MIB(2) : 0,
					    .queue_depth = (uint32_t)any(w, 20),
					    .flags = any(w, 4) ? 0 : STRAIT_CONTEXT_NO_URING };

	w->ctx = context_new(&opts);
	w->emu = device_named(w->ctx, "emu:0");
	w->host = device_named(w->ctx, "host");
	ASSERT_OK(strait_queue_open(w->ctx, NULL, &w->q));
	ASSERT_OK(strait_stream_open(w->emu, &w->s));
}

static void close_region(struct world *w, struct region_model *m)
{
	if (!m->r)
		return;
	strait_region_close(m->r);
	if (m->imported && m->host)
		free(m->imported);
	else if (m->imported)
		strait_emu_free(w->emu, m->imported);
	free(m->bytes);
	memset(m, 0, sizeof(*m));
}

static void open_region(struct world *w, struct region_model *m)
{
	close_region(w, m);
	m->host = !any(w, 3);
	m->len = 1 + any_len(w, MAX_LEN);
	m->bytes = calloc(1, m->len);
	if (any(w, 3)) {
		m->r = region_new(m->host ? w->host : w->emu, m->len);
		return;
	}
	if (m->host)
		m->imported = calloc(1, m->len);
	else
		ASSERT_OK(strait_emu_malloc(w->emu, m->len, &m->imported));
	ASSERT_OK(strait_region_import(w->ctx, m->host ? w->host : NULL, m->imported, m->len, &m->r));
}

static void open_endpoint(struct world *w, struct endpoint_model *m)
{
	static const uint32_t flags[] = { 0, 0, STRAIT_FILE_DIRECT, STRAIT_FILE_BUFFERED, STRAIT_FILE_LEASE };
	static const int accs[] = { O_RDONLY, O_RDWR, O_RDWR, O_WRONLY };
	int extra = any(w, 4) ? 0 : O_APPEND, fd;

	strait_endpoint_close(m->ep);
	m->file = (unsigned int)any(w, FILES);
	m->acc = accs[any(w, 4)];
	m->flags = flags[any(w, ARRAY_SIZE(flags))];
	if (any(w, 2)) {
		m->ep = file_new(w->ctx, w->f[m->file].path, m->acc, m->flags);
		return;
	}
	fd = open(w->f[m->file].path, m->acc | extra | O_CLOEXEC);
	ASSERT_GE(fd, 0);
	ASSERT_OK(strait_file_import(w->ctx, fd, m->flags, &m->ep));
	close(fd);
}

/* Checks what the library must return, and what must be in memory and file afterwards. */
static void check_result(struct world *w, uint32_t op, struct endpoint_model *e, uint64_t off, struct region_model *r,
			 uint64_t region_off, uint64_t len, uint32_t routes, int status, uint64_t bytes)
{
	struct file_model *f = &w->f[e->file];
	bool access = op == STRAIT_READ ? e->acc != O_WRONLY : e->acc != O_RDONLY;

	bool possible = !routes || (!r->host && (op == STRAIT_READ || routes != ROUTE(PAGECACHE)));

	/* If several things are wrong, any of them may be reported. */
	if (r->revoked || !access || !possible) {
		ASSERT_TRUE((r->revoked && status == -ENODEV) || (!access && status == -EBADF) ||
			    (!possible && status == -EOPNOTSUPP));
		return;
	}
	ASSERT_EQ(status, 0);
	if (op == STRAIT_READ) {
		ASSERT_EQ(bytes, off >= f->len ? 0 : min_u64(len, f->len - off));
		memcpy(r->bytes + region_off, f->bytes + (bytes ? off : 0), bytes);
		return;
	}
	ASSERT_EQ(bytes, len);
	if (len && off + len > f->len) {
		if (off > f->len)
			memset(f->bytes + f->len, 0, off - f->len);
		f->len = off + len;
	}
	memcpy(f->bytes + off, r->bytes + region_off, len);
}

static void transfer(struct world *w)
{
	static const uint32_t masks[] = { 0, 0, 0, ROUTE(STAGED), ROUTE(PAGECACHE) };
	struct endpoint_model *e = &w->e[any(w, ENDPOINTS)];
	struct region_model *r = &w->r[any(w, REGIONS)];
	struct strait_transfer t = { .op = (uint32_t)any(w, 2), .endpoint = e->ep, .region = r->r, .user_data = 9 };
	struct strait_stream_transfer st = { .size = sizeof(st),
					     .endpoint_offset = &t.endpoint_offset,
					     .region_offset = &t.region_offset,
					     .length = &t.length };
	struct strait_result res = { 0 };
	int64_t result = 0;
	int rc;

	if (!e->ep || !r->r)
		return;
	t.routes = masks[any(w, ARRAY_SIZE(masks))];
	t.length = any_len(w, r->len);
	t.region_offset = any(w, r->len - t.length + 1);
	t.endpoint_offset = any(w, MAX_LEN - t.length + 1);
	switch (any(w, 3)) {
	case 0:
		strait_transfer_run(&t, STRAIT_FOREVER, &res);
		break;
	case 1:
		rc = strait_queue_submit(w->q, &t, 1);
		if (rc)
			res.status = rc;
		else
			ASSERT_EQ(strait_queue_wait(w->q, 1, 1, STRAIT_FOREVER, &res), 1);
		break;
	default:
		if (r->host)
			return;
		st.op = t.op;
		st.routes = t.routes;
		st.endpoint = e->ep;
		st.region = r->r;
		st.result = &result;
		rc = strait_stream_transfer(w->s, &st);
		if (!rc)
			ASSERT_OK(strait_stream_wait(w->s, STRAIT_FOREVER));
		res.status = rc ? rc : result < 0 ? (int)result : 0;
		res.bytes = result > 0 ? (uint64_t)result : 0;
	}
	check_result(w, t.op, e, t.endpoint_offset, r, t.region_offset, t.length, t.routes, res.status, res.bytes);
}

/* Many at once, to ranges that do not overlap. */
static void batch(struct world *w)
{
	enum { N = 20 };
	struct endpoint_model *e = &w->e[any(w, ENDPOINTS)];
	struct region_model *r = &w->r[any(w, REGIONS)];
	struct strait_transfer t[N];
	struct strait_result res[N];
	uint32_t op = (uint32_t)any(w, 2);
	uint64_t slot;
	int rc;

	if (!e->ep || !r->r)
		return;
	slot = r->len / N;
	for (uint64_t i = 0; i < N; i++)
		t[i] = (struct strait_transfer){ .op = op,
						 .endpoint = e->ep,
						 .region = r->r,
						 .endpoint_offset = i * slot,
						 .region_offset = i * slot,
						 .length = any(w, slot + 1),
						 .user_data = i };
	rc = strait_queue_submit(w->q, t, N);
	if (r->revoked) {
		ASSERT_EQ(rc, -ENODEV);
		return;
	}
	ASSERT_EQ(rc, 0);
	ASSERT_EQ(strait_queue_wait(w->q, N, N, STRAIT_FOREVER, res), N);
	/* They do not overlap, so their order does not matter. */
	for (int pass = 0; pass < N; pass++)
		for (int i = 0; i < N; i++)
			if (res[i].user_data == (uint64_t)pass) {
				const struct strait_transfer *of = &t[pass];

				check_result(w, op, e, of->endpoint_offset, r, of->region_offset, of->length, 0,
					     res[i].status, res[i].bytes);
			}
}

static void touch_region(struct world *w)
{
	struct region_model *m = &w->r[any(w, REGIONS)];
	uint64_t len, off;
	uint32_t crc = 0;
	unsigned char *buf;
	int want = m->revoked ? -ENODEV : 0;

	if (!m->r)
		return;
	len = any_len(w, m->len);
	off = any(w, m->len - len + 1);
	switch (any(w, 4)) {
	case 0:
		ASSERT_EQ(strait_region_fill(m->r, off, (uint8_t)len, len), want);
		if (!want)
			memset(m->bytes + off, (uint8_t)len, len);
		break;
	case 1:
		buf = pattern_new(off, len, w->state);
		ASSERT_EQ(strait_region_copy_in(m->r, off, buf, len), want);
		if (!want)
			memcpy(m->bytes + off, buf, len);
		free(buf);
		break;
	case 2:
		ASSERT_EQ(strait_region_crc32c(m->r, off, len, &crc), want);
		break;
	default:
		if (!want)
			region_expect(m->r, off, m->bytes + off, len);
	}
}

/* Changes the file without the library, where it was not declared immutable. */
static void touch_file(struct world *w)
{
	struct file_model *f = &w->f[any(w, FILES)];
	uint64_t len = any_len(w, MAX_LEN), off;

	switch (any(w, 4)) {
	case 0:
		ASSERT_EQ(truncate(f->path, (off_t)len), 0);
		if (len > f->len)
			memset(f->bytes + f->len, 0, len - f->len);
		f->len = len;
		break;
	case 1:
		off = any(w, MAX_LEN - len + 1);
		if (!len)
			break;
		if (off > f->len)
			memset(f->bytes + f->len, 0, off - f->len);
		pattern(f->bytes + off, off, len, w->state);
		write_at(f->path, f->bytes + off, len, off);
		f->len = max_u64(f->len, off + len);
		break;
	case 2:
		evict(f->path, any(w, MAX_LEN), len + 1);
		break;
	default:
		ASSERT_EQ(file_length(f->path), f->len);
		file_expect(f->path, 0, f->bytes, f->len);
	}
}

static void step(struct world *w)
{
	struct region_model *m = &w->r[any(w, REGIONS)];

	switch (any(w, 24)) {
	case 0:
		open_region(w, m);
		break;
	case 1:
		if (!any(w, 3))
			close_region(w, m);
		break;
	case 2 ... 3:
		open_endpoint(w, &w->e[any(w, ENDPOINTS)]);
		break;
	case 4:
		if (m->r && !any(w, 4)) {
			ASSERT_EQ(strait_region_revoke(m->r), m->revoked ? -EALREADY : 0);
			m->revoked = true;
		}
		break;
	case 5 ... 7:
		touch_file(w);
		break;
	case 8 ... 10:
		touch_region(w);
		break;
	case 11 ... 13:
		batch(w);
		break;
	default:
		transfer(w);
	}
}

static void check_all(struct world *w)
{
	for (int i = 0; i < REGIONS; i++)
		if (w->r[i].r && !w->r[i].revoked)
			region_expect(w->r[i].r, 0, w->r[i].bytes, w->r[i].len);
	for (int i = 0; i < FILES; i++) {
		ASSERT_EQ(file_length(w->f[i].path), w->f[i].len);
		file_expect(w->f[i].path, 0, w->f[i].bytes, w->f[i].len);
	}
}

static void close_context(struct world *w)
{
	for (int i = 0; i < ENDPOINTS; i++)
		strait_endpoint_close(w->e[i].ep);
	memset(w->e, 0, sizeof(w->e));
	for (int i = 0; i < REGIONS; i++)
		close_region(w, &w->r[i]);
	strait_queue_close(w->q);
	strait_stream_close(w->s);
	strait_context_close(w->ctx);
	ASSERT_EQ(stats_of(NULL).pool_bytes, 0);
	ASSERT_EQ(stats_of(NULL).registered_bytes, 0);
}

static uint64_t number(const char *name, uint64_t fallback)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : fallback;
}

static const struct seed {
	const char *name;
	uint64_t seed;
} seeds[] = { { "1", 1 },   { "2", 2 },	  { "3", 3 },	{ "4", 4 },   { "5", 5 },   { "6", 6 },
	      { "7", 7 },   { "8", 8 },	  { "9", 9 },	{ "10", 10 }, { "11", 11 }, { "12", 12 },
	      { "13", 13 }, { "14", 14 }, { "15", 15 }, { "16", 16 } };

TEST_VARIANTS_TIMEOUT(calls_in_any_order, struct seed, seeds, 600)
{
	struct world w = { .state = number("STRAIT_FUZZ_SEED", v->seed), .steps = number("STRAIT_FUZZ_STEPS", 1500) };

	printf("repeat with STRAIT_FUZZ_SEED=%llu\n", (unsigned long long)w.state);
	for (int i = 0; i < FILES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "file%d", i);
		w.f[i].len = any_len(&w, MAX_LEN);
		w.f[i].bytes = calloc(1, MAX_LEN + 1);
		pattern(w.f[i].bytes, 0, w.f[i].len, (uint64_t)i);
		snprintf(w.f[i].path, sizeof(w.f[i].path), "%s", make_file(name, w.f[i].len, (uint64_t)i));
	}
	for (int round = 0; round < 4; round++) {
		open_context(&w);
		for (int i = 0; i < REGIONS; i++)
			open_region(&w, &w.r[i]);
		for (int i = 0; i < ENDPOINTS; i++)
			open_endpoint(&w, &w.e[i]);
		for (uint64_t i = 0; i < w.steps / 4; i++)
			step(&w);
		check_all(&w);
		close_context(&w);
	}
	for (int i = 0; i < FILES; i++)
		free(w.f[i].bytes);
}
