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

static void begin(struct pool *p, uint64_t want, uint64_t chunk)
{
	struct strait_device *dev;

	ASSERT_OK(device_set_open(&set, &no_log, NULL));
	ASSERT_OK(device_set_find(&set, "emu:0", &dev));
	pool_init(p, dev, want, chunk);
	p->stat_waits = &waits;
	p->stat_bytes = &bytes;
}

static void end(struct pool *p)
{
	pool_fini(p);
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
		struct pool_user u;
		struct pool p;
		unsigned int n = 0;

		bytes = 0;
		begin(&p, rows[i].want, rows[i].chunk);
		/* Nothing is taken before it is needed. */
		ASSERT_EQ(bytes, 0);
		ASSERT_OK(pool_enter(&p, &u));
		ASSERT_EQ(bytes, rows[i].get);
		while ((c[n] = pool_try(&p, &u))) {
			ASSERT_EQ((uintptr_t)c[n]->ptr % 4096, 0);
			memset(c[n]->ptr, (int)n, rows[i].chunk);
			n++;
		}
		ASSERT_EQ(n * rows[i].chunk, rows[i].get);
		/* No two share a byte. */
		for (unsigned int k = 0; k < n; k++)
			for (uint64_t b = 0; b < rows[i].chunk; b += 4095)
				ASSERT_EQ(((unsigned char *)c[k]->ptr)[b], k);
		while (n)
			pool_put(&p, &u, c[--n]);
		pool_leave(&p, &u);
		end(&p);
	}
}

/* Who competes gets its share and no more; who is alone gets all. */
TEST(shares)
{
	struct pool_user a, b, c;
	struct chunk *got[8], *last;
	struct pool p;

	begin(&p, 8 * KIB(64), KIB(64));
	ASSERT_OK(pool_enter(&p, &a));
	for (int i = 0; i < 6; i++)
		got[i] = pool_try(&p, &a);
	ASSERT_TRUE(got[5]);
	/* Another comes: it finds what is left, and the first gets nothing more. */
	ASSERT_OK(pool_enter(&p, &b));
	ASSERT_EQ(pool_try(&p, &a), NULL);
	ASSERT_TRUE((got[6] = pool_try(&p, &b)));
	ASSERT_TRUE((got[7] = pool_try(&p, &b)));
	ASSERT_EQ(pool_try(&p, &b), NULL);
	pool_put(&p, &a, got[5]);
	ASSERT_EQ(pool_try(&p, &a), NULL);
	ASSERT_TRUE((got[5] = pool_try(&p, &b)));
	pool_put(&p, &b, got[5]);
	/* Who holds nothing gets what is free, however many there are. */
	ASSERT_OK(pool_enter(&p, &c));
	ASSERT_TRUE((last = pool_try(&p, &c)));
	pool_put(&p, &c, last);
	pool_leave(&p, &c);
	for (int i = 0; i < 5; i++)
		pool_put(&p, &a, got[i]);
	pool_put(&p, &b, got[6]);
	pool_put(&p, &b, got[7]);
	pool_leave(&p, &b);
	for (int i = 0; i < 8; i++)
		ASSERT_TRUE((got[i] = pool_try(&p, &a)));
	for (int i = 0; i < 8; i++)
		pool_put(&p, &a, got[i]);
	pool_leave(&p, &a);
	end(&p);
}

struct waiter {
	struct pool *p;
	atomic_bool got;
};

static void *wait_for_chunk(void *arg)
{
	struct waiter *w = arg;
	struct pool_user u;
	struct chunk *c = NULL;

	ASSERT_OK(pool_enter(w->p, &u));
	while (!c)
		c = pool_wait(w->p, &u, 1000000000);
	atomic_store(&w->got, true);
	pool_put(w->p, &u, c);
	pool_leave(w->p, &u);
	return NULL;
}

TEST(waiting)
{
	struct pool_user u;
	struct chunk *c;
	struct pool p;
	struct waiter w = { &p, false };
	uint64_t t;
	pthread_t th[4];

	begin(&p, KIB(64), KIB(64));
	ASSERT_OK(pool_enter(&p, &u));
	ASSERT_TRUE((c = pool_wait(&p, &u, 0)));
	t = os_now_ns();
	ASSERT_EQ(pool_wait(&p, &u, 10000000), NULL);
	ASSERT_GE(os_now_ns() - t, 10000000);
	ASSERT_GE(waits, 1);
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(pthread_create(&th[i], NULL, wait_for_chunk, &w), 0);
	os_sleep_ns(10000000);
	ASSERT_FALSE(w.got);
	pool_put(&p, &u, c);
	for (int i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	ASSERT_TRUE(w.got);
	pool_leave(&p, &u);
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

/* Where there is not enough memory it takes less, and tries again the next time if there is none. */
TEST(less_memory_than_wanted)
{
	struct pool_user u;
	struct pool p;

	begin(&p, MIB(1), KIB(64));
	maps_left = 2;
	os_inject = few_maps;
	ASSERT_OK(pool_enter(&p, &u));
	ASSERT_EQ(bytes, KIB(256));
	pool_leave(&p, &u);
	end(&p);

	bytes = 0;
	begin(&p, MIB(1), KIB(64));
	maps_left = 1000;
	os_inject = few_maps;
	ASSERT_EQ(pool_enter(&p, &u), -ENOMEM);
	ASSERT_EQ(bytes, 0);
	os_inject = NULL;
	ASSERT_OK(pool_enter(&p, &u));
	ASSERT_EQ(bytes, MIB(1));
	pool_leave(&p, &u);
	end(&p);
}
