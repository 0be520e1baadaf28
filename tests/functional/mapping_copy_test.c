/* SPDX-License-Identifier: MIT */
/* Coherent mappings that give the CPU memory of its own: page faults, what is filled and removed, and errors. */
#include <sys/mman.h>

#include "mapping_rig.h"

#define LEN MIB(3)
#define CLUSTER KIB(64) /* filled by one fault */

static const struct mapping_mode modes[] = {
	{ "faults", "emu:0", STRAIT_MAPPING_COPY, false },
	{ "filled", "emu:0", STRAIT_MAPPING_COPY, true },
	{ "plain", "emu:0", STRAIT_MAPPING_COPY | STRAIT_MAPPING_COMPARE, false },
};

static bool by_faults(const struct mapping_mode *v)
{
	return v == &modes[0];
}

static void open_copy(struct mapping_rig *r, const struct mapping_mode *v)
{
	mapping_rig_open(r, v, LEN, NULL);
	if (by_faults(v) && mapping_info_of(r->m).backing != STRAIT_BACKING_COPY)
		SKIP("userfaultfd is not allowed");
}

TEST_VARIANTS(info_says_what_it_is, struct mapping_mode, modes)
{
	struct strait_mapping_info i;
	struct mapping_rig r;

	open_copy(&r, v);
	i = mapping_info_of(r.m);
	ASSERT_EQ(i.backing, STRAIT_BACKING_COPY);
	ASSERT_EQ(i.tracking, v->flags & STRAIT_MAPPING_COMPARE ? STRAIT_TRACKING_COMPARE : STRAIT_TRACKING_SCAN);
	ASSERT_EQ(i.copy_bytes, 0);
	ASSERT_EQ((uintptr_t)i.addr % CLUSTER, 0);
	mapping_rig_close(&r);
}

/* Only what is touched is filled; a page that a device changed is removed by acquire, and no other. */
TEST(fills_what_is_touched)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	open_copy(&r, &modes[0]);
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_READ, NULL));
	ASSERT_EQ(mapping_info_of(r.m).copy_bytes, 0);
	ASSERT_EQ(r.cpu[MIB(1) + 5], want[MIB(1) + 5]);
	ASSERT_EQ(mapping_info_of(r.m).faults, 1);
	ASSERT_EQ(mapping_info_of(r.m).copy_bytes, CLUSTER);
	ASSERT_MEMEQ(r.cpu, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).faults, LEN / CLUSTER);
	ASSERT_EQ(mapping_info_of(r.m).copy_bytes, LEN);
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_READ));

	side_write(&r, r.dev, MIB(2), "device", 6);
	memcpy(want + MIB(2), "device", 6);
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_READ, NULL));
	ASSERT_EQ(mapping_info_of(r.m).copy_bytes, LEN - G);
	ASSERT_MEMEQ(r.cpu, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).faults, LEN / CLUSTER + 1);
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_READ));
	/* To overwrite needs no bytes of the file. */
	ASSERT_OK(strait_mapping_refresh(r.m, 0, LEN));
	inject(OS_VM_READ, 1, 1000, -EIO);
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, MIB(1), STRAIT_INTENT_OVERWRITE, NULL));
	memset(r.cpu, 7, MIB(1));
	memset(want, 7, MIB(1));
	inject_off();
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, MIB(1), STRAIT_INTENT_OVERWRITE));
	ASSERT_EQ(mapping_info_of(r.m).error, 0);
	side_expect(&r, r.dev, 0, want, LEN);
	free(want);
	mapping_rig_close(&r);
}

/* What the CPU stored stays in its copy until another side needs it. */
TEST_VARIANTS(stores_go_to_the_file_later, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1), *old = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	open_copy(&r, v);
	memset(want + MIB(1), 9, 5 * G);
	side_write(&r, NULL, MIB(1), want + MIB(1), 5 * G);
	file_expect(r.path, 0, old, LEN);
	ASSERT_EQ(strait_mapping_refresh(r.m, MIB(1), G), -EBUSY);
	side_expect(&r, r.dev, 0, want, LEN);
	file_expect(r.path, 0, want, LEN);
	memset(want + MIB(2), 8, 2 * G);
	side_write(&r, NULL, MIB(2), want + MIB(2), 2 * G);
	ASSERT_OK(strait_mapping_flush(r.m, 0, LEN));
	file_expect(r.path, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, 0);
	free(want);
	free(old);
	mapping_rig_close(&r);
}

