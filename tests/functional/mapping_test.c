/* SPDX-License-Identifier: MIT */
/* Coherent mappings: what each side sees, and what moves. */
#include "mapping_rig.h"

static const struct mapping_mode modes[] = { MAPPING_MODES };

#define LEN MIB(6)

static uint64_t moved(struct mapping_rig *r)
{
	struct strait_mapping_info i = mapping_info_of(r->m);

	return i.to_device_bytes + i.to_host_bytes;
}

TEST_VARIANTS(device_sees_the_file, struct mapping_mode, modes)
{
	struct mapping_rig r;
	void *want = pattern_new(0, LEN, 1);

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_EQ(mapping_info_of(r.m).device_bytes, 0);
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes, LEN);
	/* Nothing is stale: nothing moves. */
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(moved(&r), LEN);
	ASSERT_EQ(mapping_info_of(r.m).acquired, 0);
	free(want);
	mapping_rig_close(&r);
}

TEST_VARIANTS(tracking_is_what_the_kernel_allows, struct mapping_mode, modes)
{
	struct mapping_rig r;

	mapping_rig_open(&r, v, LEN, NULL);
	if (v->flags & STRAIT_MAPPING_COMPARE)
		ASSERT_EQ(mapping_info_of(r.m).tracking, STRAIT_TRACKING_COMPARE);
	else
		ASSERT_NE(mapping_info_of(r.m).tracking, STRAIT_TRACKING_NONE);
	mapping_rig_close(&r);
}

/* Only the granules that the CPU stored to go to the device, all in one batch. */
TEST_VARIANTS(cpu_stores_go_to_the_device, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	uint64_t before, copies;

	mapping_rig_open(&r, v, LEN, NULL);
	side_expect(&r, r.dev, 0, want, LEN);
	before = moved(&r);
	copies = mapping_info_of(r.m).copies;
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_WRITE, NULL));
	for (uint64_t g = 3; g < LEN / G; g += 100)
		memset(r.cpu + g * G + 8, 0xa5, 8), memset(want + g * G + 8, 0xa5, 8);
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_WRITE));
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(moved(&r) - before, (LEN / G + 96) / 100 * G);
	ASSERT_EQ(mapping_info_of(r.m).copies, copies + 1);
	/* Found once. */
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_WRITE, NULL));
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_WRITE));
	before = moved(&r);
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(moved(&r), before);
	free(want);
	mapping_rig_close(&r);
}

/* Stores through the device's raw pointer are found by the twin; only those reach the file. */
TEST_VARIANTS(device_stores_go_to_the_file, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	char *at;

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, LEN, STRAIT_INTENT_WRITE, (void **)&at));
	for (uint64_t g = 7; g < LEN / G; g += 90) {
		device_store(r.ctx, at + g * G + 100, "device", 6);
		memcpy(want + g * G + 100, "device", 6);
	}
	ASSERT_OK(strait_mapping_release(r.m, r.dev, 0, LEN, STRAIT_INTENT_WRITE));
	/* Lazily: not before the CPU acquires it. */
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, 0);
	side_expect(&r, NULL, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, (LEN / G + 82) / 90 * G);
	ASSERT_EQ(mapping_info_of(r.m).declared, 0);
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	file_expect(r.path, 0, want, LEN);
	/* The copy on the device is still current. */
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes, LEN);
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes, LEN);
	free(want);
	mapping_rig_close(&r);
}

TEST_VARIANTS(both_write_different_granules, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	char *at;

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, LEN, STRAIT_INTENT_WRITE, (void **)&at));
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_WRITE, NULL));
	for (uint64_t g = 0; g < LEN / G; g += 5) {
		if (g % 2) {
			device_store(r.ctx, at + g * G, "D", 1);
			want[g * G] = 'D';
		} else {
			r.cpu[g * G] = want[g * G] = 'C';
		}
	}
	ASSERT_OK(strait_mapping_release(r.m, r.dev, 0, LEN, STRAIT_INTENT_WRITE));
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_WRITE));
	side_expect(&r, r.dev, 0, want, LEN);
	side_expect(&r, NULL, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	free(want);
	mapping_rig_close(&r);
}

