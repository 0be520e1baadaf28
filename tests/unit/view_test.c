/* SPDX-License-Identifier: MIT */
/*
 * The device's side of frames (strait/view.h), run by threads of the CPU: random accesses against a model, with a host that
 * is slow, fails, answers twice or not at all. Whenever the threads rest, the invariants of strait/device/core.h hold.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "harness/harness.h"
#include "view_rig.h"

#define THREADS 6u

struct job {
	struct view_rig *r;
	unsigned int number;
	uint64_t *model; /* words of the file, of which each thread owns every THREADS-th */
	unsigned int steps;
	int error;
};

static void run_threads(struct view_rig *r, void *(*fn)(void *), struct job *jobs, unsigned int steps, uint64_t *model)
{
	pthread_t thread[THREADS];

	for (unsigned int i = 0; i < THREADS; i++) {
		jobs[i] = (struct job){ r, i, model, steps, 0 };
		ASSERT_EQ(pthread_create(&thread[i], NULL, fn, &jobs[i]), 0);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

static unsigned int steps(void)
{
	return 4000 / test_slow() + 200;
}

static const struct shape {
	const char *name;
	unsigned int page_shift, frames, slots;
	uint64_t granules;
	unsigned int delay_us;
	bool twice;
} shapes[] = {
	{ "4k", 0, 16, 8, 128, 0, false },
	{ "4k-one-slot", 0, 8, 1, 64, 0, false },
	{ "4k-few-frames", 0, 7, 32, 256, 0, false },
	{ "16k", 2, 8, 8, 128, 0, false },
	{ "64k", 4, 9, 40, 515, 0, false },
	{ "2m", 9, 7, 16, 4096, 0, false },
	{ "4k-slow", 0, 8, 4, 64, 200, false },
	{ "16k-twice", 2, 8, 8, 128, 20, true },
	/* A frame for each page: nothing is evicted. */
	{ "4k-fits", 0, 64, 8, 64, 0, false },
	{ "64k-fits", 4, 40, 8, 515, 0, false },
	{ "2m-fits", 9, 8, 16, 4096, 0, false },
};

static void shape_open(struct view_rig *r, const struct shape *v)
{
	view_rig_open(r, v->granules, v->frames, v->page_shift, v->slots);
	r->host.delay_us = v->delay_us;
	r->host.twice = v->twice;
	view_rig_start(r);
}

/* ---- loads ---- */

static void *load_main(void *arg)
{
	struct job *j = arg;
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	uint64_t seed = j->number + 1, words = j->r->granules * WORDS;

	for (unsigned int i = 0; i < j->steps; i++) {
		uint64_t w = prng_below(&seed, words);

		/* Some in a row, of the same granule. */
		for (unsigned int k = 0; k < 4 && w + k < words; k++)
			if (strait_load_u64(&j->r->v, &c, (w + k) * 8) != view_pattern(w + k))
				j->error = -1;
	}
	j->error = c.error ? c.error : j->error;
	return NULL;
}

TEST_VARIANTS(loads, struct shape, shapes)
{
	struct job jobs[THREADS];
	struct view_rig r;

	shape_open(&r, v);
	r.v.flags &= ~STRAIT_VIEW_WRITE;
	run_threads(&r, load_main, jobs, v->delay_us ? steps() / 8 : steps(), NULL);
	for (unsigned int i = 0; i < THREADS; i++)
		ASSERT_EQ(jobs[i].error, 0);
	/* A read never makes anything dirty. */
	ASSERT_EQ(r.shared->dirty, 0);
	ASSERT_EQ(atomic_load(&r.writes), 0);
	ASSERT_EQ(r.shared->fetched, atomic_load(&r.reads));
	ASSERT_EQ(r.shared->failed, 0);
	if (r.v.flags & STRAIT_VIEW_FITS) {
		ASSERT_EQ(r.shared->evicted, 0);
		ASSERT_LE(r.shared->fetched, v->granules);
	}
	view_rig_close(&r);
}

TEST(sizes_and_alignment)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	unsigned char buf[3 * GRANULE];
	struct view_rig r;

	view_rig_open(&r, 8, 4, 0, 4);
	r.v.length = 7 * GRANULE + 100;
	view_rig_start(&r);
	ASSERT_EQ(strait_load_u8(&r.v, &c, 4099), ((unsigned char *)r.file)[4099]);
	ASSERT_EQ(strait_load_u16(&r.v, &c, 4098), ((uint16_t *)r.file)[2049]);
	ASSERT_EQ(strait_load_u32(&r.v, &c, 4100), ((uint32_t *)r.file)[1025]);
	ASSERT_EQ(c.error, 0);
	ASSERT_EQ(strait_view_read(&r.v, 4001, buf, sizeof(buf) - 5), 0);
	ASSERT_MEMEQ(buf, (char *)r.file + 4001, sizeof(buf) - 5);
	/* The last bytes, and what lies past them. */
	ASSERT_EQ(strait_load_u32(&r.v, &c, 7 * GRANULE + 96), ((uint32_t *)r.file)[7 * 1024 + 24]);
	ASSERT_EQ(c.error, 0);
	ASSERT_EQ(strait_load_u32(&r.v, &c, 7 * GRANULE + 100), 0);
	ASSERT_EQ(c.error, -EINVAL);
	c.error = 0;
	ASSERT_EQ(strait_load_u64(&r.v, &c, 4), 0);
	ASSERT_EQ(c.error, -EINVAL);
	c.error = 0;
	strait_load_u64(&r.v, &c, UINT64_MAX - 7);
	ASSERT_EQ(c.error, -EINVAL);
	ASSERT_EQ(strait_view_read(&r.v, 7 * GRANULE, buf, 101), -EINVAL);
	r.v.flags = 0;
	c.error = 0;
	strait_store_u64(&r.v, &c, 0, 1);
	ASSERT_EQ(c.error, -EACCES);
	view_rig_close(&r);
}

/* ---- stores ---- */

/* Each thread owns every THREADS-th word, in all granules: neighbours are stored to by others. */
static void *store_main(void *arg)
{
	struct job *j = arg;
	struct strait_view *v = &j->r->v;
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	uint64_t seed = j->number + 100, words = j->r->granules * WORDS;

	for (unsigned int i = 0; i < j->steps; i++) {
		uint64_t w = prng_below(&seed, words / THREADS) * THREADS + j->number, x = prng_next(&seed);

		switch (prng_below(&seed, 6)) {
		case 0:
		case 1:
			strait_store_u64(v, &c, w * 8, x);
			j->model[w] = x;
			break;
		case 2:
			if (strait_atomic_add_u64(v, &c, w * 8, x) != j->model[w])
				j->error = -2;
			j->model[w] += x;
			break;
		case 3:
			strait_store_u8(v, &c, w * 8 + 3, (unsigned char)x);
			((unsigned char *)&j->model[w])[3] = (unsigned char)x;
			break;
		case 4:
			if (strait_view_flush(v, w * 8, 8))
				j->error = -3;
			break;
		default:
			if (strait_load_u64(v, &c, w * 8) != j->model[w])
				j->error = -1;
		}
	}
	j->error = c.error ? c.error : j->error;
	return NULL;
}

/* Writes back all that is dirty, by a thread of the device. */
static void flush_all(struct view_rig *r)
{
	ASSERT_EQ(strait_view_flush(&r->v, 0, r->v.length), 0);
	for (uint64_t i = 0; i < (uint64_t)r->v.n_frames * r->v.words; i++)
		ASSERT_EQ(r->v.dirty[i], 0);
}

TEST_VARIANTS(stores, struct shape, shapes)
{
	struct job jobs[THREADS];
	uint64_t *model;
	struct view_rig r;

	shape_open(&r, v);
	model = view_zeros(r.granules, GRANULE);
	memcpy(model, r.file, r.granules * GRANULE);
	run_threads(&r, store_main, jobs, v->delay_us ? steps() / 8 : steps(), model);
	for (unsigned int i = 0; i < THREADS; i++)
		ASSERT_EQ(jobs[i].error, 0);
	flush_all(&r);
	ASSERT_MEMEQ(r.file, model, r.granules * GRANULE);
	ASSERT_EQ(r.shared->failed, 0);
	view_rig_close(&r);
	free(model);
}

/* All threads add to, and exclude each other at, the same few words. */
static void *share_main(void *arg)
{
	struct job *j = arg;
	struct strait_view *v = &j->r->v;
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	uint64_t seed = j->number + 900;

	for (unsigned int i = 0; i < j->steps; i++) {
		uint64_t g = prng_below(&seed, j->r->granules);

		strait_atomic_add_u32(v, &c, g * GRANULE, 1);
		strait_atomic_min_u64(v, &c, g * GRANULE + 8, prng_next(&seed) | 1);
		while (strait_atomic_cas_u32(v, &c, g * GRANULE + 16, 0, j->number + 1) && !c.error)
			sched_yield();
		strait_store_u32(v, &c, g * GRANULE + 20, strait_load_u32(v, &c, g * GRANULE + 20) + 1);
		strait_store_u32(v, &c, g * GRANULE + 16, 0);
	}
	j->error = c.error;
	return NULL;
}

TEST_VARIANTS(atomics, struct shape, shapes)
{
	struct job jobs[THREADS];
	uint64_t sum = 0, locked = 0, n = v->delay_us ? steps() / 16 : steps() / 2;
	struct view_rig r;

	shape_open(&r, v);
	for (uint64_t g = 0; g < r.granules; g++)
		memset((char *)r.file + g * GRANULE, 0, 32);
	run_threads(&r, share_main, jobs, (unsigned int)n, NULL);
	for (unsigned int i = 0; i < THREADS; i++)
		ASSERT_EQ(jobs[i].error, 0);
	flush_all(&r);
	for (uint64_t g = 0; g < r.granules; g++) {
		sum += *(uint32_t *)(void *)((char *)r.file + g * GRANULE);
		locked += *(uint32_t *)(void *)((char *)r.file + g * GRANULE + 20);
		ASSERT_EQ(r.file[g * WORDS + 1], 0);
	}
	ASSERT_EQ(sum, n * THREADS);
	ASSERT_EQ(locked, n * THREADS);
	view_rig_close(&r);
}

/* ---- pins ---- */

TEST(all_frames_pinned)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	void *p[4], *more;
	struct view_rig r;

	view_rig_open(&r, 32, 4, 0, 4);
	view_rig_start(&r);
	for (unsigned int i = 0; i < 4; i++) {
		ASSERT_EQ(strait_view_pin(&r.v, i * GRANULE + 8, 16, &p[i]), 0);
		ASSERT_EQ(*(uint64_t *)p[i], view_pattern(i * WORDS + 1));
	}
	/* Not a wait for this very thread. */
	ASSERT_EQ(strait_view_pin(&r.v, 9 * GRANULE, 8, &more), -ENOBUFS);
	r.v.timeout_ns = 50000000;
	ASSERT_EQ(strait_load_u64(&r.v, &c, 9 * GRANULE), 0);
	ASSERT_EQ(c.error, -ENOBUFS);
	r.v.timeout_ns = 20000000000ull * test_slow();
	/* What is pinned can be loaded. */
	c.error = 0;
	ASSERT_EQ(strait_load_u64(&r.v, &c, 2 * GRANULE), view_pattern(2 * WORDS));
	ASSERT_EQ(c.error, 0);
	*(uint64_t *)p[1] = 5;
	for (unsigned int i = 0; i < 4; i++)
		strait_view_unpin(&r.v, i * GRANULE + 8, 16, i == 1);
	ASSERT_EQ(strait_view_pin(&r.v, 9 * GRANULE, 8, &more), 0);
	strait_view_unpin(&r.v, 9 * GRANULE, 8, 0);
	flush_all(&r);
	ASSERT_EQ(r.file[WORDS + 1], 5);
	ASSERT_EQ(r.shared->dirty, 1);
	/* A range over the end of a page. */
	ASSERT_EQ(strait_view_pin(&r.v, GRANULE - 4, 8, &more), -EINVAL);
	view_rig_close(&r);
}

