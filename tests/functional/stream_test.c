/* SPDX-License-Identifier: MIT */
/* Transfers ordered on a stream. */
#include "stream_rig.h"

static const struct mode modes[] = {
	{ "emu", "emu:0", 0, 0, 0 },
	{ "emu-pagecache", "emu:0", ROUTE(PAGECACHE), 0, 0 },
	{ "emu-direct", "emu:0", ROUTE(STAGED), STRAIT_FILE_DIRECT, 0 },
	{ "host", "host", 0, 0, 0 },
};

struct check {
	struct params *p;
	const unsigned char *mem, *want;
	uint64_t len;
	int64_t result;
	bool bytes, ran;
};

/* Runs on the stream: checks what earlier work left. */
static void look(void *arg)
{
	struct check *c = arg;

	c->result = c->p->result;
	c->bytes = !memcmp(c->mem, c->want, c->len);
	c->ran = true;
}

static void set_params(void *arg)
{
	struct params *p = arg;

	p->off = 12345;
	p->region_off = 77;
	p->len = MIB(1) + 1;
}

/* Host functions cannot read memory of a CUDA device. */
static bool where_memory_is_mapped(const void *v)
{
	const struct mode *m = v;

	return !on_cuda() || !strcmp(m->device, "host");
}

/* Parameters are read when the stream reaches the transfer; later work sees result and bytes. */
TEST_WHERE(parameters_come_late, where_memory_is_mapped)
TEST_VARIANTS(parameters_come_late, struct mode, modes)
{
	struct params p = { .off = UINT64_MAX, .region_off = UINT64_MAX, .len = UINT64_MAX, .result = 99 };
	struct check before, after;
	struct stream_rig g;
	void *mem;

	stream_rig_open(&g, v);
	ASSERT_OK(strait_region_map(g.r, &mem));
	before = (struct check){ .p = &p, .mem = (unsigned char *)mem + 77, .want = g.want + 12345, .len = MIB(1) + 1 };
	after = before;
	atomic_store(&stream_blocked, true);
	ASSERT_OK(strait_stream_call(g.s, stream_block, NULL));
	ASSERT_OK(strait_stream_call(g.s, set_params, &p));
	ASSERT_OK(strait_stream_call(g.s, look, &before));
	stream_put(&g, STRAIT_READ, &p);
	ASSERT_OK(strait_stream_call(g.s, look, &after));
	ASSERT_EQ(strait_stream_wait(g.s, 0), -ETIMEDOUT);
	ASSERT_EQ(strait_stream_wait(g.s, 5000000), -ETIMEDOUT);
	ASSERT_FALSE(before.ran);
	ASSERT_EQ(p.result, 99);
	atomic_store(&stream_blocked, false);
	ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
	ASSERT_EQ(strait_stream_wait(g.s, 0), 0);
	ASSERT_TRUE(before.ran && after.ran);
	ASSERT_EQ(before.result, 99);
	ASSERT_FALSE(before.bytes);
	ASSERT_EQ(after.result, (int64_t)MIB(1) + 1);
	ASSERT_TRUE(after.bytes);
	ASSERT_EQ(stats_of(g.ctx).stream, 1);
	stream_rig_close(&g);
}

struct step {
	unsigned char *mem;
	uint64_t i;
	atomic_uint *next, *wrong;
};

/* Each step checks the bytes of its read, changes them, and the next transfer writes them. */
static void change(void *arg)
{
	struct step *s = arg;

	if (atomic_fetch_add(s->next, 1) != s->i)
		atomic_fetch_add(s->wrong, 1);
	for (uint64_t k = 0; k < 4096; k++)
		s->mem[k] = (unsigned char)(s->mem[k] + 1);
}

