/* SPDX-License-Identifier: MIT */
/* Many threads, many registrations, and a driver that is closed under them. */
#include "cufile/common.h"

#include <signal.h>

#define LEN MIB(4)
#define THREADS 64
#define SLICE (MIB(8) / THREADS)

static const struct kind kinds[] = { { "host", false, true },
				     { "emu", true, true },
				     { "emu-unregistered", true, false } };

static unsigned char *want;
static atomic_bool stop;

struct worker {
	CUfileHandle_t fh[4];
	struct buffer *b;
	unsigned int index;
};

static void one_batch(struct worker *w, uint64_t *seed, size_t at)
{
	CUfileIOParams_t p[16];
	CUfileIOEvents_t ev[16];
	CUfileBatchHandle_t batch;
	unsigned int nr = 16;

	for (unsigned int i = 0; i < 16; i++)
		p[i] = (CUfileIOParams_t){ .mode = CUFILE_BATCH,
					   .u.batch = { w->b->ptr, (off_t)prng_below(seed, LEN - 5000),
							(off_t)(at + i * 5000), 1 + prng_below(seed, 5000) },
					   .fh = w->fh[prng_below(seed, 4)] };
	ASSERT_CU(cuFileBatchIOSetUp(&batch, 16));
	ASSERT_CU(cuFileBatchIOSubmit(batch, 16, p, 0));
	ASSERT_CU(cuFileBatchIOGetStatus(batch, 16, &nr, ev, NULL));
	ASSERT_EQ(nr, 16);
	for (unsigned int i = 0; i < 16; i++) {
		ASSERT_EQ((int)ev[i].status, CUFILE_COMPLETE);
		buffer_expect(w->b, (size_t)p[i].u.batch.devPtr_offset, want + p[i].u.batch.file_offset,
			      p[i].u.batch.size);
	}
	cuFileBatchIODestroy(batch);
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	uint64_t seed = w->index + 1;
	size_t at = w->index * SLICE;

	for (int i = 0; i < 12; i++) {
		CUfileHandle_t fh = w->fh[prng_below(&seed, 4)];
		size_t n = 1 + prng_below(&seed, SLICE), off = prng_below(&seed, LEN - SLICE), len = n;
		off_t file_off = (off_t)off, buf_off = (off_t)at;
		volatile ssize_t done = -99;

		switch (prng_below(&seed, 3)) {
		case 0:
			ASSERT_EQ(cuFileRead(fh, w->b->ptr, n, file_off, buf_off), (ssize_t)n);
			break;
		case 1:
			one_batch(w, &seed, at);
			continue;
		default:
			ASSERT_CU(cuFileReadAsync(fh, w->b->ptr, &len, &file_off, &buf_off, (ssize_t *)&done, NULL));
			while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) == -99)
				sleep_ms(1);
			ASSERT_EQ(done, (ssize_t)n);
		}
		buffer_expect(w->b, at, want + off, n);
	}
	return NULL;
}

/* 64 threads share handles and one buffer, and read by call, batch and stream. */
TEST_VARIANTS(threads_share_all, struct kind, kinds)
{
	static struct worker w[THREADS];
	pthread_t id[THREADS];
	struct buffer b;
	int fd[4];

	want = pattern_new(0, LEN, 1);
	make_file("file", LEN, 1);
	b = buffer_new(v, MIB(8));
	for (int i = 0; i < 4; i++)
		w[0].fh[i] = handle_new(test_path("file"), i % 2 ? O_RDONLY : O_RDWR, &fd[i]);
	for (unsigned int i = 0; i < THREADS; i++) {
		memcpy(w[i].fh, w[0].fh, sizeof(w[0].fh));
		w[i].b = &b;
		w[i].index = i;
		thread_start(&id[i], worker_run, &w[i]);
	}
	for (int i = 0; i < THREADS; i++)
		thread_join(id[i]);
	for (int i = 0; i < 4; i++)
		handle_free(w[0].fh[i], fd[i]);
	buffer_free(&b);
	ASSERT_CU(cuFileDriverClose());
	free(want);
}

