/* SPDX-License-Identifier: MIT */
/* Registered page cache: for one transfer, or cached while a promise or a read lease holds. */
#include "common.h"

#include <signal.h>
#include <time.h>

#define LEN (MIB(24) + 100)

static struct strait_context *ctx;
static struct strait_region *r;
static const char *path;
static unsigned char *want;

static void begin(uint64_t budget)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .pinned_budget = budget };

	ctx = context_new(&opts);
	r = region_new(device_named(ctx, "emu"), LEN);
	path = strdup(make_file("file", LEN, 1));
	want = pattern_new(0, LEN, 1);
}

static void end(void)
{
	strait_region_close(r);
	strait_context_close(ctx);
	free((char *)path);
	free(want);
	ASSERT_EQ(stats_of(NULL).registered_bytes, 0);
}

static void read_all(struct strait_endpoint *ep)
{
	struct strait_result res;

	ASSERT_OK(strait_region_fill(r, 0, 0, LEN));
	res = move(STRAIT_READ, ROUTE(PAGECACHE), ep, 0, r, 0, LEN);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, LEN);
	ASSERT_EQ(res.routes, ROUTE(PAGECACHE));
	region_expect(r, 0, want, LEN);
}

TEST(registered_for_one_transfer)
{
	struct strait_endpoint *ep;
	struct strait_stats s;

	begin(0);
	ep = file_new(ctx, path, O_RDONLY, 0);
	ASSERT_FALSE(file_info(ep).caps & STRAIT_FILE_UNCHANGED);
	for (int i = 0; i < 3; i++) {
		read_all(ep);
		s = stats_of(ctx);
		ASSERT_EQ(s.registered_bytes, 0);
		ASSERT_EQ(s.registration_hits, 0);
		ASSERT_GE(s.registrations, (uint64_t)(i + 1) * (on_cuda() ? 1 : LEN / MIB(8)));
	}
	strait_endpoint_close(ep);
	end();
}

TEST(cached_under_a_promise)
{
	struct strait_endpoint *ep, *other;
	struct strait_stats first, second;

	begin(0);
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	ASSERT_TRUE(file_info(ep).caps & STRAIT_FILE_UNCHANGED);
	read_all(ep);
	first = stats_of(ctx);
	ASSERT_GE(first.registered_bytes, LEN);
	ASSERT_LT(first.registered_bytes, LEN + 4096);
	ASSERT_EQ(first.registration_hits, 0);
	read_all(ep);
	second = stats_of(ctx);
	ASSERT_EQ(second.registrations, first.registrations);
	ASSERT_EQ(second.registration_hits, first.registrations);
	ASSERT_EQ(second.registered_bytes, first.registered_bytes);
	/* The promise belongs to one endpoint, not to the file. */
	other = file_new(ctx, path, O_RDONLY, 0);
	read_all(other);
	ASSERT_EQ(stats_of(ctx).registration_hits, second.registration_hits);
	strait_endpoint_close(other);
	/* Unaligned pieces of cached windows. */
	for (uint64_t off = 3; off < LEN; off += MIB(3) + 11) {
		uint64_t n = min_u64(MIB(9), LEN - off);

		ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), ep, off, r, 0, n).bytes, n);
		region_expect(r, 0, want + off, n);
	}
	strait_endpoint_close(ep);
	ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
	end();
}