TEST_WHERE(order_of_transfers_and_functions, where_memory_is_mapped)
TEST_VARIANTS(order_of_transfers_and_functions, struct mode, modes)
{
	enum { N = 60 };
	struct params in[N], out[N];
	struct step steps[N];
	atomic_uint next = 0, wrong = 0;
	struct stream_rig g;
	void *mem;

	stream_rig_open(&g, v);
	ASSERT_OK(strait_region_map(g.r, &mem));
	/* Page 0 of the file is read and written repeatedly, each byte incremented each time. */
	for (unsigned int i = 0; i < N; i++) {
		uint64_t at = (i % 8) * 4096;

		in[i] = (struct params){ 0, at, 4096, 0 };
		out[i] = (struct params){ 0, at, 4096, 0 };
		steps[i] = (struct step){ (unsigned char *)mem + at, i, &next, &wrong };
		stream_put(&g, STRAIT_READ, &in[i]);
		ASSERT_OK(strait_stream_call(g.s, change, &steps[i]));
		stream_put(&g, STRAIT_WRITE, &out[i]);
	}
	ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
	ASSERT_EQ(wrong, 0);
	for (unsigned int i = 0; i < N; i++) {
		ASSERT_EQ(in[i].result, 4096);
		ASSERT_EQ(out[i].result, 4096);
	}
	for (unsigned int i = 0; i < 4096; i++)
		g.want[i] = (unsigned char)(g.want[i] + N);
	file_expect(test_path("file"), 0, g.want, LEN);
	ASSERT_EQ(stats_of(g.ctx).stream, 2 * N);
	stream_rig_close(&g);
}

/* A transfer that fails stores its error, and the stream continues. */
TEST_VARIANTS(errors_are_stored, struct mode, modes)
{
	struct params good = { 0, 0, LEN, 0 }, range = { 0, 1, LEN, 0 }, overflow = { UINT64_MAX, 0, 1, 0 },
		      end = { LEN, 0, 10, 0 }, small_range = { 0, LEN, 1, 0 }, nothing = { 0, LEN, 0, 1 };
	struct stream_rig g;

	stream_rig_open(&g, v);
	stream_put(&g, STRAIT_READ, &range);
	stream_put(&g, STRAIT_READ, &overflow);
	stream_put(&g, STRAIT_READ, &small_range);
	stream_put(&g, STRAIT_READ, &end);
	stream_put(&g, STRAIT_READ, &nothing);
	stream_put(&g, STRAIT_READ, &good);
	ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
	ASSERT_EQ(range.result, -EINVAL);
	ASSERT_EQ(overflow.result, -EINVAL);
	ASSERT_EQ(small_range.result, -EINVAL);
	ASSERT_EQ(end.result, 0);
	ASSERT_EQ(nothing.result, 0);
	ASSERT_EQ(good.result, (int64_t)LEN);
	region_expect(g.r, 0, g.want, LEN);
	if (!strcmp(v->device, "emu:0") && where_emulated(v)) {
		/* A device error of one transfer does not affect the next. */
		emu_inject_copy_error(g.dev, 0, -EIO);
		range = (struct params){ 0, 0, 4096, 0 };
		stream_put(&g, STRAIT_READ, &range);
		stream_put(&g, STRAIT_READ, &good);
		ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
		ASSERT_EQ(range.result, -EIO);
		ASSERT_EQ(good.result, (int64_t)LEN);
	}
	stream_rig_close(&g);
}