/* A write-back of the CPU's stores that fails keeps them. */
TEST_VARIANTS(keeps_what_cannot_be_written, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	open_copy(&r, v);
	memset(want + MIB(1), 9, 5 * G);
	side_write(&r, NULL, MIB(1), want + MIB(1), 5 * G);
	inject(OS_PWRITE, 1, 1000000, -ENOSPC);
	ASSERT_EQ(strait_mapping_sync(r.m, 0, LEN), -ENOSPC);
	ASSERT_EQ(mapping_info_of(r.m).error, -ENOSPC);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, MIB(1), 1, STRAIT_INTENT_READ, NULL), -ENOSPC);
	side_expect(&r, NULL, MIB(1), want + MIB(1), 5 * G);
	inject_off();
	ASSERT_OK(strait_mapping_sync(r.m, 0, LEN));
	file_expect(r.path, 0, want, LEN);
	free(want);
	mapping_rig_close(&r);
}

/* Pages past the end of the file hold zeros, and the error is told: no signal. */
TEST_VARIANTS(truncated_file, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	open_copy(&r, v);
	ASSERT_EQ(truncate(r.path, (off_t)MIB(1) + 100), 0);
	memset(want + MIB(1) + 100, 0, LEN - MIB(1) - 100);
	if (by_faults(v)) {
		ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_READ, NULL));
		ASSERT_MEMEQ(r.cpu, want, LEN);
		ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_READ));
		ASSERT_EQ(mapping_info_of(r.m).error, -EFAULT);
		ASSERT_EQ(strait_mapping_sync(r.m, 0, LEN), -EFAULT);
		ASSERT_EQ(mapping_info_of(r.m).error, 0);
	} else {
		ASSERT_EQ(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_READ, NULL), -EFAULT);
		side_expect(&r, NULL, 0, want, MIB(1) + 100);
	}
	ASSERT_OK(strait_mapping_sync(r.m, 0, LEN));
	/* The bytes are there again: pages with zeros in place of them are filled anew. */
	ASSERT_EQ(truncate(r.path, (off_t)LEN), 0);
	write_at(r.path, "again", 5, MIB(2));
	memcpy(want + MIB(2), "again", 5);
	ASSERT_OK(strait_mapping_refresh(r.m, 0, LEN));
	side_expect(&r, NULL, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).error, 0);
	free(want);
	mapping_rig_close(&r);
}

/* A page that cannot be read is zeros and an error; the acquire after that tries again. */
TEST(read_error)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	open_copy(&r, &modes[0]);
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_READ, NULL));
	inject(OS_VM_READ, 1, 1000000, -EIO);
	ASSERT_EQ(r.cpu[MIB(1) + 1], 0);
	ASSERT_EQ(mapping_info_of(r.m).error, -EIO);
	/* Others in the cluster were not touched, and are not filled: the handler says so after it has woken this thread. */
	while (mapping_info_of(r.m).copy_bytes > G)
		sleep_ms(1);
	ASSERT_EQ(mapping_info_of(r.m).copy_bytes, G);
	inject_off();
	ASSERT_MEMEQ(r.cpu + MIB(1) + G, want + MIB(1) + G, G);
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_READ));
	ASSERT_EQ(strait_mapping_sync(r.m, 0, LEN), -EIO);
	side_expect(&r, NULL, 0, want, LEN);
	ASSERT_OK(strait_mapping_sync(r.m, 0, LEN));
	free(want);
	mapping_rig_close(&r);
}

/* Touched without acquire: no promise but that the thread goes on. */
TEST_VARIANTS(touched_without_acquire, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	open_copy(&r, v);
	ASSERT_EQ(r.cpu[MIB(2)], by_faults(v) ? want[MIB(2)] : 0);
	r.cpu[MIB(1)] ^= 1;
	side_expect(&r, r.dev, 0, want, LEN);
	if (v->user)
		ASSERT_EQ(mapping_info_of(r.m).error, -EFAULT);
	side_expect(&r, NULL, MIB(2), want + MIB(2), MIB(1));
	free(want);
	mapping_rig_close(&r);
}

/* The CPU's memory as source and target of system calls on the mapped file itself. */
TEST_VARIANTS(system_calls_on_the_file_itself, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	int fd;

	open_copy(&r, v);
	fd = open(r.path, O_RDWR);
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_WRITE, NULL));
	ASSERT_EQ(pwrite(fd, r.cpu + MIB(1), CLUSTER, MIB(2)), (ssize_t)CLUSTER);
	memcpy(want + MIB(2), want + MIB(1), CLUSTER);
	ASSERT_EQ(pread(fd, r.cpu + MIB(1) / 2, CLUSTER, MIB(2)), (ssize_t)CLUSTER);
	memcpy(want + MIB(1) / 2, want + MIB(2), CLUSTER);
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_WRITE));
	ASSERT_OK(strait_mapping_flush(r.m, 0, LEN));
	ASSERT_OK(strait_mapping_refresh(r.m, 0, LEN));
	side_expect(&r, r.dev, 0, want, LEN);
	side_expect(&r, NULL, 0, want, LEN);
	close(fd);
	free(want);
	mapping_rig_close(&r);
}