/* Short reads on a queue are copied from cached windows, once these have paid, also across the border of two windows. */
TEST(short_transfers_in_cached_windows)
{
	enum { N = 64 };
	struct strait_transfer t[N];
	struct strait_result res[N];
	struct strait_endpoint *ep;
	struct strait_queue *q;
	uint64_t in_place = 0;

	begin(0);
	q = queue_new(ctx, 0);
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	for (int round = 0; in_place < N / 8; round++) {
		in_place = 0;
		for (uint64_t i = 0; i < N; i++)
			t[i] = (struct strait_transfer){ .endpoint = ep,
							 .region = r,
							 .endpoint_offset = (i % 3 + 1) * MIB(8) - i * 3,
							 .region_offset = i * 200,
							 .length = 150,
							 .user_data = i };
		/* One at the end of the file, and one past it. */
		t[0].endpoint_offset = LEN - 20;
		t[1].endpoint_offset = LEN;
		ASSERT_OK(strait_region_fill(r, 0, 0, N * 200));
		ASSERT_OK(strait_queue_submit(q, t, N));
		ASSERT_EQ(strait_queue_wait(q, N, N, STRAIT_FOREVER, res), N);
		for (int i = 0; i < N; i++) {
			const struct strait_transfer *of = &t[res[i].user_data];

			ASSERT_EQ(res[i].status, 0);
			ASSERT_EQ(res[i].bytes, min_u64(150, LEN - of->endpoint_offset));
			region_expect(r, of->region_offset, want + min_u64(of->endpoint_offset, LEN - 20),
				      res[i].bytes);
			in_place += res[i].routes == ROUTE(PAGECACHE);
		}
	}
	ASSERT_GT(stats_of(ctx).registration_hits, 0);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	end();
}

/* A file may grow without breaking the promise, and new bytes can be read. */
TEST(grown_under_a_promise)
{
	uint64_t more = MIB(9) + 333;
	struct strait_endpoint *ep;
	struct strait_region *larger;
	unsigned char *all;

	begin(0);
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	larger = region_new(device_named(ctx, "emu"), LEN + more);
	read_all(ep);
	all = pattern_new(0, LEN + more, 1);
	write_at(path, all + LEN, more, LEN);
	for (uint32_t routes = 0; routes <= ROUTE(STAGED); routes += ROUTE(PAGECACHE)) {
		ASSERT_OK(strait_region_fill(larger, 0, 0, LEN + more));
		ASSERT_EQ(move(STRAIT_READ, routes, ep, 0, larger, 0, LEN + more).bytes, LEN + more);
		region_expect(larger, 0, all, LEN + more);
		ASSERT_EQ(move(STRAIT_READ, routes, ep, LEN - 10, larger, 0, 20).bytes, 20);
		region_expect(larger, 0, all + LEN - 10, 20);
	}
	free(all);
	strait_region_close(larger);
	strait_endpoint_close(ep);
	end();
}

/* Cached registrations never exceed the budget; the least recently used is evicted first. */
TEST_WHERE(within_the_budget, where_not_cuda) /* its windows are longer than the budget */
TEST(within_the_budget)
{
	struct strait_endpoint *ep;
	uint64_t state = 1;

	begin(MIB(17));
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	for (int i = 0; i < 60; i++) {
		uint64_t off = prng_below(&state, LEN), n = min_u64(1 + prng_below(&state, MIB(12)), LEN - off);

		ASSERT_EQ(move(STRAIT_READ, i % 2 ? ROUTE(PAGECACHE) : 0, ep, off, r, 0, n).bytes, n);
		ASSERT_LE(stats_of(ctx).registered_bytes, MIB(17));
		region_expect(r, 0, want + off, n);
	}
	ASSERT_GT(stats_of(ctx).registered_bytes, 0);
	ASSERT_GT(stats_of(ctx).registration_hits, 0);
	/* The last window read is still cached; others were evicted for it. */
	ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), ep, 0, r, 0, 4096).bytes, 4096);
	state = stats_of(ctx).registrations;
	ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), ep, MIB(1), r, 0, 4096).bytes, 4096);
	ASSERT_EQ(stats_of(ctx).registrations, state);
	strait_endpoint_close(ep);
	end();
}

/* Reads @n adjacent pieces of @len bytes into the region. Returns how many were read in place. */
static unsigned int read_pieces_of(struct strait_queue *q, struct strait_endpoint *ep, const uint64_t *off,
				   unsigned int n, uint64_t len)
{
	struct strait_transfer t[16] = { 0 };
	struct strait_result res[16];
	unsigned int in_place = 0;

	for (uint64_t i = 0; i < n; i++)
		t[i] = (struct strait_transfer){ .endpoint = ep,
						 .region = r,
						 .endpoint_offset = off[i],
						 .region_offset = i * len,
						 .length = len,
						 .user_data = i };
	ASSERT_OK(strait_queue_submit(q, t, n));
	ASSERT_EQ(strait_queue_wait(q, n, n, STRAIT_FOREVER, res), (int)n);
	for (unsigned int i = 0; i < n; i++) {
		ASSERT_EQ(res[i].status, 0);
		ASSERT_EQ(res[i].bytes, len);
		region_expect(r, res[i].user_data * len, want + off[res[i].user_data], len);
		in_place += res[i].routes == ROUTE(PAGECACHE);
	}
	return in_place;
}

