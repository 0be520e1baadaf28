/* SPDX-License-Identifier: MIT */
/* Processes: forked children, and what a killed process leaves. */
#include "common.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

#define LEN (MIB(4) + 9)

static struct strait_context *ctx;
static struct strait_device *dev;
static struct strait_region *r;
static struct strait_endpoint *ep;
static struct strait_queue *q;
static struct strait_stream *s;
static unsigned char *want;

static void begin(uint32_t flags)
{
	ctx = context_new(NULL);
	dev = device_named(ctx, "emu");
	r = region_new(dev, LEN);
	ep = file_new(ctx, make_file("file", LEN, 1), O_RDWR, flags);
	want = pattern_new(0, LEN, 1);
	ASSERT_OK(strait_queue_open(ctx, NULL, &q));
	ASSERT_OK(strait_stream_open(dev, &s));
}

static void end(void)
{
	strait_stream_close(s);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
}

static void works(void)
{
	uint64_t off = 0, len = LEN;
	int64_t result = 0;
	struct strait_transfer t = { .endpoint = ep, .region = r, .length = LEN };
	struct strait_stream_transfer st = { .size = sizeof(st),
					     .endpoint = ep,
					     .region = r,
					     .endpoint_offset = &off,
					     .region_offset = &off,
					     .length = &len,
					     .result = &result };
	struct strait_result res;

	ASSERT_OK(strait_region_fill(r, 0, 0, LEN));
	ASSERT_EQ(strait_read(ep, 0, r, 0, LEN), (ssize_t)LEN);
	region_expect(r, 0, want, LEN);
	ASSERT_EQ(strait_write(ep, 0, r, 0, 1000), 1000);
	ASSERT_OK(strait_queue_submit(q, &t, 1));
	t.length = 1000;
	ASSERT_OK(strait_queue_submit(q, &t, 1));
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(strait_queue_wait(q, 1, 1, STRAIT_FOREVER, &res), 1);
		ASSERT_EQ(res.status, 0);
	}
	ASSERT_OK(strait_stream_transfer(s, &st));
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(result, (int64_t)LEN);
}

static void nothing(void *arg)
{
	(void)arg;
}

static void nobody(void *arg, struct strait_region *region)
{
	(void)arg;
	(void)region;
}

/* The emulated device's own calls, in the child. */
static void emulated_calls_are_refused(void)
{
	struct strait_emu_model model = { .size = sizeof(model) };
	void *p;

	if (strcmp(device_under_test(), "emu:0"))
		return;
	ASSERT_EQ(strait_emu_set_model(dev, &model), -EOWNERDEAD);
	ASSERT_EQ(strait_emu_malloc(dev, 4096, &p), -EOWNERDEAD);
	ASSERT_EQ(strait_emu_free(dev, &model), -EOWNERDEAD);
	ASSERT_EQ(strait_emu_remove(dev), -EOWNERDEAD);
}

