/* SPDX-License-Identifier: MIT */
/* Synchronous reads and writes. */

#define IO_LEN (MIB(2) + 77)

TEST_VARIANTS(io_arguments, struct memory, memories)
{
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 10000, 1), O_RDWR);
	b = buf_new(v, 10000);
	FAILS(cuFileRead(NULL, b.p, 10, 0, 0), EINVAL);
	FAILS(cuFileRead(h.fh, NULL, 10, 0, 0), EINVAL);
	FAILS(cuFileWrite(NULL, b.p, 10, 0, 0), EINVAL);
	FAILS(cuFileWrite(h.fh, NULL, 10, 0, 0), EINVAL);
	FAILS(cuFileRead(h.fh, b.p, 10, -1, 0), CU_FILE_INVALID_VALUE);
	FAILS(cuFileWrite(h.fh, b.p, 10, -1, 0), CU_FILE_INVALID_VALUE);
	FAILS(cuFileRead(h.fh, b.p, 10, INT64_MIN, 0), CU_FILE_INVALID_VALUE);
	FAILS(cuFileRead(h.fh, b.p, 10, 0, -1), CU_FILE_INTERNAL_ERROR);
	FAILS(cuFileWrite(h.fh, b.p, 10, 0, -1), CU_FILE_INTERNAL_ERROR);
	errno = 0;
	ASSERT_EQ(cuFileRead(h.fh, b.p, SIZE_MAX, 0, 0), -1);
	ASSERT_NE(errno, 0);
	errno = 0;
	ASSERT_EQ(cuFileRead(h.fh, b.p, 10, INT64_MAX, 0), -1);
	ASSERT_NE(errno, 0);
	ASSERT_EQ(cuFileRead(h.fh, b.p, 0, 0, 0), 0);
	ASSERT_EQ(cuFileRead(h.fh, b.p, 0, 99999, 0), 0);
	ASSERT_EQ(cuFileWrite(h.fh, b.p, 0, 99999, 0), 0);
	ASSERT_EQ(file_length(test_path("file")), 10000);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
}

TEST_VARIANTS(io_whole_file, struct memory, memories)
{
	unsigned char *want = pattern_new(0, IO_LEN, 1);
	static const int flags[] = { O_RDONLY, O_RDONLY | O_DIRECT, O_RDWR, O_RDWR | O_DIRECT, O_RDONLY | O_SYNC };
	struct buf b;

	memory_begin(v);
	make_file("file", IO_LEN, 1);
	b = buf_new(v, IO_LEN);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		int fd = open(test_path("file"), flags[i]);
		CUfileHandle_t fh;

		if (fd < 0)
			continue;
		OK(try_register(fd, &fh));
		buf_fill(&b, 0xee);
		ASSERT_EQ(cuFileRead(fh, b.p, IO_LEN, 0, 0), (ssize_t)IO_LEN);
		buf_expect(&b, 0, want, IO_LEN);
		cuFileHandleDeregister(fh);
		close(fd);
	}
	buf_free(&b);
	memory_end(v);
	free(want);
}

static const size_t odd[] = { 0, 1, 7, 511, 512, 513, 4095, 4096, 4097, 65535, 65536, 65537, 131071, 300001 };
#define ODDS (sizeof(odd) / sizeof(odd[0]))

/* Any offset, any length, any place; and no byte around it changes. */
TEST_VARIANTS(io_reads_anything, struct memory, memories)
{
	unsigned char *want = pattern_new(0, IO_LEN, 2);
	struct handle h;
	struct buf b;

	memory_begin(v);
	make_file("file", IO_LEN, 2);
	b = buf_new(v, MIB(1));
	for (int direct = 0; direct < 2; direct++) {
		h = handle_open(test_path("file"), O_RDONLY | (direct ? O_DIRECT : 0));
		/* Fewer of them where everything takes long. */
		for (size_t i = 0; i<ODDS; i += test_slow()> 1 ? 4 : 1)
			for (size_t k = 1; k < ODDS; k += 2) {
				size_t at = odd[(i + k) % ODDS];

				buf_fill(&b, 0x5a);
				ASSERT_EQ(cuFileRead(h.fh, b.p, odd[k], (off_t)odd[i], (off_t)at), (ssize_t)odd[k]);
				buf_expect(&b, at, want + odd[i], odd[k]);
				if (at)
					buf_expect_byte(&b, at - 1, 0x5a, 1);
				buf_expect_byte(&b, at + odd[k], 0x5a, 64);
			}
		handle_close(&h);
	}
	buf_free(&b);
	memory_end(v);
	free(want);
}

