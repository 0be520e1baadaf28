/* SPDX-License-Identifier: MIT */
/* Reading and writing: the same over host and emulated memory, registered or not. */
#include "cufile/common.h"

#include "../../cufile/mem.h"

static const struct kind kinds[] = { KINDS };

#define LEN (MIB(3) + 77)

#define ASSERT_ERRNO(call, code)                                                                                       \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		ASSERT_EQ(call, -1);                                                                                   \
		ASSERT_EQ(errno, code);                                                                                \
	} while (0)

TEST_VARIANTS(reads_any_range, struct kind, kinds)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct buffer b = buffer_new(v, LEN + 100);
	uint64_t seed = 1;
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", LEN, 1), O_RDONLY, &fd);

	ASSERT_EQ(cuFileRead(fh, b.ptr, LEN, 0, 100), (ssize_t)LEN);
	buffer_expect(&b, 100, want, LEN);
	for (int i = 0; i < 200; i++) {
		size_t off = prng_below(&seed, LEN), n = prng_below(&seed, i % 2 ? 9000 : LEN) + 1;
		size_t expect = n < LEN - off ? n : LEN - off, at = prng_below(&seed, LEN + 100 - n + 1);

		ASSERT_EQ(cuFileRead(fh, b.ptr, n, (off_t)off, (off_t)at), (ssize_t)expect);
		buffer_expect(&b, at, want + off, expect);
	}
	ASSERT_EQ(cuFileRead(fh, b.ptr, 10, LEN, 0), 0);
	ASSERT_EQ(cuFileRead(fh, b.ptr, 0, 0, 0), 0);
	ASSERT_EQ(cuFileRead(fh, b.ptr, 1000, LEN - 10, 0), 10);
	/* As some programs do: a pointer into the buffer. */
	ASSERT_EQ(cuFileRead(fh, (char *)b.ptr + 4097, 5000, 11, 3), 5000);
	buffer_expect(&b, 4100, want + 11, 5000);
	handle_free(fh, fd);
	buffer_free(&b);
	free(want);
}

TEST_VARIANTS(writes_any_range, struct kind, kinds)
{
	unsigned char *want = pattern_new(0, LEN, 2);
	struct buffer b = buffer_new(v, LEN);
	int fd;
	CUfileHandle_t fh = handle_new(test_path("new"), O_RDWR | O_CREAT, &fd);

	buffer_put(&b, 0, want, LEN);
	ASSERT_EQ(cuFileWrite(fh, b.ptr, LEN, 0, 0), (ssize_t)LEN);
	file_expect(test_path("new"), 0, want, LEN);
	ASSERT_EQ(cuFileWrite(fh, b.ptr, 4001, 12345, 7), 4001);
	file_expect(test_path("new"), 12345, want + 7, 4001);
	file_expect(test_path("new"), 12345 + 4001, want + 12345 + 4001, 5000);
	handle_free(fh, fd);
	buffer_free(&b);
	free(want);
}

TEST_VARIANTS(direct_descriptors_take_any_alignment, struct kind, kinds)
{
	unsigned char *want = pattern_new(0, LEN, 3);
	struct buffer b = buffer_new(v, LEN);
	int fd = open(make_file("file", LEN, 3), O_RDWR | O_DIRECT);
	CUfileHandle_t fh;

	if (fd < 0)
		SKIP("no O_DIRECT here");
	ASSERT_CU(handle_try(fd, &fh));
	ASSERT_EQ(cuFileRead(fh, b.ptr, 10001, 7, 3), 10001);
	buffer_expect(&b, 3, want + 7, 10001);
	ASSERT_EQ(cuFileWrite(fh, b.ptr, 10001, 101, 3), 10001);
	file_expect(test_path("file"), 101, want + 7, 10001);
	handle_free(fh, fd);
	buffer_free(&b);
	free(want);
}

TEST_VARIANTS(vectors, struct kind, kinds)
{
	unsigned char *want = pattern_new(0, LEN, 4);
	struct buffer a = buffer_new(v, 5001), b = buffer_new(v, MIB(1));
	CUfileIOVec_t iov[] = { { a.ptr, 5001 }, { NULL, 0 }, { b.ptr, MIB(1) } };
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", LEN, 4), O_RDWR, &fd);

	ASSERT_EQ(cuFileReadv(fh, iov, 3, 9, 0), (ssize_t)MIB(1) + 5001);
	buffer_expect(&a, 0, want + 9, 5001);
	buffer_expect(&b, 0, want + 9 + 5001, MIB(1));
	ASSERT_EQ(cuFileWritev(fh, iov, 3, 100, 0), (ssize_t)MIB(1) + 5001);
	file_expect(test_path("file"), 100, want + 9, MIB(1) + 5001);
	ASSERT_EQ(cuFileReadv(fh, iov, 3, LEN - 5005, 0), 5005);
	ASSERT_ERRNO(cuFileReadv(fh, NULL, 1, 0, 0), EINVAL);
	ASSERT_ERRNO(cuFileReadv(fh, iov, 0, 0, 0), EINVAL);
	ASSERT_ERRNO(cuFileWritev(fh, iov, 3, 0, 1), EINVAL);
	handle_free(fh, fd);
	buffer_free(&a);
	buffer_free(&b);
	free(want);
}

