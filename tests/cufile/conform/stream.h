/* SPDX-License-Identifier: MIT */
/* Transfers ordered on a stream. */

#define STREAM_LEN (MIB(2) + 13)

/* Parameters that are passed by address. */
struct call {
	size_t size;
	off_t file_off, buf_off;
	ssize_t done;
};

static void put_call(struct handle *h, struct buf *b, bool write, struct call *c, CUstream s)
{
	c->done = -99;
	if (write)
		OK(cuFileWriteAsync(h->fh, b->p, &c->size, &c->file_off, &c->buf_off, &c->done, s));
	else
		OK(cuFileReadAsync(h->fh, b->p, &c->size, &c->file_off, &c->buf_off, &c->done, s));
}

/* Blocks a stream. */
struct gate {
	atomic_bool open;
	struct call *c, then; /* what to set when it opens */
	int fd;		      /* or what to write at 0 */
	const char *text;
};

static void gate_wait(void *arg)
{
	struct gate *g = arg;

	while (!atomic_load(&g->open))
		sleep_ms(1);
	if (g->c) {
		g->c->size = g->then.size;
		g->c->file_off = g->then.file_off;
		g->c->buf_off = g->then.buf_off;
	}
	if (g->text && pwrite(g->fd, g->text, strlen(g->text), 0) < 0)
		abort();
}

TEST_VARIANTS(stream_arguments, struct memory, memories)
{
	struct call c = { .size = 10 };
	CUstream s;
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 100, 1), O_RDONLY);
	b = buf_new(v, 4096);
	s = stream_new(v);
	ERR(cuFileReadAsync(NULL, b.p, &c.size, &c.file_off, &c.buf_off, &c.done, s), CU_FILE_INVALID_VALUE);
	ERR(cuFileReadAsync(h.fh, NULL, &c.size, &c.file_off, &c.buf_off, &c.done, s), CU_FILE_INVALID_VALUE);
	ERR(cuFileReadAsync(h.fh, b.p, NULL, &c.file_off, &c.buf_off, &c.done, s), CU_FILE_INVALID_VALUE);
	ERR(cuFileReadAsync(h.fh, b.p, &c.size, NULL, &c.buf_off, &c.done, s), CU_FILE_INVALID_VALUE);
	ERR(cuFileReadAsync(h.fh, b.p, &c.size, &c.file_off, NULL, &c.done, s), CU_FILE_INVALID_VALUE);
	ERR(cuFileReadAsync(h.fh, b.p, &c.size, &c.file_off, &c.buf_off, NULL, s), CU_FILE_INVALID_VALUE);
	ERR(cuFileWriteAsync(NULL, b.p, &c.size, &c.file_off, &c.buf_off, &c.done, s), CU_FILE_INVALID_VALUE);
	ERR(cuFileReadAsync(&b, b.p, &c.size, &c.file_off, &c.buf_off, &c.done, s), CU_FILE_HANDLE_NOT_REGISTERED);
	ERR(cuFileWriteAsync(h.fh, b.p, &c.size, &c.file_off, &c.buf_off, &c.done, s), CU_FILE_INVALID_FILE_OPEN_FLAG);
	ERR(cuFileStreamRegister(s, 0x10), CU_FILE_INVALID_VALUE);
	ERR(cuFileStreamRegister(s, 0xffffffff), CU_FILE_INVALID_VALUE);
	for (unsigned int flags = 0; flags < 16; flags++) {
		OK(cuFileStreamRegister(s, flags));
		ERR(cuFileStreamRegister(s, flags), CU_FILE_INVALID_VALUE);
		OK(cuFileStreamDeregister(s));
		ERR(cuFileStreamDeregister(s), CU_FILE_INVALID_VALUE);
	}
	stream_free(v, s);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
}

