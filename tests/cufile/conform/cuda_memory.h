/* SPDX-License-Identifier: MIT */
/*
 * Memory of a CUDA program that is not simply allocated: mapped from several allocations side by side, some of them
 * replaced later, as PyTorch does with expandable segments; of pools; of another context; of another process.
 */
#include <sys/wait.h>

#define STEP MIB(2) /* a mapping is a multiple of it */
#define PIECES 6

static const struct access {
	const char *name;
	enum { BY_CALL, BY_BATCH, BY_STREAM } how;
	bool registered;
} accesses[] = {
	{ "call", BY_CALL, false },
	{ "batch", BY_BATCH, false },
	{ "stream", BY_STREAM, false },
	{ "call-registered", BY_CALL, true },
	{ "batch-registered", BY_BATCH, true },
	{ "stream-registered", BY_STREAM, true },
};

static const struct memory cuda_memory = { "cuda", MEM_CUDA, false };

/* One range of addresses; NULL handles are holes. */
struct mapping {
	cu_ptr base;
	cu_mem_handle handle[PIECES];
};

static char *mapping_at(const struct mapping *m, size_t off)
{
	return (char *)(uintptr_t)(m->base + off);
}

static void mapping_add(struct mapping *m, unsigned int i)
{
	struct cu_mem_prop prop = { .type = 1, .location = { 1, 0 } };
	struct cu_mem_access access = { { 1, 0 }, 3 };

	ASSERT_EQ(CUCALL(cuMemCreate)(&m->handle[i], STEP, &prop, 0), CU_OK);
	ASSERT_EQ(CUCALL(cuMemMap)(m->base + i * STEP, STEP, 0, m->handle[i], 0), CU_OK);
	ASSERT_EQ(CUCALL(cuMemSetAccess)(m->base + i * STEP, STEP, &access, 1), CU_OK);
}

static void mapping_remove(struct mapping *m, unsigned int i)
{
	ASSERT_EQ(CUCALL(cuMemUnmap)(m->base + i * STEP, STEP), CU_OK);
	ASSERT_EQ(CUCALL(cuMemRelease)(m->handle[i]), CU_OK);
	m->handle[i] = 0;
}

static struct mapping mapping_new(unsigned int n)
{
	struct mapping m = { 0 };

	ASSERT_EQ(CUCALL(cuMemAddressReserve)(&m.base, PIECES * STEP, 0, 0, 0), CU_OK);
	for (unsigned int i = 0; i < n; i++)
		mapping_add(&m, i);
	return m;
}

static void mapping_free(struct mapping *m)
{
	for (unsigned int i = 0; i < PIECES; i++)
		if (m->handle[i])
			mapping_remove(m, i);
	ASSERT_EQ(CUCALL(cuMemAddressFree)(m->base, PIECES * STEP), CU_OK);
}

static ssize_t read_by_batch(struct handle *h, char *base, size_t n, off_t file_off, off_t buf_off)
{
	CUfileIOParams_t p = {
		.mode = CUFILE_BATCH, .u.batch = { base, file_off, buf_off, n }, .fh = h->fh, .opcode = CUFILE_READ
	};
	CUfileBatchHandle_t batch;
	CUfileIOEvents_t ev;
	unsigned int nr = 1;
	CUfileError_t e;

	OK(cuFileBatchIOSetUp(&batch, 1));
	e = cuFileBatchIOSubmit(batch, 1, &p, 0);
	if (!e.err)
		OK(cuFileBatchIOGetStatus(batch, 1, &nr, &ev, NULL));
	cuFileBatchIODestroy(batch);
	return e.err ? -(int)e.err : (ssize_t)ev.ret;
}

static ssize_t read_by_stream(struct handle *h, char *base, size_t n, off_t file_off, off_t buf_off)
{
	CUstream s = stream_new(&cuda_memory);
	ssize_t done = -99;
	CUfileError_t e;

	e = cuFileReadAsync(h->fh, base, &n, &file_off, &buf_off, &done, s);
	stream_sync(&cuda_memory, s);
	stream_free(&cuda_memory, s);
	return e.err ? -(int)e.err : done;
}

static ssize_t read_by(const struct access *v, struct handle *h, char *base, size_t n, off_t file_off, off_t buf_off)
{
	switch (v->how) {
	case BY_CALL:
		return cuFileRead(h->fh, base, n, file_off, buf_off);
	case BY_BATCH:
		return read_by_batch(h, base, n, file_off, buf_off);
	default:
		return read_by_stream(h, base, n, file_off, buf_off);
	}
}