/* What the application itself removes is zeros afterwards, and no thread hangs. */
TEST_VARIANTS(discarded_by_the_application, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	open_copy(&r, v);
	side_write(&r, NULL, 0, "abc", 3);
	ASSERT_EQ(madvise(r.cpu, 4 * G, MADV_DONTNEED), 0);
	ASSERT_EQ(r.cpu[1], 0);
	ASSERT_OK(strait_mapping_flush(r.m, 0, LEN));
	side_expect(&r, r.dev, MIB(1), want + MIB(1), MIB(1));
	free(want);
	mapping_rig_close(&r);
}

#define READERS 4

struct reader {
	struct mapping_rig *r;
	const unsigned char *want;
	atomic_bool *stop;
};

/* Loads of any part, at any time, of bytes that never change. */
__attribute__((no_sanitize("thread"))) static void *read_bytes(void *arg)
{
	const struct reader *d = arg;
	uint64_t state = (uintptr_t)arg;

	while (!atomic_load(d->stop)) {
		uint64_t at = prng_below(&state, LEN / G) * G + 100 + prng_below(&state, G - 100);

		if (((volatile unsigned char *)d->r->cpu)[at] != d->want[at])
			FAIL("offset %llu", (unsigned long long)at);
	}
	return NULL;
}

/* Pages are removed and filled under the feet of threads that read other bytes of them. */
TEST_TIMEOUT(readers_beside_acquires, 120)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct reader readers[READERS];
	pthread_t threads[READERS];
	atomic_bool stop = false;
	struct mapping_rig r;

	open_copy(&r, &modes[0]);
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_READ, NULL));
	for (int i = 0; i < READERS; i++) {
		readers[i] = (struct reader){ &r, want, &stop };
		thread_start(&threads[i], read_bytes, &readers[i]);
	}
	for (uint64_t i = 0; i < 300; i++) {
		for (uint64_t g = i % 7; g < LEN / G; g += 7)
			side_write(&r, r.dev, g * G, &i, 8);
		ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_READ, NULL));
		for (uint64_t g = i % 7; g < LEN / G; g += 7)
			ASSERT_EQ(*(volatile uint64_t *)(void *)(r.cpu + g * G), i);
		ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_READ));
		if (test_slow() > 1 && i == 30)
			break;
	}
	atomic_store(&stop, true);
	for (int i = 0; i < READERS; i++)
		thread_join(threads[i]);
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_READ));
	ASSERT_EQ(mapping_info_of(r.m).error, 0);
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	free(want);
	mapping_rig_close(&r);
}

static const struct refusal {
	const char *name;
	enum os_call call;
} refusals[] = { { "userfaultfd", OS_USERFAULTFD }, { "ioctl", OS_IOCTL }, { "eventfd", OS_EVENTFD } };

/* Where the kernel or a sandbox refuses it, the file's own mapping takes its place, and says so. */
TEST_VARIANTS(shared_where_faults_are_refused, struct refusal, refusals)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .flags = STRAIT_MAPPING_COPY };
	unsigned char *want = pattern_new(0, LEN, 1);
	struct strait_mapping *first;
	struct mapping_rig r;

	open_copy(&r, &modes[0]);
	first = r.m;
	inject(v->call, 1, 1000, -EPERM);
	ASSERT_OK(strait_mapping_open(r.ctx, r.ep, 0, 0, &o, &r.m));
	inject_off();
	ASSERT_EQ(mapping_info_of(r.m).backing, STRAIT_BACKING_SHARED);
	side_write(&r, NULL, 5, "x", 1);
	want[5] = 'x';
	side_expect(&r, r.dev, 0, want, LEN);
	strait_mapping_close(r.m);
	r.m = first;
	side_expect(&r, NULL, 0, want, LEN);
	mapping_rig_close(&r);
	free(want);
}

