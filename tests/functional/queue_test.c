/* SPDX-License-Identifier: MIT */
/* Queues: the guarantees of their calls. */
#include "queue_rig.h"

/* A long transfer that makes no progress delays neither short ones nor another long one. */
TEST(one_does_not_wait_for_another)
{
	struct strait_result res;
	struct rig g;

	rig_open(&g, 4, 0);
	shut_gate(OS_PWRITE);
	rig_submit(&g, STRAIT_WRITE, 0, LEN, 1);
	wait_at_gate(1);
	rig_submit(&g, STRAIT_READ, 0, 100, 2);
	ASSERT_EQ(strait_queue_wait(g.q, 1, 1, STRAIT_FOREVER, &res), 1);
	ASSERT_EQ(res.user_data, 2);
	rig_submit(&g, STRAIT_READ, 0, MIB(4), 3);
	ASSERT_EQ(strait_queue_wait(g.q, 1, 1, STRAIT_FOREVER, &res), 1);
	ASSERT_EQ(res.user_data, 3);
	ASSERT_EQ(res.bytes, MIB(4));
	rig_submit(&g, STRAIT_WRITE, 0, MIB(4), 4);
	wait_at_gate(2);
	rig_submit(&g, STRAIT_READ, 0, 100, 5);
	ASSERT_EQ(strait_queue_wait(g.q, 1, 1, STRAIT_FOREVER, &res), 1);
	ASSERT_EQ(res.user_data, 5);
	open_gate();
	ASSERT_EQ(strait_queue_wait(g.q, 1, 1, STRAIT_FOREVER, &res), 1);
	ASSERT_EQ(strait_queue_wait(g.q, 1, 1, STRAIT_FOREVER, &res), 1);
	os_inject = NULL;
	rig_close(&g);
}

TEST(waiting)
{
	struct strait_result res[8];
	struct rig g;
	uint64_t t;

	rig_open(&g, 0, 0);
	/* Nothing in flight: nothing to wait for. */
	ASSERT_EQ(strait_queue_wait(g.q, 0, 8, STRAIT_FOREVER, res), 0);
	ASSERT_EQ(strait_queue_wait(g.q, 8, 8, STRAIT_FOREVER, res), 0);
	ASSERT_EQ(strait_queue_wait(g.q, 0, 0, 0, NULL), 0);
	ASSERT_EQ(strait_queue_wait(g.q, 2, 1, 0, res), -EINVAL);
	ASSERT_EQ(strait_queue_wait(g.q, 0, 1, -1, res), -EINVAL);
	ASSERT_EQ(strait_queue_wait(g.q, 0, 1, 0, NULL), -EINVAL);
	ASSERT_EQ(strait_queue_wait(NULL, 0, 1, 0, res), -EINVAL);

	shut_gate(OS_PWRITE);
	rig_submit(&g, STRAIT_WRITE, 0, LEN, 1);
	wait_at_gate(1);
	ASSERT_EQ(strait_queue_wait(g.q, 1, 8, 0, res), 0);
	t = os_now_ns();
	ASSERT_EQ(strait_queue_wait(g.q, 1, 8, 20000000, res), 0);
	ASSERT_GE(os_now_ns() - t, 20000000);
	/* At the deadline fewer than requested are returned; the rest can be fetched later. */
	rig_submit(&g, STRAIT_READ, 0, 10, 2);
	rig_submit(&g, STRAIT_READ, 10, 10, 3);
	ASSERT_EQ(strait_queue_wait(g.q, 2, 2, STRAIT_FOREVER, res), 2);
	rig_submit(&g, STRAIT_READ, 0, 10, 4);
	while (!strait_queue_wait(g.q, 0, 8, 0, res))
		;
	ASSERT_EQ(res[0].user_data, 4);
	t = os_now_ns();
	ASSERT_EQ(strait_queue_wait(g.q, 1, 1, 1000, res), 0);
	ASSERT_GE(os_now_ns() - t, 1000);
	open_gate();
	/* More requested than submitted: all are returned. */
	ASSERT_EQ(strait_queue_wait(g.q, 8, 8, STRAIT_FOREVER, res), 1);
	ASSERT_EQ(res[0].user_data, 1);
	ASSERT_EQ(res[0].bytes, LEN);
	os_inject = NULL;
	/* At most as many as the array holds. */
	for (uint64_t i = 0; i < 8; i++)
		rig_submit(&g, STRAIT_READ, i * 10, 10, i);
	ASSERT_EQ(strait_queue_wait(g.q, 5, 5, STRAIT_FOREVER, res), 5);
	ASSERT_EQ(strait_queue_wait(g.q, 3, 8, STRAIT_FOREVER, res), 3);
	rig_close(&g);
}

