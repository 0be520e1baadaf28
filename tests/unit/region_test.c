/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <strait/emu.h>
#include <strait/region.h>

#include "base/util.h"
#include "device/region.h"
#include "harness/harness.h"
#include "os/os.h"

static struct device_set set;
static const struct log_sink no_log;

static struct strait_device *open_device(const char *name)
{
	struct strait_device *dev;

	ASSERT_OK(device_set_open(&set, &no_log, NULL));
	ASSERT_OK(device_set_find(&set, name, &dev));
	return dev;
}

static uint64_t number(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* ---- regions ---- */

TEST(alloc_and_import)
{
	struct strait_device *dev = open_device("emu:0"), *host;
	struct strait_region *r, *i;
	char local[64];

	ASSERT_OK(device_set_find(&set, "host", &host));
	ASSERT_EQ(region_alloc(dev, 0, &r), -EINVAL);
	ASSERT_EQ(region_alloc(dev, UINT64_MAX, &r), -EOVERFLOW);
	ASSERT_EQ(region_alloc(dev, INT64_MAX, &r), -ENOMEM);
	ASSERT_OK(region_alloc(dev, 100000, &r));
	ASSERT_EQ(r->mem.len, 100000u);
	ASSERT_TRUE(r->mem.caps & STRAIT_REGION_OWNED);
	ASSERT_TRUE(r->mem.caps & STRAIT_REGION_IDENTITY);
	ASSERT_NE(r->mem.id, 0u);

	/* Memory of a provider is recognised; other memory is imported only if the host device is named. */
	ASSERT_OK(region_import(&set, NULL, r->mem.addr + 5, 99995, 0, &i));
	ASSERT_EQ(i->dev, dev);
	ASSERT_EQ(i->mem.id, r->mem.id);
	ASSERT_FALSE(i->mem.caps & STRAIT_REGION_OWNED);
	region_put(i);
	ASSERT_EQ(region_import(&set, NULL, number(local), sizeof(local), 0, &i), -ENOENT);
	ASSERT_OK(region_import(&set, host, number(local), sizeof(local), 0, &i));
	ASSERT_EQ(i->dev, host);
	ASSERT_EQ(i->mem.id, 0u);
	region_put(i);

	ASSERT_EQ(region_import(&set, NULL, r->mem.addr + 5, 99996, 0, &i), -EFAULT);
	ASSERT_EQ(region_import(&set, dev, number(local), 1, 0, &i), -EFAULT);
	ASSERT_EQ(region_import(&set, dev, r->mem.addr, 0, 0, &i), -EINVAL);
	ASSERT_EQ(region_import(&set, dev, r->mem.addr, UINT64_MAX, 0, &i), -EOVERFLOW);
	ASSERT_EQ(region_import(&set, host, UINT64_MAX - 4, 100, 0, &i), -EOVERFLOW);
	region_put(r);
	device_set_close(&set);
}

TEST(use_is_checked)
{
	struct strait_device *dev = open_device("emu:0");
	struct strait_region *r;

	ASSERT_OK(region_alloc(dev, 8192, &r));
	ASSERT_OK(region_use(r, 0, 8192));
	ASSERT_OK(region_use(r, 8192, 0));
	ASSERT_EQ(region_use(r, 1, 8192), -EINVAL);
	ASSERT_EQ(region_use(r, 8193, 0), -EINVAL);
	ASSERT_EQ(region_use(r, UINT64_MAX, 2), -EINVAL);
	region_unuse(r);
	region_unuse(r);
	ASSERT_OK(region_check(r));
	ASSERT_OK(region_revoke(r));
	ASSERT_EQ(region_revoke(r), -EALREADY);
	ASSERT_EQ(region_use(r, 0, 1), -ENODEV);
	ASSERT_EQ(region_check(r), -ENODEV);
	region_put(r);
	device_set_close(&set);
}

static void count_notice(void *arg, struct strait_region *r)
{
	(void)r;
	atomic_fetch_add((atomic_int *)arg, 1);
}

TEST(notices_are_given_once)
{
	struct strait_device *dev = open_device("emu:0");
	atomic_int revoked = 0, closed = 0, withdrawn = 0, freed = 0, removed = 0;
	struct strait_region *r[5], *host;
	char local[8];
	void *p;

	for (int i = 0; i < 3; i++)
		ASSERT_OK(region_alloc(dev, 4096, &r[i]));
	ASSERT_OK(strait_emu_malloc(dev, 4096, &p));
	ASSERT_OK(region_import(&set, NULL, number(p), 4096, 0, &r[3]));
	ASSERT_OK(region_alloc(dev, 4096, &r[4]));
	ASSERT_OK(region_on_revoke(r[0], count_notice, &revoked));
	ASSERT_OK(region_on_revoke(r[1], count_notice, &closed));
	ASSERT_OK(region_on_revoke(r[2], count_notice, &withdrawn));
	ASSERT_OK(region_on_revoke(r[2], NULL, NULL));
	ASSERT_OK(region_on_revoke(r[3], count_notice, &freed));
	ASSERT_OK(region_on_revoke(r[4], count_notice, &removed));

	ASSERT_OK(region_revoke(r[0]));
	ASSERT_EQ(region_on_revoke(r[0], count_notice, &revoked), -ENODEV);
	region_put(r[1]);
	region_put(r[2]);
	ASSERT_OK(strait_emu_free(dev, p));
	ASSERT_EQ(atomic_load(&removed), 0);
	ASSERT_OK(strait_emu_remove(dev));
	ASSERT_EQ(atomic_load(&removed), 1);
	region_put(r[0]);
	region_put(r[3]);
	region_put(r[4]);
	ASSERT_EQ(atomic_load(&revoked), 1);
	ASSERT_EQ(atomic_load(&closed), 1);
	ASSERT_EQ(atomic_load(&withdrawn), 0);
	ASSERT_EQ(atomic_load(&freed), 1);
	ASSERT_EQ(atomic_load(&removed), 1);

	ASSERT_OK(device_set_find(&set, "host", &dev));
	ASSERT_OK(region_import(&set, dev, number(local), sizeof(local), 0, &host));
	ASSERT_EQ(region_on_revoke(host, count_notice, &revoked), -EOPNOTSUPP);
	region_put(host);
	device_set_close(&set);
}

/* Freeing what a notice uses waits for a notice in progress. */
static atomic_int notice_step;

static void slow_notice(void *arg, struct strait_region *r)
{
	atomic_int *arg_alive = arg;

	atomic_store(&notice_step, 1);
	os_sleep_ns(30000000);
	ASSERT_EQ(atomic_load(arg_alive), 1);
	ASSERT_NE(r->mem.addr, 0u);
	atomic_store(&notice_step, 2);
}

static void *revoke_thread(void *arg)
{
	struct strait_region *r = arg;

	region_revoke(r);
	return NULL;
}

TEST(close_waits_for_a_notice)
{
	struct strait_device *dev = open_device("emu:0");
	struct strait_region *r, *second;
	atomic_int alive = 1;
	pthread_t t;

	ASSERT_OK(region_alloc(dev, 4096, &r));
	ASSERT_OK(region_lookup(&set, r->mem.addr, NULL, &second));
	ASSERT_OK(region_on_revoke(r, slow_notice, &alive));
	pthread_create(&t, NULL, revoke_thread, second);
	while (!atomic_load(&notice_step))
		os_sleep_ns(100000);
	ASSERT_EQ(region_on_revoke(r, NULL, NULL), -ENODEV);
	ASSERT_EQ(atomic_load(&notice_step), 2);
	atomic_store(&alive, 0);
	pthread_join(t, NULL);
	region_put(second);
	region_put(r);
	device_set_close(&set);
}

/* ---- who waits for use in flight ---- */

struct waiter {
	struct strait_region *r;
	struct strait_device *dev;
	void *p;
	atomic_bool ended;
};

static void *end_by_revoke(void *arg)
{
	struct waiter *w = arg;

	region_revoke(w->r);
	atomic_store(&w->ended, true);
	return NULL;
}

static void *end_by_close(void *arg)
{
	struct waiter *w = arg;

	region_put(w->r);
	atomic_store(&w->ended, true);
	return NULL;
}

static void *end_by_free(void *arg)
{
	struct waiter *w = arg;

	ASSERT_OK(strait_emu_free(w->dev, w->p));
	atomic_store(&w->ended, true);
	return NULL;
}

static void *end_by_remove(void *arg)
{
	struct waiter *w = arg;

	ASSERT_OK(strait_emu_remove(w->dev));
	atomic_store(&w->ended, true);
	return NULL;
}

static const struct end {
	const char *name;
	void *(*fn)(void *);
	int use_after; /* result of region_use() then */
} ends[] = {
	{ "revoke", end_by_revoke, -ENODEV },
	{ "close", end_by_close, 0 },
	{ "free", end_by_free, -ESTALE },
	{ "remove", end_by_remove, -ENODEV },
};

TEST_VARIANTS(the_end_waits_for_use, struct end, ends)
{
	struct waiter w = { .dev = open_device("emu:0") };
	bool closes = v->fn == end_by_close;
	char *bytes;
	pthread_t t;

	ASSERT_OK(strait_emu_malloc(w.dev, 65536, &w.p));
	ASSERT_OK(region_import(&set, NULL, number(w.p), 65536, 0, &w.r));
	bytes = w.p;
	ASSERT_OK(region_use(w.r, 0, 4096));
	ASSERT_OK(region_use(w.r, 4096, 4096));
	pthread_create(&t, NULL, v->fn, &w);
	while (!atomic_load(&w.r->revoked))
		os_sleep_ns(100000);
	os_sleep_ns(20000000);
	ASSERT_FALSE(atomic_load(&w.ended));
	ASSERT_NE(region_use(w.r, 0, 1), 0);
	bytes[0] = bytes[8191] = 1; /* still there */
	region_unuse(w.r);
	os_sleep_ns(20000000);
	ASSERT_FALSE(atomic_load(&w.ended));
	bytes[0] = 2;
	region_unuse(w.r);
	pthread_join(t, NULL);
	ASSERT_TRUE(atomic_load(&w.ended));
	if (!closes) {
		ASSERT_EQ(region_use(w.r, 0, 1), v->use_after);
		ASSERT_EQ(region_check(w.r), v->use_after);
		region_put(w.r);
	}
	device_set_close(&set);
}

TEST(freed_memory_is_stale_though_reused)
{
	struct strait_device *dev = open_device("emu:0");
	struct strait_region *r, *again;
	void *p, *q;

	ASSERT_OK(strait_emu_malloc(dev, 65536, &p));
	ASSERT_OK(region_import(&set, dev, number(p), 65536, 0, &r));
	ASSERT_OK(region_check(r));
	ASSERT_OK(strait_emu_free(dev, p));
	ASSERT_EQ(strait_emu_free(dev, p), -EINVAL);
	ASSERT_EQ(region_check(r), -ESTALE);
	ASSERT_EQ(region_use(r, 0, 1), -ESTALE);
	/* The kernel most likely returns the same address again: it is another allocation nevertheless. */
	ASSERT_OK(strait_emu_malloc(dev, 65536, &q));
	ASSERT_EQ(region_check(r), -ESTALE);
	ASSERT_OK(region_import(&set, dev, number(q), 65536, 0, &again));
	ASSERT_NE(again->mem.id, r->mem.id);
	ASSERT_OK(region_use(again, 0, 65536));
	region_unuse(again);
	region_put(r);
	region_put(again);
	ASSERT_OK(strait_emu_free(dev, q));
	device_set_close(&set);
}

/* Regions imported over memory of another region end with it. */
TEST(closing_the_owner_makes_imports_stale)
{
	struct strait_device *dev = open_device("emu:0");
	struct strait_region *owner, *part;

	ASSERT_OK(region_alloc(dev, 65536, &owner));
	ASSERT_OK(region_import(&set, NULL, owner->mem.addr + 4096, 4096, 0, &part));
	region_put(owner);
	ASSERT_EQ(region_check(part), -ESTALE);
	region_put(part);
	device_set_close(&set);
}

/* ---- lookup ---- */

TEST(lookup_takes_the_nearest)
{
	struct strait_device *dev = open_device("emu:0");
	struct strait_region *whole, *a, *b, *found;
	uint64_t base, off;

	ASSERT_OK(region_alloc(dev, 65536, &whole));
	base = whole->mem.addr;
	ASSERT_OK(region_import(&set, dev, base + 4096, 8192, 0, &a));
	ASSERT_OK(region_import(&set, dev, base + 8192, 1024, 0, &b));

	ASSERT_OK(region_lookup(&set, base + 8192, &off, &found));
	ASSERT_EQ(found, b);
	ASSERT_EQ(off, 0u);
	region_put(found);
	/* Past b, which starts nearest, a contains it; past a, the outermost does. */
	ASSERT_OK(region_lookup(&set, base + 9216, &off, &found));
	ASSERT_EQ(found, a);
	ASSERT_EQ(off, 5120u);
	region_put(found);
	ASSERT_OK(region_lookup(&set, base + 12288, &off, &found));
	ASSERT_EQ(found, whole);
	region_put(found);
	ASSERT_EQ(region_lookup(&set, base + 65536, &off, &found), -ENOENT);

	/* A revoked region is not found. */
	ASSERT_OK(region_revoke(b));
	ASSERT_OK(region_lookup(&set, base + 8192, &off, &found));
	ASSERT_EQ(found, a);
	region_put(found);

	/* lookup() returns a reference. */
	ASSERT_OK(region_lookup(&set, base, NULL, &found));
	region_put(whole);
	ASSERT_OK(region_use(found, 0, 65536));
	region_unuse(found);
	region_put(found);
	region_put(a);
	region_put(b);
	ASSERT_EQ(region_lookup(&set, base, NULL, &found), -ENOENT);
	device_set_close(&set);
}

static uint64_t rng_state = 88172645463325252u;

static uint64_t rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	return rng_state ^= rng_state << 17;
}

