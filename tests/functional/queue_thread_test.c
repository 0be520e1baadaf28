/* SPDX-License-Identifier: MIT */
/* Queues: whichever thread starts a transfer, one finishes it, and the descriptor becomes readable. */
#include "queue_rig.h"

#include <poll.h>
#include <sys/epoll.h>

#define PIECE KIB(16) /* of a small transfer */
#define SHARE 32      /* so many are enough for one thread */

static pthread_t waiter;

/* A write that comes to the gate at pwrite(), also where the drive itself could reach the device's memory. */
static void submit_gated(struct rig *g, uint64_t tag)
{
	struct strait_transfer t = rig_request(g, STRAIT_WRITE, 0, LEN, tag);

	t.routes = ROUTE(STAGED);
	ASSERT_OK(strait_queue_submit(g->q, &t, 1));
}

/* The waiter's own reads take so long that workers have the rest done before. */
static bool slow_for_the_waiter(enum os_call call, int64_t *ret)
{
	(void)ret;
	if (call == OS_PREAD && pthread_equal(pthread_self(), waiter))
		usleep(100);
	return false;
}

/* A waiter that has its @min while a batch that it started is in flight leaves that batch to a worker. */
TEST(started_and_not_waited_for)
{
	enum { N = 250, TRIES = 100 };
	struct strait_transfer t[N];
	struct strait_result res[N];
	struct rig g;

	rig_open(&g, 2, N);
	waiter = pthread_self();
	os_inject = slow_for_the_waiter;
	for (uint64_t i = 0; i < N; i++)
		t[i] = rig_request(&g, STRAIT_READ, i * 4096, 4096, i);
	for (unsigned int k = 0; k < TRIES; k++) {
		unsigned int min = 1 + k % 100, n;
		uint64_t end = os_now_ns() + 10000000000;

		ASSERT_OK(strait_queue_submit(g.q, t, N));
		n = (unsigned int)ASSERT_OK(strait_queue_wait(g.q, min, N, 1000000000, res));
		ASSERT_GE(n, min);
		while (n < N) {
			ASSERT_LT(os_now_ns(), end);
			n += (unsigned int)ASSERT_OK(strait_queue_wait(g.q, 0, N - n, 0, res));
		}
	}
	/* The same, but nothing polls: closing finishes what was started. */
	ASSERT_OK(strait_queue_submit(g.q, t, N));
	ASSERT_GE(ASSERT_OK(strait_queue_wait(g.q, 1, N, 1000000000, res)), 1);
	strait_queue_close(g.q);
	strait_region_close(g.r);
	os_inject = NULL;
	g.r = region_new(g.dev, LEN);
	g.q = queue_new(g.ctx, N);
	rig_close(&g);
}

TEST_WHERE(started_with_the_only_chunk, where_emulated)

/*
 * A started batch holds a chunk of the staging pool until a thread has waited for it. Where that is left to the
 * context's only thread, which waits for a chunk itself, there must be another chunk.
 */