TEST(malformed_requests)
{
	struct mode m = { "", "emu:0", 0, 0, 0 };
	struct params p = { 0, 0, 10, 0 };
	struct strait_stream_transfer t, good;
	struct strait_endpoint *writable;
	struct strait_region *host, *gone;
	struct strait_stream *other;
	struct stream_rig g, g2;
	struct {
		struct strait_stream_transfer t;
		char tail[8];
	} longer;

	stream_rig_open(&g, &m);
	stream_rig_open(&g2, &m);
	host = region_new(device_named(g.ctx, "host"), 100);
	gone = region_new(g.dev, 100);
	ASSERT_OK(strait_region_revoke(gone));
	writable = file_new(g.ctx, test_path("file"), O_WRONLY, 0);
	good = (struct strait_stream_transfer){ .size = sizeof(t),
						.endpoint = g.ep,
						.region = g.r,
						.endpoint_offset = &p.off,
						.region_offset = &p.region_off,
						.length = &p.len };
#define REFUSED(code, change)                                                                                          \
	do {                                                                                                           \
		t = good;                                                                                              \
		change;                                                                                                \
		ASSERT_EQ(strait_stream_transfer(g.s, &t), code);                                                      \
	} while (0)
	REFUSED(-EINVAL, t.size = sizeof(t) - 1);
	REFUSED(-EINVAL, t.op = 2);
	REFUSED(-EINVAL, t.routes = 1u << 9);
	REFUSED(-EINVAL, t.endpoint = NULL);
	REFUSED(-EINVAL, t.region = NULL);
	REFUSED(-EINVAL, t.endpoint_offset = NULL);
	REFUSED(-EINVAL, t.region_offset = NULL);
	REFUSED(-EINVAL, t.length = NULL);
	REFUSED(-EINVAL, t.endpoint = g2.ep);
	REFUSED(-EXDEV, t.region = g2.r);
	REFUSED(0, t.region = host);
	REFUSED(-ENODEV, t.region = gone);
	REFUSED(-EOPNOTSUPP, t.routes = ROUTE(P2P));
	REFUSED(-EOPNOTSUPP, t.routes = ROUTE(HOST));
	REFUSED(-EBADF, t.endpoint = writable);
	REFUSED(0, t.result = NULL);
	longer.t = good;
	longer.t.size = sizeof(longer);
	memset(longer.tail, 0, sizeof(longer.tail));
	ASSERT_OK(strait_stream_transfer(g.s, &longer.t));
	longer.tail[3] = 1;
	ASSERT_EQ(strait_stream_transfer(g.s, &longer.t), -E2BIG);
	ASSERT_EQ(strait_stream_transfer(g.s, NULL), -EINVAL);
	ASSERT_EQ(strait_stream_transfer(NULL, &t), -EINVAL);
	ASSERT_EQ(strait_stream_call(g.s, NULL, NULL), -EINVAL);
	ASSERT_EQ(strait_stream_call(NULL, stream_block, NULL), -EINVAL);
	ASSERT_EQ(strait_stream_wait(NULL, 0), -EINVAL);
	ASSERT_EQ(strait_stream_wait(g.s, -1), -EINVAL);
	ASSERT_EQ(strait_stream_open(NULL, &other), -EINVAL);
	ASSERT_EQ(strait_stream_open(g.dev, NULL), -EINVAL);
	ASSERT_EQ(strait_stream_import(g.dev, NULL, NULL), -EINVAL);
	strait_stream_close(NULL);
	ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
	ASSERT_EQ(stats_of(g.ctx).stream, 3);
	strait_region_close(host);
	strait_region_close(gone);
	strait_endpoint_close(writable);
	stream_rig_close(&g);
	stream_rig_close(&g2);
}

/* Streams do not wait for each other, and there may be more of them than threads. */
TEST(many_streams)
{
	enum { STREAMS = 24, EACH = 30 };
	/* A GPU has a few hardware queues for all streams: work behind a waiting stream in the same queue waits too. */
	const uint64_t n = on_cuda() ? 4 : STREAMS;
	struct mode m = { "", "emu:0", 0, 0, 0 };
	static struct params p[STREAMS][EACH];
	struct strait_stream *s[STREAMS], *stuck;
	uint64_t state = 3;
	struct stream_rig g;

	stream_rig_open(&g, &m);
	stuck = g.s;
	atomic_store(&stream_blocked, true);
	ASSERT_OK(strait_stream_call(stuck, stream_block, NULL));
	for (uint64_t i = 0; i < n; i++)
		ASSERT_OK(strait_stream_open(g.dev, &s[i]));
	for (uint64_t k = 0; k < EACH; k++)
		for (uint64_t i = 0; i < n; i++) {
			uint64_t at = i * (LEN / STREAMS);

			p[i][k] = (struct params){ at, at, 1 + prng_below(&state, LEN / STREAMS), 99 };
			g.s = s[i];
			stream_put(&g, STRAIT_READ, &p[i][k]);
		}
	for (uint64_t i = 0; i < n; i++) {
		ASSERT_OK(strait_stream_wait(s[i], STRAIT_FOREVER));
		for (int k = 0; k < EACH; k++)
			ASSERT_EQ(p[i][k].result, (int64_t)p[i][k].len);
		region_expect(g.r, p[i][0].region_off, g.want + p[i][0].off, p[i][0].len);
	}
	ASSERT_EQ(strait_stream_wait(stuck, 0), -ETIMEDOUT);
	atomic_store(&stream_blocked, false);
	for (uint64_t i = 0; i < n; i++)
		strait_stream_close(s[i]);
	g.s = stuck;
	stream_rig_close(&g);
}

