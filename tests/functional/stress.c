/* SPDX-License-Identifier: MIT */
#include "stress.h"

struct world {
	const struct stress *s;
	struct strait_context *ctx;
	struct strait_device *dev[3];
	char in_path[4200];
	const unsigned char *want;
	struct strait_endpoint *in[4]; /* one file, opened in different ways */
	atomic_uint next;
};

/* What belongs to one thread: nobody else writes to these. */
struct mine {
	struct world *w;
	uint64_t state, len;
	struct strait_region *r[3];
	struct strait_endpoint *out;
	char out_path[4200];
	unsigned char *model; /* of the file it writes */
	struct strait_queue *q;
	struct strait_stream *st[3];
};

static uint64_t any(struct mine *m, uint64_t n)
{
	return prng_below(&m->state, n);
}

/* A range of the file: mostly short, sometimes all of it. */
static void any_range(struct mine *m, uint64_t *off, uint64_t *len)
{
	static const uint64_t most[] = { 64, 5000, 70000, 600000 };
	uint64_t max = min_u64(any(m, 8) ? most[any(m, 4)] : m->len, m->len);

	*len = any(m, max + 1);
	*off = any(m, m->len - *len + 1);
}

static uint32_t any_mask(struct mine *m, unsigned int dev)
{
	static const uint32_t masks[] = { 0, 0, ROUTE(STAGED), ROUTE(PAGECACHE) };

	return dev == 2 ? 0 : masks[any(m, 4)];
}

static void read_one(struct mine *m)
{
	unsigned int d = (unsigned int)any(m, 3);
	uint64_t off, len;

	any_range(m, &off, &len);
	ASSERT_EQ(move(STRAIT_READ, any_mask(m, d), m->w->in[any(m, 4)], off, m->r[d], off, len).bytes, len);
	region_expect(m->r[d], off, m->w->want + off, len);
}

static void write_one(struct mine *m)
{
	unsigned int d = (unsigned int)any(m, 3);
	uint64_t off, len, seed = any(m, 1000);

	any_range(m, &off, &len);
	pattern(m->model + off, off, len, seed);
	region_put_bytes(m->r[d], off, m->model + off, len);
	ASSERT_EQ(move(STRAIT_WRITE, 0, m->out, off, m->r[d], off, len).bytes, len);
	file_expect(m->out_path, off, m->model + off, len);
}

static void batch(struct mine *m)
{
	enum { N = 12 };
	struct strait_transfer t[N];
	struct strait_result res[N];
	unsigned int d = (unsigned int)any(m, 3), n = 1 + (unsigned int)any(m, N);
	uint64_t slot = m->len / N;

	for (unsigned int i = 0; i < n; i++)
		t[i] = (struct strait_transfer){ .routes = any_mask(m, d),
						 .endpoint = m->w->in[any(m, 4)],
						 .region = m->r[d],
						 .endpoint_offset = any(m, m->len - slot),
						 .region_offset = i * slot,
						 .length = any(m, any(m, 4) ? min_u64(slot, 4000) : slot),
						 .user_data = i };
	ASSERT_OK(strait_queue_submit(m->q, t, n));
	if (!any(m, 8))
		strait_queue_cancel(m->q, any(m, n));
	ASSERT_EQ(strait_queue_wait(m->q, n, N, STRAIT_FOREVER, res), (int)n);
	for (unsigned int i = 0; i < n; i++) {
		const struct strait_transfer *of = &t[res[i].user_data];

		if (res[i].status)
			ASSERT_EQ(res[i].status, -ECANCELED);
		else
			ASSERT_EQ(res[i].bytes, of->length);
		region_expect(m->r[d], of->region_offset, m->w->want + of->endpoint_offset, res[i].bytes);
	}
}

static void ordered(struct mine *m)
{
	enum { N = 5 };
	unsigned int d = (unsigned int)any(m, 3);
	uint64_t off[N], len[N];
	int64_t result[N];

	for (int i = 0; i < N; i++) {
		struct strait_stream_transfer t = { .size = sizeof(t),
						    .routes = any_mask(m, d),
						    .endpoint = m->w->in[any(m, 4)],
						    .region = m->r[d],
						    .endpoint_offset = &off[i],
						    .region_offset = &off[i],
						    .length = &len[i],
						    .result = &result[i] };

		any_range(m, &off[i], &len[i]);
		ASSERT_OK(strait_stream_transfer(m->st[d], &t));
	}
	ASSERT_OK(strait_stream_wait(m->st[d], STRAIT_FOREVER));
	for (int i = 0; i < N; i++) {
		ASSERT_EQ(result[i], (int64_t)len[i]);
		region_expect(m->r[d], off[i], m->w->want + off[i], len[i]);
	}
}