TEST(started_with_the_only_chunk)
{
	struct strait_emu_model slow = { .size = sizeof(slow), .latency_ns = 50000000 };
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 1, .pool_bytes = 1, .chunk_bytes = MIB(1) };
	struct strait_queue *first, *second;
	struct strait_region *r, *host;
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_result res[8];
	struct strait_device *dev;

	ctx = context_new(&opts);
	dev = device_named(ctx, "emu");
	r = region_new(dev, MIB(1));
	host = region_new(device_named(ctx, "host"), MIB(1));
	ep = file_new(ctx, make_file("file", MIB(1), 1), O_RDWR, 0);
	first = queue_new(ctx, 8);
	second = queue_new(ctx, 8);
	ASSERT_EQ(strait_read(ep, 0, r, 0, 4096), 4096);
	ASSERT_OK(strait_emu_set_model(dev, &slow));
	for (int round = 0; round < 3; round++) {
		struct strait_transfer write = { .op = STRAIT_WRITE, .endpoint = ep, .region = host, .length = MIB(1) },
				       read = { .endpoint = ep, .region = r, .length = 4096 };
		unsigned int n = 0, got = 0;

		/* The thread is in a transfer that needs no chunk, and goes on with one that does. */
		shut_gate(OS_PWRITE);
		ASSERT_OK(strait_queue_submit(first, &write, 1));
		wait_at_gate(1);
		ASSERT_OK(strait_queue_submit(first, &read, 1));
		/* A timed wait starts what it can. */
		ASSERT_OK(strait_queue_submit(second, &read, 1));
		got = (unsigned int)ASSERT_OK(strait_queue_wait(second, 1, 1, 1000000, res));
		ASSERT_EQ(got, 0);
		open_gate();
		for (uint64_t end = os_now_ns() + 10000000000; n + got < 3; sleep_ms(1)) {
			ASSERT_LT(os_now_ns(), end);
			n += (unsigned int)ASSERT_OK(strait_queue_wait(first, 0, 2, 0, res));
			got += (unsigned int)ASSERT_OK(strait_queue_wait(second, 0, 2, 0, res));
		}
	}
	os_inject = NULL;
	strait_queue_close(first);
	strait_queue_close(second);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_region_close(host);
	strait_context_close(ctx);
}

/* A queue can be closed although a worker that was posted for it gets no thread. */
TEST(closing_without_a_thread)
{
	struct strait_queue *other;
	struct strait_result res;
	struct rig g;

	rig_open(&g, 1, 8);
	other = queue_new(g.ctx, 8);
	shut_gate(OS_PWRITE);
	submit_gated(&g, 1);
	wait_at_gate(1);
	for (int i = 0; i < 4; i++) {
		struct strait_transfer t = rig_request(&g, STRAIT_READ, 0, i % 2 ? MIB(4) : 4096, 2);

		ASSERT_OK(strait_queue_submit(other, &t, 1));
	}
	strait_queue_close(other);
	strait_region_close(g.r);
	open_gate();
	ASSERT_EQ(strait_queue_wait(g.q, 1, 1, STRAIT_FOREVER, &res), 1);
	os_inject = NULL;
	g.r = region_new(g.dev, LEN);
	rig_close(&g);
}

/* Threads that are held in one of their calls until the test lets them go on. A thread of the context is a worker. */
enum actor { WORKER, TEST_THREAD, SUBMITTER, WAITER, ACTORS };

static _Thread_local enum actor actor;
static struct {
	atomic_bool here, go;
} held[ACTORS];

static void hold(void)
{
	atomic_store(&held[actor].here, true);
	while (!atomic_load(&held[actor].go))
		sleep_ms(1);
}

static void wait_for_held(enum actor a)
{
	while (!atomic_load(&held[a].here))
		sleep_ms(1);
}

static void let_go(enum actor a)
{
	atomic_store(&held[a].go, true);
}

/* Workers are held before they read. The submitter gets no thread, and the waiter finds nothing in the page cache. */
static bool hold_all(enum os_call call, int64_t *ret)
{
	*ret = -EAGAIN;
	if (call == OS_PREAD && (actor == WORKER || actor == WAITER)) {
		hold();
		return actor == WAITER;
	}
	if (call == OS_THREAD && actor == SUBMITTER) {
		hold();
		return true;
	}
	return false;
}

static void *submit_many(void *arg)
{
	struct rig *g = arg;
	struct strait_transfer t[SHARE + 8];

	actor = SUBMITTER;
	for (uint64_t i = 0; i < ARRAY_SIZE(t); i++)
		t[i] = rig_request(g, STRAIT_READ, (1 + i) * PIECE, PIECE, 1 + i);
	ASSERT_OK(strait_queue_submit(g->q, t, ARRAY_SIZE(t)));
	return NULL;
}

static void *wait_briefly(void *arg)
{
	struct rig *g = arg;
	struct strait_result res[2 * SHARE];

	actor = WAITER;
	ASSERT_EQ(strait_queue_wait(g->q, ARRAY_SIZE(res), ARRAY_SIZE(res), 1, res), 0);
	return NULL;
}