/* Sequence numbers of transfers on a stream wrap around, and so does their comparison. */
TEST_WHERE(numbers_go_round, where_not_cuda) /* its words are in registered memory */
TEST(numbers_go_round)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "emu");
	const struct provider_ops *ops = dev->ops;
	_Atomic uint32_t word = UINT32_MAX - 1;
	struct dev_stream *s;

	ASSERT_OK(ops->stream_open(dev, NULL, &s));
	ASSERT_OK(ops->stream_wait_word(s, &word, (uint64_t)(uintptr_t)&word, UINT32_MAX - 1));
	ASSERT_EQ(ops->stream_wait(s, 0), 0);
	for (uint32_t n = UINT32_MAX; n != 3; n++) {
		ASSERT_OK(ops->stream_wait_word(s, &word, (uint64_t)(uintptr_t)&word, n));
		ASSERT_EQ(ops->stream_wait(s, 0), -ETIMEDOUT);
		ops->word_post(dev, &word, n);
		ASSERT_OK(ops->stream_wait(s, STRAIT_FOREVER));
	}
	ops->stream_close(s);
	strait_context_close(ctx);
}

/* No thread for the word: the call fails, and does not access its arguments afterwards. */
TEST(a_transfer_that_could_not_be_put_on)
{
	struct mode m = { "", "emu:0", 0, 0, 0 };
	struct stream_rig g;
	unsigned int failed = 0;

	stream_rig_open(&g, &m);
	for (unsigned int nth = 1; nth < 6; nth++) {
		struct params *p = malloc(sizeof(*p));
		struct strait_stream_transfer t = { .size = sizeof(t),
						    .endpoint = g.ep,
						    .region = g.r,
						    .endpoint_offset = &p->off,
						    .region_offset = &p->region_off,
						    .length = &p->len,
						    .result = &p->result };
		int rc;

		*p = (struct params){ 0, 0, 4096, 99 };
		inject(OS_THREAD, nth, 0, -EAGAIN);
		rc = strait_stream_transfer(g.s, &t);
		if (!rc) {
			ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
			ASSERT_EQ(p->result, 4096);
		} else {
			ASSERT_EQ(rc, -EAGAIN);
			failed++;
		}
		free(p);
		inject_off();
		/* The stream is still in order. */
		p = &(struct params){ 0, 0, LEN, 99 };
		stream_put(&g, STRAIT_READ, p);
		ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
		ASSERT_EQ(p->result, (int64_t)LEN);
		if (rc)
			/* All threads end with the context. */
			stream_rig_close(&g), stream_rig_open(&g, &m);
	}
	ASSERT_GE(failed, on_cuda() ? 1 : 2); /* the emulated device has a thread of its own */
	stream_rig_close(&g);
}

struct ending {
	struct params *p;
	int64_t stored;
	struct strait_result result;
	atomic_uint calls;
};

static void note_end(void *arg, const struct strait_result *result)
{
	struct ending *e = arg;

	e->stored = e->p->result;
	e->result = *result;
	atomic_fetch_add(&e->calls, 1);
}

static void copy_calls(void *arg)
{
	struct ending *e = arg;

	/* Later work runs after the transfer's done function. */
	e->calls = e->calls == 1 ? 100 : 99;
}

