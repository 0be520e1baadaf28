/* SPDX-License-Identifier: MIT */
/* Which files can be registered, and how. */

TEST_VARIANTS(handle_arguments, struct memory, memories)
{
	static const CUfileFSOps_t ops;
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = -1 };
	CUfileHandle_t fh = &d;

	memory_begin(v);
	ERR(cuFileHandleRegister(NULL, &d), CU_FILE_INVALID_VALUE);
	ERR(cuFileHandleRegister(&fh, NULL), CU_FILE_INVALID_VALUE);
	ERR(cuFileHandleRegister(&fh, &d), CU_FILE_INVALID_VALUE);
	d.handle.fd = 9999;
	ERR(cuFileHandleRegister(&fh, &d), CU_FILE_INVALID_VALUE);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_WIN32;
	ERR(cuFileHandleRegister(&fh, &d), CU_FILE_IO_NOT_SUPPORTED);
	d.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS;
	ERR(cuFileHandleRegister(&fh, &d), CU_FILE_IO_NOT_SUPPORTED);
	d.fs_ops = &ops;
	ERR(cuFileHandleRegister(&fh, &d), CU_FILE_IO_NOT_SUPPORTED);
	d.type = (enum CUfileFileHandleType)17;
	ERR(cuFileHandleRegister(&fh, &d), CU_FILE_IO_NOT_SUPPORTED);
	/* A refused call leaves the handle unchanged. */
	ASSERT_EQ(fh, &d);
	cuFileHandleDeregister(NULL);
	cuFileHandleDeregister(&d);
	cuFileHandleDeregister((CUfileHandle_t)(uintptr_t)0x1234);
	memory_end(v);
}

TEST_VARIANTS(handle_kinds_of_files, struct memory, memories)
{
	int fds[2], pair[2];
	CUfileHandle_t fh;

	memory_begin(v);
	make_file("file", 100, 1);
	ERR(try_register(open(test_dir(), O_RDONLY | O_DIRECTORY), &fh), CU_FILE_INVALID_FILE_TYPE);
	ASSERT_EQ(pipe(fds), 0);
	ERR(try_register(fds[0], &fh), CU_FILE_INVALID_FILE_TYPE);
	ERR(try_register(fds[1], &fh), CU_FILE_INVALID_FILE_TYPE);
	ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	ERR(try_register(pair[0], &fh), CU_FILE_INVALID_FILE_TYPE);
	ERR(try_register(open("/dev/null", O_RDWR), &fh), CU_FILE_INVALID_FILE_TYPE);
	ERR(try_register(open(test_path("file"), O_RDWR | O_APPEND), &fh), CU_FILE_INVALID_FILE_OPEN_FLAG);
	ERR(try_register(open(test_path("file"), O_WRONLY | O_APPEND), &fh), CU_FILE_INVALID_FILE_OPEN_FLAG);
	for (int i = 0; i < 2; i++) {
		close(fds[i]);
		close(pair[i]);
	}
	memory_end(v);
}

TEST_VARIANTS(handle_twice, struct memory, memories)
{
	struct handle h, same, other;
	CUfileHandle_t fh;

	memory_begin(v);
	make_file("file", 100, 1);
	make_file("other", 100, 2);
	h = handle_open(test_path("file"), O_RDONLY);
	ERR(try_register(h.fd, &fh), CU_FILE_HANDLE_ALREADY_REGISTERED);
	ERR(try_register(h.fd, &fh), CU_FILE_HANDLE_ALREADY_REGISTERED);
	/* The same file by another descriptor is another handle. */
	same = handle_open(test_path("file"), O_RDONLY);
	ASSERT_NE(same.fh, h.fh);
	other.fd = dup(h.fd);
	OK(try_register(other.fd, &other.fh));
	handle_close(&other);
	handle_close(&same);
	cuFileHandleDeregister(h.fh);
	cuFileHandleDeregister(h.fh);
	OK(try_register(h.fd, &h.fh));
	/* A descriptor number that was closed and now belongs to another file. */
	close(h.fd);
	other.fd = open(test_path("other"), O_RDONLY | O_CLOEXEC);
	ASSERT_EQ(other.fd, h.fd);
	OK(try_register(other.fd, &other.fh));
	ASSERT_NE(other.fh, h.fh);
	cuFileHandleDeregister(h.fh);
	handle_close(&other);
	memory_end(v);
}

