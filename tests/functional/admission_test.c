/* SPDX-License-Identifier: MIT */
/* Short reads of a file that does not change: when its windows are registered, and by which thread. */
#include "common.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#define LEN MIB(24)
#define PIECE 4096
#define BATCH 32

static struct strait_context *ctx;
static struct strait_region *r;
static struct strait_queue *q;

/* Calls of the registrar's thread wait at the gate while it is closed. */
static atomic_bool gate_closed, at_gate;
static atomic_uint by_callers; /* mappings of files by other threads */

static bool on_registrar(void)
{
	char name[16] = "";

	prctl(PR_GET_NAME, name);
	return !strncmp(name, "strait-register", 15);
}

static bool watch_maps(enum os_call call, int64_t *ret)
{
	(void)ret;
	if (call != OS_MMAP)
		return false;
	if (!on_registrar()) {
		atomic_fetch_add(&by_callers, 1);
		return false;
	}
	atomic_store(&at_gate, atomic_load(&gate_closed));
	while (atomic_load(&gate_closed))
		sleep_ms(1);
	return false;
}

static void begin(uint64_t budget)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .pinned_budget = budget };

	atomic_store(&gate_closed, false);
	atomic_store(&at_gate, false);
	ctx = context_new(&opts);
	r = region_new(device_named(ctx, "emu"), BATCH * PIECE);
	q = queue_new(ctx, 0);
}

static void end(void)
{
	strait_queue_close(q);
	strait_region_close(r);
	strait_context_close(ctx);
	ASSERT_EQ(stats_of(NULL).registered_bytes, 0);
	os_inject = NULL;
}

/* Reads a batch at random places of [start, start + len) of a file made with @seed. Returns how many were in place. */
static unsigned int read_batch(struct strait_endpoint *ep, int seed, uint64_t start, uint64_t len, uint64_t *state)
{
	struct strait_transfer t[BATCH];
	struct strait_result res[BATCH];
	unsigned int in_place = 0;

	for (uint64_t i = 0; i < BATCH; i++)
		t[i] = (struct strait_transfer){ .endpoint = ep,
						 .region = r,
						 .endpoint_offset = start + prng_below(state, len / PIECE) * PIECE,
						 .region_offset = i * PIECE,
						 .length = PIECE,
						 .user_data = i };
	ASSERT_OK(strait_queue_submit(q, t, BATCH));
	ASSERT_EQ(strait_queue_wait(q, BATCH, BATCH, STRAIT_FOREVER, res), BATCH);
	for (unsigned int i = 0; i < BATCH; i++) {
		unsigned char *want = pattern_new(t[res[i].user_data].endpoint_offset, PIECE, seed);

		ASSERT_EQ(res[i].status, 0);
		ASSERT_EQ(res[i].bytes, PIECE);
		region_expect(r, res[i].user_data * PIECE, want, PIECE);
		free(want);
		in_place += res[i].routes == ROUTE(PAGECACHE);
	}
	return in_place;
}

/* Reads until all of a batch is in place. */
static void read_until_in_place(struct strait_endpoint *ep, int seed, uint64_t start, uint64_t len)
{
	uint64_t state = 1;

	while (read_batch(ep, seed, start, len, &state) < BATCH)
		;
}

