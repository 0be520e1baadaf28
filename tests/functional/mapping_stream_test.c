/* SPDX-License-Identifier: MIT */
/* Coherent mappings: acquire and release ordered on a stream. */
#include "mapping_rig.h"

static const struct mapping_mode modes[] = { MAPPING_MODES };

#define LEN MIB(3)

/* A kernel of an emulated device: adds one to a byte of every third granule. */
struct kernel {
	unsigned char *at;
	uint64_t len;
	const int *status; /* of the acquire before: stored by then */
	int seen;
};

static void add_one(void *arg)
{
	struct kernel *k = arg;

	k->seen = *k->status;
	for (uint64_t off = 0; off < k->len; off += 3 * G)
		k->at[off + 50]++;
}

/* All of it is put on the stream while that is blocked; nothing happens before its turn. */
TEST_VARIANTS(in_stream_order, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	int acquired = 1, released = 1;
	struct strait_stream *s;
	struct mapping_rig r;
	struct kernel k = { .len = LEN, .status = &acquired, .seen = 1 };

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_OK(strait_stream_open(r.dev, &s));
	for (int round = 0; round < 5; round++) {
		acquired = released = 1;
		ASSERT_OK(strait_mapping_acquire_on(r.m, s, 0, LEN, STRAIT_INTENT_WRITE, (void **)&k.at, &acquired));
		ASSERT_OK(strait_stream_call(s, add_one, &k));
		ASSERT_OK(strait_mapping_release_on(r.m, s, 0, LEN, STRAIT_INTENT_WRITE, &released));
		ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
		ASSERT_EQ(k.seen, 0);
		ASSERT_EQ(__atomic_load_n(&released, __ATOMIC_ACQUIRE), 0);
		for (uint64_t off = 0; off < LEN; off += 3 * G)
			want[off + 50]++;
		side_expect(&r, NULL, 0, want, LEN);
		ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, (uint64_t)(round + 1) * (LEN / G / 3) * G);
		/* The CPU's turn. */
		want[round * G + 1] = 'c';
		side_write(&r, NULL, (uint64_t)round * G + 1, "c", 1);
	}
	ASSERT_EQ(mapping_info_of(r.m).declared, 0);
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	ASSERT_EQ(mapping_info_of(r.m).acquired, 0);
	strait_stream_close(s);
	side_expect(&r, r.dev, 0, want, LEN);
	free(want);
	mapping_rig_close(&r);
}

TEST_WHERE(in_stream_order, where_emulated)

/* Several rounds on the stream, without a wait in between. */
TEST_VARIANTS(many_in_flight, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct strait_stream *s;
	struct mapping_rig r;
	struct kernel k[8];
	int status[8];

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_OK(strait_stream_open(r.dev, &s));
	for (int i = 0; i < 8; i++) {
		uint64_t off = (uint64_t)i % 4 * MIB(1) / 2;

		k[i] = (struct kernel){ .len = MIB(1), .status = &status[i] };
		status[i] = 1;
		ASSERT_OK(strait_mapping_acquire_on(r.m, s, off, MIB(1), STRAIT_INTENT_WRITE, (void **)&k[i].at,
						    &status[i]));
		ASSERT_OK(strait_stream_call(s, add_one, &k[i]));
		ASSERT_OK(strait_mapping_release_on(r.m, s, off, MIB(1), STRAIT_INTENT_WRITE, NULL));
		for (uint64_t at = 0; at < MIB(1); at += 3 * G)
			want[off + at + 50]++;
	}
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	side_expect(&r, NULL, 0, want, LEN);
	/* The mapping is closed with work on the stream: that is waited for. */
	ASSERT_OK(strait_mapping_acquire_on(r.m, s, 0, MIB(1), STRAIT_INTENT_READ, NULL, NULL));
	free(want);
	strait_mapping_close(r.m);
	strait_stream_close(s);
	strait_endpoint_close(r.ep);
	strait_context_close(r.ctx);
	free((char *)r.path);
}

TEST_WHERE(many_in_flight, where_emulated)

/* On every device: the bytes are moved by calls between those of the stream. */
TEST_VARIANTS(with_calls_between, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct strait_stream *s;
	struct mapping_rig r;
	int status = 1;
	char *at;

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_OK(strait_stream_open(r.dev, &s));
	for (int i = 0; i < 6; i++) {
		uint32_t intent = i % 2 ? STRAIT_INTENT_WRITE : STRAIT_INTENT_OVERWRITE;

		ASSERT_OK(strait_mapping_acquire_on(r.m, s, MIB(1), 30 * G, intent, (void **)&at, &status));
		ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
		ASSERT_EQ(__atomic_load_n(&status, __ATOMIC_ACQUIRE), 0);
		memset(want + MIB(1) + (i % 2 ? 9 * G : 0), i, i % 2 ? 100 : 30 * G);
		device_store(r.ctx, at + (i % 2 ? 9 * G : 0), want + MIB(1) + (i % 2 ? 9 * G : 0),
			     i % 2 ? 100 : 30 * G);
		ASSERT_OK(strait_mapping_release_on(r.m, s, MIB(1), 30 * G, intent, &status));
		ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
		side_expect(&r, NULL, 0, want, LEN);
		side_expect(&r, r.dev, 0, want, LEN);
	}
	/* 30 granules of each overwrite, and the one that changed for each write. */
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, (3 * 30 + 3) * G);
	ASSERT_EQ(strait_mapping_release_on(r.m, s, 0, 1, STRAIT_INTENT_READ, NULL), -ENOENT);
	ASSERT_EQ(strait_mapping_acquire_on(r.m, s, LEN, 1, STRAIT_INTENT_READ, NULL, NULL), -EINVAL);
	strait_stream_close(s);
	free(want);
	mapping_rig_close(&r);
}

/* A failure is in the status, the stream goes on, and the release that belongs to it has nothing to do. */
TEST_VARIANTS(failures_are_in_the_status, struct mapping_mode, modes)
{
	int acquired = 1, released = 1;
	struct strait_stream *s;
	struct mapping_rig r;

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_OK(strait_stream_open(r.dev, &s));
	ASSERT_EQ(truncate(r.path, (off_t)MIB(1)), 0);
	ASSERT_OK(strait_mapping_acquire_on(r.m, s, MIB(2), G, STRAIT_INTENT_WRITE, NULL, &acquired));
	ASSERT_OK(strait_mapping_release_on(r.m, s, MIB(2), G, STRAIT_INTENT_WRITE, &released));
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(__atomic_load_n(&acquired, __ATOMIC_ACQUIRE), -EFAULT);
	ASSERT_EQ(__atomic_load_n(&released, __ATOMIC_ACQUIRE), -EFAULT);
	ASSERT_EQ(mapping_info_of(r.m).acquired, 0);
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, 0);
	strait_stream_close(s);
	mapping_rig_close(&r);
}
