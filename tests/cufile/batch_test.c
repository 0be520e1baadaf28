/* SPDX-License-Identifier: MIT */
#include "cufile/common.h"

static const struct kind kinds[] = { KINDS };

#define N 128
#define LEN MIB(10)

static CUfileIOParams_t entry(CUfileHandle_t fh, CUfileOpcode_t op, const struct buffer *b, size_t at, size_t off,
			      size_t size, uintptr_t cookie)
{
	return (CUfileIOParams_t){
		.mode = CUFILE_BATCH,
		.u.batch = { .devPtr_base = b->ptr,
			     .devPtr_offset = (off_t)at,
			     .file_offset = (off_t)off,
			     .size = size },
		.fh = fh,
		.opcode = op,
		.cookie = (void *)cookie,
	};
}

/* Fetches @want events, by cookie. */
static void collect(CUfileBatchHandle_t batch, unsigned int want, CUfileIOEvents_t *by_cookie)
{
	CUfileIOEvents_t ev[N];
	unsigned int got = 0;

	while (got < want) {
		unsigned int nr = N;

		ASSERT_CU(cuFileBatchIOGetStatus(batch, 1, &nr, ev, NULL));
		ASSERT_GE(nr, 1);
		for (unsigned int i = 0; i < nr; i++)
			by_cookie[(uintptr_t)ev[i].cookie] = ev[i];
		got += nr;
	}
	ASSERT_EQ(got, want);
}

/* Lengths and offsets that nothing is aligned to, and a staging pool much smaller than the batch. */
TEST_VARIANTS(a_full_batch_with_a_small_pool, struct kind, kinds)
{
	const size_t slab_kb[] = { 1024 }, slabs[] = { 4 };
	unsigned char *want = pattern_new(0, LEN, 1);
	CUfileIOEvents_t ev[N] = { { 0 } };
	CUfileIOParams_t p[N];
	CUfileBatchHandle_t batch;
	struct buffer b;
	CUfileHandle_t fh;
	int fd;

	ASSERT_CU(cuFileSetParameterPosixPoolSlabArray(slab_kb, slabs, 1));
	b = buffer_new(v, LEN);
	fh = handle_new(make_file("file", LEN, 1), O_RDONLY, &fd);
	ASSERT_CU(cuFileBatchIOSetUp(&batch, N));
	for (int round = 0; round < 3; round++) {
		size_t len = round == 2 ? 70000 : 4001;

		for (unsigned int i = 0; i < N; i++)
			p[i] = entry(fh, CUFILE_READ, &b, 80000 * i + round, 7 + 70001 * i, len + i, i);
		ASSERT_CU(cuFileBatchIOSubmit(batch, N, p, 0));
		collect(batch, N, ev);
		for (unsigned int i = 0; i < N; i++) {
			ASSERT_EQ((int)ev[i].status, CUFILE_COMPLETE);
			ASSERT_EQ(ev[i].ret, len + i);
			buffer_expect(&b, 80000 * i + (unsigned int)round, want + 7 + 70001 * i, len + i);
		}
	}
	cuFileBatchIODestroy(batch);
	handle_free(fh, fd);
	buffer_free(&b);
	free(want);
}

TEST_VARIANTS(mixes, struct kind, kinds)
{
	unsigned char *want = pattern_new(0, MIB(1), 2);
	struct buffer b = buffer_new(v, MIB(2));
	CUfileIOEvents_t ev[4] = { { 0 } };
	CUfileIOParams_t p[4];
	CUfileBatchHandle_t batch;
	int fd, other;
	CUfileHandle_t fh = handle_new(make_file("file", MIB(1), 2), O_RDONLY, &fd);
	CUfileHandle_t out = handle_new(test_path("out"), O_RDWR | O_CREAT, &other);

	buffer_put(&b, MIB(1), want, MIB(1));
	ASSERT_CU(cuFileBatchIOSetUp(&batch, 4));
	p[0] = entry(fh, CUFILE_READ, &b, 1, 3, 50001, 0);
	p[1] = entry(out, CUFILE_WRITE, &b, MIB(1), 0, 300000, 1);
	p[2] = entry(fh, CUFILE_READ, &b, 100000, MIB(1) - 9, 5000, 2);
	p[3] = entry(fh, CUFILE_READ, &b, 0, 0, 0, 3);
	ASSERT_CU(cuFileBatchIOSubmit(batch, 4, p, 0));
	collect(batch, 4, ev);
	for (int i = 0; i < 4; i++)
		ASSERT_EQ((int)ev[i].status, CUFILE_COMPLETE);
	ASSERT_EQ(ev[2].ret, 9);
	ASSERT_EQ(ev[3].ret, 0);
	buffer_expect(&b, 1, want + 3, 50001);
	file_expect(test_path("out"), 0, want, 300000);
	cuFileBatchIODestroy(batch);
	handle_free(fh, fd);
	handle_free(out, other);
	buffer_free(&b);
	free(want);
}

