/* SPDX-License-Identifier: MIT */
/* Registered memory. */

#define PLAIN(v) (&(struct memory){ (v)->name, (v)->kind, false })

TEST_VARIANTS(buffer_arguments, struct memory, memories)
{
	char *p;

	memory_begin(v);
	p = memory_alloc(v, MIB(1));
	ERR(cuFileBufRegister(NULL, 100, 0), CU_FILE_INVALID_VALUE);
	ERR(cuFileBufRegister(p, 0, 0), CU_FILE_INVALID_VALUE);
	ERR(cuFileBufDeregister(p), CU_FILE_MEMORY_NOT_REGISTERED);
	ERR(cuFileBufDeregister(NULL), CU_FILE_INVALID_VALUE);
	OK(cuFileBufRegister(p, MIB(1), 0));
	ERR(cuFileBufRegister(p, MIB(1), 0), CU_FILE_MEMORY_ALREADY_REGISTERED);
	ERR(cuFileBufRegister(p, 100, 0), CU_FILE_MEMORY_ALREADY_REGISTERED);
	/* A range inside of another can be registered, and is deregistered by its own base. */
	OK(cuFileBufRegister(p + 4096, 4096, 0));
	ERR(cuFileBufDeregister(p + 100), CU_FILE_MEMORY_NOT_REGISTERED);
	OK(cuFileBufDeregister(p + 4096));
	OK(cuFileBufDeregister(p));
	ERR(cuFileBufDeregister(p), CU_FILE_MEMORY_NOT_REGISTERED);
	/* Flags are ignored. */
	OK(cuFileBufRegister(p, MIB(1), CU_FILE_RDMA_REGISTER));
	OK(cuFileBufDeregister(p));
	OK(cuFileBufRegister(p, MIB(1), CU_FILE_RDMA_REGISTER | CU_FILE_RDMA_RELAXED_ORDERING));
	OK(cuFileBufDeregister(p));
	OK(cuFileBufRegister(p, MIB(1), 12345));
	OK(cuFileBufDeregister(p));
	if (bounded(v) && v->kind != MEM_PINNED)
		ERR(cuFileBufRegister(p, (size_t)1 << 40, 0), CU_FILE_CUDA_POINTER_RANGE_ERROR);
	memory_free(v, p);
	memory_end(v);
}

/* The length that was registered counts, from the base that was registered. */
TEST_VARIANTS(buffer_range_by_base, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 10000, 1);
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 10000, 1), O_RDWR);
	b = buf_new(PLAIN(v), MIB(1));
	OK(cuFileBufRegister(b.p, 8192, 0));
	ASSERT_EQ(cuFileRead(h.fh, b.p, 8192, 0, 0), 8192);
	FAILS(cuFileRead(h.fh, b.p, 8193, 0, 0), CU_FILE_INVALID_MAPPING_RANGE);
	FAILS(cuFileRead(h.fh, b.p, 1, 0, 8192), CU_FILE_INVALID_MAPPING_RANGE);
	FAILS(cuFileRead(h.fh, b.p, 4096, 0, 4097), CU_FILE_INVALID_MAPPING_RANGE);
	FAILS(cuFileWrite(h.fh, b.p, 8193, 0, 0), CU_FILE_INVALID_MAPPING_RANGE);
	FAILS(cuFileWrite(h.fh, b.p, 1, 0, 100000), CU_FILE_INVALID_MAPPING_RANGE);
	ASSERT_EQ(cuFileRead(h.fh, b.p, 4096, 100, 4096), 4096);
	buf_expect(&b, 4096, want + 100, 4096);
	/* By another pointer into the allocation there is no such limit. */
	ASSERT_EQ(cuFileRead(h.fh, b.p + 1, 9000, 0, 0), 9000);
	buf_expect(&b, 1, want, 9000);
	OK(cuFileBufDeregister(b.p));
	ASSERT_EQ(cuFileRead(h.fh, b.p, 10000, 0, 0), 10000);
	buf_expect(&b, 0, want, 10000);
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}

/* The extent of other memory is not known. */
static bool where_bounded(const void *v)
{
	const struct memory *m = v;

	return bounded(m) && m->kind != MEM_PINNED;
}

TEST_WHERE(buffer_past_its_allocation, where_bounded)
TEST_VARIANTS(buffer_past_its_allocation, struct memory, memories)
{
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", MIB(8), 1), O_RDWR);
	b = buf_new(PLAIN(v), MIB(4));
	FAILS(cuFileRead(h.fh, b.p, MIB(8), 0, 0), EIO);
	FAILS(cuFileRead(h.fh, b.p, 4096, 0, (off_t)MIB(4)), EIO);
	FAILS(cuFileWrite(h.fh, b.p, MIB(8), 0, 0), EIO);
	ASSERT_EQ(cuFileRead(h.fh, b.p, MIB(4), 0, 0), (ssize_t)MIB(4));
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
}