#define MANY 10000
#define SPACE MIB(16)

static struct strait_region *expect(struct strait_region **r, unsigned int n, uint64_t addr)
{
	struct strait_region *best = NULL;

	for (unsigned int i = 0; i < n; i++)
		if (r[i] && r[i]->mem.addr <= addr && addr - r[i]->mem.addr < r[i]->mem.len &&
		    (!best || r[i]->mem.addr >= best->mem.addr))
			best = r[i];
	return best;
}

static void check_lookups(struct strait_region **r, uint64_t base, unsigned int times)
{
	for (unsigned int i = 0; i < times; i++) {
		uint64_t addr = base + rng() % SPACE, off = 0;
		struct strait_region *want = expect(r, MANY, addr), *found = NULL;

		ASSERT_EQ(region_lookup(&set, addr, &off, &found), want ? 0 : -ENOENT);
		ASSERT_EQ(found, want);
		if (want)
			ASSERT_EQ(off, addr - want->mem.addr);
		region_put(found);
	}
}

/* CPU time, not wall-clock time: other processes may be running. */
static uint64_t thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

TEST(lookup_among_ten_thousand)
{
	static struct strait_region *r[MANY];
	struct strait_device *dev = open_device("emu:0");
	uint64_t base, began, spent;
	void *p;

	ASSERT_OK(strait_emu_malloc(dev, SPACE, &p));
	base = number(p);
	for (unsigned int i = 0; i < MANY; i++) {
		/* Many short ones, some long, some of the same start. */
		uint64_t start = rng() % SPACE & ~(uint64_t)(i % 3 ? 0 : 0xffff), len = 1;

		len += rng() % (i % 50 ? 8192 : MIB(4));
		ASSERT_OK(region_import(&set, dev, base + start, min_u64(len, SPACE - start), 0, &r[i]));
	}
	check_lookups(r, base, 2000);
	for (unsigned int i = 0; i < MANY; i += 2) {
		region_put(r[i]);
		r[i] = NULL;
	}
	check_lookups(r, base, 2000);

	began = thread_ns();
	for (unsigned int i = 0; i < 100000; i++) {
		struct strait_region *found = NULL;

		region_lookup(&set, base + rng() % SPACE, NULL, &found);
		region_put(found);
	}
	spent = (thread_ns() - began) / 100000;
	/* A walk along a list of 5000 would take ten times that. */
	ASSERT_LT(spent, 10000u * test_slow());

	ASSERT_OK(strait_emu_free(dev, p));
	for (unsigned int i = 1; i < MANY; i += 2) {
		ASSERT_EQ(region_check(r[i]), -ESTALE);
		region_put(r[i]);
	}
	device_set_close(&set);
}

