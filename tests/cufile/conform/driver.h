/* SPDX-License-Identifier: MIT */
/* Opening and closing, and the driver's properties. */

TEST_VARIANTS(driver_counts_opens, struct memory, memories)
{
	memory_begin(v);
	for (long n = 1; n <= 5; n++) {
		OK(cuFileDriverOpen());
		ASSERT_EQ(cuFileUseCount(), n);
	}
	for (long n = 4; n >= 0; n--) {
		OK(n % 2 ? cuFileDriverClose_v2() : (cuFileDriverClose)());
		ASSERT_EQ(cuFileUseCount(), n);
	}
	ERR(cuFileDriverClose(), CU_FILE_DRIVER_NOT_INITIALIZED);
	ERR((cuFileDriverClose)(), CU_FILE_DRIVER_NOT_INITIALIZED);
	ASSERT_EQ(cuFileUseCount(), 0);
	memory_end(v);
}

/* Calls that need the driver open it, once. */
TEST_VARIANTS(driver_opens_by_itself, struct memory, memories)
{
	CUfileDrvProps_t props;
	CUfileBatchHandle_t batch;
	struct handle h, again;
	void *p;

	memory_begin(v);
	ASSERT_EQ(cuFileUseCount(), 0);
	h = handle_open(make_file("file", 100, 1), O_RDONLY);
	ASSERT_EQ(cuFileUseCount(), 1);
	again = handle_open(test_path("file"), O_RDONLY);
	ASSERT_EQ(cuFileUseCount(), 1);
	handle_close(&h);
	handle_close(&again);
	OK(cuFileDriverClose());

	p = memory_alloc(v, 4096);
	if (cuFileUseCount())
		OK(cuFileDriverClose());
	memory_begin(v);
	if (v->kind != MEM_EMU) {
		OK(cuFileBufRegister(p, 4096, 0));
		ASSERT_EQ(cuFileUseCount(), 1);
		OK(cuFileBufDeregister(p));
		OK(cuFileDriverClose());
		memory_free(v, p);
	}

	OK(cuFileStreamRegister(NULL, 0));
	ASSERT_EQ(cuFileUseCount(), 1);
	OK(cuFileStreamDeregister(NULL));
	OK(cuFileDriverClose());
	OK(cuFileBatchIOSetUp(&batch, 1));
	ASSERT_EQ(cuFileUseCount(), 1);
	cuFileBatchIODestroy(batch);
	OK(cuFileDriverClose());
	OK(cuFileDriverGetProperties(&props));
	ASSERT_EQ(cuFileUseCount(), 0);
	ERR(cuFileDriverClose(), CU_FILE_DRIVER_NOT_INITIALIZED);
	OK(cuFileSetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 64));
	OK(cuFileDriverOpen());
	OK(cuFileDriverGetProperties(&props));
	ASSERT_EQ(props.max_batch_io_size, 64);
	OK(cuFileDriverClose());
	memory_end(v);
}

TEST_VARIANTS(driver_open_does_not_count_implicit_ones_twice, struct memory, memories)
{
	struct handle h;

	memory_begin(v);
	OK(cuFileDriverOpen());
	h = handle_open(make_file("file", 100, 1), O_RDONLY);
	ASSERT_EQ(cuFileUseCount(), 1);
	OK(cuFileDriverOpen());
	ASSERT_EQ(cuFileUseCount(), 2);
	OK(cuFileDriverClose());
	/* One opening is left, and with it the handle. */
	struct buf b = buf_new(v, 4096);

	ASSERT_EQ(cuFileRead(h.fh, b.p, 100, 0, 0), 100);
	buf_free(&b);
	handle_close(&h);
	OK(cuFileDriverClose());
	memory_end(v);
}