static void *pin_main(void *arg)
{
	struct job *j = arg;
	struct strait_view *v = &j->r->v;
	uint64_t seed = j->number + 3;
	void *p;

	for (unsigned int i = 0; i < j->steps && !j->error; i++) {
		uint64_t g = prng_below(&seed, j->r->granules);

		j->error = strait_view_pin(v, g * GRANULE, GRANULE, &p);
		if (j->error)
			break;
		if (*(uint64_t *)p != view_pattern(g * WORDS))
			j->error = -1;
		strait_view_unpin(v, g * GRANULE, GRANULE, 0);
	}
	return NULL;
}

/* As many frames as threads pin, and one: a pin waits, and ends. */
TEST(reserved_pins_wait)
{
	struct job jobs[THREADS];
	struct view_rig r;

	view_rig_open(&r, 200, THREADS + 1, 0, 8);
	r.v.flags |= STRAIT_VIEW_RESERVED;
	view_rig_start(&r);
	run_threads(&r, pin_main, jobs, steps() / 4, NULL);
	for (unsigned int i = 0; i < THREADS; i++)
		ASSERT_EQ(jobs[i].error, 0);
	view_rig_close(&r);
}

/* ---- a host that fails ---- */

static void *bad_main(void *arg)
{
	struct job *j = arg;
	uint64_t seed = j->number + 3;

	for (unsigned int i = 0; i < j->steps && !j->error; i++) {
		struct strait_cursor c = STRAIT_CURSOR_INIT;
		uint64_t g = prng_below(&seed, j->r->granules), x = strait_load_u64(&j->r->v, &c, g * GRANULE);

		if (g == j->r->host.bad ? c.error != -EIO || x : c.error || x != view_pattern(g * WORDS))
			j->error = c.error ? c.error : -1;
	}
	return NULL;
}