/* Opening fails cleanly wherever memory or threads run out. */
TEST(open_fails)
{
	static const enum os_call calls[] = { OS_MMAP, OS_THREAD };
	struct strait_mapping_opts o = { .size = sizeof(o), .flags = STRAIT_MAPPING_COPY };
	struct strait_mapping *m;
	struct mapping_rig r;
	int rc;

	open_copy(&r, &modes[0]);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		for (unsigned int nth = 1; nth < 12; nth++) {
			inject(calls[i], nth, 0, -ENOMEM);
			rc = strait_mapping_open(r.ctx, r.ep, 0, 0, &o, &m);
			inject_off();
			ASSERT_TRUE(!rc || rc == -ENOMEM);
			if (!rc)
				strait_mapping_close(m);
		}
	}
	mapping_rig_close(&r);
}

/* The CPU goes over a file larger than its budget, reads and changes all of it. */
TEST_VARIANTS(larger_than_the_budget, struct mapping_mode, modes)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .copy_budget = KIB(256) };
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	mapping_rig_open(&r, v, LEN, &o);
	for (int round = 0; round < 3; round++) {
		for (uint64_t off = 0; off < LEN; off += KIB(128)) {
			side_expect(&r, NULL, off, want + off, KIB(128));
			for (uint64_t i = off; i < off + KIB(128); i += 1000)
				want[i]++;
			side_write(&r, NULL, off, want + off, KIB(128));
			ASSERT_LE(mapping_info_of(r.m).copy_bytes, o.copy_budget);
		}
	}
	/* In one go, where pages are filled as they are touched: those that were not stored to make room. */
	if (by_faults(v)) {
		side_expect(&r, NULL, 0, want, LEN);
		ASSERT_LE(mapping_info_of(r.m).copy_bytes, o.copy_budget);
	}
	ASSERT_GE(mapping_info_of(r.m).copy_evictions, 3 * (LEN - o.copy_budget) / G);
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	ASSERT_EQ(mapping_info_of(r.m).error, 0);
	free(want);
	mapping_rig_close(&r);
}

/* What is to be kept is evicted last, and what cannot be written is not evicted. */
TEST_VARIANTS(eviction_of_copies, struct mapping_mode, modes)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .copy_budget = KIB(256) };
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	uint64_t faults;

	mapping_rig_open(&r, v, LEN, &o);
	ASSERT_OK(strait_mapping_advise(r.m, MIB(1), CLUSTER, STRAIT_ADVICE_KEEP));
	side_expect(&r, NULL, MIB(1), want + MIB(1), CLUSTER);
	for (uint64_t off = 0; off < LEN; off += CLUSTER)
		if (off != MIB(1))
			side_expect(&r, NULL, off, want + off, CLUSTER);
	faults = mapping_info_of(r.m).faults;
	side_expect(&r, NULL, MIB(1), want + MIB(1), CLUSTER);
	ASSERT_EQ(mapping_info_of(r.m).faults, faults);

	memset(want + MIB(2), 5, CLUSTER);
	side_write(&r, NULL, MIB(2), want + MIB(2), CLUSTER);
	inject(OS_PWRITE, 1, 1000000, -ENOSPC);
	ASSERT_EQ(strait_mapping_evict(r.m, NULL, 0, LEN), -ENOSPC);
	side_expect(&r, NULL, MIB(2), want + MIB(2), CLUSTER);
	inject_off();
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, MIB(2), 1, STRAIT_INTENT_READ, NULL));
	ASSERT_EQ(strait_mapping_evict(r.m, NULL, 0, LEN), -EBUSY);
	ASSERT_OK(strait_mapping_release(r.m, NULL, MIB(2), 1, STRAIT_INTENT_READ));
	ASSERT_OK(strait_mapping_evict(r.m, NULL, 0, LEN));
	ASSERT_EQ(mapping_info_of(r.m).copy_bytes, 0);
	file_expect(r.path, 0, want, LEN);
	side_expect(&r, NULL, MIB(2), want + MIB(2), CLUSTER);
	free(want);
	mapping_rig_close(&r);
}

/* Faults fill 64 KiB, or a page if accesses are random. */
TEST(random_access)
{
	struct mapping_rig r;

	open_copy(&r, &modes[0]);
	ASSERT_OK(strait_mapping_advise(r.m, 0, MIB(1), STRAIT_ADVICE_RANDOM));
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_READ, NULL));
	(void)((volatile unsigned char *)r.cpu)[KIB(512)];
	ASSERT_EQ(mapping_info_of(r.m).copy_bytes, G);
	(void)((volatile unsigned char *)r.cpu)[MIB(2)];
	ASSERT_EQ(mapping_info_of(r.m).copy_bytes, G + CLUSTER);
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_READ));
	mapping_rig_close(&r);
}
