/* SPDX-License-Identifier: MIT */
/* The cuFile interface on memory and streams of the (fake) CUDA driver. */
#include "fakecuda/common.h"

#include <cufile.h>

#define LEN (MIB(4) + 5)
#define OK(call) ASSERT_EQ((int)(call).err, CU_FILE_SUCCESS)

static cu_context app;
static cu_ptr ptr;
static unsigned char *want, *got;
static CUfileHandle_t fh;

static void begin(void)
{
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&app, 0, 0));
	CU(cuMemAlloc_v2(&ptr, LEN));
	want = pattern_new(0, LEN, 1);
	got = calloc(1, LEN);
	d.handle.fd = open(make_file("file", LEN, 1), O_RDWR);
	OK(cuFileHandleRegister(&fh, &d));
}

static void expect(size_t off, size_t file_off, size_t n)
{
	CU(cuMemcpyDtoH_v2(got, ptr + off, n));
	ASSERT_MEMEQ(got, want + file_off, n);
}

static void end(void)
{
	cuFileHandleDeregister(fh);
	OK(cuFileDriverClose());
	CU(cuMemFree_v2(ptr));
	expect_clean();
	free(want);
	free(got);
}

static const struct how {
	const char *name;
	bool registered;
	bool native; /* a stream of the program's own */
} hows[] = {
	{ "plain", false, false },
	{ "buffer", true, false },
	{ "stream", false, true },
	{ "both", true, true },
};

TEST_VARIANTS(sync_batch_and_stream, struct how, hows)
{
	CUfileIOParams_t p[16];
	CUfileIOEvents_t ev[16];
	CUfileBatchHandle_t batch;
	cu_stream s = NULL;
	unsigned int nr = 16;
	size_t n[16];
	off_t off[16], at[16];
	ssize_t done[16];

	begin();
	if (v->registered)
		OK(cuFileBufRegister((void *)ptr, LEN, 0));
	ASSERT_EQ(cuFileRead(fh, (void *)ptr, LEN, 0, 0), (ssize_t)LEN);
	expect(0, 0, LEN);
	ASSERT_EQ(cuFileWrite(fh, (void *)ptr, 5000, 0, 0), 5000);

	OK(cuFileBatchIOSetUp(&batch, 16));
	for (unsigned int i = 0; i < 16; i++)
		p[i] = (CUfileIOParams_t){ .mode = CUFILE_BATCH,
					   .u.batch = { (void *)ptr, (off_t)(3 + 70001 * i), (off_t)(100000 * i),
							4001 + i },
					   .fh = fh };
	OK(cuFileBatchIOSubmit(batch, 16, p, 0));
	OK(cuFileBatchIOGetStatus(batch, 16, &nr, ev, NULL));
	ASSERT_EQ(nr, 16);
	for (unsigned int i = 0; i < 16; i++)
		expect(100000 * i, 3 + 70001 * i, 4001 + i);
	cuFileBatchIODestroy(batch);

	if (v->native) {
		CU(cuStreamCreate(&s, 0));
		OK(cuFileStreamRegister((CUstream)s, 0));
	}
	for (unsigned int i = 0; i < 16; i++) {
		n[i] = 4001 + i;
		off[i] = (off_t)(9 + 70001 * i);
		at[i] = (off_t)(200000 * i);
		OK(cuFileReadAsync(fh, (void *)ptr, &n[i], &off[i], &at[i], &done[i], (CUstream)s));
	}
	CU(cuStreamSynchronize(s));
	for (unsigned int i = 0; i < 16; i++) {
		ASSERT_EQ(done[i], (ssize_t)n[i]);
		expect((size_t)at[i], (size_t)off[i], n[i]);
	}
	if (v->native) {
		OK(cuFileStreamDeregister((CUstream)s));
		CU(cuStreamDestroy_v2(s));
	}
	if (v->registered)
		OK(cuFileBufDeregister((void *)ptr));
	end();
}