/* Fetches @n results without running anything for them. */
static void fetch(struct rig *g, unsigned int n)
{
	uint64_t end = os_now_ns() + 10000000000;
	struct strait_result res[SHARE];
	unsigned int got = 0;

	for (; got < n; sleep_ms(1)) {
		ASSERT_LT(os_now_ns(), end);
		got += (unsigned int)ASSERT_OK(strait_queue_wait(g->q, 0, n - got, 0, res + got));
	}
	for (unsigned int i = 0; i < n; i++) {
		ASSERT_EQ(res[i].bytes, PIECE);
		region_expect(g->r, res[i].user_data * PIECE, g->want + res[i].user_data * PIECE, PIECE);
	}
}

/* A GPU has all workers help to prepare its staging memory: none is left to be created. */
TEST_WHERE(offered_worker_is_refused, where_emulated)

/*
 * A second worker is worth having for more than SHARE small transfers, and it counts while the submitter offers it to the
 * context's threads. A waiter that gives SHARE of them back after the first worker has left needs no worker besides. When
 * no thread takes the second one, the submitter must see that these have none.
 */
TEST(offered_worker_is_refused)
{
	pthread_t submitter, brief;
	struct rig g;

	rig_open(&g, 2, 2 * SHARE);
	actor = TEST_THREAD;
	os_inject = hold_all;
	rig_submit(&g, STRAIT_READ, 0, PIECE, 0);
	wait_for_held(WORKER);
	thread_start(&submitter, submit_many, &g);
	wait_for_held(SUBMITTER);
	thread_start(&brief, wait_briefly, &g);
	wait_for_held(WAITER);
	/* The worker leaves when it has run its own and the 8 that the waiter did not take. */
	let_go(WORKER);
	fetch(&g, 9);
	let_go(WAITER);
	thread_join(brief);
	let_go(SUBMITTER);
	thread_join(submitter);
	fetch(&g, SHARE);
	os_inject = NULL;
	rig_close(&g);
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1 && p.revents == POLLIN;
}

/* Readable while there is something to fetch; nothing has to wait on the queue for that. */
TEST(descriptor)
{
	static const uint32_t flags[] = { 0, STRAIT_FILE_IMMUTABLE, STRAIT_FILE_DIRECT };
	enum { N = 100 };
	struct strait_transfer t[N];
	struct strait_result res[N];
	struct rig g;
	int fd;

	for (unsigned int k = 0; k < ARRAY_SIZE(flags); k++) {
		rig_open(&g, 2, N);
		rig_reopen(&g, flags[k]);
		if (k == 1) {
			/* Results that came before it was asked for. */
			rig_submit(&g, STRAIT_READ, 0, 4096, 1);
			sleep_ms(20);
		}
		fd = (int)ASSERT_OK(strait_queue_fd(g.q));
		ASSERT_EQ(strait_queue_fd(g.q), fd);
		ASSERT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		if (k == 1) {
			ASSERT_TRUE(readable(fd, 10000));
			ASSERT_EQ(strait_queue_wait(g.q, 1, 1, 0, res), 1);
		}
		ASSERT_FALSE(readable(fd, 0));
		for (uint64_t i = 0; i < N; i++)
			t[i] = rig_request(&g, STRAIT_READ, i * KIB(160), i % 20 ? 4096 : KIB(160), i);
		for (int round = 0; round < 20; round++) {
			unsigned int n = 0;

			ASSERT_OK(strait_queue_submit(g.q, t, N));
			while (n < N) {
				ASSERT_TRUE(readable(fd, 10000));
				/* Level-triggered: what is not fetched keeps it readable. */
				ASSERT_EQ(strait_queue_wait(g.q, 1, 1, 0, res + n), 1);
				n++;
				n += (unsigned int)strait_queue_wait(g.q, 0, N - n, 0, res + n);
			}
			ASSERT_FALSE(readable(fd, 0));
		}
		/* Canceled transfers have results as well. */
		shut_gate(OS_PWRITE);
		strait_endpoint_close(g.ep);
		g.ep = file_new(g.ctx, test_path("file"), O_RDWR, 0);
		for (int i = 0; i < 2; i++)
			submit_gated(&g, 7);
		wait_at_gate(2);
		submit_gated(&g, 8);
		ASSERT_FALSE(readable(fd, 10));
		ASSERT_EQ(strait_queue_cancel(g.q, 8), 1);
		ASSERT_TRUE(readable(fd, 0));
		ASSERT_EQ(strait_queue_wait(g.q, 0, N, 0, res), 1);
		ASSERT_EQ(res[0].status, -ECANCELED);
		ASSERT_FALSE(readable(fd, 0));
		open_gate();
		ASSERT_EQ(strait_queue_wait(g.q, 2, 2, STRAIT_FOREVER, res), 2);
		os_inject = NULL;
		ASSERT_FALSE(readable(fd, 0));
		rig_close(&g);
		ASSERT_EQ(fcntl(fd, F_GETFD), -1);
	}
	ASSERT_EQ(strait_queue_fd(NULL), -EINVAL);
	rig_open(&g, 1, 1);
	inject(OS_EVENTFD, 1, 0, -EMFILE);
	ASSERT_EQ(strait_queue_fd(g.q), -EMFILE);
	inject_off();
	ASSERT_GE(strait_queue_fd(g.q), 0);
	rig_close(&g);
}