/* Pointers and offsets are equivalent. */
TEST_VARIANTS(buffer_pointer_or_offset, struct memory, memories)
{
	unsigned char *want = pattern_new(0, MIB(1), 2);
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", MIB(1), 2), O_RDONLY);
	b = buf_new(v, MIB(1));
	for (size_t at = 0; at < MIB(1) - 5000; at += 99991) {
		ASSERT_EQ(cuFileRead(h.fh, b.p, 5000, (off_t)at, (off_t)at), 5000);
		buf_expect(&b, at, want + at, 5000);
		ASSERT_EQ(cuFileRead(h.fh, b.p + at, 4999, (off_t)at + 1, 0), 4999);
		buf_expect(&b, at, want + at + 1, 4999);
		ASSERT_EQ(cuFileRead(h.fh, b.p + at, 4000, 3, 1000), 4000);
		buf_expect(&b, at + 1000, want + 3, 4000);
	}
	buf_free(&b);
	handle_close(&h);
	memory_end(v);
	free(want);
}

/* Memory is freed before it is deregistered, and its address may belong to another allocation then. */
TEST_VARIANTS(buffer_freed_before_it_is_deregistered, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 5000, 3);
	struct handle h;

	memory_begin(v);
	h = handle_open(make_file("file", 5000, 3), O_RDONLY);
	for (int i = 0; i < 20; i++) {
		struct buf b = buf_new(PLAIN(v), MIB(1));

		OK(cuFileBufRegister(b.p, MIB(1), 0));
		ASSERT_EQ(cuFileRead(h.fh, b.p, 5000, 0, 0), 5000);
		buf_expect(&b, 0, want, 5000);
		buf_free(&b);
		OK(cuFileBufDeregister(b.p));
	}
	for (int i = 0; i < 20; i++) {
		struct buf b = buf_new(PLAIN(v), MIB(1));

		/* Never registered, and perhaps at the address of one that was. */
		ASSERT_EQ(cuFileRead(h.fh, b.p, 5000, 0, 10), 5000);
		buf_expect(&b, 10, want, 5000);
		buf_free(&b);
	}
	handle_close(&h);
	memory_end(v);
	free(want);
}

TEST_VARIANTS(buffer_many, struct memory, memories)
{
	enum { N = 300 };
	unsigned char *want = pattern_new(0, 4096, 4);
	struct handle h;
	char *p;

	memory_begin(v);
	h = handle_open(make_file("file", 4096, 4), O_RDONLY);
	p = memory_alloc(v, N * 4096);
	for (int i = 0; i < N; i++)
		OK(cuFileBufRegister(p + i * 4096, 4096, 0));
	for (int i = N - 1; i >= 0; i -= 3) {
		struct buf b = { v, p + i * 4096, 4096 };

		ASSERT_EQ(cuFileRead(h.fh, b.p, 4096, 0, 0), 4096);
		buf_expect(&b, 0, want, 4096);
		FAILS(cuFileRead(h.fh, b.p, 4097, 0, 0), CU_FILE_INVALID_MAPPING_RANGE);
	}
	for (int i = 0; i < N; i += 2)
		OK(cuFileBufDeregister(p + i * 4096));
	for (int i = 0; i < N; i++)
		ERR(cuFileBufDeregister(p + i * 4096), i % 2 ? CU_FILE_SUCCESS : CU_FILE_MEMORY_NOT_REGISTERED);
	memory_free(v, p);
	handle_close(&h);
	memory_end(v);
	free(want);
}

/* Allocate, use, free, never registered: each address was part of many earlier allocations, of other sizes. */
TEST_VARIANTS(buffer_allocated_anew_each_time, struct memory, memories)
{
	unsigned char *want = pattern_new(0, MIB(1), 4);
	uint64_t rng = 1;
	struct handle h;

	memory_begin(v);
	h = handle_open(make_file("file", MIB(1), 4), O_RDWR);
	for (int i = 0; i < 200; i++) {
		size_t len = 4096 + prng_below(&rng, MIB(1) - 4096), off = prng_below(&rng, len);
		struct buf b = buf_new(PLAIN(v), len);

		ASSERT_EQ(cuFileRead(h.fh, b.p, len - off, 0, (off_t)off), (ssize_t)(len - off));
		buf_expect(&b, off, want, len - off);
		ASSERT_EQ(cuFileWrite(h.fh, b.p, len - off, 0, (off_t)off), (ssize_t)(len - off));
		buf_free(&b);
	}
	handle_close(&h);
	memory_end(v);
	free(want);
}

