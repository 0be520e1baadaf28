/* SPDX-License-Identifier: MIT */
/* The driver, registrations of files and of memory. */
#include "cufile/common.h"

#undef cuFileDriverClose
CUfileError_t cuFileDriverClose(void);

TEST(opens_are_counted)
{
	ASSERT_EQ(cuFileUseCount(), 0);
	ASSERT_CU_ERR(cuFileDriverClose_v2(), CU_FILE_DRIVER_NOT_INITIALIZED);
	ASSERT_CU(cuFileDriverOpen());
	ASSERT_CU(cuFileDriverOpen());
	ASSERT_EQ(cuFileUseCount(), 2);
	ASSERT_CU(cuFileDriverClose());
	ASSERT_EQ(cuFileUseCount(), 1);
	ASSERT_CU(cuFileDriverClose_v2());
	ASSERT_EQ(cuFileUseCount(), 0);
}

TEST(registration_opens)
{
	char buf[64];
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", 100, 1), O_RDONLY, &fd);

	ASSERT_EQ(cuFileUseCount(), 1);
	ASSERT_CU(cuFileBufRegister(buf, sizeof(buf), 0));
	ASSERT_EQ(cuFileUseCount(), 1);
	ASSERT_CU(cuFileDriverClose_v2());
	/* Registrations were dropped with it; deregistering afterwards is harmless. */
	errno = 0;
	ASSERT_EQ(cuFileRead(fh, buf, 1, 0, 0), -1);
	ASSERT_EQ(errno, CU_FILE_HANDLE_NOT_REGISTERED);
	cuFileHandleDeregister(fh);
	ASSERT_CU_ERR(cuFileBufDeregister(buf), CU_FILE_MEMORY_NOT_REGISTERED);
	ASSERT_CU(cuFileBufRegister(buf, sizeof(buf), 0));
	ASSERT_EQ(cuFileUseCount(), 1);
}

TEST(version)
{
	int v = 0;

	ASSERT_CU(cuFileGetVersion(&v));
	ASSERT_EQ(v, 1150);
	setenv("STRAIT_CUFILE_VERSION", "1.19", 1);
	ASSERT_CU(cuFileGetVersion(&v));
	ASSERT_EQ(v, 1190);
	ASSERT_CU_ERR(cuFileGetVersion(NULL), CU_FILE_INVALID_VALUE);
}