/* An offset base in the region, and a done function. */
TEST_VARIANTS(base_and_done, struct mode, modes)
{
	struct params p = { 5, 7, 10000, 99 };
	struct ending e = { .p = &p };
	struct strait_stream_transfer t;
	struct stream_rig g;

	stream_rig_open(&g, v);
	t = (struct strait_stream_transfer){ .size = sizeof(t),
					     .routes = g.routes,
					     .endpoint = g.ep,
					     .region = g.r,
					     .endpoint_offset = &p.off,
					     .region_offset = &p.region_off,
					     .length = &p.len,
					     .result = &p.result,
					     .region_base = 1000,
					     .done = note_end,
					     .done_arg = &e };
	ASSERT_OK(strait_stream_transfer(g.s, &t));
	ASSERT_OK(strait_stream_call(g.s, copy_calls, &e));
	ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
	ASSERT_EQ(e.calls, 100);
	ASSERT_EQ(e.stored, 99);
	ASSERT_EQ(p.result, 10000);
	ASSERT_EQ(e.result.status, 0);
	ASSERT_EQ(e.result.bytes, 10000);
	ASSERT_NE(e.result.routes, 0);
	region_expect(g.r, 1007, g.want + 5, 10000);
	/* Offsets that overflow are refused. */
	for (int i = 0; i < 3; i++) {
		e.calls = 0;
		p.region_off = i == 0 ? (uint64_t)-1000 : i == 1 ? UINT64_MAX : LEN - 1000;
		ASSERT_OK(strait_stream_transfer(g.s, &t));
		ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
		ASSERT_EQ(p.result, -EINVAL);
		ASSERT_EQ(e.calls, 1);
		ASSERT_EQ(e.result.status, -EINVAL);
	}
	stream_rig_close(&g);
}

/* Host memory on the stream of a device is in order with other work on it. */
TEST(host_memory)
{
	struct mode m = { "", "emu:0", 0, 0, 0 };
	struct params read = { 3, 0, MIB(1), 99 }, write = { MIB(2), 0, MIB(1), 99 };
	struct strait_stream_transfer t;
	struct strait_region *host;
	struct stream_rig g;

	stream_rig_open(&g, &m);
	host = region_new(device_named(g.ctx, "host"), MIB(1));
	atomic_store(&stream_blocked, true);
	ASSERT_OK(strait_stream_call(g.s, stream_block, NULL));
	t = (struct strait_stream_transfer){ .size = sizeof(t),
					     .endpoint = g.ep,
					     .region = host,
					     .endpoint_offset = &read.off,
					     .region_offset = &read.region_off,
					     .length = &read.len,
					     .result = &read.result };
	ASSERT_OK(strait_stream_transfer(g.s, &t));
	t.op = STRAIT_WRITE;
	t.endpoint_offset = &write.off;
	t.length = &write.len;
	t.result = &write.result;
	ASSERT_OK(strait_stream_transfer(g.s, &t));
	sleep_ms(20);
	ASSERT_EQ(read.result, 99);
	atomic_store(&stream_blocked, false);
	ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
	ASSERT_EQ(read.result, MIB(1));
	ASSERT_EQ(write.result, MIB(1));
	region_expect(host, 0, g.want + 3, MIB(1));
	file_expect(test_path("file"), MIB(2), g.want + 3, MIB(1));
	strait_region_close(host);
	stream_rig_close(&g);
}

/* Hundreds in sequence by one worker: each sees what the one before left. */
TEST(one_after_the_other)
{
	enum { N = 300 };
	struct mode m = { "", "emu:0", 0, 0, 0 };
	static struct params p[N];
	struct stream_rig g;

	stream_rig_open(&g, &m);
	for (unsigned int i = 0; i < N; i++) {
		/* Read at i, write it at i + 1: the first bytes move through the file. */
		p[i] = (struct params){ (i + 1) / 2 * 5000, 0, 5000, 99 };
		stream_put(&g, i % 2 ? STRAIT_WRITE : STRAIT_READ, &p[i]);
		if (i % 50 == 7)
			sleep_ms(1);
	}
	ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
	for (unsigned int i = 0; i < N; i++)
		ASSERT_EQ(p[i].result, 5000);
	file_expect(test_path("file"), (uint64_t)(N / 2) * 5000, g.want, 5000);
	stream_rig_close(&g);
}