TEST(all_or_nothing)
{
	struct strait_transfer t[4];
	struct strait_region *gone;
	struct strait_stats before;
	struct strait_result res[4];
	struct rig g, other;

	rig_open(&g, 0, 4);
	rig_open(&other, 0, 4);
	gone = region_new(g.dev, 4096);
	ASSERT_OK(strait_region_revoke(gone));
	before = stats_of(g.ctx);
	for (int bad = 0; bad < 9; bad++) {
		int rc = -EINVAL;

		for (uint64_t i = 0; i < 4; i++)
			t[i] = rig_request(&g, STRAIT_READ, i * 100, 100, i);
		switch (bad) {
		case 0:
			t[3].region_offset = LEN - 99;
			break;
		case 1:
			t[2].op = 2;
			break;
		case 2:
			t[1].flags = 1;
			break;
		case 3:
			t[3].endpoint = NULL;
			break;
		case 4:
			t[3].region = NULL;
			break;
		case 5:
			t[2].region = other.r;
			break;
		case 6:
			t[1].endpoint = other.ep;
			break;
		case 7:
			t[3].endpoint_offset = UINT64_MAX;
			break;
		case 8:
			t[3].region = gone;
			rc = -ENODEV;
			break;
		}
		ASSERT_EQ(strait_queue_submit(g.q, t, 4), rc);
		ASSERT_EQ(strait_queue_wait(g.q, 1, 1, STRAIT_FOREVER, res), 0);
	}
	ASSERT_EQ(stats_of(g.ctx).transfers, before.transfers);
	/* Their entries are free again, and no reference on the region is left. */
	for (uint64_t i = 0; i < 4; i++)
		t[i] = rig_request(&g, STRAIT_READ, i * 100, 100, i);
	ASSERT_OK(strait_queue_submit(g.q, t, 4));
	ASSERT_EQ(strait_queue_submit(g.q, t, 1), -EAGAIN);
	ASSERT_EQ(strait_queue_wait(g.q, 2, 2, STRAIT_FOREVER, res), 2);
	ASSERT_EQ(strait_queue_submit(g.q, t, 3), -EAGAIN);
	t[0] = rig_request(&g, STRAIT_READ, 1000, 100, 0);
	t[1] = rig_request(&g, STRAIT_READ, 2000, 100, 1);
	ASSERT_OK(strait_queue_submit(g.q, t, 2));
	ASSERT_EQ(strait_queue_submit(g.q, t, 0), 0);
	ASSERT_EQ(strait_queue_submit(g.q, NULL, 1), -EINVAL);
	ASSERT_EQ(strait_queue_submit(g.q, NULL, 0), 0);
	ASSERT_EQ(strait_queue_wait(g.q, 4, 4, STRAIT_FOREVER, res), 4);
	strait_region_close(gone);
	rig_close(&g);
	rig_close(&other);
}

/* What is wrong with one transfer is reported in its result. */
TEST(errors_come_as_results)
{
	struct strait_endpoint *writable;
	struct strait_result res[6];
	struct strait_transfer t[6];
	struct rig g;

	rig_open(&g, 0, 0);
	writable = file_new(g.ctx, test_path("file"), O_WRONLY, 0);
	for (uint64_t i = 0; i < 6; i++)
		t[i] = rig_request(&g, STRAIT_READ, i * MIB(1), i % 2 ? 100 : MIB(1), i);
	t[0].endpoint = t[1].endpoint = writable;
	t[2].routes = t[3].routes = ROUTE(P2P);
	ASSERT_OK(strait_queue_submit(g.q, t, 6));
	ASSERT_EQ(strait_queue_wait(g.q, 6, 6, STRAIT_FOREVER, res), 6);
	for (int i = 0; i < 6; i++) {
		int want = res[i].user_data < 2 ? -EBADF : res[i].user_data < 4 ? -EOPNOTSUPP : 0;

		ASSERT_EQ(res[i].status, want);
		if (want)
			ASSERT_EQ(res[i].bytes, 0);
	}
	strait_endpoint_close(writable);
	rig_close(&g);
}

