/* SPDX-License-Identifier: MIT */
/* Several streams of a CUDA program at once. */

struct busy_stream {
	const struct memory *v;
	CUstream s;
	atomic_bool done;
};

static void *deregister(void *arg)
{
	struct busy_stream *b = arg;

	OK(cuFileStreamDeregister(b->s));
	atomic_store(&b->done, true);
	return NULL;
}

/*
 * A stream waits for a function, and a thread that deregisters it waits for the stream. Transfers on other streams,
 * registered or not, go on meanwhile: they are what the function waits for.
 */
TEST_VARIANTS_TIMEOUT(stream_deregistered_while_busy, struct memory, memories, 30)
{
	unsigned char *want = pattern_new(0, 40000, 21);
	struct gate g = { .fd = -1 };
	struct call held = { 10000, 0, 0, 0 }, other = { 10000, 7, 10000, 0 }, third = { 10000, 9, 20000, 0 };
	struct busy_stream busy = { .v = v };
	CUstream fresh, known;
	struct handle h;
	struct buf b;
	pthread_t t;

	memory_begin(v);
	h = handle_open(make_file("file", 40000, 21), O_RDONLY);
	b = buf_new(v, 40000);
	busy.s = stream_new(v);
	known = stream_new(v);
	fresh = stream_new(v);
	OK(cuFileStreamRegister(busy.s, 0));
	OK(cuFileStreamRegister(known, 0));
	put_call(&h, &b, false, &other, known);
	stream_sync(v, known);
	stream_call(v, busy.s, gate_wait, &g);
	put_call(&h, &b, false, &held, busy.s);
	thread_start(&t, deregister, &busy);
	sleep_ms(50);
	ASSERT_FALSE(atomic_load(&busy.done));
	other.buf_off = 30000;
	put_call(&h, &b, false, &other, known);
	put_call(&h, &b, false, &third, fresh);
	stream_sync(v, known);
	stream_sync(v, fresh);
	OK(cuFileStreamDeregister(known));
	ASSERT_FALSE(atomic_load(&busy.done));
	ASSERT_EQ(held.done, -99);
	atomic_store(&g.open, true);
	thread_join(t);
	ASSERT_EQ(held.done, 10000);
	ASSERT_EQ(other.done, 10000);
	ASSERT_EQ(third.done, 10000);
	buf_expect(&b, 0, want, 10000);
	buf_expect(&b, 20000, want + 9, 10000);
	buf_expect(&b, 30000, want + 7, 10000);
	stream_free(v, busy.s);
	stream_free(v, known);
	stream_free(v, fresh);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}

/* One stream per request, created and destroyed without telling cuFile: the library reuses its state. */
TEST_VARIANTS_TIMEOUT(stream_for_each_request, struct memory, memories, 120)
{
	enum { STREAMS = 1000, AT_ONCE = 4 };
	unsigned char *want = pattern_new(0, 8192, 23);
	struct call c[AT_ONCE];
	CUstream s[AT_ONCE];
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 8192, 23), O_RDONLY);
	b = buf_new(v, AT_ONCE * 4096);
	for (int i = 0; i < STREAMS; i += AT_ONCE) {
		for (int k = 0; k < AT_ONCE; k++) {
			s[k] = stream_new(v);
			c[k] = (struct call){ 4000, i + k, k * 4096, 0 };
			put_call(&h, &b, false, &c[k], s[k]);
		}
		for (int k = 0; k < AT_ONCE; k++) {
			stream_sync(v, s[k]);
			ASSERT_EQ(c[k].done, 4000);
			buf_expect(&b, (size_t)k * 4096, want + i + k, 4000);
			stream_free(v, s[k]);
		}
	}
	buf_free(&b);
	handle_close(&h);
	OK(cuFileDriverClose());
	memory_end(v);
	free(want);
}

struct user {
	const struct memory *v;
	struct handle *h;
	struct buf *b;
	size_t at;
	bool register_it;
};

/* Streams of one thread: created, used and destroyed. */
static void *use_streams(void *arg)
{
	struct user *u = arg;

	memory_begin(u->v);
	for (int i = 0; i < 60; i++) {
		CUstream s = stream_new(u->v);
		struct call c[3];

		if (u->register_it)
			OK(cuFileStreamRegister(s, 0));
		for (int k = 0; k < 3; k++) {
			c[k] = (struct call){ 1000, i + k, (off_t)u->at + k * 1000, 0 };
			put_call(u->h, u->b, false, &c[k], s);
		}
		if (u->register_it)
			OK(cuFileStreamDeregister(s));
		else
			stream_sync(u->v, s);
		for (int k = 0; k < 3; k++)
			ASSERT_EQ(c[k].done, 1000);
		stream_free(u->v, s);
	}
	return NULL;
}

TEST_VARIANTS(stream_many_threads, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 2000, 22);
	struct user u[4];
	pthread_t t[4];
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 2000, 22), O_RDONLY);
	b = buf_new(v, 4 * 4096);
	for (size_t i = 0; i < 4; i++) {
		u[i] = (struct user){ v, &h, &b, i * 4096, i % 2 };
		thread_start(&t[i], use_streams, &u[i]);
	}
	for (int i = 0; i < 4; i++)
		thread_join(t[i]);
	for (size_t i = 0; i < 4; i++)
		for (size_t k = 0; k < 3; k++)
			buf_expect(&b, i * 4096 + k * 1000, want + 59 + k, 1000);
	buf_free(&b);
	handle_close(&h);
	OK(cuFileDriverClose());
	memory_end(v);
	free(want);
}