struct loop {
	struct rig *g;
	int epoll;
	atomic_uint fetched;
	unsigned int total;
};

static void *event_loop(void *arg)
{
	struct loop *l = arg;
	struct strait_result res[5];
	struct epoll_event ev;

	while (atomic_load(&l->fetched) < l->total) {
		if (epoll_wait(l->epoll, &ev, 1, 20) == 1)
			atomic_fetch_add(&l->fetched,
					 (unsigned int)ASSERT_OK(strait_queue_wait(l->g->q, 0, 5, 0, res)));
	}
	return NULL;
}

/* Several threads in epoll, others submit: all results are fetched, and no thread ever waits on the queue. */
TEST(event_loops)
{
	static const uint32_t flags[] = { 0, STRAIT_FILE_IMMUTABLE };
	enum { LOOPS = 4, TOTAL = 4000, MOST = 24 };

	for (unsigned int k = 0; k < ARRAY_SIZE(flags); k++) {
		struct loop l = { .total = TOTAL };
		struct epoll_event ev = { .events = EPOLLIN };
		struct strait_transfer t[MOST];
		pthread_t threads[LOOPS];
		unsigned int sent = 0;
		uint64_t state = k;
		struct rig g;

		rig_open(&g, 2, 64);
		rig_reopen(&g, flags[k]);
		l.g = &g;
		l.epoll = epoll_create1(EPOLL_CLOEXEC);
		ASSERT_GE(l.epoll, 0);
		ASSERT_EQ(epoll_ctl(l.epoll, EPOLL_CTL_ADD, (int)ASSERT_OK(strait_queue_fd(g.q)), &ev), 0);
		for (int i = 0; i < LOOPS; i++)
			thread_start(&threads[i], event_loop, &l);
		while (sent < TOTAL) {
			unsigned int n = (unsigned int)min_u64(1 + prng_below(&state, MOST), TOTAL - sent);
			int rc;

			for (uint64_t i = 0; i < n; i++)
				/* Each has its own place. */
				t[i] = rig_request(&g, STRAIT_READ, (sent + i) * 4096, prng_below(&state, 4097), i);
			rc = strait_queue_submit(g.q, t, n);
			if (rc == -EAGAIN) {
				sched_yield();
				continue;
			}
			ASSERT_EQ(rc, 0);
			sent += n;
		}
		for (int i = 0; i < LOOPS; i++)
			thread_join(threads[i]);
		ASSERT_EQ(atomic_load(&l.fetched), TOTAL);
		ASSERT_FALSE(readable(strait_queue_fd(g.q), 0));
		close(l.epoll);
		rig_close(&g);
	}
}
