/* SPDX-License-Identifier: MIT */
/* Changes in many places of a large mapping, which several threads find and copy. */
#include "mapping_rig.h"

static const struct mapping_mode modes[] = {
	{ "emu", "emu:0", 0, false },
	{ "emu-compare", "emu:0", STRAIT_MAPPING_COMPARE, false },
	{ "emu-copy", "emu:0", STRAIT_MAPPING_COPY, false },
	{ "host", "host", 0, false },
};

#define PLACES 100u
#define STEP MIB(2)
#define LEN (PLACES * STEP)

static uint64_t place(uint64_t i, uint64_t shift)
{
	return i * STEP + (i * 37 + shift * 3) % (STEP / G) * G + 8;
}

static void open_wide(struct mapping_rig *r, const struct mapping_mode *v)
{
	char *path = strdup(make_file("wide", 1, 1));

	ASSERT_EQ(truncate(path, (off_t)LEN), 0);
	mapping_rig_map(r, v, path);
	free(path);
}

/* One side changes a word in every place. */
static void change(struct mapping_rig *r, struct strait_device *dev, uint64_t shift, uint64_t value)
{
	char *at;

	ASSERT_OK(strait_mapping_acquire(r->m, dev, 0, LEN, STRAIT_INTENT_WRITE, (void **)&at));
	for (uint64_t i = 0; i < PLACES; i++) {
		if (dev)
			device_store(r->ctx, at + place(i, shift), &value, sizeof(value));
		else
			memcpy(at + place(i, shift), &value, sizeof(value));
	}
	ASSERT_OK(strait_mapping_release(r->m, dev, 0, LEN, STRAIT_INTENT_WRITE));
}

static void expect(struct mapping_rig *r, struct strait_device *dev, uint64_t shift, uint64_t value)
{
	char *at;

	ASSERT_OK(strait_mapping_acquire(r->m, dev, 0, LEN, STRAIT_INTENT_READ, (void **)&at));
	for (uint64_t i = 0; i < PLACES; i++) {
		if (dev)
			device_expect(r->ctx, at + place(i, shift), &value, sizeof(value));
		else
			ASSERT_MEMEQ(at + place(i, shift), &value, sizeof(value));
	}
	ASSERT_OK(strait_mapping_release(r->m, dev, 0, LEN, STRAIT_INTENT_READ));
}

TEST_VARIANTS(only_changes_move, struct mapping_mode, modes)
{
	struct strait_mapping_info before, after;
	struct mapping_rig r;

	open_wide(&r, v);
	expect(&r, r.dev, 0, 0);
	for (uint64_t round = 1; round < 4; round++) {
		before = mapping_info_of(r.m);
		change(&r, NULL, round, round);
		expect(&r, r.dev, round, round);
		after = mapping_info_of(r.m);
		ASSERT_EQ(after.to_device_bytes - before.to_device_bytes, PLACES * G);
		change(&r, r.dev, round + 10, round + 100);
		expect(&r, NULL, round + 10, round + 100);
		ASSERT_EQ(mapping_info_of(r.m).to_host_bytes - after.to_host_bytes, PLACES * G);
	}
	after = mapping_info_of(r.m);
	ASSERT_EQ(after.conflicts, 0);
	ASSERT_EQ(after.declared, 0);
	ASSERT_EQ(after.acquired, 0);
	/* Nothing is stale. */
	expect(&r, r.dev, 13, 103);
	expect(&r, NULL, 13, 103);
	ASSERT_EQ(mapping_info_of(r.m).copies, after.copies);
	mapping_rig_close(&r);
}

/* The error of one thread is that of the call. What the others copied stays, and the rest follows when it can be read. */
TEST_VARIANTS(a_part_cannot_be_read, struct mapping_mode, modes)
{
	struct mapping_rig r;

	if (v->flags & STRAIT_MAPPING_COPY)
		SKIP("the CPU's stores are written to the file when a device acquires them");
	open_wide(&r, v);
	expect(&r, r.dev, 0, 0);
	change(&r, NULL, 1, 1);
	ASSERT_EQ(truncate(r.path, (off_t)(LEN / 2 + 2 * STEP)), 0);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 0, LEN, STRAIT_INTENT_READ, NULL), -EFAULT);
	ASSERT_EQ(mapping_info_of(r.m).acquired, 0);
	ASSERT_EQ(truncate(r.path, (off_t)LEN), 0);
	change(&r, NULL, 1, 2);
	expect(&r, r.dev, 1, 2);
	mapping_rig_close(&r);
}

#define READERS 3u
#define ROUNDS 10u

struct reader {
	struct mapping_rig *r;
	pthread_barrier_t *turn;
};

static void *read_rounds(void *arg)
{
	const struct reader *d = arg;

	for (uint64_t round = 1; round <= ROUNDS; round++) {
		pthread_barrier_wait(d->turn);
		expect(d->r, d->r->dev, 5, round);
		pthread_barrier_wait(d->turn);
	}
	return NULL;
}

/* Threads that acquire the same changes at the same time share the work: each waits for what another one copies. */
TEST_VARIANTS_TIMEOUT(several_acquirers, struct mapping_mode, modes, 120)
{
	pthread_barrier_t turn;
	pthread_t threads[READERS];
	struct mapping_rig r;
	struct reader d;

	open_wide(&r, v);
	d = (struct reader){ &r, &turn };
	ASSERT_EQ(pthread_barrier_init(&turn, NULL, READERS + 1), 0);
	for (unsigned int i = 0; i < READERS; i++)
		thread_start(&threads[i], read_rounds, &d);
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		change(&r, NULL, 5, round);
		pthread_barrier_wait(&turn);
		pthread_barrier_wait(&turn);
	}
	for (unsigned int i = 0; i < READERS; i++)
		thread_join(threads[i]);
	pthread_barrier_destroy(&turn);
	/* All of it once, then the changes. */
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes, LEN + (ROUNDS - 1) * PLACES * G);
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	mapping_rig_close(&r);
}
