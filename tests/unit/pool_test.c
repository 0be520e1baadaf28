/* SPDX-License-Identifier: MIT */
/* Staging memory: chunks, shares, waiting. */
#include "engine/transfer/staging.h"

#include <errno.h>

#include "base/util.h"
#include "device/device_set.h"
#include "harness/harness.h"
#include "os/os.h"

static struct device_set set;
static const struct log_sink no_log;
static _Atomic uint64_t waits, bytes;

static void begin(struct staging_pool *p, uint64_t want, uint64_t chunk)
{
	struct strait_device *dev;

	ASSERT_OK(device_set_open(&set, &no_log, NULL));
	ASSERT_OK(device_set_find(&set, "emu:0", &dev));
	staging_init(p, dev, want, chunk);
	p->stat_waits = &waits;
	p->stat_bytes = &bytes;
}

static void end(struct staging_pool *p)
{
	staging_fini(p);
	device_set_close(&set);
}

TEST(whole_chunks_and_at_least_one)
{
	static const struct {
		uint64_t want, chunk, get;
	} rows[] = {
		{ 1, KIB(64), KIB(64) },
		{ KIB(64), KIB(64), KIB(64) },
		{ KIB(200), KIB(64), KIB(192) },
		{ MIB(1), KIB(64), MIB(1) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct chunk *c[64];
		struct staging_user u;
		struct staging_pool p;
		unsigned int n = 0;

		bytes = 0;
		begin(&p, rows[i].want, rows[i].chunk);
		/* Nothing is allocated before it is needed. */
		ASSERT_EQ(bytes, 0);
		ASSERT_OK(staging_enter(&p, &u));
		ASSERT_EQ(bytes, rows[i].get);
		while ((c[n] = staging_try(&p, &u))) {
			ASSERT_EQ((uintptr_t)c[n]->ptr % 4096, 0);
			memset(c[n]->ptr, (int)n, rows[i].chunk);
			n++;
		}
		ASSERT_EQ(n * rows[i].chunk, rows[i].get);
		/* Chunks do not overlap. */
		for (unsigned int k = 0; k < n; k++)
			for (uint64_t b = 0; b < rows[i].chunk; b += 4095)
				ASSERT_EQ(((unsigned char *)c[k]->ptr)[b], k);
		while (n)
			staging_put(&p, &u, c[--n]);
		staging_leave(&p, &u);
		end(&p);
	}
}

/* A job that competes gets its share and no more; a single job gets everything. */
TEST(shares)
{
	struct staging_user a, b, c;
	struct chunk *got[8], *last;
	struct staging_pool p;

	begin(&p, 8 * KIB(64), KIB(64));
	ASSERT_OK(staging_enter(&p, &a));
	for (int i = 0; i < 6; i++)
		got[i] = staging_try(&p, &a);
	ASSERT_TRUE(got[5]);
	/* A second job gets what is left, and the first gets nothing more. */
	ASSERT_OK(staging_enter(&p, &b));
	ASSERT_EQ(staging_try(&p, &a), NULL);
	ASSERT_TRUE((got[6] = staging_try(&p, &b)));
	ASSERT_TRUE((got[7] = staging_try(&p, &b)));
	ASSERT_EQ(staging_try(&p, &b), NULL);
	staging_put(&p, &a, got[5]);
	ASSERT_EQ(staging_try(&p, &a), NULL);
	ASSERT_TRUE((got[5] = staging_try(&p, &b)));
	staging_put(&p, &b, got[5]);
	/* A job without a chunk gets a free one, however many jobs there are. */
	ASSERT_OK(staging_enter(&p, &c));
	ASSERT_TRUE((last = staging_try(&p, &c)));
	staging_put(&p, &c, last);
	staging_leave(&p, &c);
	for (int i = 0; i < 5; i++)
		staging_put(&p, &a, got[i]);
	staging_put(&p, &b, got[6]);
	staging_put(&p, &b, got[7]);
	staging_leave(&p, &b);
	for (int i = 0; i < 8; i++)
		ASSERT_TRUE((got[i] = staging_try(&p, &a)));
	for (int i = 0; i < 8; i++)
		staging_put(&p, &a, got[i]);
	staging_leave(&p, &a);
	end(&p);
}

struct waiter {
	struct staging_pool *p;
	atomic_bool got;
};

static void *wait_for_chunk(void *arg)
{
	struct waiter *w = arg;
	struct staging_user u;
	struct chunk *c = NULL;

	ASSERT_OK(staging_enter(w->p, &u));
	while (!c)
		c = staging_wait(w->p, &u, 1000000000);
	atomic_store(&w->got, true);
	staging_put(w->p, &u, c);
	staging_leave(w->p, &u);
	return NULL;
}

TEST(waiting)
{
	struct staging_user u;
	struct chunk *c;
	struct staging_pool p;
	struct waiter w = { &p, false };
	uint64_t t;
	pthread_t th[4];

	begin(&p, KIB(64), KIB(64));
	ASSERT_OK(staging_enter(&p, &u));
	ASSERT_TRUE((c = staging_wait(&p, &u, 0)));
	t = os_now_ns();
	ASSERT_EQ(staging_wait(&p, &u, 10000000), NULL);
	ASSERT_GE(os_now_ns() - t, 10000000);
	ASSERT_GE(waits, 1);
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(pthread_create(&th[i], NULL, wait_for_chunk, &w), 0);
	os_sleep_ns(10000000);
	ASSERT_FALSE(w.got);
	staging_put(&p, &u, c);
	for (int i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	ASSERT_TRUE(w.got);
	staging_leave(&p, &u);
	end(&p);
}

static unsigned int maps_left;

static bool few_maps(enum os_call call, int64_t *ret)
{
	if (call != OS_MMAP)
		return false;
	if (!maps_left--) {
		os_inject = NULL;
		return false;
	}
	*ret = -ENOMEM;
	return true;
}

/* With too little memory the pool is smaller, and if there is none it is tried again the next time. */
TEST(less_memory_than_wanted)
{
	struct staging_user u;
	struct staging_pool p;

	begin(&p, MIB(1), KIB(64));
	maps_left = 2;
	os_inject = few_maps;
	ASSERT_OK(staging_enter(&p, &u));
	ASSERT_EQ(bytes, KIB(256));
	staging_leave(&p, &u);
	end(&p);

	bytes = 0;
	begin(&p, MIB(1), KIB(64));
	maps_left = 1000;
	os_inject = few_maps;
	ASSERT_EQ(staging_enter(&p, &u), -ENOMEM);
	ASSERT_EQ(bytes, 0);
	os_inject = NULL;
	ASSERT_OK(staging_enter(&p, &u));
	ASSERT_EQ(bytes, MIB(1));
	staging_leave(&p, &u);
	end(&p);
}

/* The first use pins a part. The rest comes in the background when chunks run short, and may come while the pool is freed. */
TEST(grows_in_the_background)
{
	enum { N = 32 };
	struct staging_user u;
	struct staging_pool p;
	struct chunk *c[N];

	for (int round = 0; round < 3; round++) {
		bytes = 0;
		begin(&p, N * MIB(4), MIB(4));
		ASSERT_OK(staging_enter(&p, &u));
		ASSERT_EQ(bytes, MIB(32));
		c[0] = staging_try(&p, &u);
		staging_put(&p, &u, c[0]);
		/* One at a time needs no more. */
		ASSERT_EQ(p.slabs, 1);
		/* Neither do a few at a time, unless many bytes were moved, or one waits for a chunk. */
		for (int i = 0; i < 8; i++)
			ASSERT_TRUE(c[i] = staging_try(&p, &u));
		ASSERT_EQ(staging_try(&p, &u), NULL);
		ASSERT_FALSE(p.growing);
		if (round == 1) {
			staging_count(&p, GIB(1));
			ASSERT_EQ(staging_try(&p, &u), NULL);
			ASSERT_TRUE(p.growing);
		}
		for (int i = 0; i < 8; i++)
			staging_put(&p, &u, c[i]);
		for (int i = 0; i < (round ? N : 8); i++)
			ASSERT_TRUE(c[i] = staging_wait(&p, &u, 10000000000));
		if (round)
			ASSERT_EQ(bytes, N * MIB(4));
		for (int i = 0; i < (round ? N : 8); i++)
			staging_put(&p, &u, c[i]);
		staging_leave(&p, &u);
		end(&p);
	}
}