/* ---- all at once ---- */

#define THREADS 6

struct crowd {
	struct strait_device *dev;
	char *mem;
	atomic_bool stop;
	atomic_int notices, made;
};

static void *crowd_member(void *arg)
{
	struct crowd *c = arg;
	uint64_t x = number(&x) | 1;

	while (!atomic_load(&c->stop)) {
		struct strait_region *r, *found;
		uint64_t off;

		x = x * 6364136223846793005u + 1442695040888963407u;
		off = x >> 40 & 0xf000;
		if (region_import(&set, c->dev, number(c->mem) + off, 4096, 0, &r))
			continue;
		/* A late notice is allowed; one that comes twice or never is not. */
		if (!(r->mem.caps & STRAIT_REGION_NOTICE) || region_on_revoke(r, count_notice, &c->notices)) {
			region_put(r);
			continue;
		}
		atomic_fetch_add(&c->made, 1);
		if (!region_lookup(&set, number(c->mem) + off, NULL, &found)) {
			if (!region_use(found, 0, 1)) {
				atomic_fetch_add((_Atomic char *)(c->mem + (found->mem.addr - number(c->mem))), 1);
				region_unuse(found);
			}
			region_put(found);
		}
		if (x >> 60 == 1)
			region_revoke(r);
		region_put(r);
	}
	return NULL;
}

enum ending { QUIET, FREE, REMOVE };

static const struct finale {
	const char *name;
	enum ending how;
} finales[] = { { "quiet", QUIET }, { "free", FREE }, { "remove", REMOVE } };

TEST_VARIANTS(a_crowd_with_an_end, struct finale, finales)
{
	struct crowd c = { .dev = open_device("emu:0") };
	pthread_t t[THREADS];
	void *p;

	ASSERT_OK(strait_emu_malloc(c.dev, 65536, &p));
	c.mem = p;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, crowd_member, &c);
	/* All threads are running, however busy the machine is. */
	for (int i = 0; i < 20000 && atomic_load(&c.made) < 2000; i++)
		os_sleep_ns(1000000);
	if (v->how == FREE)
		ASSERT_OK(strait_emu_free(c.dev, p));
	else if (v->how == REMOVE)
		ASSERT_OK(strait_emu_remove(c.dev));
	os_sleep_ns(20000000);
	atomic_store(&c.stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	ASSERT_GT(atomic_load(&c.made), 0);
	ASSERT_EQ(atomic_load(&c.notices), atomic_load(&c.made));
	ASSERT_EQ(set.regions.root, NULL);
	device_set_close(&set);
}