TEST_VARIANTS(io_writes_anything, struct memory, memories)
{
	unsigned char *data = pattern_new(0, MIB(1), 3), *want = calloc(1, IO_LEN);
	struct handle h;
	struct buf b;

	memory_begin(v);
	b = buf_new(v, MIB(1));
	memory_put(v, b.p, data, MIB(1));
	for (int direct = 0; direct < 2; direct++) {
		pattern(want, 0, IO_LEN, 4);
		make_file("file", IO_LEN, 4);
		h = handle_open(test_path("file"), O_RDWR | (direct ? O_DIRECT : 0));
		for (size_t i = 0; i < ODDS; i += 2)
			for (size_t k = 1; k < ODDS; k += 3) {
				size_t at = odd[(i + 2 * k) % ODDS];

				ASSERT_EQ(cuFileWrite(h.fh, b.p, odd[k], (off_t)odd[i], (off_t)at), (ssize_t)odd[k]);
				memcpy(want + odd[i], data + at, odd[k]);
			}
		file_expect(test_path("file"), 0, want, IO_LEN);
		ASSERT_EQ(file_length(test_path("file")), IO_LEN);
		handle_close(&h);
	}
	buf_expect(&b, 0, data, MIB(1));
	buf_free(&b);
	memory_end(v);
	free(data);
	free(want);
}

TEST_VARIANTS(io_end_of_file, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 70001, 5);
	struct handle h;
	struct buf b;

	memory_begin(v);
	make_file("file", 70001, 5);
	b = buf_new(v, MIB(1));
	for (int direct = 0; direct < 2; direct++) {
		h = handle_open(test_path("file"), O_RDWR | (direct ? O_DIRECT : 0));
		buf_fill(&b, 0x11);
		ASSERT_EQ(cuFileRead(h.fh, b.p, MIB(1), 0, 0), 70001);
		buf_expect(&b, 0, want, 70001);
		buf_expect_byte(&b, 70001, 0x11, MIB(1) - 70001);
		ASSERT_EQ(cuFileRead(h.fh, b.p, 4096, 70000, 0), 1);
		buf_expect(&b, 0, want + 70000, 1);
		buf_expect(&b, 1, want + 1, 4096);
		ASSERT_EQ(cuFileRead(h.fh, b.p, 4096, 70001, 0), 0);
		ASSERT_EQ(cuFileRead(h.fh, b.p, 4096, 70002, 0), 0);
		ASSERT_EQ(cuFileRead(h.fh, b.p, MIB(1), (off_t)1 << 40, 0), 0);
		handle_close(&h);
	}
	buf_free(&b);
	memory_end(v);
	free(want);
}

/* Holes, a file that grows, one that is truncated. */
TEST_VARIANTS(io_file_changes, struct memory, memories)
{
	unsigned char *data = pattern_new(0, 100000, 6);
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 0, 6), O_RDWR);
	b = buf_new(v, MIB(1));
	ASSERT_EQ(cuFileRead(h.fh, b.p, 100, 0, 0), 0);
	memory_put(v, b.p, data, 100000);
	ASSERT_EQ(cuFileWrite(h.fh, b.p, 100000, 50001, 0), 100000);
	ASSERT_EQ(file_length(test_path("file")), 150001);
	buf_fill(&b, 0xcc);
	ASSERT_EQ(cuFileRead(h.fh, b.p, MIB(1), 0, 0), 150001);
	buf_expect_byte(&b, 0, 0, 50001);
	buf_expect(&b, 50001, data, 100000);
	/* By another descriptor, while it is registered. */
	write_at(test_path("file"), data + 500, 1000, 7);
	ASSERT_EQ(cuFileRead(h.fh, b.p, 1000, 7, 0), 1000);
	buf_expect(&b, 0, data + 500, 1000);
	ASSERT_EQ(ftruncate(h.fd, 1234), 0);
	ASSERT_EQ(cuFileRead(h.fh, b.p, MIB(1), 0, 0), 1234);
	ASSERT_EQ(cuFileRead(h.fh, b.p, 100, 1234, 0), 0);
	ASSERT_EQ(ftruncate(h.fd, 300000), 0);
	ASSERT_EQ(cuFileRead(h.fh, b.p, MIB(1), 0, 0), 300000);
	buf_expect_byte(&b, 1234, 0, 298766);
	handle_close(&h);
	buf_free(&b);
	memory_end(v);
	free(data);
}

TEST_VARIANTS(io_errors_of_the_file, struct memory, memories)
{
	struct rlimit limit = { 100000, RLIM_INFINITY };
	struct handle h;
	struct buf b;

	memory_begin(v);
	signal(SIGXFSZ, SIG_IGN);
	h = handle_open(make_file("file", 1000, 7), O_RDWR);
	b = buf_new(v, MIB(1));
	ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	FAILS(cuFileWrite(h.fh, b.p, 4096, 200000, 0), EFBIG);
	ASSERT_EQ(cuFileWrite(h.fh, b.p, 4096, 0, 0), 4096);
	limit.rlim_cur = RLIM_INFINITY;
	setrlimit(RLIMIT_FSIZE, &limit);
	handle_close(&h);
	buf_free(&b);
	memory_end(v);
}