/* Random small reads of the whole file: they do not evict each other's windows every time. */
TEST_WHERE(small_reads_of_more_than_the_budget, where_not_cuda) /* its windows are longer than the budget */
TEST(small_reads_of_more_than_the_budget)
{
	unsigned int rounds = 2000 / test_slow(), in_place = 0;
	struct strait_endpoint *ep;
	struct strait_queue *q;
	uint64_t state = 1;

	begin(MIB(17));
	q = queue_new(ctx, 0);
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	for (unsigned int round = 0; round < rounds; round++) {
		uint64_t off[3];

		for (int i = 0; i < 3; i++)
			off[i] = prng_below(&state, LEN - 4096);
		in_place += read_pieces_of(q, ep, off, 3, 4096);
		/* The thread that registers may be late where processors are few. */
		if (round % 64 == 63 && !stats_of(ctx).registrations)
			sleep_ms(2);
	}
	/* A window that is read about as often as those that are registered evicts none. */
	ASSERT_LE(stats_of(ctx).registrations, 20 + rounds * 3 / 8);
	ASSERT_GT(in_place, rounds * 3 / 4);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	end();
}

/* The same sequentially: the window that is being read replaces another. */
TEST_WHERE(small_reads_in_a_row_of_more_than_the_budget, where_not_cuda) /* its windows are longer than the budget */
TEST(small_reads_in_a_row_of_more_than_the_budget)
{
	unsigned int in_place = 0, all = 0;
	struct strait_endpoint *ep;
	struct strait_queue *q;

	begin(MIB(17));
	q = queue_new(ctx, 0);
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	for (int round = 0; round < 2; round++) {
		for (uint64_t at = 0; at + KIB(256) <= LEN; at += KIB(256), all += 16) {
			uint64_t off[16];

			for (uint64_t i = 0; i < 16; i++)
				off[i] = at + i * KIB(16);
			in_place += read_pieces_of(q, ep, off, 16, KIB(16));
		}
	}
	ASSERT_GT(in_place, all / 8);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	end();
}

/* Windows that are not cached are not looked up in the page cache with every read. */
TEST_WHERE(small_reads_of_a_file_not_in_memory, where_not_cuda) /* its windows are longer than the file */
TEST(small_reads_of_a_file_not_in_memory)
{
	struct strait_endpoint *ep;
	struct strait_queue *q;
	uint64_t state = 1;

	begin(0);
	if (!evict(path, 0, 0))
		SKIP("pages cannot be evicted here");
	q = queue_new(ctx, 0);
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	inject(OS_CACHESTAT, UINT32_MAX, 0, 0);
	for (int i = 0; i < 200; i++) {
		uint64_t off = prng_below(&state, LEN / 4096) * 4096;

		read_pieces_of(q, ep, &off, 1, 4096);
	}
	/* Each read but the first asks for itself. */
	ASSERT_LE(inject_calls(), 199 + 200 / 16);
	inject_off();
	strait_queue_close(q);
	strait_endpoint_close(ep);
	end();
}

TEST(a_budget_too_small_for_any)
{
	struct strait_endpoint *ep;

	begin(MIB(1));
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	read_all(ep);
	read_all(ep);
	/* Only the short window at the end of the file fits. */
	ASSERT_LE(stats_of(ctx).registered_bytes, MIB(1));
	strait_endpoint_close(ep);
	end();
}