/* Reads [off, off + n) of the file to where it belongs in memory that had other contents, and compares. */
static void expect_read(const struct access *v, struct handle *h, char *base, size_t off, size_t n,
			const unsigned char *want)
{
	struct buf b = { &cuda_memory, base + off, n };

	buf_fill(&b, 0x5a);
	ASSERT_EQ(read_by(v, h, base, n, (off_t)off, (off_t)off), (ssize_t)n);
	buf_expect(&b, 0, want + off, n);
}

/* A file of four steps, and a range to read it into. */
struct mapped_file {
	const struct access *v;
	struct handle h;
	struct mapping m;
	unsigned char *want;
};

static struct mapped_file mapped_open(const struct access *v, unsigned int pieces)
{
	struct mapped_file f = { .v = v, .want = pattern_new(0, 4 * STEP, 31) };

	memory_begin(&cuda_memory);
	f.h = handle_open(make_file("file", 4 * STEP, 31), O_RDONLY);
	f.m = mapping_new(pieces);
	if (v->registered)
		OK(cuFileBufRegister(mapping_at(&f.m, 0), 4 * STEP, 0));
	return f;
}

static void mapped_close(struct mapped_file *f)
{
	if (f->v->registered)
		OK(cuFileBufDeregister(mapping_at(&f->m, 0)));
	mapping_free(&f->m);
	handle_close(&f->h);
	memory_end(&cuda_memory);
	free(f->want);
}

static void mapped_expect(struct mapped_file *f, size_t off, size_t n)
{
	expect_read(f->v, &f->h, mapping_at(&f->m, 0), off, n, f->want);
}

/* A program registers more than is mapped, and maps the rest later: what is not mapped yet fails. */
TEST_VARIANTS(mapped_after_registration, struct access, accesses)
{
	struct mapped_file f = mapped_open(v, 2);

	mapped_expect(&f, 0, 2 * STEP);
	ASSERT_LT(read_by(v, &f.h, mapping_at(&f.m, 0), 4096, 0, 2 * STEP), 0);
	ASSERT_LT(read_by(v, &f.h, mapping_at(&f.m, 0), STEP + 1, 0, STEP), 0);
	mapping_add(&f.m, 2);
	mapped_expect(&f, STEP, 2 * STEP);
	mapping_add(&f.m, 3);
	mapped_expect(&f, 3 * STEP + 1, 5000);
	mapped_expect(&f, 0, 4 * STEP);
	if (v->registered && v->how == BY_CALL) {
		FAILS(cuFileRead(f.h.fh, mapping_at(&f.m, 0), 1, 0, 4 * STEP), CU_FILE_INVALID_MAPPING_RANGE);
		FAILS(cuFileRead(f.h.fh, mapping_at(&f.m, 0), 4 * STEP + 1, 0, 0), CU_FILE_INVALID_MAPPING_RANGE);
	}
	mapped_close(&f);
}

/* I/O past the registered length and I/O past the mapped memory fail with different errors. */
TEST(mapped_past_the_end)
{
	struct mapping m;
	struct handle h;

	memory_begin(&cuda_memory);
	h = handle_open(make_file("file", 4 * STEP, 32), O_RDONLY);
	m = mapping_new(2);
	OK(cuFileBufRegister(mapping_at(&m, 0), 2 * STEP, 0));
	FAILS(cuFileRead(h.fh, mapping_at(&m, 0), 2 * STEP + 1, 0, 0), CU_FILE_INVALID_MAPPING_RANGE);
	OK(cuFileBufDeregister(mapping_at(&m, 0)));
	OK(cuFileBufRegister(mapping_at(&m, 0), 4 * STEP, 0));
	FAILS(cuFileRead(h.fh, mapping_at(&m, 0), 2 * STEP + 1, 0, 0), EIO);
	FAILS(cuFileRead(h.fh, mapping_at(&m, 0), 1, 0, 3 * STEP), EIO);
	ERR(cuFileBufRegister(mapping_at(&m, 0), STEP, 0), CU_FILE_MEMORY_ALREADY_REGISTERED);
	OK(cuFileBufDeregister(mapping_at(&m, 0)));
	mapping_free(&m);
	handle_close(&h);
	memory_end(&cuda_memory);
}

/* Each of the allocations in turn is replaced by another at the same addresses. */
TEST_VARIANTS(mapped_piece_replaced, struct access, accesses)
{
	struct mapped_file f = mapped_open(v, 4);

	mapped_expect(&f, 0, 4 * STEP);
	for (unsigned int i = 0; i < 4; i++) {
		mapping_remove(&f.m, i);
		mapping_add(&f.m, i);
		mapped_expect(&f, i * STEP, STEP);
		mapped_expect(&f, 0, 4 * STEP);
	}
	mapped_close(&f);
}