TEST(refuses_all_or_nothing)
{
	static const struct kind host = { "host", false, true };
	struct buffer b = buffer_new(&host, 8192);
	struct timespec now = { 0, 0 }, bad = { 0, -1 };
	CUfileIOEvents_t ev[4];
	CUfileIOParams_t p[4];
	CUfileBatchHandle_t batch, none;
	unsigned int nr = 4;
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", 8192, 3), O_RDONLY, &fd);

	ASSERT_CU_ERR(cuFileBatchIOSetUp(&none, 0), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileBatchIOSetUp(&none, 257), CU_FILE_INVALID_VALUE);
	ASSERT_CU(cuFileBatchIOSetUp(&batch, 3));
	for (unsigned int i = 0; i < 4; i++)
		p[i] = entry(fh, CUFILE_READ, &b, i * 100, 0, 100, i);
	ASSERT_CU_ERR(cuFileBatchIOSubmit(batch, 4, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	p[2].fh = &b;
	ASSERT_CU_ERR(cuFileBatchIOSubmit(batch, 3, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	p[2] = entry(fh, CUFILE_READ, &b, 8000, 0, 1000, 2);
	ASSERT_CU_ERR(cuFileBatchIOSubmit(batch, 3, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	p[2] = entry(fh, (CUfileOpcode_t)7, &b, 0, 0, 1000, 2);
	ASSERT_CU_ERR(cuFileBatchIOSubmit(batch, 3, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	ASSERT_CU_ERR(cuFileBatchIOSubmit(&b, 1, p, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	/* No refused batch left anything behind. */
	ASSERT_CU(cuFileBatchIOGetStatus(batch, 0, &nr, ev, &now));
	ASSERT_EQ(nr, 0);
	ASSERT_CU(cuFileBatchIOSubmit(batch, 2, p, 0));
	nr = 4;
	ASSERT_CU(cuFileBatchIOGetStatus(batch, 2, &nr, ev, NULL));
	ASSERT_EQ(nr, 2);
	nr = 1;
	ASSERT_CU_ERR(cuFileBatchIOGetStatus(batch, 2, &nr, ev, NULL), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileBatchIOGetStatus(batch, 1, &nr, ev, &bad), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileBatchIOGetStatus(&b, 1, &nr, ev, NULL), CU_FILE_INVALID_VALUE);
	ASSERT_CU(cuFileBatchIOCancel(batch));
	ASSERT_CU(cuFileBatchIOCancel(NULL));
	cuFileBatchIODestroy(batch);
	cuFileBatchIODestroy(batch);
	handle_free(fh, fd);
	buffer_free(&b);
}

/* On a slow device: a timeout brings nothing, and after a cancel there are no events. */
TEST(timeout_and_cancel)
{
	static const struct kind emu = { "emu", true, false };
	struct strait_emu_model slow = { .size = sizeof(slow), .latency_ns = 50000000 };
	struct timespec soon = { 0, 1000000 };
	struct buffer b = buffer_new(&emu, MIB(8));
	CUfileIOEvents_t ev[8] = { { 0 } };
	CUfileIOParams_t p[8];
	CUfileBatchHandle_t batch;
	unsigned int nr = 8;
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", MIB(8), 4), O_RDONLY, &fd);

	ASSERT_OK(strait_emu_set_model(emu_device_of_driver(), &slow));
	ASSERT_CU(cuFileBatchIOSetUp(&batch, 8));
	for (unsigned int i = 0; i < 8; i++)
		p[i] = entry(fh, CUFILE_READ, &b, MIB(1) * i, MIB(1) * i, MIB(1), i);
	ASSERT_CU(cuFileBatchIOSubmit(batch, 8, p, 0));
	ASSERT_CU(cuFileBatchIOGetStatus(batch, 8, &nr, ev, &soon));
	ASSERT_LT(nr, 8);
	ASSERT_CU(cuFileBatchIOCancel(batch));
	nr = 8;
	ASSERT_CU(cuFileBatchIOGetStatus(batch, 8, &nr, ev, NULL));
	ASSERT_EQ(nr, 0);
	/* Destroyed with work in flight. */
	ASSERT_CU(cuFileBatchIOSubmit(batch, 8, p, 0));
	cuFileBatchIODestroy(batch);
	handle_free(fh, fd);
	buffer_free(&b);
}
