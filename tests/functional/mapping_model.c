/* SPDX-License-Identifier: MIT */
#include "mapping_model.h"

#define SIDES 3	      /* the CPU and two devices */
#define LOCKED_MAX 4u /* granules that one round checks or stores to */

/* The CPU through the first mapping has copies, or through both. */
static bool cpu_has_copies(const struct mapping_model *m, bool first)
{
	return m->flags & STRAIT_MAPPING_COPY && (first || !m->mixed);
}

struct world {
	const struct mapping_model *m;
	uint64_t seed;
	struct strait_context *ctx;
	struct strait_device *dev[SIDES]; /* [0] is the CPU: NULL */
	struct strait_endpoint *ep;
	struct strait_mapping *map[2];
	pthread_rwlock_t *lock; /* by granule */
	uint64_t *value;	/* under its lock */
	atomic_ullong steps, stores;
};

struct hand {
	struct world *w;
	uint64_t state;
	struct strait_stream *stream[SIDES];
};

/* What a granule with a value holds: in words at its two ends. A value of 0 is what the file was made with. */
struct content {
	uint64_t head, tail;
};

static struct content content_of(uint64_t granule, uint64_t value)
{
	return (struct content){ value ? value * 0x9e3779b97f4a7c15ull + granule : 0,
				 value ? value + (granule << 40) : 0 };
}

static bool mapped_directly(const struct world *w, unsigned int side)
{
	struct strait_device_info info = { .size = sizeof(info) };

	if (!side)
		return true;
	ASSERT_OK(strait_device_info(w->dev[side], &info));
	return info.caps & STRAIT_DEVICE_CPU_MAP;
}

static void store(struct world *w, unsigned int side, char *at, const struct content *c)
{
	if (mapped_directly(w, side)) {
		memcpy(at, &c->head, sizeof(c->head));
		memcpy(at + G - sizeof(c->tail), &c->tail, sizeof(c->tail));
	} else {
		device_store(w->ctx, at, &c->head, sizeof(c->head));
		device_store(w->ctx, at + G - sizeof(c->tail), &c->tail, sizeof(c->tail));
	}
}

/*
 * A load by a program on a device. The library may write the same bytes there once more meanwhile: the release of a wider range
 * publishes what it finds stored, also what was published before.
 */
__attribute__((no_sanitize("thread"))) static uint64_t load(const char *at)
{
	return *(const volatile uint64_t *)(const void *)at;
}

static void check(struct world *w, unsigned int side, const char *at, uint64_t g)
{
	struct content c, want = content_of(g, w->value[g]);

	if (mapped_directly(w, side)) {
		c.head = load(at);
		c.tail = load(at + G - sizeof(c.tail));
	} else {
		device_load(w->ctx, at, &c.head, sizeof(c.head));
		device_load(w->ctx, at + G - sizeof(c.tail), &c.tail, sizeof(c.tail));
	}
	if (memcmp(&c, &want, sizeof(c)) != 0)
		FAIL("seed %llu: granule %llu on side %u: %llx %llx, not %llx %llx (value %llu)",
		     (unsigned long long)w->seed, (unsigned long long)g, side, (unsigned long long)c.head,
		     (unsigned long long)c.tail, (unsigned long long)want.head, (unsigned long long)want.tail,
		     (unsigned long long)w->value[g]);
}

/* -EBUSY and -ENOSPC: the device's memory is taken by what other threads have acquired. */
static bool no_room(int rc)
{
	return rc == -EBUSY || rc == -ENOSPC;
}

static bool side_acquire(struct hand *h, struct strait_mapping *map, unsigned int side, uint64_t off, uint64_t len,
			 uint32_t intent, bool ordered, void **at)
{
	struct world *w = h->w;
	int rc, status = 1;

	atomic_fetch_add(&w->steps, 1);
	if (!ordered) {
		rc = strait_mapping_acquire(map, w->dev[side], off, len, intent, at);
		return no_room(rc) ? false : (ASSERT_OK(rc), true);
	}
	rc = strait_mapping_acquire_on(map, h->stream[side], off, len, intent, at, &status);
	if (no_room(rc))
		return false;
	ASSERT_OK(rc);
	ASSERT_OK(strait_stream_wait(h->stream[side], STRAIT_FOREVER));
	ASSERT_EQ(__atomic_load_n(&status, __ATOMIC_ACQUIRE), 0);
	return true;
}

static void side_release(struct hand *h, struct strait_mapping *map, unsigned int side, uint64_t off, uint64_t len,
			 uint32_t intent, bool ordered)
{
	atomic_fetch_add(&h->w->steps, 1);
	if (!ordered) {
		ASSERT_OK(strait_mapping_release(map, h->w->dev[side], off, len, intent));
		return;
	}
	ASSERT_OK(strait_mapping_release_on(map, h->stream[side], off, len, intent, NULL));
	ASSERT_OK(strait_stream_wait(h->stream[side], STRAIT_FOREVER));
}