static void *read_pieces(void *arg)
{
	uint64_t state = (uint64_t)(uintptr_t)&state;
	struct strait_region *mine = region_new(device_named(ctx, "emu"), MIB(3));

	for (unsigned int i = 0; i < 100 / test_slow(); i++) {
		uint64_t off = prng_below(&state, LEN), n = min_u64(1 + prng_below(&state, MIB(3)), LEN - off);

		ASSERT_EQ(move(STRAIT_READ, i % 2 ? ROUTE(PAGECACHE) : 0, arg, off, mine, 0, n).bytes, n);
		region_expect(mine, 0, want + off, n);
		ASSERT_LE(stats_of(ctx).registered_bytes, MIB(20));
	}
	strait_region_close(mine);
	return NULL;
}

TEST(many_threads_share_cached_windows)
{
	struct strait_endpoint *ep[2];
	pthread_t t[8];

	begin(MIB(20));
	for (int i = 0; i < 2; i++)
		ep[i] = file_new(ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	for (int i = 0; i < 8; i++)
		thread_start(&t[i], read_pieces, ep[i % 2]);
	for (int i = 0; i < 8; i++)
		thread_join(t[i]);
	strait_endpoint_close(ep[0]);
	strait_endpoint_close(ep[1]);
	end();
}

static struct strait_endpoint *leased(uint32_t flags)
{
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_LEASE | flags);

	if (!(file_info(ep).caps & STRAIT_FILE_UNCHANGED))
		SKIP("this file system gives no read leases");
	return ep;
}

/* In a child: opens the file for writing, which must not take long, and changes it. */
static void write_other_bytes(void *arg)
{
	int fd = open(path, O_WRONLY);

	(void)arg;
	ASSERT_GE(fd, 0);
	ASSERT_EQ(pwrite(fd, "changed", 7, 1000), 7);
	close(fd);
}

static void cut_it(void *arg)
{
	(void)arg;
	ASSERT_EQ(truncate(path, 5000), 0);
}

static uint64_t lease_break_ns(void)
{
	FILE *f = fopen("/proc/sys/fs/lease-break-time", "re");
	unsigned int s = 45;

	if (f) {
		if (fscanf(f, "%u", &s) != 1)
			s = 45;
		fclose(f);
	}
	return s * 1000000000ull;
}

TEST(cached_under_a_lease_until_a_writer_opens)
{
	struct strait_endpoint *ep;
	struct strait_stats s;
	uint64_t t;

	begin(0);
	ep = leased(0);
	read_all(ep);
	read_all(ep);
	s = stats_of(ctx);
	ASSERT_GE(s.registered_bytes, LEN);
	ASSERT_GT(s.registration_hits, 0);
	t = os_now_ns();
	in_child(write_other_bytes, NULL);
	/* The writer did not have to wait for the kernel's lease-break timeout. */
	ASSERT_LT(os_now_ns() - t, lease_break_ns() / 2);
	ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
	ASSERT_FALSE(file_info(ep).caps & STRAIT_FILE_UNCHANGED);
	memcpy(want + 1000, "changed", 7);
	read_all(ep);
	read_all(ep);
	/* From then on nothing is cached. */
	ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
	ASSERT_EQ(stats_of(ctx).registration_hits, s.registration_hits);
	strait_endpoint_close(ep);
	end();
}

/* With a promise in addition to the lease flag, a writer need not wait at all. */
TEST(a_lease_and_a_promise)
{
	struct strait_endpoint *ep;
	uint64_t t;

	begin(0);
	ep = leased(STRAIT_FILE_IMMUTABLE);
	read_all(ep);
	ASSERT_GE(stats_of(ctx).registered_bytes, LEN);
	t = os_now_ns();
	in_child(write_other_bytes, NULL);
	ASSERT_LT(os_now_ns() - t, lease_break_ns() / 2);
	strait_endpoint_close(ep);
	end();
}

static atomic_uint read_whole;
static atomic_bool read_enough;

static void *read_on(void *arg)
{
	struct strait_region *mine = region_new(device_named(ctx, "emu"), LEN);

	for (unsigned int i = 0; !atomic_load(&read_enough); i++) {
		ASSERT_EQ(move(STRAIT_READ, i % 2 ? ROUTE(PAGECACHE) : 0, arg, 0, mine, 0, LEN).status, 0);
		atomic_fetch_add(&read_whole, 1);
	}
	strait_region_close(mine);
	return NULL;
}