TEST_VARIANTS(stream_many_outstanding, struct memory, memories)
{
	enum { N = 64 };
	unsigned char *want = pattern_new(0, STREAM_LEN, 2);
	static const unsigned int flags[] = { 99, 0, 0xf };
	struct call c[N];
	struct handle h;
	struct buf b;
	CUstream s;

	memory_begin(v);
	make_file("file", STREAM_LEN, 2);
	b = buf_new(v, STREAM_LEN);
	s = stream_new(v);
	for (int round = 0; round < 3; round++) {
		h = handle_open(test_path("file"), round == 1 ? O_RDWR : O_RDONLY);
		if (flags[round] != 99)
			OK(cuFileStreamRegister(s, flags[round]));
		buf_fill(&b, 0xee);
		for (int i = 0; i < N; i++) {
			c[i] = (struct call){ 30000 + (size_t)i, i * 32003, i * 32000, -99 };
			put_call(&h, &b, false, &c[i], s);
		}
		stream_sync(v, s);
		for (int i = 0; i < N; i++) {
			ASSERT_EQ(c[i].done, 30000 + i);
			buf_expect(&b, (size_t)i * 32000, want + i * 32003, 30000 + (size_t)i);
			buf_expect_byte(&b, (size_t)i * 32000 + 30000 + (size_t)i, 0xee, 32000 - 30000 - (size_t)i);
		}
		if (flags[round] != 99)
			OK(cuFileStreamDeregister(s));
		handle_close(&h);
	}
	stream_free(v, s);
	buf_free(&b);
	memory_end(v);
	free(want);
}

TEST_VARIANTS(stream_results, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 10000, 3);
	struct call c = { 0 };
	struct handle h;
	struct buf b;
	CUstream s;

	memory_begin(v);
	h = handle_open(make_file("file", 10000, 3), O_RDWR);
	b = buf_new(v, 20000);
	s = stream_new(v);
#define ONE(want_done, n, off, at)                                                                                     \
	do {                                                                                                           \
		c = (struct call){ n, off, at, 0 };                                                                    \
		put_call(&h, &b, false, &c, s);                                                                        \
		stream_sync(v, s);                                                                                     \
		ASSERT_EQ(c.done, want_done);                                                                          \
	} while (0)
	ONE(10000, 20000, 0, 0);
	buf_expect(&b, 0, want, 10000);
	ONE(5, 100, 9995, 7);
	buf_expect(&b, 7, want + 9995, 5);
	ONE(0, 100, 10000, 0);
	ONE(0, 100, 99999, 0);
	ONE(0, 0, 0, 0);
	ONE(-EINVAL, 100, -1, 0);
	ONE(-EINVAL, 100, 0, -1);
	if (v->registered || (bounded(v) && v->kind != MEM_PINNED)) {
		ONE(-EINVAL, MIB(512), 0, 0);
		ONE(-EINVAL, 100, 0, (off_t)MIB(512));
	}
#undef ONE
	/* The stream continues after all that. */
	c = (struct call){ 1000, 1, 1, 0 };
	put_call(&h, &b, false, &c, s);
	stream_sync(v, s);
	ASSERT_EQ(c.done, 1000);
	buf_expect(&b, 1, want + 1, 1000);
	stream_free(v, s);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}

/* The call returns at once, and nothing happens before the stream reaches it. */
TEST_VARIANTS(stream_waits_for_its_turn, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 10000, 4);
	struct gate g = { .fd = -1 };
	struct call c = { 10000, 0, 0, 0 };
	struct handle h;
	struct buf b;
	CUstream s;

	memory_begin(v);
	h = handle_open(make_file("file", 10000, 4), O_RDONLY);
	b = buf_new(v, 10000);
	s = stream_new(v);
	buf_fill(&b, 0x33);
	stream_call(v, s, gate_wait, &g);
	put_call(&h, &b, false, &c, s);
	sleep_ms(30);
	ASSERT_EQ(__atomic_load_n(&c.done, __ATOMIC_ACQUIRE), -99);
	/* Other calls are not delayed meanwhile. */
	char plain[100];

	ASSERT_EQ(cuFileRead(h.fh, plain, 100, 0, 0), 100);
	atomic_store(&g.open, true);
	stream_sync(v, s);
	ASSERT_EQ(c.done, 10000);
	buf_expect(&b, 0, want, 10000);
	stream_free(v, s);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}