TEST(properties)
{
	CUfileDrvProps_t p;

	ASSERT_CU(cuFileDriverGetProperties(&p));
	ASSERT_EQ(p.nvfs.major_version, 0);
	ASSERT_EQ(p.nvfs.dstatusflags, 0);
	ASSERT_EQ(p.nvfs.dcontrolflags, 1 << CU_FILE_ALLOW_COMPAT_MODE);
	ASSERT_EQ(p.fflags, 0xf);
	ASSERT_EQ(p.max_batch_io_size, 128);
	ASSERT_CU(cuFileDriverSetPollMode(true, 8));
	ASSERT_CU(cuFileDriverSetMaxDirectIOSize(1024));
	ASSERT_CU(cuFileDriverSetMaxCacheSize(2048));
	ASSERT_CU(cuFileDriverSetMaxPinnedMemSize(4096));
	ASSERT_CU(cuFileDriverGetProperties(&p));
	ASSERT_EQ(p.nvfs.poll_thresh_size, 8);
	ASSERT_EQ(p.nvfs.max_direct_io_size, 1024);
	ASSERT_EQ(p.nvfs.dcontrolflags, 1 << CU_FILE_ALLOW_COMPAT_MODE | 1 << CU_FILE_USE_POLL_MODE);
	ASSERT_EQ(p.max_device_cache_size, 2048);
	ASSERT_EQ(p.max_device_pinned_mem_size, 4096);
	ASSERT_CU_ERR(cuFileDriverSetMaxDirectIOSize(0), CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
	ASSERT_CU_ERR(cuFileDriverSetMaxCacheSize(5), CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
	ASSERT_CU_ERR(cuFileDriverSetMaxPinnedMemSize(4), CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
	ASSERT_CU_ERR(cuFileDriverSetPollMode(true, 3), CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
	ASSERT_CU_ERR(cuFileDriverGetProperties(NULL), CU_FILE_INVALID_VALUE);
}

TEST(limits_set_before_the_driver_is_opened)
{
	const size_t size[] = { 4, 64, 16 }, count[] = { 4, 1, 2 };
	CUfileDrvProps_t p;
	bool poll;

	ASSERT_CU(cuFileDriverSetPollMode(true, 32768));
	ASSERT_CU(cuFileDriverSetMaxPinnedMemSize(512));
	ASSERT_EQ(cuFileUseCount(), 0);
	ASSERT_CU(cuFileGetParameterBool(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, &poll));
	ASSERT_TRUE(poll);
	/* The driver is not open: parameters can be set. */
	ASSERT_CU(cuFileSetParameterGpuBounceBufferSlabArray(size, count, 3));
	ASSERT_CU(cuFileDriverOpen());
	ASSERT_CU(cuFileDriverGetProperties(&p));
	ASSERT_TRUE(p.nvfs.dcontrolflags & 1u << CU_FILE_USE_POLL_MODE);
	ASSERT_EQ(p.nvfs.poll_thresh_size, 32768);
	ASSERT_EQ(p.max_device_pinned_mem_size, 512);
	ASSERT_EQ(p.nvfs.max_direct_io_size, 64);
	ASSERT_EQ(p.max_device_cache_size, 4 * 4 + 64 + 2 * 16);
	ASSERT_CU(cuFileDriverClose());
	ASSERT_EQ(cuFileUseCount(), 0);
}

/* Programs compare these texts: MagnumIO's sample 008, KvikIO's tests. */
TEST(error_texts_that_programs_compare)
{
	ASSERT_STREQ(CUFILE_ERRSTR(CU_FILE_PLATFORM_NOT_SUPPORTED),
		     "GPUDirect Storage not supported on current platform");
	ASSERT_STREQ(CUFILE_ERRSTR(CU_FILE_CUDA_DRIVER_ERROR), "CUDA Driver API error");
	ASSERT_STREQ(CUFILE_ERRSTR(-CU_FILE_INVALID_FILE_TYPE), "unsupported file type");
	ASSERT_STREQ(CUFILE_ERRSTR(CU_FILE_INVALID_FILE_OPEN_FLAG), "unsupported file open flags");
	ASSERT_STREQ(CUFILE_ERRSTR(CU_FILE_INVALID_VALUE), "invalid arguments");
	ASSERT_EQ(CU_FILE_POSIX_IO_MODE, 2);
}

TEST(peer_flags_and_topology)
{
	CUfileP2PFlags_t flags;
	size_t kb;
	char text[64] = "";

	ASSERT_CU(cuFileDriverSetP2PFlags(CU_FILE_NVME_SUPPORTED, (CUfileP2PFlags_t)1));
	ASSERT_CU(cuFileDriverGetP2PFlags(CU_FILE_NVME_SUPPORTED, &flags));
	ASSERT_EQ((int)flags, 1);
	ASSERT_CU(cuFileDriverGetP2PFlags(CU_FILE_NFS_SUPPORTED, &flags));
	ASSERT_EQ((int)flags, 0);
	ASSERT_CU_ERR(cuFileDriverSetP2PFlags(CU_FILE_NVME_SUPPORTED, (CUfileP2PFlags_t)2), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileDriverGetP2PFlags(CU_FILE_MAX_TARGET_TYPES, &flags), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileGetBARSizeInKB(-1, &kb), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileGetBARSizeInKB(900, &kb), CU_FILE_DEVICE_NOT_FOUND);
	ASSERT_CU(cuFileExportPCIeTopology(test_path("topo.json")));
	read_at(test_path("topo.json"), text, 10, 0);
	ASSERT_MEMEQ(text, "{\n  \"versi", 10);
	ASSERT_CU_ERR(cuFileExportPCIeTopology("/nonexistent/x"), CU_FILE_IO_ERROR);
	ASSERT_CU_ERR(cuFileExportPCIeTopology(NULL), CU_FILE_INVALID_VALUE);
}

static void refused(int fd, int code)
{
	CUfileHandle_t fh;

	ASSERT_CU_ERR(handle_try(fd, &fh), code);
}

TEST(files)
{
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_WIN32 };
	int fd, fds[2];
	CUfileHandle_t fh = handle_new(make_file("file", 100, 1), O_RDWR, &fd), again;

	refused(fd, CU_FILE_HANDLE_ALREADY_REGISTERED);
	refused(open(test_path("file"), O_WRONLY | O_APPEND), CU_FILE_INVALID_FILE_OPEN_FLAG);
	refused(open(test_dir(), O_RDONLY), CU_FILE_INVALID_FILE_TYPE);
	ASSERT_EQ(pipe(fds), 0);
	refused(fds[0], CU_FILE_INVALID_FILE_TYPE);
	refused(-1, CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileHandleRegister(&again, &d), CU_FILE_IO_NOT_SUPPORTED);
	d.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS;
	ASSERT_CU_ERR(cuFileHandleRegister(&again, &d), CU_FILE_IO_NOT_SUPPORTED);
	ASSERT_CU_ERR(cuFileHandleRegister(NULL, &d), CU_FILE_INVALID_VALUE);
	/* The number of a closed descriptor may be reused for another file. */
	close(fd);
	ASSERT_EQ(open(make_file("other", 100, 2), O_RDONLY), fd);
	ASSERT_CU(handle_try(fd, &again));
	cuFileHandleDeregister(again);
	cuFileHandleDeregister(fh);
	cuFileHandleDeregister(fh);
	cuFileHandleDeregister(NULL);
	ASSERT_CU(handle_try(fd, &fh));
}

TEST(memory)
{
	static const struct kind emu = { "emu", true, false };
	static char buf[8192];
	struct buffer b = buffer_new(&emu, 65536);

	ASSERT_CU(cuFileBufRegister(buf, sizeof(buf), 0));
	ASSERT_CU_ERR(cuFileBufRegister(buf, 10, 0), CU_FILE_MEMORY_ALREADY_REGISTERED);
	ASSERT_CU(cuFileBufRegister(buf + 4096, 100, CU_FILE_RDMA_REGISTER));
	ASSERT_CU_ERR(cuFileBufRegister(NULL, 10, 0), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileBufRegister(buf + 1, 0, 0), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileBufRegister(b.ptr, MIB(64), 0), CU_FILE_CUDA_POINTER_RANGE_ERROR);
	ASSERT_CU(cuFileBufRegister(b.ptr, 65536, 0));
	ASSERT_CU(cuFileBufDeregister(b.ptr));
	ASSERT_CU_ERR(cuFileBufDeregister(b.ptr), CU_FILE_MEMORY_NOT_REGISTERED);
	ASSERT_CU(cuFileBufDeregister(buf));
	ASSERT_CU(cuFileBufDeregister(buf + 4096));
	buffer_free(&b);
}

TEST_TIMEOUT(cycles_do_not_grow, 120)
{
	static const struct kind emu = { "emu", true, false };
	struct buffer b = buffer_new(&emu, 65536);
	int fd = open(make_file("file", 8192, 1), O_RDONLY);
	unsigned int files = 0;
	uint64_t rss = 0;

	for (int i = 0; i < 10000; i++) {
		CUfileHandle_t fh;

		ASSERT_CU(handle_try(fd, &fh));
		ASSERT_CU(cuFileBufRegister(b.ptr, 65536, 0));
		if (i % 100 == 0)
			ASSERT_EQ(cuFileRead(fh, b.ptr, 8192, 0, 0), 8192);
		ASSERT_CU(cuFileBufDeregister(b.ptr));
		cuFileHandleDeregister(fh);
		if (i == 1000) {
			rss = status_bytes("VmRSS");
			files = descriptors_now();
		}
	}
	ASSERT_LE(descriptors_now(), files);
	/* A sanitizer delays the reuse of freed memory. */
#if defined(__SANITIZE_ADDRESS__)
	(void)rss;
#else
	ASSERT_LE(status_bytes("VmRSS"), rss + MIB(1));
#endif
	buffer_free(&b);
}