TEST(the_registrar_registers_what_has_paid)
{
	struct strait_endpoint *ep;
	uint64_t state = 1;
	unsigned int maps;

	begin(0);
	ep = file_new(ctx, make_file("file", LEN, 1), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	atomic_store(&gate_closed, false);
	os_inject = watch_maps;
	/* A few reads register nothing. */
	read_batch(ep, 1, 0, LEN, &state);
	maps = atomic_load(&by_callers); /* staging memory */
	read_until_in_place(ep, 1, 0, LEN);
	ASSERT_EQ(atomic_load(&by_callers), maps);
	ASSERT_GE(stats_of(ctx).registrations, 1);
	strait_endpoint_close(ep);
	ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
	end();
}

/* A part is read far more often than the rest: it is registered, though all of it does not fit. */
TEST_WHERE(skewed_reads, where_not_cuda) /* its windows are longer than the budget */
TEST(skewed_reads)
{
	struct strait_endpoint *ep;
	unsigned int in_place = 0;
	uint64_t state = 1;

	begin(MIB(9));
	ep = file_new(ctx, make_file("file", LEN, 1), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	read_until_in_place(ep, 1, MIB(8), MIB(8));
	for (int i = 0; i < 100; i++) {
		read_batch(ep, 1, i % 8 ? MIB(8) : 0, i % 8 ? MIB(8) : LEN, &state);
		ASSERT_LE(stats_of(ctx).registered_bytes, MIB(9));
	}
	for (int i = 0; i < 10; i++)
		in_place += read_batch(ep, 1, MIB(8), MIB(8), &state);
	ASSERT_GE(in_place, 5 * BATCH);
	strait_endpoint_close(ep);
	end();
}

/* Two files are read alternately: each gets its windows. */
TEST(two_files)
{
	struct strait_endpoint *ep[2];
	uint64_t state = 1;
	int done[2] = { 0 }; /* batches in a row that lie in windows: some do before the last window is registered */

	begin(0);
	ep[0] = file_new(ctx, make_file("a", LEN, 1), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	ep[1] = file_new(ctx, make_file("b", LEN, 2), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	while (done[0] < 8 || done[1] < 8)
		for (int i = 0; i < 2; i++)
			done[i] = read_batch(ep[i], i + 1, 0, LEN, &state) == BATCH ? done[i] + 1 : 0;
	strait_endpoint_close(ep[0]);
	/* The other's stay. */
	ASSERT_EQ(read_batch(ep[1], 2, 0, LEN, &state), BATCH);
	strait_endpoint_close(ep[1]);
	end();
}

/* A program that opens the file for each batch: the rent adds up. */
TEST(a_file_that_is_reopened)
{
	const char *path = strdup(make_file("file", MIB(2), 1));
	struct strait_endpoint *ep;
	uint64_t state = 1;

	begin(0);
	while (!stats_of(ctx).registrations) {
		ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
		read_batch(ep, 1, 0, MIB(2), &state);
		strait_endpoint_close(ep);
		ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
	}
	end();
	free((char *)path);
}

/* It stops reading right after its window was bought: nothing is left behind. */
TEST(a_reader_that_stops_right_after_the_purchase)
{
	struct strait_endpoint *ep;
	uint64_t state = 1;

	begin(0);
	ep = file_new(ctx, make_file("file", LEN, 1), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	while (!stats_of(ctx).registrations)
		read_batch(ep, 1, 0, LEN, &state);
	strait_endpoint_close(ep);
	ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
	end();
}

/* Reads until the registrar is at the closed gate with a window of the endpoint. */
static void read_until_gate(struct strait_endpoint *ep, uint64_t *state)
{
	os_inject = watch_maps;
	atomic_store(&gate_closed, true);
	while (!atomic_load(&at_gate))
		read_batch(ep, 1, 0, LEN, state);
}

static void *close_it(void *ep)
{
	strait_endpoint_close(ep);
	return NULL;
}

TEST(close_while_a_window_is_registered)
{
	struct strait_endpoint *ep;
	uint64_t state = 1;
	pthread_t t;

	begin(0);
	for (int round = 0; round < 3; round++) {
		ep = file_new(ctx, make_file("file", LEN, 1), O_RDONLY, STRAIT_FILE_IMMUTABLE);
		read_until_gate(ep, &state);
		thread_start(&t, close_it, ep);
		sleep_ms(10);
		atomic_store(&gate_closed, false);
		thread_join(t);
		ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
		atomic_store(&at_gate, false);
	}
	end();
}

/* While the registrar is stuck with one file, the other is read all the same, and its decisions are made. */
TEST(reads_do_not_wait_for_the_registrar)
{
	struct strait_endpoint *ep, *other;
	uint64_t state = 1;

	begin(0);
	ep = file_new(ctx, make_file("file", LEN, 1), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	other = file_new(ctx, make_file("other", LEN, 2), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	read_until_gate(ep, &state);
	for (int i = 0; i < 50; i++) {
		read_batch(ep, 1, 0, LEN, &state);
		read_batch(other, 2, 0, LEN, &state);
	}
	ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
	atomic_store(&gate_closed, false);
	read_until_in_place(other, 2, 0, LEN);
	strait_endpoint_close(ep);
	strait_endpoint_close(other);
	end();
}

static void change_it(void *path)
{
	int fd = open(path, O_WRONLY);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(pwrite(fd, "changed", 7, 1000), 7);
	close(fd);
}

/* The writer waits until the registration is undone, and no window of the old contents is left. */
TEST(lease_broken_while_a_window_is_registered)
{
	char *path = strdup(make_file("file", LEN, 1));
	unsigned char *want = pattern_new(0, PIECE, 1);
	struct strait_endpoint *ep;
	uint64_t state = 1;
	pid_t writer;

	begin(0);
	ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_LEASE);
	if (!(file_info(ep).caps & STRAIT_FILE_UNCHANGED))
		SKIP("this file system gives no read leases");
	read_until_gate(ep, &state);
	writer = child_start(change_it, path);
	while (file_info(ep).caps & STRAIT_FILE_UNCHANGED)
		sleep_ms(1);
	/* It is not through: the pages are being registered. */
	sleep_ms(20);
	ASSERT_EQ(waitpid(writer, NULL, WNOHANG), 0);
	atomic_store(&gate_closed, false);
	ASSERT_EQ(child_wait(writer), 0);
	ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
	memcpy(want + 1000, "changed", 7);
	ASSERT_EQ(move(STRAIT_READ, 0, ep, 0, r, 0, PIECE).bytes, PIECE);
	region_expect(r, 0, want, PIECE);
	strait_endpoint_close(ep);
	end();
	free(want);
	free(path);
}

static void child_of_fork(void *arg)
{
	struct strait_stats s = { .size = sizeof(s) };

	/* The threads are not there, and nothing waits for them. */
	atomic_store(&gate_closed, false);
	ASSERT_EQ(strait_stats_get(ctx, &s), -EOWNERDEAD);
	strait_endpoint_close(arg);
	strait_context_close(ctx);
}

TEST(fork_while_a_window_is_registered)
{
	struct strait_endpoint *ep;
	uint64_t state = 1;

	begin(0);
	ep = file_new(ctx, make_file("file", LEN, 1), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	read_until_gate(ep, &state);
	in_child(child_of_fork, ep);
	atomic_store(&gate_closed, false);
	read_until_in_place(ep, 1, 0, LEN);
	strait_endpoint_close(ep);
	end();
}

/* Without a thread nothing is registered, and everything is read. */
TEST(no_thread_for_the_registrar)
{
	struct strait_endpoint *ep;
	uint64_t state = 1;

	begin(0);
	ep = file_new(ctx, make_file("file", MIB(2), 1), O_RDONLY, STRAIT_FILE_IMMUTABLE);
	inject(OS_THREAD, 1, 1000, -EAGAIN);
	for (unsigned int i = 0; i < 200 / test_slow(); i++)
		ASSERT_EQ(read_batch(ep, 1, 0, MIB(2), &state), 0);
	inject_off();
	ASSERT_EQ(stats_of(ctx).registered_bytes, 0);
	strait_endpoint_close(ep);
	end();
}