/* Ten thousand times, and memory does not grow. */
TEST_VARIANTS(registering_does_not_grow, struct kind, kinds)
{
	unsigned int fds = 0;
	uint64_t before = 0;
	struct buffer b;
	char byte;
	int fd;

	b = buffer_new(&(struct kind){ v->name, v->emu, false }, MIB(1));
	fd = open(make_file("file", 4096, 2), O_RDONLY);
	for (int i = 0; i < 10000; i++) {
		CUfileHandle_t fh;

		ASSERT_CU(handle_try(fd, &fh));
		ASSERT_CU(cuFileBufRegister(b.ptr, MIB(1), 0));
		if (i % 10 == 0)
			ASSERT_EQ(cuFileRead(fh, b.ptr, 4096, 0, 0), 4096);
		if (i % 100 == 0)
			ASSERT_EQ(cuFileRead(fh, &byte, 1, 0, 0), 1);
		ASSERT_CU(cuFileBufDeregister(b.ptr));
		cuFileHandleDeregister(fh);
		if (i == 1000) {
			fds = descriptors_now();
			before = status_bytes("VmRSS");
		}
	}
	ASSERT_EQ(descriptors_now(), fds);
	ASSERT_LT(status_bytes("VmRSS"), before + MIB(8) * test_slow());
	close(fd);
	buffer_free(&b);
	ASSERT_CU(cuFileDriverClose());
}

static void *open_and_close(void *arg)
{
	while (!atomic_load(&stop)) {
		ASSERT_CU(cuFileDriverOpen());
		sleep_ms(1);
		cuFileDriverClose();
		/* Once more than it was opened: other threads open it implicitly. */
		cuFileDriverClose();
	}
	return NULL;
}

/* Reads, and transfers on a stream, that succeeded. */
static atomic_uint came_through, on_streams;

/* Registrations may be gone at any moment; nothing else may happen. */
static void *register_all(void *arg)
{
	char name[32], *buf = malloc(65536);
	unsigned int index = *(unsigned int *)arg;
	int fd;

	snprintf(name, sizeof(name), "file%u", index);
	fd = open(test_path(name), O_RDWR);
	ASSERT_GE(fd, 0);
	while (!atomic_load(&stop)) {
		CUfileBatchHandle_t batch;
		CUfileHandle_t fh;
		size_t n = 4096;
		off_t zero = 0;
		volatile ssize_t done = -99;

		if (!cuFileBatchIOSetUp(&batch, 4).err)
			cuFileBatchIODestroy(batch);
		cuFileBufRegister(buf, 65536, 0);
		cuFileStreamRegister((CUstream)(uintptr_t)(index + 1), 0);
		if (handle_try(fd, &fh).err)
			continue;
		atomic_fetch_add(&came_through, cuFileRead(fh, buf, 4096, 0, 0) == 4096);
		if (!cuFileReadAsync(fh, buf, &n, &zero, &zero, (ssize_t *)&done, NULL).err) {
			while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) == -99)
				sleep_ms(1);
			atomic_fetch_add(&on_streams, 1);
		}
		cuFileStreamDeregister((CUstream)(uintptr_t)(index + 1));
		cuFileBufDeregister(buf);
		cuFileHandleDeregister(fh);
	}
	close(fd);
	free(buf);
	return NULL;
}

TEST(closing_under_others)
{
	unsigned int index[8];
	pthread_t id[10];

	for (unsigned int i = 0; i < 8; i++) {
		char name[32];

		snprintf(name, sizeof(name), "file%u", i);
		make_file(name, 4096, i);
		index[i] = i;
	}
	for (int i = 0; i < 8; i++)
		thread_start(&id[i], register_all, &index[i]);
	thread_start(&id[8], open_and_close, NULL);
	thread_start(&id[9], open_and_close, NULL);
	sleep_ms(1500);
	/* On a busy machine that may not have been enough for one to succeed. */
	while (atomic_load(&came_through) < 20 || !atomic_load(&on_streams))
		sleep_ms(1);
	atomic_store(&stop, true);
	for (int i = 0; i < 10; i++)
		thread_join(id[i]);
	while (!cuFileDriverClose().err)
		;
	ASSERT_EQ(cuFileUseCount(), 0);
}
