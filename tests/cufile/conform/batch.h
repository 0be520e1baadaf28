/* SPDX-License-Identifier: MIT */
/* Batches. */

#define BATCH_LEN (MIB(16) + 5)

static CUfileIOParams_t entry_of(struct handle *h, struct buf *b, bool write, size_t off, size_t at, size_t len,
				 void *cookie)
{
	return (CUfileIOParams_t){ .mode = CUFILE_BATCH,
				   .u.batch = { b->p, (off_t)off, (off_t)at, len },
				   .fh = h->fh,
				   .opcode = write ? CUFILE_WRITE : CUFILE_READ,
				   .cookie = cookie };
}

/* Fetches all events, each into the element that its cookie names. */
static void batch_wait(CUfileBatchHandle_t batch, CUfileIOEvents_t *ev, unsigned int n)
{
	CUfileIOEvents_t got[256];
	unsigned int done = 0;

	while (done < n) {
		struct timespec limit = { .tv_sec = 30 };
		unsigned int nr = n - done;

		OK(cuFileBatchIOGetStatus(batch, 1, &nr, got, &limit));
		ASSERT_GE(nr, 1);
		for (unsigned int i = 0; i < nr; i++)
			ev[(uintptr_t)got[i].cookie] = got[i];
		done += nr;
	}
}