/* Parameters are read when the stream reaches the transfer, except those declared fixed. */
TEST_VARIANTS(stream_late_parameters, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 20000, 5);
	struct handle h;
	struct buf b;
	CUstream s;

	memory_begin(v);
	h = handle_open(make_file("file", 20000, 5), O_RDONLY);
	b = buf_new(v, 20000);
	s = stream_new(v);
	for (unsigned int flags = 0; flags < 8; flags++) {
		struct call c = { 100, 11, 22, 0 };
		struct gate g = { .c = &c, .then = { 5000, 777, 333, 0 }, .fd = -1 };
		size_t size = flags & CU_FILE_STREAM_FIXED_FILE_SIZE ? 100 : 5000;
		off_t off = flags & CU_FILE_STREAM_FIXED_FILE_OFFSET ? 11 : 777;
		off_t at = flags & CU_FILE_STREAM_FIXED_BUF_OFFSET ? 22 : 333;

		OK(cuFileStreamRegister(s, flags));
		buf_fill(&b, 0x44);
		stream_call(v, s, gate_wait, &g);
		put_call(&h, &b, false, &c, s);
		atomic_store(&g.open, true);
		stream_sync(v, s);
		ASSERT_EQ(c.done, (ssize_t)size);
		buf_expect(&b, (size_t)at, want + off, size);
		buf_expect_byte(&b, (size_t)at + size, 0x44, 1000);
		OK(cuFileStreamDeregister(s));
	}
	stream_free(v, s);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}

/* Changes of the file by earlier work on the stream are seen: by a function, and by a write. */
TEST_VARIANTS(stream_sees_the_file_changed, struct memory, memories)
{
	struct gate g = { .text = "changed by a function" };
	struct call w = { 5000, 100, 0, 0 }, r = { 5000, 100, 6000, 0 }, first = { 21, 0, 12000, 0 };
	unsigned char *data = pattern_new(0, 5000, 6);
	struct handle h, reader;
	struct buf b;
	CUstream s;

	memory_begin(v);
	h = handle_open(make_file("file", 20000, 7), O_RDWR);
	reader = handle_open(test_path("file"), O_RDONLY);
	b = buf_new(v, 20000);
	s = stream_new(v);
	memory_put(v, b.p, data, 5000);
	g.fd = h.fd;
	stream_call(v, s, gate_wait, &g);
	put_call(&reader, &b, false, &first, s);
	put_call(&h, &b, true, &w, s);
	put_call(&reader, &b, false, &r, s);
	atomic_store(&g.open, true);
	stream_sync(v, s);
	ASSERT_EQ(first.done, 21);
	buf_expect(&b, 12000, g.text, 21);
	ASSERT_EQ(w.done, 5000);
	ASSERT_EQ(r.done, 5000);
	buf_expect(&b, 6000, data, 5000);
	file_expect(test_path("file"), 100, data, 5000);
	stream_free(v, s);
	buf_free(&b);
	handle_close(&h);
	handle_close(&reader);
	memory_end(v);
	free(data);
}

/* A host function on the stream opens a file for writing that had no writer, and writes to it. */
static void open_and_write(void *arg)
{
	int fd = open(arg, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || pwrite(fd, "opened by a function", 20, 0) != 20)
		abort();
	close(fd);
}

TEST_VARIANTS(stream_function_opens_the_file, struct memory, memories)
{
	struct call before = { 20, 0, 0, 0 }, after = { 20, 0, 4096, 0 };
	unsigned char *want = pattern_new(0, 20000, 8);
	char path[PATH_MAX];
	struct handle h;
	struct buf b;
	CUstream s;

	memory_begin(v);
	h = handle_open(make_file("file", 20000, 8), O_RDONLY);
	snprintf(path, sizeof(path), "%s", test_path("file"));
	b = buf_new(v, 20000);
	s = stream_new(v);
	put_call(&h, &b, false, &before, s);
	stream_call(v, s, open_and_write, path);
	put_call(&h, &b, false, &after, s);
	stream_sync(v, s);
	ASSERT_EQ(before.done, 20);
	ASSERT_EQ(after.done, 20);
	buf_expect(&b, 0, want, 20);
	buf_expect(&b, 4096, "opened by a function", 20);
	stream_free(v, s);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}

struct peek {
	struct call *c;
	ssize_t seen;
};

static void peek_at(void *arg)
{
	struct peek *p = arg;

	p->seen = p->c->done;
}

/* Later work on the stream sees the result. */
TEST_VARIANTS(stream_result_comes_first, struct memory, memories)
{
	struct call c[20];
	struct peek p[20];
	struct handle h;
	struct buf b;
	CUstream s;

	memory_begin(v);
	h = handle_open(make_file("file", 100000, 9), O_RDONLY);
	b = buf_new(v, 100000);
	s = stream_new(v);
	for (int i = 0; i < 20; i++) {
		c[i] = (struct call){ 4000 + (size_t)i, 0, i * 4500, 0 };
		p[i] = (struct peek){ &c[i], 0 };
		put_call(&h, &b, false, &c[i], s);
		stream_call(v, s, peek_at, &p[i]);
	}
	stream_sync(v, s);
	for (int i = 0; i < 20; i++)
		ASSERT_EQ(p[i].seen, 4000 + i);
	stream_free(v, s);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
}

