/* SPDX-License-Identifier: MIT */
/* Coherent mappings larger than the memory they may take on a device. */
#include "mapping_rig.h"

static const struct mapping_mode modes[] = { MAPPING_MODES };

#define LEN MIB(8)

static void open_with(struct mapping_rig *r, const struct mapping_mode *v, uint64_t budget)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .device_budget = budget, .pinned_budget = MIB(8) };

	mapping_rig_open(r, v, LEN, &o);
}

/* A device transforms the whole file through a window at a time. */
TEST_VARIANTS(larger_than_the_budget, struct mapping_mode, modes)
{
	const uint64_t window = KIB(256), budget = MIB(1);
	unsigned char *want = pattern_new(0, LEN, 1), *buf = malloc(window);
	struct mapping_rig r;
	void *at;

	open_with(&r, v, budget);
	for (int round = 0; round < 3; round++) {
		for (uint64_t off = 0; off < LEN; off += window) {
			uint32_t intent = round == 2 ? STRAIT_INTENT_OVERWRITE : STRAIT_INTENT_WRITE;

			ASSERT_OK(strait_mapping_acquire(r.m, r.dev, off, window, intent, &at));
			ASSERT_LE(mapping_info_of(r.m).device_bytes, budget);
			if (round < 2) {
				device_load(r.ctx, at, buf, window);
				ASSERT_MEMEQ(buf, want + off, window);
			}
			for (uint64_t i = 0; i < window; i++)
				want[off + i] ^= (unsigned char)(i % 251 + 1);
			device_store(r.ctx, at, want + off, window);
			ASSERT_OK(strait_mapping_release(r.m, r.dev, off, window, intent));
		}
		side_expect(&r, NULL, 0, want, LEN);
	}
	ASSERT_GE(mapping_info_of(r.m).evictions, 3 * (LEN - budget) / window);
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	ASSERT_LE(mapping_info_of(r.m).pinned_bytes, MIB(8) + KIB(64));
	file_expect(r.path, 0, want, LEN);
	free(want);
	free(buf);
	mapping_rig_close(&r);
}

/* What is used again stays: the clock gives it a second chance. */
TEST_VARIANTS(hot_ranges_stay, struct mapping_mode, modes)
{
	const uint64_t window = KIB(256);
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	uint64_t before;

	open_with(&r, v, MIB(1));
	side_expect(&r, r.dev, 0, want, window);
	before = mapping_info_of(r.m).to_device_bytes;
	for (uint64_t off = window; off < LEN; off += window) {
		side_expect(&r, r.dev, off, want + off, window);
		side_expect(&r, r.dev, 0, want, window);
	}
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes - before, LEN - window);
	free(want);
	mapping_rig_close(&r);
}

/* Acquired ranges are never evicted, and keep their address. */
TEST_VARIANTS(acquired_ranges_stay, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	void *first, *again;

	open_with(&r, v, MIB(1));
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 0, MIB(2), STRAIT_INTENT_READ, NULL), -ENOSPC);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, KIB(512), STRAIT_INTENT_READ, &first));
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, MIB(1), KIB(512), STRAIT_INTENT_READ, NULL));
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, MIB(2), KIB(64), STRAIT_INTENT_READ, NULL), -ENOSPC);
	/* A part of an acquired range is at its address; a range that only overlaps it has none. */
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, G, G, STRAIT_INTENT_READ, &again));
	ASSERT_EQ((char *)again - (char *)first, G);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, KIB(256), KIB(512), STRAIT_INTENT_READ, NULL), -EBUSY);
	device_expect(r.ctx, first, want, KIB(512));
	ASSERT_OK(strait_mapping_release(r.m, r.dev, MIB(1), KIB(512), STRAIT_INTENT_READ));
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, MIB(2), KIB(64), STRAIT_INTENT_READ, NULL));
	device_expect(r.ctx, first, want, KIB(512));
	free(want);
	mapping_rig_close(&r);
}

/* Without room for a twin all of an acquired range counts as written. */
TEST_VARIANTS(without_a_twin, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	open_with(&r, v, LEN);
	side_write(&r, r.dev, 5 * G, "x", 1);
	want[5 * G] = 'x';
	ASSERT_EQ(mapping_info_of(r.m).twin_bytes, 0);
	ASSERT_EQ(mapping_info_of(r.m).declared, 1);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, 100 * G, STRAIT_INTENT_WRITE, NULL));
	ASSERT_OK(strait_mapping_release(r.m, r.dev, 0, 100 * G, STRAIT_INTENT_WRITE));
	ASSERT_EQ(mapping_info_of(r.m).declared, 101);
	side_expect(&r, NULL, 0, want, LEN);
	/* The granule that was written to first is stored before it is written over. */
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, 101 * G);
	free(want);
	mapping_rig_close(&r);
}

