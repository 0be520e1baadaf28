/* SPDX-License-Identifier: MIT */
/*
 * Memory of a bridge that is freed while io_uring commands use it. The driver's free callback waits for commands in
 * flight with the driver's lock held, so they must complete without the thread that submitted them.
 */
#include "p2p.h"

#include <liburing.h>
#include <stdatomic.h>

#define SEED 71
#define COMMANDS 16
#define PIECE KIB(64)
#define LEN (COMMANDS * PIECE)
#define LIMIT_MS 20000

static const struct place raw = { "raw", NULL };

static const struct setup {
	const char *name;
	unsigned int flags;
} setups[] = {
	{ "default", 0 },
	{ "coop_taskrun", IORING_SETUP_COOP_TASKRUN },
	{ "defer_taskrun", IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN },
};

struct fixture {
	const struct setup *setup;
	int ko, gpu, file;
	struct gpu_mem m, next;
	uint32_t handle;
	struct io_uring ring;
};

static int open_bridge(void)
{
	int ko = ko_open_p2p();

	if (!(ko_info(ko).features & STRAIT_FEATURE_IMPORT_NVP2P))
		SKIP("the bridge is not loaded");
	return ko;
}

static void submit(struct fixture *s, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		ko_sqe(&s->ring, s->ko, STRAIT_URING_READ, s->handle, s->file, i * PIECE, i * PIECE, PIECE);
	ASSERT_EQ(io_uring_submit(&s->ring), n);
}

/* All of them succeeded, or found the memory revoked. */
static void reap(struct fixture *s, unsigned int n, bool gone)
{
	struct io_uring_cqe *cqe;

	while (n--) {
		ASSERT_OK(io_uring_wait_cqe(&s->ring, &cqe));
		ASSERT_EQ(cqe->res, gone ? -ENODEV : (int)PIECE);
		io_uring_cqe_seen(&s->ring, cqe);
	}
}

static void open_scene(struct fixture *s)
{
	s->ko = open_bridge();
	s->gpu = gpu_open();
	s->m = gpu_alloc(s->gpu, PLAIN, LEN);
	s->next = gpu_alloc(s->gpu, PLAIN, LEN);
	s->handle = ko_import(s->ko, STRAIT_IMPORT_NVP2P, s->m.p, s->m.len);
	ASSERT_OK(io_uring_queue_init(2 * COMMANDS, &s->ring, s->setup->flags));
}

/* A child that deadlocks cannot be killed, and must not block the test. */
static void run_child(int (*fn)(void *arg), struct fixture *s, const char *what)
{
	pid_t pid = start(fn, s);
	int status;

	for (uint64_t end = now_ms() + LIMIT_MS * test_slow(); waitpid(pid, &status, WNOHANG) != pid; sleep_ms(20))
		if (now_ms() > end)
			FAIL("%s: freeing the memory has not returned for %d s", what, LIMIT_MS / 1000);
	ASSERT_EQ(status, 0);
	ko_expect_counter("in_flight", 0);
	ko_expect_counter("device_bytes", 0);
}

static int free_before_reaping(void *arg)
{
	struct fixture *s = arg;
	uint64_t calls;

	open_scene(s);
	calls = gpu_counters(s->gpu).callbacks;
	submit(s, COMMANDS);
	ASSERT_OK(gpu_free(&s->m));
	ASSERT_EQ(gpu_counters(s->gpu).callbacks, calls + 1);
	/* The free has waited for the command to end, whether its result was fetched or not. */
	ASSERT_EQ(ko_counter("in_flight"), 0);
	reap(s, COMMANDS, false);
	submit(s, 1);
	reap(s, 1, true);
	io_uring_queue_exit(&s->ring);
	return 0;
}

TEST_VARIANTS(freed_by_the_submitter, struct setup, setups)
{
	struct fixture s = { .setup = v };

	close(open_bridge());
	s.file = place_file(&raw, LEN, SEED, 0);
	run_child(free_before_reaping, &s, "before its results are reaped");
}

/* With all I/O done long ago: results wait to be reaped, the memory must not. */
static int free_when_over(void *arg)
{
	struct fixture *s = arg;
	uint64_t reads;

	open_scene(s);
	reads = ko_counter("reads");
	submit(s, COMMANDS);
	ko_expect_counter("reads", reads + COMMANDS);
	ASSERT_EQ(ko_counter("in_flight"), 0);
	ASSERT_OK(gpu_free(&s->m));
	reap(s, COMMANDS, false);
	io_uring_queue_exit(&s->ring);
	return 0;
}

TEST_VARIANTS(freed_when_all_is_over, struct setup, setups)
{
	struct fixture s = { .setup = v };

	close(open_bridge());
	s.file = place_file(&raw, LEN, SEED, 0);
	run_child(free_when_over, &s, "with its results not reaped");
}

static void *free_memory(void *arg)
{
	struct fixture *s = arg;

	ASSERT_OK(gpu_free(&s->m));
	return NULL;
}

/*
 * Another thread frees, and holds the driver's lock when the submitter comes to wait for it to import other memory:
 * commands of the submitter complete nevertheless.
 */
static int import_meanwhile(void *arg)
{
	struct fixture *s = arg;
	struct strait_ioc_import imp;
	pthread_t thread;

	open_scene(s);
	submit(s, COMMANDS);
	ASSERT_EQ(pthread_create(&thread, NULL, free_memory, s), 0);
	while (!window_entered("callback"))
		sleep_ms(1);
	ASSERT_OK(ko_try_import(s->ko, STRAIT_IMPORT_NVP2P, s->next.p, s->next.len, &imp));
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	reap(s, COMMANDS, false);
	io_uring_queue_exit(&s->ring);
	return 0;
}

TEST_VARIANTS(freed_while_the_submitter_imports, struct setup, setups)
{
	struct fixture s = { .setup = v };

	close(open_bridge());
	s.file = place_file(&raw, LEN, SEED, 0);
	window_open("callback", 200);
	run_child(import_meanwhile, &s, "by another thread");
	window_close("callback");
}

static void *submit_and_reap(void *arg)
{
	struct fixture *s = arg;

	ASSERT_OK(io_uring_queue_init(2 * COMMANDS, &s->ring, s->setup->flags));
	submit(s, 1);
	reap(s, 1, false);
	io_uring_queue_exit(&s->ring);
	return NULL;
}

/* The free does wait: a completed command that still uses the memory delays it. */
TEST(freeing_waits_for_a_completion)
{
	struct fixture s = { .setup = &setups[0], .ko = open_bridge(), .gpu = gpu_open() };
	unsigned int met = 0;

	s.file = place_file(&raw, LEN, SEED, 0);
	for (int i = 0; i < 20 && !met; i++) {
		pthread_t thread;

		s.m = gpu_alloc(s.gpu, PLAIN, LEN);
		s.handle = ko_import(s.ko, STRAIT_IMPORT_NVP2P, s.m.p, s.m.len);
		window_open("strait:complete", 200);
		ASSERT_EQ(pthread_create(&thread, NULL, submit_and_reap, &s), 0);
		while (!window_entered("strait:complete"))
			sleep_ms(1);
		ASSERT_OK(gpu_free(&s.m));
		ASSERT_EQ(ko_counter("in_flight"), 0);
		met = window_met("strait:complete");
		window_close("strait:complete");
		ASSERT_EQ(pthread_join(thread, NULL), 0);
		ASSERT_OK(ko_release(s.ko, s.handle));
		gpu_unmap(&s.m);
	}
	ASSERT_GT(met, 0);
}