TEST_VARIANTS(refuses, struct kind, kinds)
{
	struct buffer b = buffer_new(v, 8192);
	int fd, other;
	CUfileHandle_t fh = handle_new(make_file("file", 8192, 5), O_RDONLY, &fd);
	CUfileHandle_t wr = handle_new(test_path("file"), O_WRONLY, &other);

	ASSERT_ERRNO(cuFileRead(NULL, b.ptr, 1, 0, 0), EINVAL);
	ASSERT_ERRNO(cuFileRead(fh, NULL, 1, 0, 0), EINVAL);
	ASSERT_ERRNO(cuFileRead(fh, b.ptr, 1, -1, 0), CU_FILE_INVALID_VALUE);
	ASSERT_ERRNO(cuFileRead(fh, b.ptr, 1, 0, -1), CU_FILE_INTERNAL_ERROR);
	ASSERT_ERRNO(cuFileRead(&b, b.ptr, 1, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	ASSERT_ERRNO(cuFileWrite(fh, b.ptr, 1, 0, 0), EIO);
	ASSERT_ERRNO(cuFileRead(wr, b.ptr, 1, 0, 0), CU_FILE_INVALID_FILE_OPEN_FLAG);
	if (v->registered)
		ASSERT_ERRNO(cuFileRead(fh, b.ptr, 8192, 0, 1), CU_FILE_INVALID_MAPPING_RANGE);
	else if (v->emu)
		ASSERT_ERRNO(cuFileRead(fh, b.ptr, MIB(64), 0, 1), EIO);
	handle_free(fh, fd);
	ASSERT_ERRNO(cuFileRead(fh, b.ptr, 1, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	handle_free(wr, other);
	buffer_free(&b);
}

/* Memory freed and allocated again at the same address is the new memory, not the old. */
TEST(follows_reuse_of_an_address)
{
	static const struct kind emu = { "emu", true, false };
	unsigned char *want = pattern_new(0, MIB(1), 6);
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", MIB(1), 6), O_RDONLY, &fd);

	for (int i = 0; i < 50; i++) {
		struct buffer b = buffer_new(&emu, MIB(1));

		ASSERT_EQ(cuFileRead(fh, b.ptr, MIB(1), 0, 0), (ssize_t)MIB(1));
		buffer_expect(&b, 0, want, MIB(1));
		buffer_free(&b);
	}
	handle_free(fh, fd);
	free(want);
}

static bool where_emu(const void *v)
{
	return ((const struct kind *)v)->emu;
}

/* Two threads hold the range when its memory is freed: both look it up again, whichever of them evicts it. */
TEST_WHERE(stale_range_held_twice, where_emu)
TEST_VARIANTS(stale_range_held_twice, struct kind, kinds)
{
	static const struct kind emu = { "emu", true, false };
	struct buffer b;
	struct cf_mem *m[2];
	uint64_t offset;

	ASSERT_CU(cuFileDriverOpen());
	b = buffer_new(&emu, MIB(1));
	if (v->registered)
		ASSERT_CU(cuFileBufRegister(b.ptr, MIB(1), 0));
	for (int i = 0; i < 2; i++)
		ASSERT_OK(cf_mem_get(b.ptr, 0, 4096, 0, &m[i], &offset));
	ASSERT_EQ(m[0], m[1]);
	ASSERT_OK(strait_emu_free(emu_device_of_driver(), b.ptr));
	for (int i = 0; i < 2; i++) {
		ASSERT_TRUE(cf_mem_stale(m[i]));
		cf_mem_put(m[i], 1);
	}
	if (v->registered)
		ASSERT_CU(cuFileBufDeregister(b.ptr));
	ASSERT_CU(cuFileDriverClose());
}

TEST(registered_memory_may_be_freed_first)
{
	static const struct kind emu = { "emu", true, true };
	struct buffer b = buffer_new(&emu, 8192);
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", 8192, 7), O_RDONLY, &fd);

	ASSERT_EQ(cuFileRead(fh, b.ptr, 8192, 0, 0), 8192);
	ASSERT_OK(strait_emu_free(emu_device_of_driver(), b.ptr));
	ASSERT_EQ(cuFileRead(fh, b.ptr, 8192, 0, 0), -1);
	ASSERT_CU(cuFileBufDeregister(b.ptr));
	handle_free(fh, fd);
}