/* While one of the allocations is missing, those around it can be read into. */
TEST_VARIANTS(mapped_with_a_hole, struct access, accesses)
{
	struct mapped_file f = mapped_open(v, 4);

	mapped_expect(&f, 0, 4 * STEP);
	mapping_remove(&f.m, 1);
	mapped_expect(&f, 0, STEP);
	ASSERT_LT(read_by(v, &f.h, mapping_at(&f.m, 0), 4096, 0, STEP), 0);
	ASSERT_LT(read_by(v, &f.h, mapping_at(&f.m, 0), 4 * STEP, 0, 0), 0);
	expect_read(v, &f.h, mapping_at(&f.m, 2 * STEP), 0, 2 * STEP, f.want);
	/* A stream knows the offset only when it reaches the transfer: it gets the memory from the base to the hole. */
	if (v->how != BY_STREAM)
		mapped_expect(&f, 2 * STEP, 2 * STEP);
	mapping_add(&f.m, 1);
	mapped_expect(&f, 0, 4 * STEP);
	mapped_close(&f);
}

struct piece_reader {
	struct mapped_file *f;
	unsigned int piece;
	atomic_bool *stop;
	unsigned int reads;
};

static void *read_piece(void *arg)
{
	struct piece_reader *r = arg;

	memory_begin(&cuda_memory);
	for (; !atomic_load(r->stop); r->reads++)
		mapped_expect(r->f, r->piece * STEP + 4096 * r->piece, 100000);
	return NULL;
}

static bool where_not_by_stream(const void *v)
{
	return ((const struct access *)v)->how != BY_STREAM;
}

/* Threads read into the other allocations of a range while one of them is replaced, again and again. */
TEST_WHERE(mapped_piece_replaced_under_readers, where_not_by_stream)
TEST_VARIANTS(mapped_piece_replaced_under_readers, struct access, accesses)
{
	static const unsigned int pieces[] = { 0, 2, 3 };
	struct piece_reader r[ARRAY_SIZE(pieces)];
	pthread_t t[ARRAY_SIZE(pieces)];
	atomic_bool stop = false;
	struct mapped_file f = mapped_open(v, 4);

	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		r[i] = (struct piece_reader){ &f, pieces[i], &stop, 0 };
		thread_start(&t[i], read_piece, &r[i]);
	}
	for (int i = 0; i < 30; i++) {
		mapping_remove(&f.m, 1);
		sleep_ms(3);
		mapping_add(&f.m, 1);
		sleep_ms(3);
	}
	atomic_store(&stop, true);
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		thread_join(t[i]);
		ASSERT_GT(r[i].reads, 0);
	}
	mapped_expect(&f, 0, 4 * STEP);
	mapped_close(&f);
}

/* Memory of a pool is allocated and freed at the same addresses, with different sizes. */
TEST_VARIANTS(pooled_memory, struct access, accesses)
{
	unsigned char *want = pattern_new(0, MIB(1), 35);
	uint64_t rng = 35;
	struct handle h;
	cu_stream s;

	memory_begin(&cuda_memory);
	h = handle_open(make_file("file", MIB(1), 35), O_RDONLY);
	s = (cu_stream)stream_new(&cuda_memory);
	for (int i = 0; i < 60; i++) {
		size_t len = 4096 + prng_below(&rng, MIB(1) - 4096), off = prng_below(&rng, len);
		cu_ptr ptr;

		ASSERT_EQ(CUCALL(cuMemAllocAsync)(&ptr, len, s), CU_OK);
		ASSERT_EQ(CUCALL(cuStreamSynchronize)(s), CU_OK);
		if (v->registered)
			OK(cuFileBufRegister((void *)(uintptr_t)ptr, len, 0));
		expect_read(v, &h, (char *)(uintptr_t)ptr, off, len - off, want);
		if (v->registered)
			OK(cuFileBufDeregister((void *)(uintptr_t)ptr));
		ASSERT_EQ(CUCALL(cuMemFreeAsync)(ptr, s), CU_OK);
		ASSERT_EQ(CUCALL(cuStreamSynchronize)(s), CU_OK);
	}
	stream_free(&cuda_memory, (CUstream)s);
	handle_close(&h);
	memory_end(&cuda_memory);
	free(want);
}