/* Handles of one's own, made and given back. */
static void come_and_go(struct mine *m)
{
	unsigned int d = (unsigned int)any(m, 3);
	struct strait_endpoint *ep;
	uint64_t off, len;

	strait_region_close(m->r[d]);
	m->r[d] = region_new(m->w->dev[d], m->len);
	ep = file_new(m->w->ctx, m->w->in_path, O_RDONLY, (uint32_t)any(m, 16) & ~STRAIT_FILE_BUFFERED);
	any_range(m, &off, &len);
	ASSERT_EQ(move(STRAIT_READ, any_mask(m, d), ep, off, m->r[d], off, len).bytes, len);
	region_expect(m->r[d], off, m->w->want + off, len);
	strait_endpoint_close(ep);
}

static void open_mine(struct mine *m, unsigned int number)
{
	char name[32];

	m->len = m->w->s->file_bytes;
	m->state = m->w->s->seed + number * 1000003u;
	snprintf(name, sizeof(name), "out%u", number);
	snprintf(m->out_path, sizeof(m->out_path), "%s", test_path(name));
	m->model = calloc(1, m->len);
	write_at(m->out_path, m->model, m->len, 0);
	m->out = file_new(m->w->ctx, m->out_path, O_RDWR, number % 2 ? STRAIT_FILE_DIRECT : 0);
	for (int d = 0; d < 3; d++) {
		m->r[d] = region_new(m->w->dev[d], m->len);
		ASSERT_OK(strait_stream_open(m->w->dev[d], &m->st[d]));
	}
	ASSERT_OK(strait_queue_open(m->w->ctx, NULL, &m->q));
}

static void close_mine(struct mine *m)
{
	strait_queue_close(m->q);
	for (int d = 0; d < 3; d++) {
		strait_stream_close(m->st[d]);
		strait_region_close(m->r[d]);
	}
	strait_endpoint_close(m->out);
	file_expect(m->out_path, 0, m->model, m->len);
	ASSERT_EQ(file_length(m->out_path), m->len);
	unlink(m->out_path);
	free(m->model);
}

static void *work(void *arg)
{
	struct mine m = { .w = arg };

	open_mine(&m, atomic_fetch_add(&m.w->next, 1));
	for (unsigned int i = 0; i < m.w->s->rounds; i++) {
		switch (any(&m, 10)) {
		case 0 ... 3:
			read_one(&m);
			break;
		case 4 ... 5:
			write_one(&m);
			break;
		case 6 ... 7:
			batch(&m);
			break;
		case 8:
			ordered(&m);
			break;
		default:
			come_and_go(&m);
		}
		if (!any(&m, 16))
			evict(m.w->in_path, any(&m, m.len), any(&m, m.len) + 1);
	}
	close_mine(&m);
	return NULL;
}

void stress_run(const struct stress *s)
{
	static const uint32_t flags[] = { 0, STRAIT_FILE_DIRECT, STRAIT_FILE_UNCHANGING, STRAIT_FILE_LEASE };
	struct strait_context_opts opts = { .size = sizeof(opts),
					    .flags = s->context,
					    .pool_bytes = s->pool,
					    .chunk_bytes = s->chunk,
					    .pinned_budget = s->file_bytes * 2,
					    .threads = 6 };
	struct world w = { .s = s };
	pthread_t *t = calloc(s->threads, sizeof(*t));

	setenv("STRAIT_EMU_DEVICES", "2", 1);
	w.ctx = context_new(&opts);
	w.dev[0] = device_named(w.ctx, "emu:0");
	w.dev[1] = device_named(w.ctx, "emu:1");
	w.dev[2] = device_named(w.ctx, "host");
	snprintf(w.in_path, sizeof(w.in_path), "%s", make_file("in", s->file_bytes, 1));
	w.want = pattern_new(0, s->file_bytes, 1);
	for (int i = 0; i < 4; i++)
		w.in[i] = file_new(w.ctx, w.in_path, O_RDONLY, flags[i]);
	for (unsigned int i = 0; i < s->threads; i++)
		thread_start(&t[i], work, &w);
	for (unsigned int i = 0; i < s->threads; i++)
		thread_join(t[i]);
	ASSERT_EQ(stats_of(w.ctx).errors, stats_of(w.ctx).canceled);
	ASSERT_LE(stats_of(w.ctx).kept_bytes, s->file_bytes * 2);
	for (int i = 0; i < 4; i++)
		strait_endpoint_close(w.in[i]);
	strait_context_close(w.ctx);
	ASSERT_EQ(stats_of(NULL).kept_bytes, 0);
	ASSERT_EQ(stats_of(NULL).pool_bytes, 0);
	free((void *)w.want);
	free(t);
}