TEST(canceling)
{
	struct strait_stats before;
	struct strait_result res[8];
	struct rig g;
	int n;

	rig_open(&g, 1, 8);
	before = stats_of(g.ctx);
	shut_gate(OS_PWRITE);
	rig_submit(&g, STRAIT_WRITE, 0, LEN, 1);
	wait_at_gate(1);
	/* The one thread is busy: these have not started. */
	rig_submit(&g, STRAIT_READ, 0, LEN, 2);
	rig_submit(&g, STRAIT_READ, 0, 10, 3);
	rig_submit(&g, STRAIT_READ, 0, 10, 2);
	ASSERT_EQ(strait_queue_cancel(g.q, 9), -ENOENT);
	ASSERT_EQ(strait_queue_cancel(g.q, 2), 2);
	ASSERT_EQ(strait_queue_cancel(g.q, 2), -ENOENT);
	n = strait_queue_wait(g.q, 2, 8, STRAIT_FOREVER, res);
	ASSERT_EQ(n, 2);
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(res[i].user_data, 2);
		ASSERT_EQ(res[i].status, -ECANCELED);
		ASSERT_EQ(res[i].bytes, 0);
	}
	/* This one is in flight: it stops at the next piece. */
	ASSERT_EQ(strait_queue_cancel(g.q, 1), 1);
	open_gate();
	ASSERT_EQ(strait_queue_wait(g.q, 2, 8, STRAIT_FOREVER, res), 2);
	for (int i = 0; i < 2; i++) {
		if (res[i].user_data == 3) {
			ASSERT_EQ(res[i].status, 0);
			continue;
		}
		ASSERT_EQ(res[i].user_data, 1);
		ASSERT_EQ(res[i].status, -ECANCELED);
		ASSERT_LT(res[i].bytes, LEN);
	}
	os_inject = NULL;
	ASSERT_EQ(strait_queue_cancel(g.q, 1), -ENOENT);
	ASSERT_EQ(strait_queue_cancel(NULL, 1), -EINVAL);
	ASSERT_EQ(stats_of(g.ctx).canceled - before.canceled, 3);
	ASSERT_EQ(stats_of(g.ctx).errors - before.errors, 3);
	rig_close(&g);
}

/* A canceled read leaves a prefix, and the memory after it unchanged. */
TEST_WHERE(canceling_a_slow_read, where_emulated)
TEST(canceling_a_slow_read)
{
	struct strait_emu_model slow = { .size = sizeof(slow), .bytes_per_second = MIB(64) };
	struct strait_emu_model fast = { .size = sizeof(fast) };
	/* A quarter of the file can be in flight, so most of it has not started. */
	const struct strait_context_opts opts = {
		.size = sizeof(opts), .threads = 2, .chunk_bytes = MIB(1), .pool_bytes = MIB(4)
	};
	struct strait_result res;
	struct rig g;

	rig_open_with(&g, &opts, 8);
	for (uint32_t routes = 0; routes <= ROUTE(STAGED); routes += ROUTE(PAGECACHE)) {
		struct strait_transfer t = rig_request(&g, STRAIT_READ, 0, LEN, 7);
		unsigned int tries = 0;

		t.routes = routes;
		/*
		 * On a busy machine this thread may come too late: the read has ended, or all of it is in flight. Where
		 * the page cache is registered all of it may be in flight at once on any machine.
		 */
		do {
			int found;

			ASSERT_LT(tries++, 50);
			ASSERT_OK(strait_region_fill(g.r, 0, 0x3c, LEN));
			ASSERT_OK(strait_emu_set_model(g.dev, &slow));
			ASSERT_OK(strait_queue_submit(g.q, &t, 1));
			sleep_ms(10);
			found = strait_queue_cancel(g.q, 7);
			ASSERT_TRUE(found == 1 || found == -ENOENT);
			ASSERT_EQ(strait_queue_wait(g.q, 1, 1, STRAIT_FOREVER, &res), 1);
			ASSERT_OK(strait_emu_set_model(g.dev, &fast));
			ASSERT_EQ(res.status, found != 1 || res.bytes == LEN ? 0 : -ECANCELED);
			region_expect(g.r, 0, g.want, res.bytes);
			region_expect_byte(g.r, res.bytes, 0x3c, LEN - res.bytes);
		} while (!res.status && routes == ROUTE(STAGED));
	}
	rig_close(&g);
}