/* Everything is dirty, and there is progress; a failing write-back keeps what it cannot store. */
TEST_VARIANTS(everything_dirty, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	void *at;

	open_with(&r, v, KIB(512));
	for (uint64_t off = 0; off < LEN; off += KIB(64)) {
		memset(want + off, (int)(off >> 16), KIB(64));
		ASSERT_OK(strait_mapping_acquire(r.m, r.dev, off, KIB(64), STRAIT_INTENT_OVERWRITE, &at));
		device_store(r.ctx, at, want + off, KIB(64));
		ASSERT_OK(strait_mapping_release(r.m, r.dev, off, KIB(64), STRAIT_INTENT_OVERWRITE));
	}
	inject(OS_PWRITE, 1, 1000000, -ENOSPC);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 0, KIB(64), STRAIT_INTENT_READ, NULL), -ENOSPC);
	ASSERT_EQ(mapping_info_of(r.m).error, -ENOSPC);
	inject_off();
	side_expect(&r, r.dev, 0, want, KIB(64));
	side_expect(&r, NULL, 0, want, LEN);
	free(want);
	mapping_rig_close(&r);
}

/* ThreadSanitizer takes seconds to map and unmap much more. */
#ifdef __SANITIZE_THREAD__
#define MOST GIB(100)
#else
#define MOST GIB(1000)
#endif

/* The default takes no more than half of the device, so that a mapping larger than it works, too. */
TEST_VARIANTS(larger_than_the_device, struct mapping_mode, modes)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .flags = v->flags };
	struct strait_mapping *m;
	struct mapping_rig r;
	char *at, zero = 0;
	/* A twin, or a copy, for every byte of the CPU is more than the address space of some machines, or of a sanitizer. */
	uint64_t len = v->flags & STRAIT_MAPPING_COMPARE ? GIB(8) : v->flags & STRAIT_MAPPING_COPY ? GIB(300) : MOST;
	int fd;

	open_with(&r, v, 0);
	fd = open(test_path("sparse"), O_RDWR | O_CREAT, 0600);
	ASSERT_EQ(ftruncate(fd, (off_t)GIB(2048)), 0);
	close(fd);
	strait_endpoint_close(r.ep);
	r.ep = file_new(r.ctx, test_path("sparse"), O_RDWR, 0);
	ASSERT_OK(strait_mapping_open(r.ctx, r.ep, GIB(1000), len, &o, &m));
	ASSERT_OK(strait_mapping_acquire(m, r.dev, GIB(7), KIB(64), STRAIT_INTENT_WRITE, (void **)&at));
	device_expect(r.ctx, at + 77, &zero, 1);
	device_store(r.ctx, at + 77, "z", 1);
	ASSERT_OK(strait_mapping_release(m, r.dev, GIB(7), KIB(64), STRAIT_INTENT_WRITE));
	ASSERT_OK(strait_mapping_flush(m, 0, 0));
	strait_mapping_close(m);
	file_expect(test_path("sparse"), GIB(1007) + 77, "z", 1);
	unlink(test_path("sparse"));
	mapping_rig_close(&r);
}

/* Evicted on request: written back, and the memory is free. */
TEST_VARIANTS(evicts_on_request, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	uint64_t before;

	open_with(&r, v, MIB(2));
	memset(want, 6, KIB(512));
	side_write(&r, r.dev, 0, want, KIB(256));
	side_write(&r, r.dev, KIB(256), want + KIB(256), KIB(256));
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, KIB(256), KIB(256), STRAIT_INTENT_READ, NULL));
	ASSERT_EQ(strait_mapping_evict(r.m, r.dev, 0, LEN), -EBUSY);
	before = mapping_info_of(r.m).device_bytes;
	ASSERT_OK(strait_mapping_evict(r.m, r.dev, 0, KIB(256)));
	ASSERT_LT(mapping_info_of(r.m).device_bytes, before);
	ASSERT_OK(strait_mapping_release(r.m, r.dev, KIB(256), KIB(256), STRAIT_INTENT_READ));
	ASSERT_OK(strait_mapping_evict(r.m, r.dev, 0, LEN));
	ASSERT_EQ(mapping_info_of(r.m).device_bytes, 0);
	file_expect(r.path, 0, want, LEN);
	side_expect(&r, r.dev, 0, want, KIB(256));
	ASSERT_EQ(strait_mapping_evict(r.m, r.dev, 1, LEN), -EINVAL);
	ASSERT_OK(strait_mapping_evict(r.m, NULL, 0, LEN));
	free(want);
	mapping_rig_close(&r);
}