TEST_VARIANTS(batch_arguments, struct memory, memories)
{
	struct timespec now = { 0 }, bad = { .tv_nsec = 1000000000 }, past = { .tv_sec = -1 };
	CUfileBatchHandle_t batch = NULL;
	CUfileIOEvents_t ev[4];
	CUfileIOParams_t p[4];
	unsigned int nr;
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 10000, 1), O_RDONLY);
	b = buf_new(v, 10000);
	ERR(cuFileBatchIOSetUp(NULL, 1), CU_FILE_INVALID_VALUE);
	ERR(cuFileBatchIOSetUp(&batch, 0), CU_FILE_INVALID_VALUE);
	ERR(cuFileBatchIOSetUp(&batch, 129), CU_FILE_INVALID_VALUE);
	ASSERT_EQ(batch, NULL);
	OK(cuFileBatchIOSetUp(&batch, 128));
	cuFileBatchIODestroy(batch);
	OK(cuFileBatchIOSetUp(&batch, 4));
	for (int i = 0; i < 4; i++)
		p[i] = entry_of(&h, &b, false, 0, 0, 100, NULL);
	ERR(cuFileBatchIOSubmit(batch, 0, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	ERR(cuFileBatchIOSubmit(batch, 5, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	ERR(cuFileBatchIOSubmit(batch, 1, NULL, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	ERR(cuFileBatchIOSubmit(NULL, 1, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	ERR(cuFileBatchIOSubmit(&b, 1, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	nr = 4;
	ERR(cuFileBatchIOGetStatus(batch, 5, &nr, ev, NULL), CU_FILE_INVALID_VALUE);
	ERR(cuFileBatchIOGetStatus(batch, 1, NULL, ev, NULL), CU_FILE_INVALID_VALUE);
	ERR(cuFileBatchIOGetStatus(batch, 0, &nr, NULL, NULL), CU_FILE_INVALID_VALUE);
	ERR(cuFileBatchIOGetStatus(batch, 0, &nr, ev, &bad), CU_FILE_INVALID_VALUE);
	ERR(cuFileBatchIOGetStatus(batch, 0, &nr, ev, &past), CU_FILE_INVALID_VALUE);
	ERR(cuFileBatchIOGetStatus(NULL, 0, &nr, ev, NULL), CU_FILE_INVALID_VALUE);
	/* Nothing was submitted: nothing is waited for. */
	nr = 4;
	OK(cuFileBatchIOGetStatus(batch, 4, &nr, ev, NULL));
	ASSERT_EQ(nr, 0);
	nr = 4;
	OK(cuFileBatchIOGetStatus(batch, 0, &nr, ev, &now));
	ASSERT_EQ(nr, 0);
	/* Flags are ignored. */
	OK(cuFileBatchIOSubmit(batch, 1, p, 1));
	nr = 4;
	OK(cuFileBatchIOGetStatus(batch, 1, &nr, ev, NULL));
	ASSERT_EQ(nr, 1);
	ASSERT_EQ(ev[0].ret, 100);
	OK(cuFileBatchIOCancel(batch));
	OK(cuFileBatchIOCancel(NULL));
	OK(cuFileBatchIOCancel(&b));
	cuFileBatchIODestroy(batch);
	cuFileBatchIODestroy(batch);
	cuFileBatchIODestroy(NULL);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
}

TEST_VARIANTS(batch_refused_as_a_whole, struct memory, memories)
{
	CUfileBatchHandle_t batch;
	CUfileIOEvents_t ev[4];
	CUfileIOParams_t p[4];
	struct timespec now = { 0 };
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 10000, 1), O_RDONLY);
	b = buf_new(v, 10000);
	OK(cuFileBatchIOSetUp(&batch, 4));
	for (int bad = 0; bad < 8; bad++) {
		unsigned int nr = 4;

		buf_fill(&b, 0x77);
		for (int i = 0; i < 4; i++)
			p[i] = entry_of(&h, &b, false, 0, (size_t)i * 100, 100, NULL);
		if (bad == 0)
			p[2].mode = (CUfileBatchMode_t)0;
		else if (bad == 1)
			p[2].opcode = (CUfileOpcode_t)7;
		else if (bad == 2)
			p[2].fh = &b;
		else if (bad == 3)
			p[2].fh = NULL;
		else if (bad == 4)
			p[2].u.batch.devPtr_base = NULL;
		else if (bad == 5)
			p[2].u.batch.file_offset = -1;
		else if (bad == 6)
			p[2].u.batch.devPtr_offset = -1;
		else if (bad == 7 && v->registered)
			p[2].u.batch.size = 9901;
		else
			continue;
		ERR(cuFileBatchIOSubmit(batch, 4, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
		OK(cuFileBatchIOGetStatus(batch, 0, &nr, ev, &now));
		ASSERT_EQ(nr, 0);
		buf_expect_byte(&b, 0, 0x77, 10000);
	}
	/* All entries are free again. */
	for (int i = 0; i < 4; i++)
		p[i] = entry_of(&h, &b, false, 0, (size_t)i * 100, 100, (void *)(uintptr_t)i);
	OK(cuFileBatchIOSubmit(batch, 4, p, 0));
	batch_wait(batch, ev, 4);
	cuFileBatchIODestroy(batch);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
}

/* 128 at any offset, of any length: each is right. */
TEST_VARIANTS(batch_reads_unaligned, struct memory, memories)
{
	unsigned char *want = pattern_new(0, BATCH_LEN, 2);
	CUfileIOParams_t p[128];
	CUfileIOEvents_t ev[128];
	CUfileBatchHandle_t batch;
	struct handle h;
	struct buf b;

	memory_begin(v);
	make_file("file", BATCH_LEN, 2);
	b = buf_new(v, 128 * 5000);
	OK(cuFileBatchIOSetUp(&batch, 128));
	for (int flags = 0; flags < 3; flags++) {
		h = handle_open(test_path("file"), flags == 0 ? O_RDONLY : flags == 1 ? O_RDWR : O_RDONLY | O_DIRECT);
		buf_fill(&b, 0x5a);
		for (unsigned int i = 0; i < 128; i++)
			p[i] = entry_of(&h, &b, false, 7 + 70001 * i, 5000 * i, 4001 + i, (void *)(uintptr_t)i);
		OK(cuFileBatchIOSubmit(batch, 128, p, 0));
		batch_wait(batch, ev, 128);
		for (unsigned int i = 0; i < 128; i++) {
			ASSERT_EQ((int)ev[i].status, CUFILE_COMPLETE);
			ASSERT_EQ(ev[i].ret, 4001 + i);
			buf_expect(&b, 5000 * i, want + 7 + 70001 * i, 4001 + i);
			buf_expect_byte(&b, 5000 * i + 4001 + i, 0x5a, 5000 - 4001 - i);
		}
		handle_close(&h);
	}
	cuFileBatchIODestroy(batch);
	buf_free(&b);
	memory_end(v);
	free(want);
}

/* Reads and writes, small and large, two files and two buffers in one batch, again and again. */
TEST_VARIANTS(batch_mixed, struct memory, memories)
{
	unsigned char *data = pattern_new(0, MIB(4), 3), *want = pattern_new(0, MIB(4), 4);
	CUfileIOParams_t p[64];
	CUfileIOEvents_t ev[64];
	CUfileBatchHandle_t batch;
	struct handle in, out;
	struct buf from, to;

	memory_begin(v);
	in = handle_open(make_file("in", MIB(4), 4), O_RDONLY);
	out = handle_open(make_file("out", 0, 5), O_RDWR);
	from = buf_new(v, MIB(4));
	to = buf_new(v, MIB(4));
	memory_put(v, from.p, data, MIB(4));
	OK(cuFileBatchIOSetUp(&batch, 64));
	for (int round = 0; round < 5; round++) {
		for (unsigned int i = 0; i < 64; i++) {
			size_t len = i % 16 == 5 ? 60000 : 500 + i;

			p[i] = entry_of(i % 2 ? &out : &in, i % 2 ? &from : &to, i % 2, i * 65000, i * 65000, len,
					(void *)(uintptr_t)i);
		}
		OK(cuFileBatchIOSubmit(batch, 64, p, 0));
		batch_wait(batch, ev, 64);
		for (unsigned int i = 0; i < 64; i++) {
			size_t len = p[i].u.batch.size;

			ASSERT_EQ((int)ev[i].status, CUFILE_COMPLETE);
			ASSERT_EQ(ev[i].ret, len);
			if (i % 2)
				file_expect(test_path("out"), i * 65000, data + i * 65000, len);
			else
				buf_expect(&to, i * 65000, want + i * 65000, len);
		}
		buf_fill(&to, 0);
	}
	cuFileBatchIODestroy(batch);
	buf_free(&from);
	buf_free(&to);
	handle_close(&in);
	handle_close(&out);
	memory_end(v);
	free(data);
	free(want);
}

TEST_VARIANTS(batch_results, struct memory, memories)
{
	struct rlimit limit = { 100000, RLIM_INFINITY };
	CUfileIOParams_t p[4];
	CUfileIOEvents_t ev[4];
	CUfileBatchHandle_t batch;
	struct handle h;
	struct buf b;

	memory_begin(v);
	signal(SIGXFSZ, SIG_IGN);
	h = handle_open(make_file("file", 10000, 5), O_RDWR);
	b = buf_new(v, MIB(1));
	ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	OK(cuFileBatchIOSetUp(&batch, 4));
	p[0] = entry_of(&h, &b, false, 9990, 0, 4096, (void *)(uintptr_t)0);	  /* the end of the file */
	p[1] = entry_of(&h, &b, false, 10000, 4096, 4096, (void *)(uintptr_t)1);  /* after it */
	p[2] = entry_of(&h, &b, false, 0, 8192, 0, (void *)(uintptr_t)2);	  /* nothing */
	p[3] = entry_of(&h, &b, true, 200000, 16384, 4096, (void *)(uintptr_t)3); /* more than the file may have */
	OK(cuFileBatchIOSubmit(batch, 4, p, 0));
	batch_wait(batch, ev, 4);
	ASSERT_EQ((int)ev[0].status, CUFILE_COMPLETE);
	ASSERT_EQ(ev[0].ret, 10);
	ASSERT_EQ((int)ev[1].status, CUFILE_COMPLETE);
	ASSERT_EQ(ev[1].ret, 0);
	ASSERT_EQ((int)ev[2].status, CUFILE_COMPLETE);
	ASSERT_EQ(ev[2].ret, 0);
	ASSERT_EQ((int)ev[3].status, CUFILE_FAILED);
	ASSERT_EQ((ssize_t)ev[3].ret, -EFBIG);
	limit.rlim_cur = RLIM_INFINITY;
	setrlimit(RLIMIT_FSIZE, &limit);
	cuFileBatchIODestroy(batch);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
}

/* Entries are in use until the event was fetched, and then reused. */
TEST_VARIANTS(batch_places, struct memory, memories)
{
	CUfileIOParams_t p[8];
	CUfileIOEvents_t ev[8];
	CUfileBatchHandle_t batch;
	unsigned int nr;
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 100000, 6), O_RDONLY);
	b = buf_new(v, 100000);
	OK(cuFileBatchIOSetUp(&batch, 8));
	for (unsigned int i = 0; i < 8; i++)
		p[i] = entry_of(&h, &b, false, i * 1000, i * 1000, 1000, (void *)(uintptr_t)i);
	OK(cuFileBatchIOSubmit(batch, 5, p, 0));
	ERR(cuFileBatchIOSubmit(batch, 4, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	OK(cuFileBatchIOSubmit(batch, 3, p + 5, 0));
	ERR(cuFileBatchIOSubmit(batch, 1, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	nr = 2;
	OK(cuFileBatchIOGetStatus(batch, 2, &nr, ev, NULL));
	ASSERT_EQ(nr, 2);
	/* To other offsets: the first transfers may still be in flight. */
	for (unsigned int i = 0; i < 2; i++)
		p[i].u.batch.devPtr_offset += 50000;
	OK(cuFileBatchIOSubmit(batch, 2, p, 0));
	nr = 8;
	OK(cuFileBatchIOGetStatus(batch, 8, &nr, ev, NULL));
	ASSERT_EQ(nr, 8);
	/* More may be requested than there is. */
	nr = 200;
	OK(cuFileBatchIOGetStatus(batch, 0, &nr, (CUfileIOEvents_t[200]){ { 0 } }, NULL));
	ASSERT_EQ(nr, 0);
	cuFileBatchIODestroy(batch);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
}

TEST_VARIANTS(batch_cancel_and_destroy, struct memory, memories)
{
	CUfileIOParams_t p[128];
	CUfileIOEvents_t ev[128];
	CUfileBatchHandle_t batch;
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", BATCH_LEN, 7), O_RDWR);
	b = buf_new(v, MIB(16));
	OK(cuFileBatchIOSetUp(&batch, 128));
	for (unsigned int i = 0; i < 128; i++)
		p[i] = entry_of(&h, &b, i % 4 == 3, i * 131072, i * 131072, 131072, (void *)(uintptr_t)i);
	for (int round = 0; round < 4; round++) {
		struct timespec now = { 0, 0 };
		unsigned int nr = 128;

		OK(cuFileBatchIOSubmit(batch, 128, p, 0));
		/* Some may have been delivered by then. */
		if (round & 1)
			OK(cuFileBatchIOGetStatus(batch, 1, &nr, ev, NULL));
		OK(cuFileBatchIOCancel(batch));
		nr = 128;
		OK(cuFileBatchIOGetStatus(batch, 0, &nr, ev, &now));
		ASSERT_EQ(nr, 0);
		nr = 128;
		OK(cuFileBatchIOGetStatus(batch, 128, &nr, ev, NULL));
		ASSERT_EQ(nr, 0);
	}
	/* While all of them are in flight. */
	OK(cuFileBatchIOSubmit(batch, 128, p, 0));
	cuFileBatchIODestroy(batch);
	ERR(cuFileBatchIOSubmit(batch, 1, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	OK(cuFileBatchIOSetUp(&batch, 128));
	OK(cuFileBatchIOSubmit(batch, 128, p, 0));
	handle_close(&h);
	if (v->registered)
		OK(cuFileBufDeregister(b.p));
	batch_wait(batch, ev, 128);
	cuFileBatchIODestroy(batch);
	memory_free(v, b.p);
	memory_end(v);
}

/* 128 that together are four times as large as the staging pool: it takes long, and ends. */
TEST_VARIANTS(batch_with_a_small_pool, struct memory, memories)
{
	enum { N = 128, EACH = 131073, STRIDE = 135168 };
	static const size_t size[] = { 1024 }, count[] = { 4 };
	unsigned char *want = pattern_new(0, N * STRIDE, 8);
	CUfileIOParams_t p[N];
	CUfileIOEvents_t ev[N];
	CUfileBatchHandle_t batch;
	struct handle h;
	struct buf b;

	memory_begin(v);
	OK(cuFileSetParameterPosixPoolSlabArray(size, count, 1));
	h = handle_open(make_file("file", N * STRIDE, 8), O_RDWR);
	b = buf_new(v, N * STRIDE);
	OK(cuFileBatchIOSetUp(&batch, N));
	for (unsigned int i = 0; i < N; i++)
		p[i] = entry_of(&h, &b, false, i * STRIDE, i * STRIDE, EACH, (void *)(uintptr_t)i);
	for (int round = 0; round < 2; round++) {
		OK(cuFileBatchIOSubmit(batch, N, p, 0));
		batch_wait(batch, ev, N);
		for (unsigned int i = 0; i < N; i++) {
			ASSERT_EQ(ev[i].ret, EACH);
			buf_expect(&b, i * STRIDE, want + i * STRIDE, EACH);
		}
	}
	cuFileBatchIODestroy(batch);
	buf_free(&b);
	handle_close(&h);
	OK(cuFileDriverClose());
	memory_end(v);
	free(want);
}

/* A file that is read in batches is then changed by another writer: the next batch reads the new bytes. */
TEST_VARIANTS(batch_of_a_file_that_changes, struct memory, memories)
{
	unsigned char *want = pattern_new(0, MIB(1), 9);
	CUfileIOParams_t p[32];
	CUfileIOEvents_t ev[32];
	CUfileBatchHandle_t batch;
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", MIB(1), 9), O_RDONLY);
	b = buf_new(v, 32 * 4096);
	OK(cuFileBatchIOSetUp(&batch, 32));
	for (unsigned int round = 0; round < 8; round++) {
		for (unsigned int i = 0; i < 32; i++)
			p[i] = entry_of(&h, &b, false, i * 32768 + round, i * 4096, 4096, (void *)(uintptr_t)i);
		OK(cuFileBatchIOSubmit(batch, 32, p, 0));
		batch_wait(batch, ev, 32);
		for (unsigned int i = 0; i < 32; i++) {
			ASSERT_EQ(ev[i].ret, 4096);
			buf_expect(&b, i * 4096, want + i * 32768 + round, 4096);
		}
		pattern(want, 0, MIB(1), 10 + round);
		write_at(test_path("file"), want, MIB(1), 0);
	}
	cuFileBatchIODestroy(batch);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}