TEST(a_granule_that_cannot_be_read)
{
	struct job jobs[THREADS];
	struct view_rig r;

	view_rig_open(&r, 64, 8, 2, 4);
	r.host.bad = 21;
	view_rig_start(&r);
	run_threads(&r, bad_main, jobs, steps() / 2, NULL);
	for (unsigned int i = 0; i < THREADS; i++)
		ASSERT_EQ(jobs[i].error, 0);
	ASSERT_GT(r.shared->failed, 0);
	ASSERT_EQ(r.shared->first_error, 21u << 16 | EIO);
	view_rig_close(&r);
}

/* Dirty frames stay, others are taken, and nothing is lost. */
TEST(a_host_that_cannot_write)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	struct view_rig r;

	view_rig_open(&r, 64, 4, 0, 4);
	view_rig_start(&r);
	strait_store_u64(&r.v, &c, 3 * GRANULE, 33);
	strait_store_u64(&r.v, &c, 4 * GRANULE, 44);
	atomic_store(&r.host.full, true);
	ASSERT_EQ(strait_view_flush(&r.v, 3 * GRANULE, 1), -ENOSPC);
	for (uint64_t i = 10; i < 40; i++)
		ASSERT_EQ(strait_load_u64(&r.v, &c, i * GRANULE), view_pattern(i * WORDS));
	ASSERT_EQ(c.error, 0);
	ASSERT_EQ(strait_load_u64(&r.v, &c, 3 * GRANULE), 33);
	ASSERT_EQ(r.file[3 * WORDS], view_pattern(3 * WORDS));
	/* All are dirty: the next one does not fit, and that is said. */
	strait_store_u64(&r.v, &c, 5 * GRANULE, 55);
	strait_store_u64(&r.v, &c, 6 * GRANULE, 66);
	ASSERT_EQ(c.error, 0);
	ASSERT_EQ(strait_load_u64(&r.v, &c, 50 * GRANULE), 0);
	ASSERT_EQ(c.error, -ENOSPC);
	atomic_store(&r.host.full, false);
	c.error = 0;
	ASSERT_EQ(strait_load_u64(&r.v, &c, 50 * GRANULE), view_pattern(50 * WORDS));
	flush_all(&r);
	for (uint64_t i = 3; i < 7; i++)
		ASSERT_EQ(r.file[i * WORDS], i * 11);
	view_rig_close(&r);
}