/* The range of an acquire: the locked granules, and with @wide others before and behind. Perhaps not aligned. */
static void choose_range(struct hand *h, uint64_t first, uint64_t n, bool wide, bool exact, uint64_t *off,
			 uint64_t *len)
{
	uint64_t end = first + n, all = h->w->m->granules;

	if (wide) {
		first -= prng_below(&h->state, min_u64(first, 40) + 1);
		end += prng_below(&h->state, min_u64(all - end, 40) + 1);
	}
	*off = first * G;
	*len = (end - first) * G;
	if (!exact && !prng_below(&h->state, 4)) {
		*off += prng_below(&h->state, 8);
		*len -= 8 + prng_below(&h->state, 8);
	}
}

static void read_round(struct hand *h, uint64_t first, uint64_t n)
{
	struct world *w = h->w;
	unsigned int side = (unsigned int)prng_below(&h->state, SIDES);
	struct strait_mapping *map = w->map[prng_below(&h->state, 2)];
	bool ordered = side && !prng_below(&h->state, 8);
	uint64_t off, len;
	char *at;

	for (uint64_t g = first; g < first + n; g++)
		pthread_rwlock_rdlock(&w->lock[g]);
	choose_range(h, first, n, prng_below(&h->state, 2), false, &off, &len);
	if (side_acquire(h, map, side, off, len, STRAIT_INTENT_READ, ordered, (void **)&at)) {
		for (uint64_t g = first; g < first + n; g++)
			check(w, side, at + (int64_t)(g * G - off), g);
		side_release(h, map, side, off, len, STRAIT_INTENT_READ, ordered);
	}
	for (uint64_t g = first; g < first + n; g++)
		pthread_rwlock_unlock(&w->lock[g]);
}

/*
 * A device, or the CPU with copies, keeps what is acquired for writing there as it is, so its range is what this thread has
 * locked.
 */
static void write_round(struct hand *h, uint64_t first, uint64_t n)
{
	struct world *w = h->w;
	unsigned int side = (unsigned int)prng_below(&h->state, SIDES);
	struct strait_mapping *map = w->map[prng_below(&h->state, 2)];
	bool ordered = side && !prng_below(&h->state, 8), over = !prng_below(&h->state, 5);
	uint32_t intent = over ? STRAIT_INTENT_OVERWRITE : STRAIT_INTENT_WRITE;
	uint64_t off, len;
	char *at;

	for (uint64_t g = first; g < first + n; g++)
		pthread_rwlock_wrlock(&w->lock[g]);
	choose_range(h, first, n, !side && !over && !cpu_has_copies(w->m, map == w->map[0]) && prng_below(&h->state, 2),
		     over, &off, &len);
	if (side_acquire(h, map, side, off, len, intent, ordered, (void **)&at)) {
		for (uint64_t g = first; g < first + n; g++) {
			struct content c = content_of(g, w->value[g] + 1);

			if (!over)
				check(w, side, at + (int64_t)(g * G - off), g);
			if (!over && !prng_below(&h->state, 3))
				continue;
			store(w, side, at + (int64_t)(g * G - off), &c);
			w->value[g]++;
			atomic_fetch_add(&w->stores, 1);
		}
		side_release(h, map, side, off, len, intent, ordered);
	}
	for (uint64_t g = first; g < first + n; g++)
		pthread_rwlock_unlock(&w->lock[g]);
}

/* Calls that must not change what any side sees. */
static void other_round(struct hand *h, uint64_t first, uint64_t n)
{
	struct world *w = h->w;
	struct strait_mapping *map = w->map[prng_below(&h->state, 2)];
	int rc;

	atomic_fetch_add(&w->steps, 1);
	switch (prng_below(&h->state, 16)) {
	case 0:
		ASSERT_OK(strait_mapping_sync(map, first * G, n * G));
		break;
	case 1:
	case 2:
	case 3:
	case 4:
		ASSERT_OK(strait_mapping_prefetch(map, w->dev[prng_below(&h->state, SIDES)], first * G, n * G));
		break;
	case 5:
	case 6:
	case 7:
		rc = strait_mapping_refresh(map, first * G, n * G);
		ASSERT_TRUE(!rc || rc == -EBUSY || (w->m->anonymous && rc == -EINVAL));
		break;
	case 8:
		mapping_info_of(map);
		break;
	case 9:
	case 10:
		rc = strait_mapping_evict(map, w->dev[prng_below(&h->state, SIDES)], first * G, n * G);
		ASSERT_TRUE(!rc || rc == -EBUSY);
		break;
	case 11:
		ASSERT_OK(strait_mapping_advise(map, first * G, n * G,
						(uint32_t)prng_below(&h->state, STRAIT_ADVICE_KEEP + 1)));
		break;
	default:
		ASSERT_OK(strait_mapping_flush(map, first * G, n * G));
		break;
	}
}