/* The same granule by both: counted, and the release that comes last wins. */
TEST_VARIANTS(last_release_wins, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	char *at;

	mapping_rig_open(&r, v, LEN, NULL);
	for (int device_last = 0; device_last < 2; device_last++) {
		ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, G, STRAIT_INTENT_WRITE, (void **)&at));
		ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, G, STRAIT_INTENT_WRITE, NULL));
		device_store(r.ctx, at, device_last ? "device" : "DEVICE", 6);
		memcpy(r.cpu, device_last ? "cpucpu" : "CPUCPU", 6);
		ASSERT_OK(strait_mapping_release(r.m, device_last ? NULL : r.dev, 0, G, STRAIT_INTENT_WRITE));
		ASSERT_OK(strait_mapping_release(r.m, device_last ? r.dev : NULL, 0, G, STRAIT_INTENT_WRITE));
		ASSERT_EQ(mapping_info_of(r.m).conflicts, device_last + 1);
		memcpy(want, device_last ? "device" : "CPUCPU", 6);
		side_expect(&r, r.dev, 0, want, G);
		side_expect(&r, NULL, 0, want, G);
	}
	free(want);
	mapping_rig_close(&r);
}

TEST_VARIANTS(read_never_makes_anything_dirty, struct mapping_mode, modes)
{
	void *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	struct stat a, b;

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_EQ(stat(r.path, &a), 0);
	for (int i = 0; i < 3; i++) {
		side_expect(&r, r.dev, 0, want, LEN);
		side_expect(&r, NULL, 0, want, LEN);
		/* Acquired for writing, and not written to. */
		ASSERT_OK(strait_mapping_acquire(r.m, r.dev, G, 10 * G, STRAIT_INTENT_WRITE, NULL));
		ASSERT_OK(strait_mapping_release(r.m, r.dev, G, 10 * G, STRAIT_INTENT_WRITE));
		ASSERT_OK(strait_mapping_acquire(r.m, NULL, G, 10 * G, STRAIT_INTENT_WRITE, NULL));
		ASSERT_OK(strait_mapping_release(r.m, NULL, G, 10 * G, STRAIT_INTENT_WRITE));
	}
	ASSERT_OK(strait_mapping_sync(r.m, 0, LEN));
	ASSERT_EQ(moved(&r), LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, 0);
	ASSERT_EQ(stat(r.path, &b), 0);
	ASSERT_EQ(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
	free(want);
	mapping_rig_close(&r);
}

/* To overwrite a range, only its partial ends are fetched. */
TEST_VARIANTS(overwrites_without_a_fetch, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1), *fresh = pattern_new(0, LEN, 2);
	struct mapping_rig r;
	void *at;

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 2 * G, 100 * G, STRAIT_INTENT_OVERWRITE, &at));
	ASSERT_EQ(moved(&r), 0);
	device_store(r.ctx, at, fresh, 100 * G);
	ASSERT_OK(strait_mapping_release(r.m, r.dev, 2 * G, 100 * G, STRAIT_INTENT_OVERWRITE));
	memcpy(want + 2 * G, fresh, 100 * G);
	side_expect(&r, NULL, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes, 0);
	/* Ends in the middle of granules. */
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 200 * G + 10, 50 * G, STRAIT_INTENT_OVERWRITE, &at));
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes, 2 * G);
	device_store(r.ctx, at, fresh, 50 * G);
	ASSERT_OK(strait_mapping_release(r.m, r.dev, 200 * G + 10, 50 * G, STRAIT_INTENT_OVERWRITE));
	memcpy(want + 200 * G + 10, fresh, 50 * G);
	/* The CPU supersedes what the device has published: that is not stored first. */
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 210 * G, 4 * G, STRAIT_INTENT_OVERWRITE, &at));
	memset(at, 9, 4 * G);
	memset(want + 210 * G, 9, 4 * G);
	ASSERT_OK(strait_mapping_release(r.m, NULL, 210 * G, 4 * G, STRAIT_INTENT_OVERWRITE));
	side_expect(&r, r.dev, 0, want, LEN);
	side_expect(&r, NULL, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, (100 + 51 - 4) * G);
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	free(want);
	free(fresh);
	mapping_rig_close(&r);
}