TEST_WHERE(closing_with_work_in_flight, where_emulated)
TEST(closing_with_work_in_flight)
{
	struct strait_emu_model slow = { .size = sizeof(slow), .bytes_per_second = MIB(128), .latency_ns = 1000000 };
	struct rig g;

	for (int round = 0; round < 5; round++) {
		rig_open(&g, 0, 64);
		ASSERT_OK(strait_emu_set_model(g.dev, &slow));
		for (uint64_t i = 0; i < 48; i++)
			rig_submit(&g, i % 3 == 0, i * KIB(256), i % 4 ? 1000 : KIB(256), i);
		if (round % 2)
			strait_queue_wait(g.q, 1, 4, STRAIT_FOREVER, (struct strait_result[4]){ { 0 } });
		/* Handles can be closed in any order: transfers in flight hold references. */
		strait_endpoint_close(g.ep);
		if (round > 2) {
			strait_context_close(g.ctx);
			strait_region_close(g.r);
			strait_region_close(g.src);
			strait_queue_close(g.q);
		} else {
			strait_queue_close(g.q);
			strait_region_close(g.r);
			strait_region_close(g.src);
			strait_context_close(g.ctx);
		}
		free(g.want);
	}
	strait_queue_close(NULL);
	ASSERT_EQ(stats_of(NULL).pool_bytes, 0);
}

static char cut_path[4200];
static atomic_bool cut_armed;

/* Truncates the file just before its pages are copied. */
static bool cut_before_copy(enum os_call call, int64_t *ret)
{
	(void)ret;
	if (call == OS_VM_READ && atomic_exchange(&cut_armed, false))
		ASSERT_EQ(truncate(cut_path, 0), 0);
	return false;
}

/* A broken promise about one file fails no other transfer. */
TEST_WHERE(one_broken_promise_among_many, where_not_cuda) /* the pages are not copied by a call that can be injected */
TEST(one_broken_promise_among_many)
{
	enum { N = 32 }; /* one thread coalesces all of them */
	struct strait_result res[N];
	struct strait_endpoint *broken, *good;
	unsigned char *want;
	struct rig g;

	rig_open(&g, 1, 64);
	broken = file_new(g.ctx, make_file("broken", KIB(256), 2), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	good = file_new(g.ctx, make_file("good", KIB(256), 3), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	snprintf(cut_path, sizeof(cut_path), "%s", test_path("broken"));
	want = pattern_new(0, KIB(256), 3);
	/* Both files are registered. */
	ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), broken, 0, g.r, 0, 4096).bytes, 4096);
	ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), good, 0, g.r, 0, 4096).bytes, 4096);
	for (int round = 0; round < 2; round++) {
		struct strait_transfer t[N];

		for (uint64_t i = 0; i < N; i++) {
			t[i] = rig_request(&g, STRAIT_READ, i * 4096, 4096, i);
			t[i].endpoint = i % 4 == 0 ? broken : i % 4 == 1 ? good : g.ep;
		}
		ASSERT_OK(strait_region_fill(g.r, 0, 0x55, N * 4096));
		atomic_store(&cut_armed, round == 1);
		os_inject = cut_before_copy;
		ASSERT_OK(strait_queue_submit(g.q, t, N));
		ASSERT_EQ(strait_queue_wait(g.q, N, N, STRAIT_FOREVER, res), N);
		ASSERT_FALSE(atomic_load(&cut_armed));
		for (int i = 0; i < N; i++) {
			uint64_t k = res[i].user_data;

			ASSERT_EQ(res[i].status, 0);
			if (k % 4 == 0 && round) {
				ASSERT_EQ(res[i].bytes, 0);
				region_expect_byte(g.r, k * 4096, 0x55, 4096);
				continue;
			}
			ASSERT_EQ(res[i].bytes, 4096);
			if (k % 4)
				region_expect(g.r, k * 4096, (k % 4 > 1 ? g.want : want) + k * 4096, 4096);
		}
	}
	os_inject = NULL;
	free(want);
	strait_endpoint_close(broken);
	strait_endpoint_close(good);
	rig_close(&g);
}