TEST_VARIANTS(handle_directions, struct memory, memories)
{
	struct handle r, w;
	struct buf b;

	memory_begin(v);
	make_file("file", 8192, 1);
	r = handle_open(test_path("file"), O_RDONLY);
	w = handle_open(test_path("file"), O_WRONLY);
	b = buf_new(v, 8192);
	ASSERT_EQ(cuFileRead(r.fh, b.p, 8192, 0, 0), 8192);
	ASSERT_EQ(cuFileWrite(w.fh, b.p, 8192, 0, 0), 8192);
	FAILS(cuFileWrite(r.fh, b.p, 8192, 0, 0), EIO);
	FAILS(cuFileRead(w.fh, b.p, 8192, 0, 0), CU_FILE_INVALID_FILE_OPEN_FLAG);
	buf_free(&b);
	handle_close(&r);
	handle_close(&w);
	memory_end(v);
}

TEST_VARIANTS(handle_deregistered, struct memory, memories)
{
	struct handle h;
	struct buf b;
	char plain[16] = "";

	memory_begin(v);
	h = handle_open(make_file("file", 100, 1), O_RDWR);
	b = buf_new(v, 4096);
	cuFileHandleDeregister(h.fh);
	FAILS(cuFileRead(h.fh, b.p, 10, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	FAILS(cuFileWrite(h.fh, b.p, 10, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	FAILS(cuFileRead(plain, b.p, 10, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	FAILS(cuFileRead((CUfileHandle_t)(uintptr_t)1, b.p, 10, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	close(h.fd);
	buf_free(&b);
	memory_end(v);
}

/* Names do not matter once a file is registered. */
TEST_VARIANTS(handle_of_a_file_without_a_name, struct memory, memories)
{
	unsigned char *want = pattern_new(0, 10000, 3);
	struct handle h;
	struct buf b;

	memory_begin(v);
	h = handle_open(make_file("file", 10000, 3), O_RDWR);
	b = buf_new(v, 10000);
	ASSERT_EQ(rename(test_path("file"), test_path("moved")), 0);
	ASSERT_EQ(cuFileRead(h.fh, b.p, 10000, 0, 0), 10000);
	buf_expect(&b, 0, want, 10000);
	ASSERT_EQ(unlink(test_path("moved")), 0);
	buf_fill(&b, 0xee);
	ASSERT_EQ(cuFileRead(h.fh, b.p, 10000, 0, 0), 10000);
	buf_expect(&b, 0, want, 10000);
	ASSERT_EQ(cuFileWrite(h.fh, b.p, 5000, 10000, 0), 5000);
	ASSERT_EQ(lseek(h.fd, 0, SEEK_END), 15000);
	handle_close(&h);
	h.fd = memfd_create("conform", MFD_CLOEXEC);
	ASSERT_EQ(pwrite(h.fd, want, 10000, 0), 10000);
	OK(try_register(h.fd, &h.fh));
	buf_fill(&b, 0xee);
	ASSERT_EQ(cuFileRead(h.fh, b.p, 10000, 0, 0), 10000);
	buf_expect(&b, 0, want, 10000);
	handle_close(&h);
	buf_free(&b);
	free(want);
	memory_end(v);
}

/* A lookup does not take longer with many handles. */
TEST_VARIANTS(handle_many, struct memory, memories)
{
	enum { N = 600 };
	struct rlimit files;
	struct handle h[N];
	struct buf b;

	memory_begin(v);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur < 5 * N)
		SKIP("only %lu descriptors", (unsigned long)files.rlim_cur);
	make_file("file", 4096, 1);
	b = buf_new(v, 4096);
	for (int i = 0; i < N; i++)
		h[i] = handle_open(test_path("file"), O_RDONLY);
	for (int i = 0; i < N; i += 7)
		ASSERT_EQ(cuFileRead(h[i].fh, b.p, 100, 0, 0), 100);
	for (int i = 0; i < N; i += 2)
		handle_close(&h[i]);
	for (int i = 0; i < N; i++)
		if (i % 2)
			ASSERT_EQ(cuFileRead(h[i].fh, b.p, 100, 0, 0), 100);
		else
			FAILS(cuFileRead(h[i].fh, b.p, 100, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	buf_free(&b);
	memory_end(v);
}