/* Memory of a context that is not current, and of none that is. */
TEST_VARIANTS(memory_of_a_second_context, struct access, accesses)
{
	unsigned char *want = pattern_new(0, MIB(3), 36);
	cu_context first, second;
	struct handle h;
	cu_ptr ptr;

	memory_begin(&cuda_memory);
	h = handle_open(make_file("file", MIB(3), 36), O_RDONLY);
	ASSERT_EQ(CUCALL(cuCtxGetCurrent)(&first), CU_OK);
	ASSERT_EQ(CUCALL(cuCtxCreate_v2)(&second, 0, 0), CU_OK);
	ASSERT_EQ(CUCALL(cuMemAlloc_v2)(&ptr, MIB(3)), CU_OK);
	expect_read(v, &h, (char *)(uintptr_t)ptr, 0, MIB(3), want);
	if (v->registered)
		OK(cuFileBufRegister((void *)(uintptr_t)ptr, MIB(3), 0));
	expect_read(v, &h, (char *)(uintptr_t)ptr, 4097, MIB(2), want);
	if (v->how != BY_STREAM) {
		ASSERT_EQ(CUCALL(cuCtxSetCurrent)(first), CU_OK);
		ASSERT_EQ(read_by(v, &h, (char *)(uintptr_t)ptr, MIB(3), 0, 0), (ssize_t)MIB(3));
		ASSERT_EQ(CUCALL(cuCtxSetCurrent)(NULL), CU_OK);
		ASSERT_EQ(read_by(v, &h, (char *)(uintptr_t)ptr, MIB(1), 0, 0), (ssize_t)MIB(1));
		ASSERT_EQ(CUCALL(cuCtxSetCurrent)(second), CU_OK);
		buf_expect(&(struct buf){ &cuda_memory, (char *)(uintptr_t)ptr, MIB(3) }, 0, want, MIB(3));
	}
	if (v->registered)
		OK(cuFileBufDeregister((void *)(uintptr_t)ptr));
	ASSERT_EQ(CUCALL(cuMemFree_v2)(ptr), CU_OK);
	ASSERT_EQ(CUCALL(cuCtxDestroy_v2)(second), CU_OK);
	ASSERT_EQ(CUCALL(cuCtxSetCurrent)(first), CU_OK);
	handle_close(&h);
	memory_end(&cuda_memory);
	free(want);
}

/* The exporter: allocates memory, passes its handle on, and compares what the importer has read into it. */
static void export_memory(int to, int from, const unsigned char *want, size_t len)
{
	struct cu_ipc_handle handle;
	cu_result r;
	cu_ptr ptr;
	char go;

	memory_begin(&cuda_memory);
	ASSERT_EQ(CUCALL(cuMemAlloc_v2)(&ptr, len), CU_OK);
	r = CUCALL(cuIpcGetMemHandle)(&handle, ptr);
	ASSERT_EQ(write(to, &r, sizeof(r)), (ssize_t)sizeof(r));
	ASSERT_EQ(write(to, &handle, sizeof(handle)), (ssize_t)sizeof(handle));
	if (read(from, &go, 1) == 1)
		buf_expect(&(struct buf){ &cuda_memory, (char *)(uintptr_t)ptr, len }, 0, want, len);
}

TEST_VARIANTS(memory_of_another_process, struct access, accesses)
{
	const size_t len = MIB(4);
	unsigned char *want = pattern_new(0, len, 37);
	struct cu_ipc_handle handle;
	int there[2], back[2], status;
	struct handle h;
	cu_result r;
	cu_ptr ptr;
	pid_t pid;

	ASSERT_EQ(pipe(there), 0);
	ASSERT_EQ(pipe(back), 0);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		close(back[1]);
		export_memory(there[1], back[0], want, len);
		_exit(0);
	}
	close(there[1]);
	close(back[0]);
	ASSERT_EQ(read(there[0], &r, sizeof(r)), (ssize_t)sizeof(r));
	ASSERT_EQ(read(there[0], &handle, sizeof(handle)), (ssize_t)sizeof(handle));
	memory_begin(&cuda_memory);
	h = handle_open(make_file("file", len, 37), O_RDONLY);
	if (!r)
		r = CUCALL(cuIpcOpenMemHandle_v2)(&ptr, handle, 1);
	if (!r) {
		if (v->registered)
			OK(cuFileBufRegister((void *)(uintptr_t)ptr, len, 0));
		expect_read(v, &h, (char *)(uintptr_t)ptr, 0, len, want);
		ASSERT_EQ(write(back[1], "", 1), 1);
	}
	close(back[1]);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	ASSERT_EQ(status, 0);
	if (!r) {
		if (v->registered)
			OK(cuFileBufDeregister((void *)(uintptr_t)ptr));
		ASSERT_EQ(CUCALL(cuIpcCloseMemHandle)(ptr), CU_OK);
	}
	handle_close(&h);
	memory_end(&cuda_memory);
	free(want);
	if (r)
		SKIP("the driver does not share memory between processes here");
}