/* Registered memory was freed and not deregistered; smaller, unregistered memory has part of its addresses now. */
TEST_VARIANTS(buffer_registered_then_smaller, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 8192, 5);
	const struct memory *plain = PLAIN(v);
	struct buf small[16];
	struct handle h;
	int met = 0;

	memory_begin(v);
	h = handle_open(make_file("file", 8192, 5), O_RDONLY);
	for (int i = 0; i < 20; i++) {
		char *p = memory_alloc(v, MIB(16));

		OK(cuFileBufRegister(p, MIB(16), 0));
		ASSERT_EQ(cuFileRead(h.fh, p, 8192, 0, 0), 8192);
		memory_free(v, p);
		for (size_t k = 0; k < ARRAY_SIZE(small); k++) {
			small[k] = buf_new(plain, MIB(2));
			met += small[k].p >= p && small[k].p < p + MIB(16);
			ASSERT_EQ(cuFileRead(h.fh, small[k].p, 8192, 0, 0), 8192);
			buf_expect(&small[k], 0, want, 8192);
		}
		OK(cuFileBufDeregister(p));
		for (size_t k = 0; k < ARRAY_SIZE(small); k++) {
			ASSERT_EQ(cuFileRead(h.fh, small[k].p, 8192, 0, 0), 8192);
			buf_free(&small[k]);
		}
	}
	handle_close(&h);
	memory_end(v);
	free(want);
	if (!met)
		SKIP("addresses of freed memory are not given out again here");
}

struct reallocated {
	const struct memory *m;
	CUfileHandle_t fh;
	pthread_barrier_t start, end;
	char *p;
	int rounds;
	atomic_uint next, failed;
};

#define REALLOCATED_THREADS 6u
#define REALLOCATED_PART 4096u

static void *reallocated_run(void *arg)
{
	struct reallocated *r = arg;
	off_t at = (off_t)atomic_fetch_add(&r->next, 1) * REALLOCATED_PART;

	memory_begin(r->m);
	for (int i = 0; i < r->rounds; i++) {
		pthread_barrier_wait(&r->start);
		if (cuFileRead(r->fh, r->p, REALLOCATED_PART, at, at) != REALLOCATED_PART)
			atomic_fetch_add(&r->failed, 1);
		pthread_barrier_wait(&r->end);
	}
	return NULL;
}

/* Several threads find at once that the memory they share was freed and allocated anew: each of them reads into it. */
TEST_VARIANTS(buffer_reallocated_under_threads, struct memory, memories)
{
	const size_t len = REALLOCATED_THREADS * REALLOCATED_PART;
	unsigned char *want = pattern_new(0, len, 6);
	struct reallocated r = { .m = v, .rounds = test_slow() > 1 ? 50 : 300 };
	pthread_t id[REALLOCATED_THREADS];
	struct handle h;

	memory_begin(v);
	h = handle_open(make_file("file", len, 6), O_RDONLY);
	r.fh = h.fh;
	pthread_barrier_init(&r.start, NULL, REALLOCATED_THREADS + 1);
	pthread_barrier_init(&r.end, NULL, REALLOCATED_THREADS + 1);
	for (unsigned int i = 0; i < REALLOCATED_THREADS; i++)
		thread_start(&id[i], reallocated_run, &r);
	for (int i = 0; i < r.rounds; i++) {
		struct buf b = buf_new(v, len);

		/* The registration stays, the memory under it does not. */
		if (v->registered) {
			memory_free(v, b.p);
			r.p = b.p;
			b.p = memory_alloc(v, len);
			if (b.p != r.p) {
				OK(cuFileBufDeregister(r.p));
				OK(cuFileBufRegister(b.p, len, 0));
			}
		}
		r.p = b.p;
		buf_fill(&b, 0x5a);
		pthread_barrier_wait(&r.start);
		pthread_barrier_wait(&r.end);
		ASSERT_EQ(atomic_load(&r.failed), 0);
		buf_expect(&b, 0, want, len);
		buf_free(&b);
	}
	for (unsigned int i = 0; i < REALLOCATED_THREADS; i++)
		thread_join(id[i]);
	pthread_barrier_destroy(&r.start);
	pthread_barrier_destroy(&r.end);
	handle_close(&h);
	memory_end(v);
	free(want);
}