/* In the child: every call on an inherited handle. */
static void every_call_is_refused(void *arg)
{
	struct strait_transfer t = { .endpoint = ep, .region = r, .length = 10 };
	struct strait_device_info device = { .size = sizeof(device) };
	struct strait_provider_info provider = { .size = sizeof(provider) };
	struct strait_region_info region = { .size = sizeof(region) };
	struct strait_file_info file = { .size = sizeof(file) };
	struct strait_route_report report = { .size = sizeof(report) };
	struct strait_stats stats = { .size = sizeof(stats) };
	struct strait_stream_transfer st = { .size = sizeof(st), .endpoint = ep, .region = r };
	struct strait_device *d;
	struct strait_region *r2;
	struct strait_endpoint *e2;
	struct strait_queue *q2;
	struct strait_stream *s2;
	struct strait_result res;
	uint64_t where = 0;
	uint32_t crc = 0;
	char text[100];
	void *p;
	int fd;

	(void)arg;
#define DEAD(call) ASSERT_EQ(call, -EOWNERDEAD)
	DEAD(strait_device_count(ctx));
	DEAD(strait_device_at(ctx, 0, &d));
	DEAD(strait_device_find(ctx, "emu", &d));
	DEAD(strait_device_missing_reason(ctx, "cuda", text, sizeof(text)));
	DEAD(strait_device_info(dev, &device));
	DEAD(strait_provider_info(ctx, 0, &provider));
	DEAD(strait_region_alloc(dev, 4096, &r2));
	DEAD(strait_region_import(ctx, NULL, text, 10, &r2));
	DEAD(strait_region_info(r, &region));
	DEAD(strait_region_lookup(ctx, text, NULL, &r2));
	DEAD(strait_region_check(r));
	DEAD(strait_region_revoke(r));
	DEAD(strait_region_on_revoke(r, nobody, NULL));
	DEAD(strait_region_export_dmabuf(r, 0, 4096, &fd));
	DEAD(strait_region_map(r, &p));
	DEAD(strait_region_copy_in(r, 0, text, 10));
	DEAD(strait_region_copy_out(r, 0, text, 10));
	DEAD(strait_region_fill(r, 0, 0, 10));
	DEAD(strait_region_compare(r, 0, r, 0, 10, &where));
	DEAD(strait_region_crc32c(r, 0, 10, &crc));
	DEAD(strait_file_open(ctx, test_path("file"), O_RDONLY, 0, 0, &e2));
	DEAD(strait_file_import(ctx, 0, 0, &e2));
	DEAD(strait_file_info(ep, &file));
	DEAD(strait_endpoint_sync(ep));
	DEAD(strait_route_query(&t, &report));
	DEAD(strait_route_query_device(ep, dev, STRAIT_READ, &report));
	DEAD(strait_stats_get(ctx, &stats));
	DEAD(strait_read(ep, 0, r, 0, 10));
	DEAD(strait_write(ep, 0, r, 0, 10));
	DEAD(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	DEAD(strait_queue_open(ctx, NULL, &q2));
	DEAD(strait_queue_submit(q, &t, 1));
	DEAD(strait_queue_wait(q, 1, 1, STRAIT_FOREVER, &res));
	DEAD(strait_queue_fd(q));
	DEAD(strait_queue_cancel(q, 0));
	DEAD(strait_stream_open(dev, &s2));
	DEAD(strait_stream_import(dev, NULL, &s2));
	DEAD(strait_stream_call(s, nothing, NULL));
	DEAD(strait_stream_transfer(s, &st));
	DEAD(strait_stream_wait(s, STRAIT_FOREVER));
	emulated_calls_are_refused();
	/* Calls without a handle work; destructors do nothing. */
	ASSERT_OK(strait_stats_get(NULL, &stats));
	strait_stream_close(s);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
}

static void works_in_a_context_of_its_own(void *arg)
{
	every_call_is_refused(arg);
	begin(arg ? STRAIT_FILE_LEASE : 0);
	works();
	end();
	/* The same in a grandchild. */
	if (arg) {
		begin(0);
		works();
		in_child(works_in_a_context_of_its_own, NULL);
		works();
		end();
	}
}

TEST(a_child_is_refused)
{
	begin(0);
	in_child(every_call_is_refused, NULL);
	works();
	in_child(every_call_is_refused, NULL);
	works();
	end();
}

TEST_WHERE(a_child_opens_its_own, where_not_cuda) /* the driver works in the process that started it */
TEST(a_child_opens_its_own)
{
	begin(0);
	works();
	in_child(works_in_a_context_of_its_own, ctx);
	works();
	end();
}

static atomic_bool stop;

static void *keep_working(void *arg)
{
	struct strait_region *mine = region_new(dev, LEN);
	atomic_uint *n = arg;

	for (uint64_t i = 0; !atomic_load(&stop); i++) {
		uint64_t len = i % 3 ? 5000 : LEN;

		ASSERT_EQ(strait_read(ep, 0, mine, 0, len), (ssize_t)len);
		region_expect(mine, 0, want, len);
		atomic_fetch_add(n, 1);
	}
	strait_region_close(mine);
	return NULL;
}

static void refused_and_own(void *arg)
{
	(void)arg;
	DEAD(strait_read(ep, 0, r, 0, 10));
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
#ifndef __SANITIZE_ADDRESS__ /* its malloc does not survive a fork during an allocation */
	if (on_cuda())
		return; /* the driver works in the process that started it */
	begin(0);
	works();
	end();
#endif
}

/* Children are created, and exit, while threads of the parent are anywhere in the library. */
TEST(forked_in_the_middle_of_it)
{
	atomic_uint n = 0, before;
	pthread_t t[3];

	begin(0);
	for (int i = 0; i < 3; i++)
		thread_start(&t[i], keep_working, &n);
	for (int i = 0; i < 15; i++) {
		in_child(refused_and_own, NULL);
		before = atomic_load(&n);
		while (atomic_load(&n) < before + 2)
			sleep_ms(1);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++)
		thread_join(t[i]);
	works();
	end();
}

/* A child that exits, with exit handlers, has no effect on the parent. */
static void exits(void *arg)
{
	(void)arg;
	exit(0);
}

TEST(a_child_that_just_exits)
{
#ifdef __SANITIZE_ADDRESS__
	SKIP("a search for leaks finds what other threads held when the child was made");
#endif
	begin(STRAIT_FILE_LEASE);
	for (int i = 0; i < 3; i++) {
		works();
		in_child(exits, NULL);
	}
	works();
	end();
}

/* ---- signals ---- */

static void count_signal(int sig)
{
	static volatile sig_atomic_t signals;

	(void)sig;
	signals = signals + 1;
}

/* Calls interrupted by a signal are restarted: timers of the application have no effect on transfers. */
TEST(interrupted_all_the_time)
{
	/* Often, but not so often that nothing else runs. */
	struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction sa = { .sa_handler = count_signal }; /* no SA_RESTART */
	struct strait_region *large;

	sigaction(SIGALRM, &sa, NULL);
	ASSERT_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
	begin(STRAIT_FILE_DIRECT);
	for (int i = 0; i < 10; i++)
		works();
	end();
	begin(0);
	for (int i = 0; i < 10; i++)
		works();
	for (int i = 0; i < 3; i++) {
		ASSERT_OK(strait_region_alloc(dev, MIB(128), &large));
		strait_region_close(large);
	}
	ASSERT_OK(strait_endpoint_sync(ep));
	end();
	setitimer(ITIMER_REAL, &never, NULL);
}

/* ---- killed ---- */

struct shared {
	_Atomic uint64_t started;
};

static void write_until_killed(void *arg)
{
	struct shared *sh = arg;

	begin(0);
	region_put_bytes(r, 0, want, LEN);
	for (;;) {
		atomic_fetch_add(&sh->started, 1);
		ASSERT_EQ(ftruncate(open(test_path("out"), O_RDWR | O_CLOEXEC), 0), 0);
		strait_endpoint_close(ep);
		ep = file_new(ctx, test_path("out"), O_RDWR, atomic_load(&sh->started) % 2 ? STRAIT_FILE_DIRECT : 0);
		ASSERT_EQ(strait_write(ep, 0, r, 0, LEN), (ssize_t)LEN);
		ASSERT_EQ(strait_read(ep, 0, r, 0, LEN), (ssize_t)LEN);
	}
}

/* A killed process leaves a prefix of what it was writing, and nothing else. */
TEST(killed_in_mid_transfer)
{
	struct shared *sh = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned char *data = pattern_new(0, LEN, 1);

	make_file("out", 0, 0);
	for (unsigned int i = 0; i < 25; i++) {
		uint64_t len, from = atomic_load(&sh->started);
		pid_t pid = child_start(write_until_killed, sh);
		int status;

		while (atomic_load(&sh->started) < from + 2)
			sleep_ms(1);
		for (volatile unsigned int spin = 0; spin < i * 40000; spin = spin + 1)
			;
		kill(pid, SIGKILL);
		status = child_wait(pid);
		ASSERT_TRUE(WIFSIGNALED(status));
		ASSERT_EQ(WTERMSIG(status), SIGKILL);
		len = file_length(test_path("out"));
		ASSERT_LE(len, LEN);
		file_expect(test_path("out"), 0, data, len);
	}
	/* No files other than the two that were created by name. */
	unlink(test_path("out"));
	unlink(test_path("file"));
	ASSERT_EQ(rmdir(test_dir()), 0);
	free(data);
}