TEST_VARIANTS(io_vectors, struct memory, memories)
{
	unsigned char *want = pattern_new(0, MIB(1), 8);
	CUfileIOVec_t iov[6], *many;
	struct handle h;
	struct buf a, b;

	memory_begin(v);
	h = handle_open(make_file("file", MIB(1), 8), O_RDWR);
	a = buf_new(v, 100000);
	b = buf_new(v, 100000);
	iov[0] = (CUfileIOVec_t){ a.p, 5000 };
	iov[1] = (CUfileIOVec_t){ b.p + 7, 1 };
	iov[2] = (CUfileIOVec_t){ a.p + 60000, 0 };
	iov[3] = (CUfileIOVec_t){ NULL, 0 };
	iov[4] = (CUfileIOVec_t){ a.p + 50000, 30001 };
	iov[5] = (CUfileIOVec_t){ b.p + 100, 4096 };
	ASSERT_EQ(cuFileReadv(h.fh, iov, 6, 333, 0), 5000 + 1 + 30001 + 4096);
	buf_expect(&a, 0, want + 333, 5000);
	buf_expect(&b, 7, want + 5333, 1);
	buf_expect(&a, 50000, want + 5334, 30001);
	buf_expect(&b, 100, want + 35335, 4096);
	ASSERT_EQ(cuFileWritev(h.fh, iov, 6, 500000, 0), 5000 + 1 + 30001 + 4096);
	file_expect(test_path("file"), 500000, want + 333, 39098);
	ASSERT_EQ(cuFileReadv(h.fh, iov, 6, MIB(1) - 5500, 0), 5500);
	ASSERT_EQ(cuFileReadv(h.fh, iov, 6, MIB(1), 0), 0);
	FAILS(cuFileReadv(NULL, iov, 6, 0, 0), EINVAL);
	FAILS(cuFileReadv(h.fh, NULL, 6, 0, 0), EINVAL);
	FAILS(cuFileReadv(h.fh, iov, 0, 0, 0), EINVAL);
	FAILS(cuFileReadv(h.fh, iov, 6, 0, 1), EINVAL);
	FAILS(cuFileWritev(h.fh, iov, 6, 0, 8), EINVAL);
	FAILS(cuFileReadv(h.fh, iov, 6, -5, 0), CU_FILE_INVALID_VALUE);
	FAILS(cuFileReadv(a.p, iov, 6, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	iov[3].len = 5;
	FAILS(cuFileReadv(h.fh, iov, 6, 0, 0), EINVAL);
	iov[3] = (CUfileIOVec_t){ a.p, SIZE_MAX };
	FAILS(cuFileReadv(h.fh, iov, 6, 0, 0), EINVAL);
	many = calloc(IOV_MAX + 1, sizeof(*many));
	for (int i = 0; i <= IOV_MAX; i++)
		many[i] = (CUfileIOVec_t){ a.p + i, 1 };
	FAILS(cuFileReadv(h.fh, many, IOV_MAX + 1, 0, 0), EINVAL);
	ASSERT_EQ(cuFileReadv(h.fh, many, 200, 9, 0), 200);
	buf_expect(&a, 0, want + 9, 200);
	free(many);
	buf_free(&a);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}

struct io_thread {
	const struct memory *m;
	CUfileHandle_t fh;
	struct buf b;
	const unsigned char *want;
	unsigned int seed;
};

static void *io_thread_run(void *arg)
{
	struct io_thread *t = arg;
	uint64_t seed = t->seed;

	memory_begin(t->m);
	for (int i = 0; i < 60; i++) {
		size_t len = 1 + prng_below(&seed, 60000), off = prng_below(&seed, IO_LEN - 60000);
		size_t at = t->seed * 70000u;

		ASSERT_EQ(cuFileRead(t->fh, t->b.p, len, (off_t)off, (off_t)at), (ssize_t)len);
		buf_expect(&t->b, at, t->want + off, len);
	}
	return NULL;
}

/* One handle and one buffer, several threads. */
TEST_VARIANTS(io_threads_share, struct memory, memories)
{
	unsigned char *want = pattern_new(0, IO_LEN, 9);
	struct io_thread t[8];
	pthread_t id[8];
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", IO_LEN, 9), O_RDONLY);
	b = buf_new(v, 8 * 70000);
	for (unsigned int i = 0; i < 8; i++) {
		t[i] = (struct io_thread){ v, h.fh, b, want, i };
		thread_start(&id[i], io_thread_run, &t[i]);
	}
	for (int i = 0; i < 8; i++)
		thread_join(id[i]);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}