/* Any offset and length, and a file that ends inside a granule. */
TEST_VARIANTS(unaligned_ranges, struct mapping_mode, modes)
{
	const uint64_t len = 300 * G + 123;
	unsigned char *want = pattern_new(0, len, 1), *fresh = pattern_new(0, len, 3);
	struct mapping_rig r;
	uint64_t state = 5;

	mapping_rig_open(&r, v, len, NULL);
	for (int i = 0; i < 200; i++) {
		uint64_t off = prng_below(&state, len), n = 1 + prng_below(&state, i % 3 ? 3000 : len - off);
		struct strait_device *dev = i % 2 ? r.dev : NULL;

		n = min_u64(n, len - off);
		memcpy(want + off, fresh + (i * 37) % 1000, min_u64(n, len - 1000));
		n = min_u64(n, len - 1000);
		side_write(&r, dev, off, want + off, n);
		side_expect(&r, i % 4 < 2 ? r.dev : NULL, off, want + off, n);
	}
	side_expect(&r, r.dev, 0, want, len);
	ASSERT_OK(strait_mapping_sync(r.m, 0, len));
	mapping_rig_close(&r);
	free(want);
	free(fresh);
}

TEST_VARIANTS(close_writes_back, struct mapping_mode, modes)
{
	struct mapping_rig r;
	char *path, *want = pattern_new(0, LEN, 4);
	void *at;

	mapping_rig_open(&r, v, LEN, NULL);
	path = strdup(r.path);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, LEN, STRAIT_INTENT_OVERWRITE, &at));
	device_store(r.ctx, at, want, LEN);
	ASSERT_OK(strait_mapping_release(r.m, r.dev, 0, LEN, STRAIT_INTENT_OVERWRITE));
	mapping_rig_close(&r);
	file_expect(path, 0, want, LEN);
	ASSERT_EQ(file_length(path), LEN);
	free(path);
	free(want);
}

/* Mappings of one file have one index: what is published through one is seen through the other. */
TEST_VARIANTS(two_mappings_of_a_file, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r, other;
	struct strait_mapping_opts o = { .size = sizeof(o), .flags = v->flags };

	mapping_rig_open(&r, v, LEN, NULL);
	other = r;
	other.ep = file_new(r.ctx, r.path, O_RDWR, 0);
	ASSERT_OK(strait_mapping_open(r.ctx, other.ep, MIB(1), MIB(3), &o, &other.m));
	other.cpu = mapping_info_of(other.m).addr;
	side_expect(&r, r.dev, 0, want, LEN);
	side_expect(&other, r.dev, 0, want + MIB(1), MIB(3));

	/* A device's copy of one, the CPU through the other. */
	memcpy(want + MIB(2), "first", 5);
	side_write(&r, r.dev, MIB(2), "first", 5);
	side_expect(&other, NULL, 0, want + MIB(1), MIB(3));
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, G);
	/* The CPU through one, a device through both. */
	memcpy(want + MIB(3) + 77, "second", 6);
	side_write(&other, NULL, MIB(2) + 77, "second", 6);
	side_expect(&r, r.dev, 0, want, LEN);
	/* From the memory of one to that of the other. */
	memcpy(want + MIB(1), "third", 5);
	side_write(&other, r.dev, 0, "third", 5);
	side_expect(&r, r.dev, 0, want, LEN);
	side_expect(&other, r.dev, 0, want + MIB(1), MIB(3));
	/* What one has published is stored when it is closed. */
	memcpy(want + MIB(1) + G, "fourth", 6);
	side_write(&other, r.dev, G, "fourth", 6);
	strait_mapping_close(other.m);
	side_expect(&r, NULL, 0, want, LEN);
	side_expect(&r, r.dev, 0, want, LEN);
	strait_endpoint_close(other.ep);
	free(want);
	mapping_rig_close(&r);
}