/* A lease is broken during transfers that use the windows. */
TEST(a_lease_broken_while_reading)
{
	struct strait_endpoint *ep;
	pthread_t t[2];

	for (int round = 0; round < 3; round++) {
		begin(0);
		ep = leased(0);
		atomic_store(&read_whole, 0);
		atomic_store(&read_enough, false);
		for (int i = 0; i < 2; i++)
			thread_start(&t[i], read_on, ep);
		/* Both read from cached windows before, during and after the break. */
		while (atomic_load(&read_whole) < 4)
			sleep_ms(1);
		ASSERT_GE(stats_of(ctx).registered_bytes, LEN);
		in_child(round == 1 ? cut_it : write_other_bytes, NULL);
		atomic_store(&read_whole, 0);
		while (atomic_load(&read_whole) < 4)
			sleep_ms(1);
		atomic_store(&read_enough, true);
		for (int i = 0; i < 2; i++)
			thread_join(t[i]);
		if (round == 1) {
			ASSERT_EQ(move(STRAIT_READ, 0, ep, 0, r, 0, LEN).bytes, 5000);
		} else {
			memcpy(want + 1000, "changed", 7);
			read_all(ep);
		}
		strait_endpoint_close(ep);
		end();
	}
}

/* A file that is open for writing gets no lease, and is read nevertheless. */
TEST(no_lease_to_be_had)
{
	struct strait_endpoint *ep;
	int fd;

	begin(0);
	fd = open(path, O_RDWR);
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_LEASE);
	ASSERT_FALSE(file_info(ep).caps & STRAIT_FILE_UNCHANGED);
	read_all(ep);
	ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
	strait_endpoint_close(ep);
	close(fd);
	ep = file_new(ctx, path, O_RDWR, STRAIT_FILE_LEASE);
	ASSERT_FALSE(file_info(ep).caps & STRAIT_FILE_UNCHANGED);
	read_all(ep);
	strait_endpoint_close(ep);
	end();
}

/* Many leases, given back in any order, and broken by writers at the same time. */
TEST(many_leases)
{
	enum { N = 40 };
	struct strait_endpoint *ep[N];
	char name[N][32];

	begin(0);
	strait_endpoint_close(leased(0));
	for (int i = 0; i < N; i++) {
		snprintf(name[i], sizeof(name[i]), "lease%d", i);
		ep[i] = file_new(ctx, make_file(name[i], 5000, 1), O_RDONLY, STRAIT_FILE_LEASE);
		ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), ep[i], 0, r, 0, 5000).bytes, 5000);
	}
	ASSERT_EQ(stats_of(ctx).registered_bytes, N * 8192);
	for (int i = 0; i < N; i += 2) {
		const char *p = test_path(name[i]);
		int fd;

		/* Do not wait for it: the next one may start meanwhile. */
		ASSERT_EQ(open(p, O_WRONLY | O_NONBLOCK), -1);
		ASSERT_EQ(errno, EWOULDBLOCK);
		if (i % 4 == 0)
			strait_endpoint_close(ep[i]);
		do
			fd = open(p, O_WRONLY | O_NONBLOCK);
		while (fd < 0 && errno == EWOULDBLOCK);
		ASSERT_GE(fd, 0);
		close(fd);
	}
	ASSERT_EQ(stats_of(ctx).registered_bytes, N / 2 * 8192);
	for (int i = 0; i < N; i++)
		if (i % 4)
			strait_endpoint_close(ep[i]);
	end();
}

/* The application does not get the signal of a broken lease. */
TEST(the_application_gets_no_signal)
{
	struct strait_endpoint *ep;
	sigset_t pending;

	begin(0);
	ep = leased(0);
	signal(SIGIO, SIG_DFL);
	in_child(write_other_bytes, NULL);
	sleep_ms(20);
	sigpending(&pending);
	ASSERT_FALSE(sigismember(&pending, SIGIO));
	strait_endpoint_close(ep);
	end();
}