/* A chain of writes and reads through the file: each sees what the one before left. */
TEST_VARIANTS(stream_chain, struct memory, memories)
{
	enum { N = 100 };
	static struct call c[N];
	unsigned char *want = pattern_new(0, 3000, 10);
	struct handle h;
	struct buf b;
	CUstream s;

	memory_begin(v);
	h = handle_open(make_file("file", 3000, 10), O_RDWR);
	b = buf_new(v, 8192);
	s = stream_new(v);
	for (int i = 0; i < N; i++) {
		c[i] = (struct call){ 3000, (i + 1) / 2 * 3000, i / 2 % 2 * 4096, 0 };
		put_call(&h, &b, i % 2, &c[i], s);
	}
	stream_sync(v, s);
	for (int i = 0; i < N; i++)
		ASSERT_EQ(c[i].done, 3000);
	file_expect(test_path("file"), N / 2 * 3000, want, 3000);
	stream_free(v, s);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}

/* Everything may be deregistered while the call waits for its turn. */
TEST_VARIANTS(stream_registrations_go_first, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 10000, 11);
	struct gate g = { .fd = -1 };
	struct call c = { 10000, 0, 0, 0 };
	struct handle h;
	struct buf b;
	CUstream s;

	memory_begin(v);
	OK(cuFileDriverOpen());
	h = handle_open(make_file("file", 10000, 11), O_RDONLY);
	b = buf_new(v, 10000);
	s = stream_new(v);
	stream_call(v, s, gate_wait, &g);
	put_call(&h, &b, false, &c, s);
	handle_close(&h);
	if (v->registered)
		OK(cuFileBufDeregister(b.p));
	atomic_store(&g.open, true);
	stream_sync(v, s);
	ASSERT_EQ(c.done, 10000);
	buf_expect(&b, 0, want, 10000);
	stream_free(v, s);
	memory_free(v, b.p);
	OK(cuFileDriverClose());
	memory_end(v);
	free(want);
}

/* Streams that are created and destroyed without registration, more than are cached. */
TEST_VARIANTS(stream_unregistered_ones, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 20000, 12);
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 20000, 12), O_RDONLY);
	b = buf_new(v, 20000);
	for (int i = 0; i < 150; i++) {
		struct call c = { 4000, i, 0, 0 };
		CUstream s = stream_new(v);

		put_call(&h, &b, false, &c, s);
		stream_sync(v, s);
		ASSERT_EQ(c.done, 4000);
		buf_expect(&b, 0, want + i, 4000);
		stream_free(v, s);
	}
	buf_free(&b);
	handle_close(&h);
	OK(cuFileDriverClose());
	memory_end(v);
	free(want);
}

TEST_VARIANTS(stream_several_at_once, struct memory, memories)
{
	enum { STREAMS = 6, CALLS = 20 };
	unsigned char *want = pattern_new(0, STREAM_LEN, 13);
	static struct call c[STREAMS][CALLS];
	CUstream s[STREAMS];
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", STREAM_LEN, 13), O_RDONLY);
	b = buf_new(v, STREAMS * CALLS * 16384);
	for (int i = 0; i < STREAMS; i++)
		s[i] = stream_new(v);
	for (int k = 0; k < CALLS; k++)
		for (int i = 0; i < STREAMS; i++) {
			c[i][k] = (struct call){ 16000, i * 10007 + k * 90001, (i * CALLS + k) * 16384, 0 };
			put_call(&h, &b, false, &c[i][k], s[i]);
		}
	for (int i = 0; i < STREAMS; i++)
		stream_sync(v, s[i]);
	for (int i = 0; i < STREAMS; i++) {
		for (int k = 0; k < CALLS; k++) {
			ASSERT_EQ(c[i][k].done, 16000);
			buf_expect(&b, (size_t)(i * CALLS + k) * 16384, want + c[i][k].file_off, 16000);
		}
		stream_free(v, s[i]);
	}
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}