TEST_VARIANTS(two_devices, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct strait_device *second;
	struct mapping_rig r;

	mapping_rig_open(&r, v, LEN, NULL);
	second = device_named(r.ctx, strcmp(v->device, "host") ? "host" : "emu:0");
	side_expect(&r, r.dev, 0, want, LEN);
	side_expect(&r, second, 0, want, LEN);
	for (int i = 0; i < 10; i++) {
		struct strait_device *dev = i % 3 == 0 ? NULL : i % 3 == 1 ? r.dev : second;

		memset(want + i * 7777, i, 5000);
		side_write(&r, dev, (uint64_t)i * 7777, want + i * 7777, 5000);
		side_expect(&r, r.dev, 0, want, LEN);
		side_expect(&r, second, 0, want, LEN);
		side_expect(&r, NULL, 0, want, LEN);
	}
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	free(want);
	mapping_rig_close(&r);
}

TEST_VARIANTS(private_changes_stay_in_the_process, struct mapping_mode, modes)
{
	struct mapping_mode private = *v;
	unsigned char *want = pattern_new(0, LEN, 1), *file = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	private.flags |= STRAIT_MAPPING_PRIVATE;
	mapping_rig_open(&r, &private, LEN, NULL);
	for (int i = 0; i < 30; i++) {
		memset(want + i * 9999, i, 4000);
		side_write(&r, i % 2 ? r.dev : NULL, (uint64_t)i * 9999, want + i * 9999, 4000);
		side_expect(&r, i % 2 ? NULL : r.dev, 0, want, LEN);
	}
	ASSERT_OK(strait_mapping_sync(r.m, 0, LEN));
	ASSERT_EQ(strait_mapping_refresh(r.m, 0, LEN), -EINVAL);
	file_expect(r.path, 0, file, LEN);
	free(want);
	free(file);
	mapping_rig_close(&r);
}

TEST_VARIANTS(anonymous_memory, struct mapping_mode, modes)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .flags = v->flags };
	unsigned char *want = calloc(1, LEN);
	struct mapping_rig r = { .ctx = context_new(NULL), .len = LEN };

	r.dev = device_named(r.ctx, v->device);
	ASSERT_OK(strait_mapping_open(r.ctx, NULL, 0, LEN, &o, &r.m));
	side_expect(&r, r.dev, 0, want, LEN);
	for (int i = 0; i < 30; i++) {
		memset(want + i * 9999, i, 4000);
		side_write(&r, i % 2 ? r.dev : NULL, (uint64_t)i * 9999, want + i * 9999, 4000);
		side_expect(&r, i % 2 ? NULL : r.dev, 0, want, LEN);
	}
	/* What was copied back by the library is not a store of the CPU. */
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	free(want);
	strait_mapping_close(r.m);
	strait_context_close(r.ctx);
}

TEST_VARIANTS(read_only, struct mapping_mode, modes)
{
	struct mapping_mode ro = *v;
	void *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	ro.flags = STRAIT_MAPPING_READ_ONLY;
	mapping_rig_open(&r, &ro, LEN, NULL);
	side_expect(&r, r.dev, 0, want, LEN);
	side_expect(&r, NULL, 0, want, LEN);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 0, G, STRAIT_INTENT_WRITE, NULL), -EACCES);
	ASSERT_EQ(strait_mapping_acquire(r.m, NULL, 0, G, STRAIT_INTENT_OVERWRITE, NULL), -EACCES);
	ASSERT_EQ(mapping_info_of(r.m).tracking, STRAIT_TRACKING_NONE);
	ASSERT_OK(strait_mapping_sync(r.m, 0, LEN));
	free(want);
	mapping_rig_close(&r);
}

