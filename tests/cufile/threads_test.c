/* SPDX-License-Identifier: MIT */
/* Many threads, each on its own and all on what they share. */
#include "cufile/common.h"

#define THREADS 64
#define LEN MIB(1)

static const struct kind kinds[] = { KINDS };
static CUfileHandle_t shared;
static struct buffer all;
static unsigned char *want;

static void *work(void *arg)
{
	uint64_t seed = (uintptr_t)arg + 1;
	size_t mine = (uintptr_t)arg * 16384;
	int fd;
	CUfileHandle_t fh = handle_new(test_path("file"), O_RDONLY, &fd);

	for (int i = 0; i < 30; i++) {
		size_t off = prng_below(&seed, LEN - 16384), n = prng_below(&seed, 16384) + 1;

		ASSERT_EQ(cuFileRead(i % 2 ? fh : shared, all.ptr, n, (off_t)off, (off_t)mine), (ssize_t)n);
		buffer_expect(&all, mine, want + off, n);
		ASSERT_CU(cuFileDriverOpen());
		if (i % 8 == 0) {
			char own[512];

			ASSERT_CU(cuFileBufRegister(own, sizeof(own), 0));
			ASSERT_EQ(cuFileRead(fh, own, sizeof(own), (off_t)off, 0), (ssize_t)sizeof(own));
			ASSERT_MEMEQ(own, want + off, sizeof(own));
			ASSERT_CU(cuFileBufDeregister(own));
		}
		ASSERT_CU(cuFileDriverClose());
	}
	handle_free(fh, fd);
	return NULL;
}

TEST_VARIANTS(all_at_once, struct kind, kinds)
{
	pthread_t t[THREADS];
	int fd;

	want = pattern_new(0, LEN, 1);
	all = buffer_new(v, THREADS * 16384);
	shared = handle_new(make_file("file", LEN, 1), O_RDONLY, &fd);
	for (uintptr_t i = 0; i < THREADS; i++)
		thread_start(&t[i], work, (void *)i);
	for (int i = 0; i < THREADS; i++)
		thread_join(t[i]);
	handle_free(shared, fd);
	buffer_free(&all);
	ASSERT_CU(cuFileDriverClose());
	ASSERT_EQ(cuFileUseCount(), 0);
	free(want);
}