/* Reads in place on a slow device: the submitter returns, and the first thread to come finishes them. */
TEST_WHERE(started_by_the_submitter, where_emulated)
TEST(started_by_the_submitter)
{
	enum { N = 700 };
	static const uint32_t threads[] = { 1, 4 };
	struct strait_emu_model slow = { .size = sizeof(slow), .latency_ns = 50000 };
	static struct strait_transfer t[N];
	static struct strait_result res[N];
	struct rig g;

	for (unsigned int i = 0; i < ARRAY_SIZE(threads); i++) {
		rig_open(&g, threads[i], 1024);
		rig_reopen(&g, STRAIT_FILE_IMMUTABLE);
		for (uint64_t k = 0; k < N; k++)
			t[k] = rig_request(&g, STRAIT_READ, k * 5000, 4096 - k, k);
		/* The windows are registered. */
		ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), g.ep, 0, g.r, 0, LEN).bytes, LEN);
		ASSERT_OK(strait_emu_set_model(g.dev, &slow));
		for (int round = 0; round < 3; round++) {
			int64_t patience = round ? STRAIT_FOREVER : 100000;
			unsigned int n = 0;

			ASSERT_OK(strait_region_fill(g.r, 0, 0, LEN));
			ASSERT_OK(strait_queue_submit(g.q, t, N));
			while (n < N)
				n += (unsigned int)strait_queue_wait(g.q, 1, N - n, patience, res + n);
			for (unsigned int k = 0; k < N; k++) {
				const struct strait_transfer *of = &t[res[k].user_data];

				ASSERT_EQ(res[k].status, 0);
				ASSERT_EQ(res[k].bytes, of->length);
				ASSERT_EQ(res[k].routes, ROUTE(PAGECACHE));
				region_expect(g.r, of->region_offset, g.want + of->endpoint_offset, of->length);
			}
		}
		/* No thread waits. */
		ASSERT_OK(strait_queue_submit(g.q, t, N));
		if (i) {
			strait_region_close(g.r);
			g.r = region_new(g.dev, LEN);
		}
		rig_close(&g);
	}
}

/* A waiter with a timeout is not delayed by work that it could do itself. */
static const struct slow {
	const char *name;
	uint32_t flags;
	bool device; /* or the file */
} slow_ones[] = {
	{ "device-in-place", STRAIT_FILE_IMMUTABLE, true },
	{ "device", 0, true },
	{ "file", STRAIT_FILE_DIRECT, false },
};

TEST_WHERE(a_timeout_that_passes, where_emulated)
TEST_VARIANTS(a_timeout_that_passes, struct slow, slow_ones)
{
	enum { N = 300 };
	struct strait_emu_model slow = { .size = sizeof(slow), .latency_ns = 300000000 },
				fast = { .size = sizeof(fast) };
	struct strait_transfer t[N];
	struct strait_result res[N];
	unsigned int n = 0;
	struct rig g;

	rig_open(&g, 1, 1024);
	rig_reopen(&g, v->flags);
	for (uint64_t k = 0; k < N; k++)
		t[k] = rig_request(&g, STRAIT_READ, k * 5000, 4096, k);
	for (int round = 0; round < 2; round++) {
		ASSERT_OK(strait_queue_submit(g.q, t, N));
		ASSERT_EQ(strait_queue_wait(g.q, N, N, STRAIT_FOREVER, res), N);
	}
	if (v->device)
		ASSERT_OK(strait_emu_set_model(g.dev, &slow));
	else if (file_info(g.ep).direct_reason)
		SKIP("no direct I/O: %s", strait_reason_text(file_info(g.ep).direct_reason));
	else
		shut_gate(OS_RING_SUBMIT);
	ASSERT_OK(strait_region_fill(g.r, 0, 0, LEN));
	ASSERT_OK(strait_queue_submit(g.q, t, N));
	n += (unsigned int)strait_queue_wait(g.q, N, N, 30000000, res);
	ASSERT_LT(n, v->device ? 1 : N);
	if (!v->device)
		wait_at_gate(1);
	n += (unsigned int)strait_queue_wait(g.q, N - n, N - n, 1000, res + n);
	ASSERT_LT(n, N);
	open_gate();
	ASSERT_OK(strait_emu_set_model(g.dev, &fast));
	/* A worker does it. */
	while (n < N) {
		n += (unsigned int)strait_queue_wait(g.q, 0, N - n, 0, res + n);
		sleep_ms(1);
	}
	os_inject = NULL;
	for (unsigned int k = 0; k < N; k++) {
		ASSERT_EQ(res[k].status, 0);
		ASSERT_EQ(res[k].bytes, 4096);
		region_expect(g.r, t[k].region_offset, g.want + t[k].endpoint_offset, 4096);
	}
	rig_close(&g);
}