/* A part of memory that holds more: its copies are dropped, and fetched again. */
TEST_VARIANTS(evicts_a_part, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	uint64_t before;

	open_with(&r, v, 0);
	side_expect(&r, r.dev, 0, want, LEN);
	side_write(&r, r.dev, MIB(1), "part", 4);
	memcpy(want + MIB(1), "part", 4);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, MIB(4), MIB(1), STRAIT_INTENT_WRITE, NULL));
	before = mapping_info_of(r.m).to_device_bytes;
	ASSERT_OK(strait_mapping_evict(r.m, r.dev, MIB(1), MIB(1)));
	file_expect(r.path, 0, want, LEN);
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes - before, MIB(1));
	ASSERT_OK(strait_mapping_release(r.m, r.dev, MIB(4), MIB(1), STRAIT_INTENT_WRITE));
	free(want);
	mapping_rig_close(&r);
}

/* Of four windows that fit, one more evicts what is used once first, and what is to be kept last. */
TEST_VARIANTS(advice_chooses_what_is_evicted, struct mapping_mode, modes)
{
	const uint64_t window = KIB(256);
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	uint64_t before;

	open_with(&r, v, MIB(1));
	ASSERT_OK(strait_mapping_advise(r.m, 0, window, STRAIT_ADVICE_KEEP));
	ASSERT_OK(strait_mapping_advise(r.m, 3 * window, window, STRAIT_ADVICE_ONCE));
	for (uint64_t i = 0; i < 5; i++)
		side_expect(&r, r.dev, i * window, want + i * window, window);
	before = mapping_info_of(r.m).to_device_bytes;
	for (uint64_t i = 0; i < 3; i++)
		side_expect(&r, r.dev, i * window, want + i * window, window);
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes, before);
	/* A long pass leaves the first alone. */
	for (uint64_t i = 5; i < 20; i++)
		side_expect(&r, r.dev, i * window, want + i * window, window);
	before = mapping_info_of(r.m).to_device_bytes;
	side_expect(&r, r.dev, 0, want, window);
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes, before);
	/* Unless there is nothing else. */
	ASSERT_OK(strait_mapping_advise(r.m, 0, LEN, STRAIT_ADVICE_KEEP));
	side_expect(&r, r.dev, MIB(7), want + MIB(7), window);
	ASSERT_EQ(strait_mapping_advise(r.m, 0, LEN, 5), -EINVAL);
	ASSERT_EQ(strait_mapping_advise(r.m, 1, LEN, 0), -EINVAL);
	free(want);
	mapping_rig_close(&r);
}

/* A pass in order: what follows is on its way before it is acquired, also if the next range is another than expected. */
TEST_VARIANTS(reads_ahead, struct mapping_mode, modes)
{
	const uint64_t window = KIB(256);
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	open_with(&r, v, MIB(2));
	ASSERT_OK(strait_mapping_advise(r.m, 0, LEN, STRAIT_ADVICE_SEQUENTIAL));
	side_expect(&r, r.dev, 0, want, window);
	while (mapping_info_of(r.m).to_device_bytes < 2 * window)
		sleep_ms(1);
	for (uint64_t off = window; off < LEN; off += window)
		side_expect(&r, r.dev, off, want + off, window);
	/* A prefetch that comes late may fetch what is evicted by then. */
	ASSERT_LE(mapping_info_of(r.m).to_device_bytes, LEN + LEN / 4);
	for (uint64_t off = 0; off + window <= LEN; off += window / 2 + G)
		side_expect(&r, r.dev, off, want + off, window / 2 + 100);
	for (uint64_t off = 0; off < LEN; off += window)
		side_expect(&r, NULL, off, want + off, window);
	free(want);
	mapping_rig_close(&r);
}
