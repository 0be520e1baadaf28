/* SPDX-License-Identifier: MIT */
/*
 * The lab's GPU: random calls. Two threads use one file, which is replaced now and then; each call is valid except for
 * one argument, or random. VGPU_FUZZ_CALLS is the number of calls, VGPU_FUZZ_SEED the seed. The test checks only that
 * every call returns and that all memory is free at the end; the kernel's log is scanned afterwards.
 */
#include "fuzz.h"
#include "vgpu.h"

#include <pthread.h>

#define CALLS 50000
#define FILE_CALLS 4000 /* on one file, before it is replaced */

static _Atomic uint32_t handles[FUZZ_HANDLES];
static pthread_barrier_t both;

union arg {
	uint32_t size;
	uint64_t words[32];
	struct strait_vgpu_info info;
	struct strait_vgpu_alloc alloc;
	struct strait_vgpu_free free;
	struct strait_vgpu_dmabuf dmabuf;
	struct strait_vgpu_query query;
	struct strait_vgpu_dmabuf_at at;
	struct strait_vgpu_counters counters;
	struct strait_vgpu_move move;
};

/* The address range in which it maps. */
static char *room_of(const struct fuzz *f)
{
	return f->own;
}

/* A valid call. */
static unsigned long good(struct fuzz *f, union arg *a)
{
	memset(a, 0, sizeof(*a));
	switch (below(f, 9)) {
	case 0:
		a->size = sizeof(a->info);
		return STRAIT_VGPU_INFO;
	case 1:
	case 2:
		a->alloc.size = sizeof(a->alloc);
		a->alloc.kind = (uint32_t)below(f, 2);
		a->alloc.length = (1 + below(f, 8)) * PAGE;
		return STRAIT_VGPU_ALLOC;
	case 3:
		a->free.size = sizeof(a->free);
		a->free.handle = some(f, handles);
		return STRAIT_VGPU_FREE;
	case 4:
		a->dmabuf.size = sizeof(a->dmabuf);
		a->dmabuf.handle = some(f, handles);
		a->dmabuf.fd_flags = O_CLOEXEC;
		a->dmabuf.offset = below(f, 2) * 4096;
		a->dmabuf.length = (1 + below(f, 15)) * 4096;
		return STRAIT_VGPU_DMABUF;
	case 5:
		a->query.size = sizeof(a->query);
		a->query.address = (uintptr_t)room_of(f) + below(f, 8 * PAGE);
		return STRAIT_VGPU_QUERY;
	case 6:
		a->at.size = sizeof(a->at);
		a->at.address = (uintptr_t)room_of(f) + below(f, 16) * 4096;
		a->at.length = (1 + below(f, 16)) * 4096;
		a->at.identity = odd(f);
		return STRAIT_VGPU_DMABUF_AT;
	case 7:
		a->move.size = sizeof(a->move);
		a->move.handle = some(f, handles);
		return STRAIT_VGPU_MOVE;
	default:
		a->size = sizeof(a->counters);
		return STRAIT_VGPU_COUNTERS;
	}
}

/* Maps the memory of a handle where the queries look, and accesses it; it may be freed at any time. */
static void map_some(struct fuzz *f)
{
	uint64_t offset = (uint64_t)some(f, handles) << 40;
	size_t len = (1 + below(f, 8)) * PAGE;
	volatile char *p;

	if (!below(f, 8))
		offset = odd(f) & ~4095ull;
	p = mmap(room_of(f), len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f->fd, (off_t)offset);
	if (p == MAP_FAILED)
		return;
	p[below(f, len)] = 1;
	if (below(f, 2)) {
		(void)p[below(f, len)];
		mprotect(room_of(f) + PAGE, PAGE, PROT_READ);
	}
}

static void one(struct fuzz *f)
{
	union arg a;
	unsigned long cmd = good(f, &a);
	void *arg = &a;
	int rc;

	switch (below(f, 6)) {
	case 0: /* one word is wrong */
		a.words[below(f, 10)] = odd(f);
		break;
	case 1: /* the size or the number is */
		if (below(f, 2))
			a.size = (uint32_t)odd(f);
		else
			cmd ^= 1ul << below(f, 32);
		break;
	case 2: /* random, or an invalid address */
		if (below(f, 4))
			for (size_t i = 0; i < ARRAY_SIZE(a.words); i++)
				a.words[i] = odd(f);
		else
			arg = below(f, 2) ? (void *)(uintptr_t)odd(f) : room_of(f) + 8 * PAGE - 8;
		break;
	default:
		break;
	}
	rc = ioctl(f->fd, cmd, arg);
	f->good += rc >= 0;
	if (rc < 0 || arg != &a)
		return;
	if (cmd == STRAIT_VGPU_ALLOC)
		keep(f, handles, a.alloc.handle);
	else if (cmd == STRAIT_VGPU_DMABUF)
		close(a.dmabuf.fd);
	else if (cmd == STRAIT_VGPU_DMABUF_AT)
		close(a.at.fd);
}

static void *run(void *arg)
{
	struct fuzz *f = arg;

	pthread_barrier_wait(&both);
	for (uint64_t i = 0; i < f->calls; i++) {
		one(f);
		if (!(i % 64))
			map_some(f);
	}
	return NULL;
}

TEST_TIMEOUT(two_threads_on_one_file, 7200)
{
	uint64_t calls = fuzz_env("VGPU_FUZZ_CALLS", CALLS), seed = fuzz_env("VGPU_FUZZ_SEED", 1), done = 0;
	int watch = gpu_open();
	uint64_t before[2], good_calls = 0;

	gpu_all_free(watch, before);
	for (; done < calls; done += FILE_CALLS) {
		int fd = gpu_open();
		void *room[2];

		/*
		 * A mapping that fails leaves a hole in a thread's range, where nothing else may be mapped: both ranges
		 * and both stacks exist before either thread starts.
		 */
		ASSERT_EQ(pthread_barrier_init(&both, NULL, 2), 0);
		for (int i = 0; i < 2; i++) {
			room[i] = mmap(NULL, 8 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			ASSERT_TRUE(room[i] != MAP_FAILED);
		}
		memset(handles, 0, sizeof(handles));
		good_calls += fuzz_pair(fd, run, FILE_CALLS, &seed, room);
		for (int i = 0; i < 2; i++)
			ASSERT_EQ(munmap(room[i], 8 * PAGE), 0);
		pthread_barrier_destroy(&both);
		close(fd);
	}
	printf("# %llu calls, %llu of them went through\n", (unsigned long long)done, (unsigned long long)good_calls);
	/* Some calls were refused and some were not. */
	ASSERT_GT(good_calls, done / 20);
	ASSERT_LT(good_calls, done);
	gpu_expect_free(watch, before);
	close(watch);
}