/* The last close drops all registrations, and deregistering afterwards is harmless. */
TEST_VARIANTS(driver_close_takes_all, struct memory, memories)
{
	char plain[100];
	struct handle h;

	memory_begin(v);
	h = handle_open(make_file("file", 100, 1), O_RDONLY);
	OK(cuFileBufRegister(plain, sizeof(plain), 0));
	OK(cuFileStreamRegister(NULL, 3));
	OK(cuFileDriverClose());
	FAILS(cuFileRead(h.fh, plain, 10, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	cuFileHandleDeregister(h.fh);
	ERR(cuFileBufDeregister(plain), CU_FILE_MEMORY_NOT_REGISTERED);
	ERR(cuFileStreamDeregister(NULL), CU_FILE_INVALID_VALUE);
	/* And can be registered anew. */
	OK(try_register(h.fd, &h.fh));
	OK(cuFileBufRegister(plain, sizeof(plain), 0));
	OK(cuFileStreamRegister(NULL, 0));
	ASSERT_EQ(cuFileRead(h.fh, plain, 100, 0, 0), 100);
	handle_close(&h);
	OK(cuFileDriverClose());
	memory_end(v);
}

TEST_VARIANTS(driver_again_and_again, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 5000, 1);

	memory_begin(v);
	make_file("file", 5000, 1);
	for (int i = 0; i < 20; i++) {
		struct handle h = handle_open(test_path("file"), O_RDONLY);
		struct buf b = buf_new(v, 5000);

		ASSERT_EQ(cuFileRead(h.fh, b.p, 5000, 0, 0), 5000);
		buf_expect(&b, 0, want, 5000);
		buf_free(&b);
		handle_close(&h);
		OK(cuFileDriverClose());
	}
	memory_end(v);
	free(want);
}

TEST_VARIANTS(driver_properties, struct memory, memories)
{
	CUfileDrvProps_t p;

	memory_begin(v);
	ERR(cuFileDriverGetProperties(NULL), CU_FILE_INVALID_VALUE);
	memset(&p, 0xee, sizeof(p));
	OK(cuFileDriverGetProperties(&p));
	ASSERT_EQ(p.nvfs.major_version, 0);
	ASSERT_EQ(p.nvfs.minor_version, 0);
	ASSERT_EQ(p.nvfs.dstatusflags, 0);
	ASSERT_EQ(p.nvfs.dcontrolflags, 1u << CU_FILE_ALLOW_COMPAT_MODE);
	ASSERT_EQ(p.fflags, 0xf);
	ASSERT_EQ(p.nvfs.poll_thresh_size, 4);
	ASSERT_EQ(p.nvfs.max_direct_io_size, 16384);
	ASSERT_EQ(p.max_device_cache_size, 131072);
	ASSERT_EQ(p.per_buffer_cache_size, 1024);
	ASSERT_EQ(p.max_device_pinned_mem_size, 33554432);
	ASSERT_EQ(p.max_batch_io_size, 128);
	ASSERT_EQ(p.max_batch_io_timeout_msecs, 5);
	memory_end(v);
}

#define NO CU_FILE_DRIVER_UNSUPPORTED_LIMIT
/* What NVIDIA's library answers to each limit. */
static const struct {
	size_t kb;
	int direct, cache, pinned, poll;
} limits[] = {
	{ 0, NO, 0, 0, NO },	  { 1, NO, NO, NO, NO }, { 3, NO, NO, NO, NO },	 { 4, NO, 0, NO, 0 },
	{ 5, NO, NO, NO, NO },	  { 60, NO, 0, NO, 0 },	 { 64, 0, 0, 0, 0 },	 { 100, NO, 0, 0, 0 },
	{ 1000, NO, 0, 0, 0 },	  { 16384, 0, 0, 0, 0 }, { 16388, NO, 0, 0, 0 }, { 20000, NO, 0, 0, 0 },
	{ 1048576, NO, 0, 0, 0 },
};
#undef NO

TEST_VARIANTS(driver_limits, struct memory, memories)
{
	CUfileDrvProps_t p;

	memory_begin(v);
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		ERR(cuFileDriverSetMaxDirectIOSize(limits[i].kb), limits[i].direct);
		ERR(cuFileDriverSetMaxCacheSize(limits[i].kb), limits[i].cache);
		ERR(cuFileDriverSetMaxPinnedMemSize(limits[i].kb), limits[i].pinned);
		ERR(cuFileDriverSetPollMode(true, limits[i].kb), limits[i].poll);
	}
	OK(cuFileDriverSetMaxDirectIOSize(4096));
	OK(cuFileDriverSetMaxCacheSize(65536));
	OK(cuFileDriverSetMaxPinnedMemSize(1048576));
	OK(cuFileDriverSetPollMode(true, 16));
	OK(cuFileDriverGetProperties(&p));
	ASSERT_EQ(p.nvfs.max_direct_io_size, 4096);
	ASSERT_EQ(p.max_device_cache_size, 65536);
	ASSERT_EQ(p.max_device_pinned_mem_size, 1048576);
	ASSERT_EQ(p.nvfs.poll_thresh_size, 16);
	ASSERT_EQ(p.nvfs.dcontrolflags, 1u << CU_FILE_USE_POLL_MODE | 1u << CU_FILE_ALLOW_COMPAT_MODE);
	OK(cuFileDriverSetPollMode(false, 4));
	OK(cuFileDriverGetProperties(&p));
	ASSERT_EQ(p.nvfs.dcontrolflags, 1u << CU_FILE_ALLOW_COMPAT_MODE);
	ASSERT_EQ(cuFileUseCount(), 0);
	memory_end(v);
}