static pthread_t waiter;

/* The waiter finds nothing in the page cache, after all workers have looked for work. */
static bool not_for_the_waiter(enum os_call call, int64_t *ret)
{
	if (call != OS_PREAD || !pthread_equal(pthread_self(), waiter))
		return false;
	sleep_ms(5);
	*ret = -EAGAIN;
	return true;
}

/* What the waiter cannot do is done by a worker, and before the timeout. */
TEST(given_back_by_the_waiter)
{
	struct strait_result res[3];
	struct rig g;

	rig_open(&g, 1, 16);
	waiter = pthread_self();
	os_inject = not_for_the_waiter;
	for (int round = 0; round < 10; round++) {
		for (uint64_t i = 0; i < 3; i++)
			rig_submit(&g, STRAIT_READ, i * 5000, 4096, i);
		ASSERT_EQ(strait_queue_wait(g.q, 3, 3, 20000000000, res), 3);
		for (int i = 0; i < 3; i++)
			ASSERT_EQ(res[i].bytes, 4096);
	}
	os_inject = NULL;
	rig_close(&g);
}

struct worker {
	struct rig *g;
	atomic_uint *done, *next;
};

static void *submit_and_fetch(void *arg)
{
	struct worker *w = arg;
	uint64_t me = atomic_fetch_add(w->next, 1), state = me;

	for (uint64_t i = 0; i < 200; i++) {
		/* Each transfer has its own range. */
		uint64_t len = prng_below(&state, i % 8 ? 5000 : LEN / 1600);
		struct strait_transfer t = rig_request(w->g, STRAIT_READ, (me * 200 + i) * (LEN / 1600), len, 1);
		struct strait_result res[4];
		int n;

		while ((n = strait_queue_submit(w->g->q, &t, 1)) == -EAGAIN)
			atomic_fetch_add(w->done, (unsigned int)strait_queue_wait(w->g->q, 1, 4, STRAIT_FOREVER, res));
		ASSERT_EQ(n, 0);
		if (i % 3 == 0)
			atomic_fetch_add(w->done, (unsigned int)strait_queue_wait(w->g->q, 0, 4, 1000, res));
	}
	return NULL;
}

TEST(many_threads_on_one_queue)
{
	static const uint32_t flags[] = { 0, STRAIT_FILE_IMMUTABLE };

	for (unsigned int k = 0; k < ARRAY_SIZE(flags); k++) {
		atomic_uint done = 0, next = 0;
		struct rig g;
		struct worker w = { &g, &done, &next };
		pthread_t t[8];
		struct strait_result res[16];
		int n;

		rig_open(&g, 0, 16);
		rig_reopen(&g, flags[k]);
		for (int i = 0; i < 8; i++)
			thread_start(&t[i], submit_and_fetch, &w);
		for (int i = 0; i < 8; i++)
			thread_join(t[i]);
		while ((n = (int)ASSERT_OK(strait_queue_wait(g.q, 16, 16, STRAIT_FOREVER, res))))
			done += (unsigned int)n;
		ASSERT_EQ(done, 8 * 200);
		ASSERT_OK(strait_region_fill(g.r, 0, 0, LEN));
		ASSERT_EQ(strait_read(g.ep, 0, g.r, 0, LEN), (ssize_t)LEN);
		region_expect(g.r, 0, g.want, LEN);
		rig_close(&g);
	}
}
