/* SPDX-License-Identifier: MIT */
/* Transfers ordered on a stream: the default stream of the emulated device, and host memory. */
#include "cufile/common.h"

static const struct kind kinds[] = { KINDS };

#define LEN (MIB(1) + 13)

static struct strait_stream *default_stream(void)
{
	struct strait_stream *s;

	ASSERT_OK(strait_stream_import(emu_device_of_driver(), NULL, &s));
	return s;
}

static void wait_for_stream(void)
{
	struct strait_stream *s = default_stream();

	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	strait_stream_close(s);
}

struct late {
	size_t size;
	off_t file_off, buf_off;
	atomic_bool go;
};

static void set_late(void *arg)
{
	struct late *l = arg;

	while (!atomic_load(&l->go))
		sleep_ms(1);
	l->size = 5000;
	l->file_off = 77;
	l->buf_off = 3;
}

TEST_VARIANTS(reads_and_writes, struct kind, kinds)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct buffer b = buffer_new(v, LEN);
	size_t n[64];
	off_t file_off[64], buf_off[64];
	ssize_t done[64];
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", LEN, 1), O_RDWR, &fd);

	for (int i = 0; i < 64; i++) {
		n[i] = 10000 + (size_t)i;
		file_off[i] = buf_off[i] = i * 16000;
		done[i] = -99;
		ASSERT_CU(cuFileReadAsync(fh, b.ptr, &n[i], &file_off[i], &buf_off[i], &done[i], NULL));
	}
	wait_for_stream();
	for (int i = 0; i < 64; i++) {
		ASSERT_EQ(done[i], (ssize_t)n[i]);
		buffer_expect(&b, (size_t)buf_off[i], want + file_off[i], n[i]);
	}
	n[0] = 6000;
	file_off[0] = 1;
	buf_off[0] = 16000;
	ASSERT_CU(cuFileWriteAsync(fh, b.ptr, &n[0], &file_off[0], &buf_off[0], &done[0], NULL));
	wait_for_stream();
	ASSERT_EQ(done[0], 6000);
	file_expect(test_path("file"), 1, want + 16000, 6000);
	/* At the end of the file, and after it. */
	file_off[0] = LEN - 5;
	buf_off[0] = 0;
	ASSERT_CU(cuFileReadAsync(fh, b.ptr, &n[0], &file_off[0], &buf_off[0], &done[0], NULL));
	wait_for_stream();
	ASSERT_EQ(done[0], 5);
	file_off[0] = -1;
	ASSERT_CU(cuFileReadAsync(fh, b.ptr, &n[0], &file_off[0], &buf_off[0], &done[0], NULL));
	wait_for_stream();
	ASSERT_EQ(done[0], -EINVAL);
	handle_free(fh, fd);
	buffer_free(&b);
	ASSERT_CU(cuFileDriverClose());
	free(want);
}

/* Parameters are read when the stream reaches the transfer. */
TEST(parameters_may_come_late)
{
	static const struct kind emu = { "emu", true, true };
	unsigned char *want = pattern_new(0, LEN, 2);
	struct buffer b = buffer_new(&emu, LEN);
	struct late l = { .size = 1 };
	struct strait_stream *s = default_stream();
	ssize_t done = -99;
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", LEN, 2), O_RDONLY, &fd);

	ASSERT_OK(strait_stream_call(s, set_late, &l));
	ASSERT_CU(cuFileReadAsync(fh, b.ptr, &l.size, &l.file_off, &l.buf_off, &done, NULL));
	ASSERT_EQ(done, -99);
	atomic_store(&l.go, true);
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(done, 5000);
	buffer_expect(&b, 3, want + 77, 5000);
	strait_stream_close(s);
	handle_free(fh, fd);
	buffer_free(&b);
	free(want);
}

/* Unless the program declared them fixed. */
TEST(parameters_may_be_fixed)
{
	static const struct kind emu = { "emu", true, false };
	unsigned char *want = pattern_new(0, LEN, 3);
	struct buffer b = buffer_new(&emu, LEN);
	struct late l = { .size = 100, .file_off = 1, .buf_off = 2 };
	struct strait_stream *s = default_stream();
	ssize_t done = -99;
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", LEN, 3), O_RDONLY, &fd);

	ASSERT_CU(cuFileStreamRegister(NULL, 0xf));
	ASSERT_OK(strait_stream_call(s, set_late, &l));
	ASSERT_CU(cuFileReadAsync(fh, b.ptr, &l.size, &l.file_off, &l.buf_off, &done, NULL));
	atomic_store(&l.go, true);
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(done, 100);
	buffer_expect(&b, 2, want + 1, 100);
	strait_stream_close(s);
	ASSERT_CU(cuFileStreamDeregister(NULL));
	handle_free(fh, fd);
	buffer_free(&b);
	free(want);
}

/* The application may deregister everything while the transfer is still queued on the stream. */
TEST(registrations_may_go_first)
{
	static const struct kind emu = { "emu", true, true };
	unsigned char *want = pattern_new(0, LEN, 4);
	struct buffer b = buffer_new(&emu, LEN);
	struct late l = { .size = 1 };
	struct strait_stream *s = default_stream();
	ssize_t done = -99;
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", LEN, 4), O_RDONLY, &fd);

	ASSERT_OK(strait_stream_call(s, set_late, &l));
	ASSERT_CU(cuFileReadAsync(fh, b.ptr, &l.size, &l.file_off, &l.buf_off, &done, NULL));
	handle_free(fh, fd);
	ASSERT_CU(cuFileBufDeregister(b.ptr));
	atomic_store(&l.go, true);
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(done, 5000);
	buffer_expect(&b, 3, want + 77, 5000);
	strait_stream_close(s);
	ASSERT_OK(strait_emu_free(emu_device_of_driver(), b.ptr));
	ASSERT_CU(cuFileDriverClose());
	free(want);
}

TEST(refuses)
{
	static const struct kind emu = { "emu", true, false };
	struct buffer b = buffer_new(&emu, 100);
	size_t n = 1;
	off_t off = 0;
	ssize_t done;
	int fd;
	CUfileHandle_t fh = handle_new(make_file("file", 100, 5), O_RDONLY, &fd);

	ASSERT_CU(cuFileStreamRegister(NULL, 1));
	ASSERT_CU_ERR(cuFileStreamRegister(NULL, 1), CU_FILE_INVALID_VALUE);
	ASSERT_CU(cuFileStreamDeregister(NULL));
	ASSERT_CU_ERR(cuFileStreamDeregister(NULL), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileStreamRegister(NULL, 0x10), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileReadAsync(NULL, b.ptr, &n, &off, &off, &done, NULL), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileReadAsync(fh, b.ptr, &n, NULL, &off, &done, NULL), CU_FILE_INVALID_VALUE);
	ASSERT_CU_ERR(cuFileReadAsync(&b, b.ptr, &n, &off, &off, &done, NULL), CU_FILE_HANDLE_NOT_REGISTERED);
	ASSERT_NE((int)cuFileWriteAsync(fh, b.ptr, &n, &off, &off, &done, NULL).err, CU_FILE_SUCCESS);
	n = MIB(100);
	ASSERT_CU(cuFileReadAsync(fh, b.ptr, &n, &off, &off, &done, NULL));
	wait_for_stream();
	ASSERT_EQ(done, -EINVAL);
	handle_free(fh, fd);
	buffer_free(&b);
}