/* read(2) into memory of the mapping is a store of the CPU. */
TEST_VARIANTS(system_calls_store_too, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	char *bytes = pattern_new(0, 3 * G, 8);
	const char *path = make_file("source", 3 * G, 8);
	int fd = open(path, O_RDONLY);

	mapping_rig_open(&r, v, LEN, NULL);
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, MIB(1), 3 * G, STRAIT_INTENT_WRITE, NULL));
	ASSERT_EQ(read(fd, r.cpu + MIB(1), 3 * G), 3 * G);
	ASSERT_OK(strait_mapping_release(r.m, NULL, MIB(1), 3 * G, STRAIT_INTENT_WRITE));
	memcpy(want + MIB(1), bytes, 3 * G);
	side_expect(&r, r.dev, 0, want, LEN);
	close(fd);
	free(bytes);
	free(want);
	mapping_rig_close(&r);
}

TEST_VARIANTS(prefetches, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_OK(strait_mapping_prefetch(r.m, r.dev, 0, LEN));
	while (mapping_info_of(r.m).to_device_bytes < LEN)
		sleep_ms(1);
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes, LEN);
	memcpy(want + 9, "x", 1);
	side_write(&r, r.dev, 9, "x", 1);
	ASSERT_OK(strait_mapping_prefetch(r.m, NULL, 0, LEN));
	while (mapping_info_of(r.m).to_host_bytes < G)
		sleep_ms(1);
	file_expect(r.path, 0, want, LEN);
	/* Closing waits for those in flight. */
	for (int i = 0; i < 10; i++)
		ASSERT_OK(strait_mapping_prefetch(r.m, i % 2 ? r.dev : NULL, (uint64_t)i * G, LEN / 2));
	free(want);
	mapping_rig_close(&r);
}

TEST_VARIANTS(refuses_what_makes_no_sense, struct mapping_mode, modes)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .flags = 1u << 30 };
	struct strait_mapping *m;
	struct strait_endpoint *ro;
	struct mapping_rig r;

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_EQ(strait_mapping_open(r.ctx, r.ep, 0, 0, &o, &m), -EINVAL);
	ASSERT_EQ(strait_mapping_open(r.ctx, r.ep, 100, 0, NULL, &m), -EINVAL);
	ASSERT_EQ(strait_mapping_open(r.ctx, r.ep, 0, LEN + 1, NULL, &m), -EINVAL);
	ASSERT_EQ(strait_mapping_open(r.ctx, r.ep, LEN, 0, NULL, &m), -EINVAL);
	ASSERT_EQ(strait_mapping_open(r.ctx, NULL, 0, 0, NULL, &m), -EINVAL);
	ro = file_new(r.ctx, r.path, O_RDONLY, 0);
	ASSERT_EQ(strait_mapping_open(r.ctx, ro, 0, 0, NULL, &m), -EACCES);
	strait_endpoint_close(ro);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 0, 0, STRAIT_INTENT_READ, NULL), -EINVAL);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, LEN, 1, STRAIT_INTENT_READ, NULL), -EINVAL);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 1, UINT64_MAX, STRAIT_INTENT_READ, NULL), -EINVAL);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 0, 1, 3, NULL), -EINVAL);
	ASSERT_EQ(strait_mapping_release(r.m, r.dev, 0, 1, STRAIT_INTENT_READ), -ENOENT);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, 10, STRAIT_INTENT_READ, NULL));
	ASSERT_EQ(strait_mapping_release(r.m, r.dev, 0, 10, STRAIT_INTENT_WRITE), -ENOENT);
	ASSERT_EQ(strait_mapping_release(r.m, NULL, 0, 10, STRAIT_INTENT_READ), -ENOENT);
	ASSERT_EQ(strait_mapping_release(r.m, r.dev, 0, 11, STRAIT_INTENT_READ), -ENOENT);
	ASSERT_EQ(mapping_info_of(r.m).acquired, 1);
	ASSERT_OK(strait_mapping_release(r.m, r.dev, 0, 10, STRAIT_INTENT_READ));
	ASSERT_EQ(strait_mapping_refresh(r.m, LEN, 1), -EINVAL);
	ASSERT_EQ(strait_mapping_flush(r.m, 0, LEN + 1), -EINVAL);
	/* Closed while acquired: what was not released is lost, nothing else. */
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, 10, STRAIT_INTENT_WRITE, NULL));
	mapping_rig_close(&r);
}