TEST_VARIANTS(driver_version_and_flags, struct memory, memories)
{
	CUfileP2PFlags_t flags;
	int version = 0;
	size_t kb = 77;

	memory_begin(v);
	unsetenv("STRAIT_CUFILE_VERSION");
	OK(cuFileGetVersion(&version));
	ASSERT_EQ(version, 1150);
	ERR(cuFileGetVersion(NULL), CU_FILE_INVALID_VALUE);
	setenv("STRAIT_CUFILE_VERSION", "1.17", 1);
	OK(cuFileGetVersion(&version));
	ASSERT_EQ(version, 1170);
	setenv("STRAIT_CUFILE_VERSION", "nonsense", 1);
	OK(cuFileGetVersion(&version));
	ASSERT_EQ(version, 1150);
	unsetenv("STRAIT_CUFILE_VERSION");
	for (int fs = 0; fs < CU_FILE_MAX_TARGET_TYPES; fs++) {
		OK(cuFileDriverGetP2PFlags((CUfileDriverStatusFlags_t)fs, &flags));
		ASSERT_EQ((int)flags, 0);
	}
	OK(cuFileDriverSetP2PFlags(CU_FILE_NVME_SUPPORTED, (CUfileP2PFlags_t)CU_FILE_P2P_FLAG_PCI_P2PDMA));
	OK(cuFileDriverGetP2PFlags(CU_FILE_NVME_SUPPORTED, &flags));
	ASSERT_EQ((int)flags, CU_FILE_P2P_FLAG_PCI_P2PDMA);
	ERR(cuFileDriverSetP2PFlags(CU_FILE_NVME_SUPPORTED, (CUfileP2PFlags_t)CU_FILE_P2P_FLAG_NVFS),
	    CU_FILE_INVALID_VALUE);
	ERR(cuFileDriverSetP2PFlags(CU_FILE_MAX_TARGET_TYPES, (CUfileP2PFlags_t)0), CU_FILE_INVALID_VALUE);
	ERR(cuFileDriverGetP2PFlags(CU_FILE_MAX_TARGET_TYPES, &flags), CU_FILE_INVALID_VALUE);
	ERR(cuFileDriverGetP2PFlags(CU_FILE_NFS_SUPPORTED, NULL), CU_FILE_INVALID_VALUE);
	ERR(cuFileGetBARSizeInKB(-1, &kb), CU_FILE_INVALID_VALUE);
	ERR(cuFileGetBARSizeInKB(0, NULL), CU_FILE_INVALID_VALUE);
	ERR(cuFileGetBARSizeInKB(99, &kb), CU_FILE_DEVICE_NOT_FOUND);
	ASSERT_EQ(kb, 77);
	OK(cuFileDriverClose());
	memory_end(v);
}

TEST_VARIANTS(driver_topology, struct memory, memories)
{
	char text[64] = "";
	FILE *f;

	memory_begin(v);
	ERR(cuFileExportPCIeTopology(NULL), CU_FILE_INVALID_VALUE);
	ERR(cuFileExportPCIeTopology(""), CU_FILE_INVALID_VALUE);
	ERR(cuFileExportPCIeTopology("/nonexistent/folder/file"), CU_FILE_IO_ERROR);
	OK(cuFileExportPCIeTopology(test_path("topology.json")));
	f = fopen(test_path("topology.json"), "r");
	ASSERT_TRUE(f != NULL);
	ASSERT_TRUE(fgets(text, sizeof(text), f) != NULL);
	ASSERT_EQ(text[0], '{');
	fclose(f);
	memory_end(v);
}

TEST_VARIANTS(driver_error_texts, struct memory, memories)
{
	memory_begin(v);
	for (int code = 5001; code <= 5050; code++) {
		const char *text = cufileop_status_error((CUfileOpError)code);

		ASSERT_TRUE(text != NULL && text[0]);
		ASSERT_TRUE(IS_CUFILE_ERR(code));
		ASSERT_TRUE(IS_CUFILE_ERR(-code));
		ASSERT_STREQ(CUFILE_ERRSTR(-code), text);
	}
	ASSERT_FALSE(IS_CUFILE_ERR(0));
	ASSERT_FALSE(IS_CUFILE_ERR(-EIO));
	ASSERT_FALSE(IS_CUDA_ERR(cuFileDriverOpen()));
	ASSERT_EQ((int)CU_FILE_CUDA_ERR(cuFileDriverClose()), 0);
	memory_end(v);
}