TEST(a_host_that_does_not_answer)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	struct view_rig r;

	view_rig_open(&r, 64, 8, 0, 2);
	r.v.timeout_ns = 20000000;
	atomic_store(&r.host.silent, true);
	view_rig_start(&r);
	for (uint64_t i = 0; i < 3; i++) {
		ASSERT_EQ(strait_load_u64(&r.v, &c, i * GRANULE), 0);
		ASSERT_EQ(c.error, -ETIMEDOUT);
		c.error = 0;
	}
	/* Both slots may still be written to by the host, and are not used again before. */
	ASSERT_EQ(r.shared->quarantine[0], 3);
	r.v.timeout_ns = 20000000000ull;
	atomic_store(&r.host.silent, false);
	for (unsigned int s = 0; s < 2; s++)
		while (atomic_load(&r.completion[s]) >> 32 != r.request[s].seq)
			sched_yield();
	for (uint64_t i = 10; i < 20; i++)
		ASSERT_EQ(strait_load_u64(&r.v, &c, i * GRANULE), view_pattern(i * WORDS));
	ASSERT_EQ(c.error, 0);
	ASSERT_EQ(r.shared->quarantine[0], 0);
	view_rig_close(&r);
}

/* ---- windows ---- */

TEST(windows_are_read_in_place)
{
	struct job jobs[THREADS];
	strait_u64 window[4] = { 0 };
	strait_u64 buf[16] = { 0 };
	struct view_rig r;

	view_rig_open(&r, 256, 16, 0, 4);
	r.v.window_shift = 6;
	for (unsigned int i = 0; i < 3; i++)
		window[i] = (uintptr_t)r.file + i * 64 * GRANULE;
	r.v.window = window;
	r.v.flags &= ~STRAIT_VIEW_WRITE;
	view_rig_start(&r);
	run_threads(&r, load_main, jobs, steps(), NULL);
	for (unsigned int i = 0; i < THREADS; i++)
		ASSERT_EQ(jobs[i].error, 0);
	ASSERT_GT(r.shared->pulled, 0);
	ASSERT_GT(r.shared->fetched, 0);
	ASSERT_EQ(r.shared->fetched, atomic_load(&r.reads));
	ASSERT_EQ(strait_view_peek(&r.v, 70 * GRANULE + 64, buf, sizeof(buf)), 0);
	ASSERT_EQ(buf[15], view_pattern(70 * WORDS + 23));
	ASSERT_EQ(strait_view_peek(&r.v, 200 * GRANULE, buf, 8), -EIO);
	ASSERT_EQ(strait_view_peek(&r.v, 71 * GRANULE - 8, buf, 16), -EINVAL);
	view_rig_close(&r);
}