static void *hand_run(void *arg)
{
	struct hand *h = arg;
	const struct mapping_model *m = h->w->m;

	for (unsigned int i = 0; i < m->rounds; i++) {
		uint64_t n = 1 + prng_below(&h->state, LOCKED_MAX), first = prng_below(&h->state, m->granules - n + 1);

		switch (prng_below(&h->state, 9)) {
		case 0:
			other_round(h, first, n);
			break;
		case 1:
		case 2:
		case 3:
		case 4:
			read_round(h, first, n);
			break;
		default:
			write_round(h, first, n);
			break;
		}
	}
	return NULL;
}

static void world_open(struct world *w, const struct mapping_model *m)
{
	struct strait_mapping_opts o = {
		.size = sizeof(o), .flags = m->flags, .device_budget = m->budget, .copy_budget = m->copy_budget
	};
	const char *path = test_path("table");
	int fd;

	if (m->user)
		become_user();
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	ASSERT_EQ(ftruncate(fd, (off_t)(m->granules * G)), 0);
	close(fd);
	w->ctx = context_new(NULL);
	w->dev[1] = device_named(w->ctx, "emu:0");
	w->dev[2] = device_named(w->ctx, m->peers ? "emu:1" : "host");
	w->ep = file_new(w->ctx, path, O_RDWR, 0);
	if (m->anonymous) {
		ASSERT_OK(strait_mapping_open(w->ctx, NULL, 0, m->granules * G, &o, &w->map[0]));
		w->map[1] = w->map[0];
	} else {
		for (int i = 0; i < 2; i++) {
			ASSERT_OK(strait_mapping_open(w->ctx, w->ep, 0, 0, &o, &w->map[i]));
			if (m->mixed)
				o.flags &= ~STRAIT_MAPPING_COPY;
		}
	}
	w->lock = calloc(m->granules, sizeof(*w->lock));
	w->value = calloc(m->granules, sizeof(*w->value));
	for (uint64_t g = 0; g < m->granules; g++)
		pthread_rwlock_init(&w->lock[g], NULL);
}

/* At the end every side sees the last value of every granule, and so does the file. */
static void world_close(struct world *w)
{
	const struct mapping_model *m = w->m;
	struct content c;
	void *at;

	for (unsigned int side = 0; side < SIDES; side++) {
		for (uint64_t g = 0; g < m->granules; g += 8) {
			uint64_t n = min_u64(8, m->granules - g);

			ASSERT_OK(strait_mapping_acquire(w->map[side % 2], w->dev[side], g * G, n * G,
							 STRAIT_INTENT_READ, &at));
			for (uint64_t i = g; i < g + n; i++)
				check(w, side, (char *)at + (i - g) * G, i);
			ASSERT_OK(strait_mapping_release(w->map[side % 2], w->dev[side], g * G, n * G,
							 STRAIT_INTENT_READ));
		}
	}
	ASSERT_EQ(mapping_info_of(w->map[0]).acquired, 0);
	if (!m->anonymous)
		strait_mapping_close(w->map[1]);
	strait_mapping_close(w->map[0]);
	for (uint64_t g = 0; !m->anonymous && g < m->granules; g++) {
		c = content_of(g, w->value[g]);
		file_expect(test_path("table"), g * G, &c.head, sizeof(c.head));
		file_expect(test_path("table"), g * G + G - sizeof(c.tail), &c.tail, sizeof(c.tail));
		pthread_rwlock_destroy(&w->lock[g]);
	}
	strait_endpoint_close(w->ep);
	strait_context_close(w->ctx);
	free(w->lock);
	free(w->value);
}

void mapping_model_run(const struct mapping_model *user)
{
	const char *seed = getenv("STRAIT_TEST_SEED"), *rounds = getenv("STRAIT_TEST_ROUNDS");
	struct mapping_model m = *user;
	struct world w = { .m = &m };
	struct hand hands[16];
	pthread_t threads[16];

	w.seed = seed ? strtoull(seed, NULL, 0) : os_now_ns();
	if (rounds)
		m.rounds = (unsigned int)strtoul(rounds, NULL, 0);
	printf("# STRAIT_TEST_SEED=%llu\n", (unsigned long long)w.seed);
	world_open(&w, &m);
	for (unsigned int i = 0; i < m.threads; i++) {
		hands[i] = (struct hand){ .w = &w, .state = w.seed * 31 + i };
		for (unsigned int side = 1; side < SIDES; side++)
			ASSERT_OK(strait_stream_open(w.dev[side], &hands[i].stream[side]));
		thread_start(&threads[i], hand_run, &hands[i]);
	}
	for (unsigned int i = 0; i < m.threads; i++) {
		thread_join(threads[i]);
		for (unsigned int side = 1; side < SIDES; side++)
			strait_stream_close(hands[i].stream[side]);
	}
	printf("# %llu calls, %llu stores\n", (unsigned long long)w.steps, (unsigned long long)w.stores);
	world_close(&w);
}
