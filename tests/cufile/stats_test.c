/* SPDX-License-Identifier: MIT */
#include "cufile/common.h"

TEST(counts_between_start_and_stop)
{
	CUfileStatsLevel3_t *l3 = calloc(1, sizeof(*l3));
	CUfileStatsLevel2_t l2;
	CUfileStatsLevel1_t l1;
	static char buf[8192];
	int fd, level = -1;
	CUfileHandle_t fh = handle_new(make_file("file", 8192, 1), O_RDWR, &fd);

	ASSERT_CU(cuFileGetStatsLevel(&level));
	ASSERT_EQ(level, 0);
	ASSERT_CU_ERR(cuFileStatsStart(), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileGetStatsL1(&l1), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileSetStatsLevel(4), CU_FILE_INVALID_VALUE);
	ASSERT_CU(cuFileSetStatsLevel(3));
	ASSERT_EQ(cuFileRead(fh, buf, 10, 0, 0), 10); /* not started: not counted */
	ASSERT_CU(cuFileStatsStart());
	ASSERT_EQ(cuFileRead(fh, buf, 8192, 0, 0), 8192);
	ASSERT_EQ(cuFileRead(fh, buf, 100, 0, 0), 100);
	ASSERT_EQ(cuFileWrite(fh, buf, 5000, 0, 0), 5000);
	ASSERT_CU(cuFileBufRegister(buf, 10, 0));
	ASSERT_CU_ERR(cuFileBufRegister(buf, 10, 0), CU_FILE_MEMORY_ALREADY_REGISTERED);
	ASSERT_CU(cuFileBufDeregister(buf));
	ASSERT_CU(cuFileStatsStop());
	ASSERT_EQ(cuFileRead(fh, buf, 10, 0, 0), 10);
	ASSERT_CU(cuFileGetStatsL1(&l1));
	ASSERT_EQ(l1.read_ops.ok, 2);
	ASSERT_EQ(l1.read_bytes, 8292);
	ASSERT_EQ(l1.write_ops.ok, 1);
	ASSERT_EQ(l1.write_bytes, 5000);
	ASSERT_EQ(l1.buf_register_ops.ok, 1);
	ASSERT_EQ(l1.buf_register_ops.err, 1);
	ASSERT_EQ(l1.buf_deregister_ops.ok, 1);
	ASSERT_GT(l1.read_bw_bytes_per_sec, 0);
	ASSERT_CU(cuFileGetStatsL2(&l2));
	ASSERT_EQ(l2.read_size_kb_hist[0], 1);
	ASSERT_EQ(l2.read_size_kb_hist[2], 1);
	ASSERT_EQ(l2.write_size_kb_hist[1], 1);
	ASSERT_CU(cuFileGetStatsL3(l3));
	ASSERT_EQ(l3->num_gpus, 0);
	ASSERT_EQ(l3->detailed.basic.read_bytes, 8292);
	ASSERT_CU_ERR(cuFileGetStatsL3(NULL), CU_FILE_INVALID_VALUE);
	ASSERT_CU(cuFileStatsReset());
	ASSERT_CU(cuFileGetStatsL1(&l1));
	ASSERT_EQ(l1.read_ops.ok, 0);
	handle_free(fh, fd);
	free(l3);
}

TEST(batches_are_counted)
{
	static char buf[4096];
	CUfileIOParams_t p = { .mode = CUFILE_BATCH, .u.batch = { .devPtr_base = buf, .size = 4096 } };
	CUfileBatchHandle_t batch;
	CUfileIOEvents_t ev;
	CUfileStatsLevel1_t l1;
	unsigned int nr = 1;
	int fd;

	p.fh = handle_new(make_file("file", 8192, 1), O_RDWR, &fd);
	ASSERT_CU(cuFileSetStatsLevel(1));
	ASSERT_CU(cuFileStatsStart());
	ASSERT_CU(cuFileBatchIOSetUp(&batch, 1));
	ASSERT_CU(cuFileBatchIOSubmit(batch, 1, &p, 0));
	ASSERT_CU(cuFileBatchIOGetStatus(batch, 1, &nr, &ev, NULL));
	cuFileBatchIODestroy(batch);
	ASSERT_CU(cuFileGetStatsL1(&l1));
	ASSERT_EQ(l1.batch_setup_ops.ok, 1);
	ASSERT_EQ(l1.batch_submit_ops.ok, 1);
	ASSERT_EQ(l1.batch_complete_ops.ok, 1);
	ASSERT_EQ(l1.batch_destroy_ops.ok, 1);
	ASSERT_EQ(l1.batch_read_bytes, 4096);
	handle_free(p.fh, fd);
}

/* From 1.19 on the counters of vectors follow the first level, for programs that were built with that version. */
TEST(form_of_1_19)
{
	struct {
		CUfileStatsLevel1_t first;
		CUfileOpCounter_t readv, writev;
		uint64_t bytes[2], rest[8];
		uint64_t hist[2][32];
		uint32_t gpus;
		CUfilePerGpuStats_t gpu[16];
		char after[64];
	} s;
	char buf[100];
	CUfileIOVec_t iov[2] = { { buf, 40 }, { buf + 40, 60 } };
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", 1000, 3), O_RDWR, &fd);

	setenv("STRAIT_CUFILE_VERSION", "1.19", 1);
	ASSERT_CU(cuFileSetStatsLevel(3));
	ASSERT_CU(cuFileStatsStart());
	ASSERT_EQ(cuFileReadv(fh, iov, 2, 0, 0), 100);
	ASSERT_EQ(cuFileWritev(fh, iov, 1, 0, 0), 40);
	memset(&s, 0xee, sizeof(s));
	ASSERT_CU(cuFileGetStatsL3((CUfileStatsLevel3_t *)(void *)&s));
	ASSERT_EQ(s.first.read_ops.ok, 2);
	ASSERT_EQ(s.readv.ok, 1);
	ASSERT_EQ(s.writev.ok, 1);
	ASSERT_EQ(s.bytes[0], 100);
	ASSERT_EQ(s.bytes[1], 40);
	ASSERT_EQ(s.hist[0][0], 2);
	ASSERT_EQ(s.gpus, 0);
	ASSERT_EQ((unsigned char)s.after[0], 0xee);
	handle_free(fh, fd);
}
