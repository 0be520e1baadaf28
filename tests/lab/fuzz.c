/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

#include "p2p.h"

#include <pthread.h>

uint64_t below(struct fuzz *f, uint64_t n)
{
	return prng_below(&f->seed, n);
}

uint64_t odd(struct fuzz *f)
{
	static const uint64_t edge[] = { 0,
					 1,
					 2,
					 511,
					 512,
					 4095,
					 4096,
					 4097,
					 PAGE - 1,
					 PAGE,
					 PAGE + 1,
					 INT32_MAX,
					 UINT32_MAX,
					 1ull << 30,
					 1ull << 40,
					 INT64_MAX,
					 1ull << 63,
					 UINT64_MAX,
					 UINT64_MAX - 511,
					 UINT64_MAX - 4095,
					 UINT64_MAX - PAGE + 1 };

	switch (below(f, 5)) {
	case 0:
		return prng_next(&f->seed);
	case 1:
		return prng_next(&f->seed) >> below(f, 64);
	case 2:
		return below(f, 64) * 4096;
	case 3:
		return below(f, 64) * 512;
	default:
		return edge[below(f, ARRAY_SIZE(edge))];
	}
}

uint32_t some(struct fuzz *f, _Atomic uint32_t *handles)
{
	return below(f, 8) ? atomic_load(&handles[below(f, FUZZ_HANDLES)]) : (uint32_t)odd(f);
}

void keep(struct fuzz *f, _Atomic uint32_t *handles, uint32_t handle)
{
	atomic_store(&handles[below(f, FUZZ_HANDLES)], handle);
}

int fuzz_call(struct fuzz *f, unsigned long *cmd, union fuzz_arg *arg, unsigned int used)
{
	int rc;

	if (!below(f, 4))
		arg->words[below(f, used / 8)] = odd(f);
	else if (!below(f, 8))
		arg->halves[below(f, used / 4)] = (uint32_t)odd(f);
	if (!below(f, 64))
		*cmd = _IOC(_IOC_READ | _IOC_WRITE, STRAIT_IOC, below(f, 64), below(f, sizeof(*arg)));
	/* Mostly within the limits. */
	if (arg->size > sizeof(*arg) && below(f, 16))
		arg->size = (uint32_t)below(f, sizeof(*arg) + 1);
	rc = ko_call(f->fd, *cmd, below(f, 256) ? (void *)arg : (void *)(uintptr_t)odd(f));
	f->good += !rc;
	return rc;
}

uint64_t fuzz_pair(int fd, void *(*run)(void *fuzz), uint64_t calls, uint64_t *seed, void *own[2])
{
	struct fuzz f[2];
	pthread_t thread[2];

	for (unsigned int i = 0; i < 2; i++) {
		f[i] = (struct fuzz){ .fd = fd, .seed = (*seed)++, .calls = calls / 2, .own = own ? own[i] : NULL };
		ASSERT_EQ(pthread_create(&thread[i], NULL, run, &f[i]), 0);
	}
	for (unsigned int i = 0; i < 2; i++)
		ASSERT_EQ(pthread_join(thread[i], NULL), 0);
	return f[0].good + f[1].good;
}

uint64_t fuzz_env(const char *name, uint64_t value)
{
	const char *text = getenv(name);

	value = text && *text ? strtoull(text, NULL, 0) : value;
	printf("repeat with %s=%llu\n", name, (unsigned long long)value);
	return value;
}