/* The application may destroy an unregistered stream at any time. */
TEST(streams_come_and_go)
{
	begin();
	for (int i = 0; i < 20; i++) {
		size_t n = 1000;
		off_t off = i, at = 0;
		ssize_t done = -99;
		cu_stream s;

		CU(cuStreamCreate(&s, 1));
		OK(cuFileReadAsync(fh, (void *)ptr, &n, &off, &at, &done, (CUstream)s));
		CU(cuStreamSynchronize(s));
		ASSERT_EQ(done, 1000);
		expect(0, (size_t)i, 1000);
		CU(cuStreamDestroy_v2(s));
	}
	end();
}

/* An application that creates a stream for each request does not pin more and more memory. */
TEST(thousands_of_streams_pin_no_more)
{
	struct fake_usage before = { 0 }, now;

	begin();
	for (int i = 0; i < 3000; i++) {
		size_t n = 1000;
		off_t off = i, at = 0;
		ssize_t done = -99;
		cu_stream s;

		CU(cuStreamCreate(&s, 1));
		OK(cuFileReadAsync(fh, (void *)ptr, &n, &off, &at, &done, (CUstream)s));
		CU(cuStreamSynchronize(s));
		ASSERT_EQ(done, 1000);
		if (i % 500 == 0)
			expect(0, (size_t)i, 1000);
		CU(cuStreamDestroy_v2(s));
		/* From here on the library evicts one stream for each new one. */
		if (i == 200)
			before = fake_usage();
	}
	now = fake_usage();
	ASSERT_EQ(now.registrations, before.registrations);
	ASSERT_EQ(now.registered_bytes, before.registered_bytes);
	end();
}

/* Pageable memory on a stream: earlier work on it is done first. */
TEST(host_memory_on_a_stream)
{
	static char buf[5000];
	size_t n = sizeof(buf);
	off_t off = 11, at = 0;
	ssize_t done = -99;
	cu_stream s;

	begin();
	CU(cuStreamCreate(&s, 0));
	OK(cuFileReadAsync(fh, buf, &n, &off, &at, &done, (CUstream)s));
	CU(cuStreamSynchronize(s));
	ASSERT_EQ(done, 5000);
	ASSERT_MEMEQ(buf, want + 11, 5000);
	CU(cuStreamDestroy_v2(s));
	end();
}

TEST(statistics_know_the_device)
{
	CUfileStatsLevel3_t *l3 = calloc(1, sizeof(*l3));

	begin();
	OK(cuFileSetStatsLevel(3));
	OK(cuFileStatsStart());
	ASSERT_EQ(cuFileRead(fh, (void *)ptr, 5000, 0, 0), 5000);
	OK(cuFileGetStatsL3(l3));
	ASSERT_EQ(l3->num_gpus, 1);
	ASSERT_EQ(l3->per_gpu_stats[0].read_bytes, 5000);
	ASSERT_EQ(l3->per_gpu_stats[0].n_posix_reads, 1);
	ASSERT_EQ(l3->per_gpu_stats[0].n_unaligned_reads, 1);
	ASSERT_MEMEQ(l3->per_gpu_stats[0].uuid, "fake GPU number0", 16);
	OK(cuFileBufRegister((void *)ptr, LEN, 0));
	ASSERT_NE((int)cuFileBufRegister((void *)ptr, LEN, 0).err, CU_FILE_SUCCESS);
	ASSERT_EQ(cuFileRead(fh, (void *)ptr, 8192, 4096, 0), 8192);
	OK(cuFileGetStatsL3(l3));
	ASSERT_EQ(l3->per_gpu_stats[0].reg_bytes, LEN);
	ASSERT_EQ(l3->per_gpu_stats[0].n_unaligned_reads, 1);
	OK(cuFileBufDeregister((void *)ptr));
	OK(cuFileGetStatsL3(l3));
	ASSERT_EQ(l3->per_gpu_stats[0].n_total_reads, 2);
	ASSERT_EQ(l3->per_gpu_stats[0].reg_bytes, 0);
	ASSERT_EQ(l3->per_gpu_stats[0].n_mmap, 2);
	ASSERT_EQ(l3->per_gpu_stats[0].n_mmap_ok, 1);
	ASSERT_EQ(l3->per_gpu_stats[0].n_mmap_err, 1);
	ASSERT_EQ(l3->per_gpu_stats[0].n_mmap_free, 1);
	end();
	free(l3);
}
