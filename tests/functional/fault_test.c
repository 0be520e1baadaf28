/* SPDX-License-Identifier: MIT */
/*
 * Every system call fails once, at every place where it is made. The outcome is right, or a clean error with exactly
 * the good bytes, and the next attempt succeeds.
 */
#include "common.h"

#define CHUNK KIB(128)
#define LONG_LEN (9 * CHUNK + 1000)
#define SHORT_LEN 9000u
#define OFF 517u
#define FILL 0x99

struct fault {
	const char *name;
	enum os_call call;
	int64_t rets[4];
};

/* clang-format off */
#define BOTH_WAYS                                                                                                      \
	{ "fstat", OS_FSTAT, { -EIO, -EOVERFLOW } },                                                                   \
	{ "mmap", OS_MMAP, { -ENOMEM, -EACCES } },                                                                     \
	{ "madvise", OS_MADVISE, { -EFAULT, -EOPNOTSUPP, -ENOMEM } },                                                  \
	{ "mbind", OS_MBIND, { -EPERM } },                                                                             \
	{ "thread", OS_THREAD, { -EAGAIN } },                                                                          \
	{ "ring-setup", OS_RING_SETUP, { -ENOMEM, -EPERM, -EMFILE } },                                                 \
	{ "ring-submit", OS_RING_SUBMIT, { -EAGAIN, -EBADF } },                                                        \
	{ "ring-result", OS_RING_RESULT, { -EIO, -EAGAIN, -EINVAL, 512 } },                                            \
	{ "ring-nothing", OS_RING_RESULT, { 0 } }
/* clang-format on */

static const struct fault read_faults[] = {
	BOTH_WAYS,
	{ "pread", OS_PREAD, { -EIO, -ENOMEM, -EAGAIN, -EOPNOTSUPP } },
	{ "pread-eof", OS_PREAD, { 0 } },
	{ "cachestat", OS_CACHESTAT, { -ENOSYS, -EPERM, -EIO } },
	{ "mincore", OS_MINCORE, { -ENOMEM, -EPERM } },
	{ "vm-read", OS_VM_READ, { -EFAULT, -EPERM } },
};

static const struct fault write_faults[] = {
	BOTH_WAYS,
	{ "pwrite", OS_PWRITE, { -EIO, -ENOSPC, -EDQUOT, -EINVAL } },
	{ "pwrite-nothing", OS_PWRITE, { 0 } },
};

/* mincore() is called only where the kernel has no cachestat(). */
static bool (*planned)(enum os_call call, int64_t *ret);

static bool without_cachestat(enum os_call call, int64_t *ret)
{
	if (call == OS_CACHESTAT) {
		*ret = -ENOSYS;
		return true;
	}
	return planned(call, ret);
}

static void start_fault(const struct fault *f, unsigned int nth, unsigned int more, int64_t ret)
{
	inject(f->call, nth, more, ret);
	if (f->call == OS_MINCORE) {
		planned = os_inject;
		os_inject = without_cachestat;
	}
}

static const struct mode modes[] = {
	{ "any", "emu:0", 0, 0, 0 },
	{ "pagecache", "emu:0", ROUTE(PAGECACHE), 0, 0 },
	{ "direct", "emu:0", ROUTE(STAGED), STRAIT_FILE_DIRECT, 0 },
	{ "immutable", "emu:0", 0, STRAIT_FILE_IMMUTABLE, 0 },
	{ "host", "host", 0, 0, 0 },
	{ "host-direct", "host", 0, STRAIT_FILE_DIRECT, 0 },
};

enum how { BY_CALL, BY_QUEUE, BY_STREAM, HOWS };

struct rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *r;
	struct strait_endpoint *ep;
	struct strait_queue *q;
	struct strait_stream *s;
	uint32_t routes;
	bool host, direct;
	const char *path;
	unsigned char *old, *new, *buf;
};

/* The driver takes long to open a GPU that no process has open, and a rig is opened for every fault. */
static void keep_device_open(void)
{
	static struct strait_region *reg_window;

	if (!reg_window && on_cuda())
		reg_window = region_new(device_named(context_new(NULL), "emu:0"), KIB(64));
}

static void rig_open(struct rig *g, const struct mode *m)
{
	struct strait_context_opts opts = {
		.size = sizeof(opts), .chunk_bytes = CHUNK, .pool_bytes = 4 * CHUNK, .threads = 2, .queue_depth = 4
	};

	keep_device_open();
	g->ctx = context_new(&opts);
	g->dev = device_named(g->ctx, m->device);
	g->r = region_new(g->dev, LONG_LEN);
	g->path = test_path("file");
	g->ep = file_new(g->ctx, g->path, O_RDWR, m->file);
	ASSERT_OK(strait_queue_open(g->ctx, NULL, &g->q));
	ASSERT_OK(strait_stream_open(g->dev, &g->s));
	g->routes = m->routes;
	g->host = !strcmp(m->device, "host");
	g->direct = m->file & STRAIT_FILE_DIRECT;
}

static void rig_close(struct rig *g)
{
	strait_stream_close(g->s);
	strait_queue_close(g->q);
	strait_endpoint_close(g->ep);
	strait_region_close(g->r);
	strait_context_close(g->ctx);
}

static void bytes_new(struct rig *g)
{
	g->old = pattern_new(0, OFF + LONG_LEN, 1);
	g->new = pattern_new(0, LONG_LEN, 2);
	g->buf = malloc(LONG_LEN);
}

static void bytes_free(struct rig *g)
{
	free(g->old);
	free(g->new);
	free(g->buf);
}

/* Runs one transfer through one of the three interfaces. False if it could not be started. */
static bool attempt(struct rig *g, uint32_t op, enum how how, uint64_t len, struct strait_result *res)
{
	uint64_t off = OFF, region_off = 0;
	int64_t result = 1;
	struct strait_transfer t = { .op = op,
				     .routes = op == STRAIT_READ ? g->routes : 0,
				     .endpoint = g->ep,
				     .region = g->r,
				     .endpoint_offset = off,
				     .length = len };
	struct strait_stream_transfer st = { .size = sizeof(st),
					     .op = op,
					     .routes = t.routes,
					     .endpoint = g->ep,
					     .region = g->r,
					     .endpoint_offset = &off,
					     .region_offset = &region_off,
					     .length = &len,
					     .result = &result };
	int rc;

	switch (how) {
	case BY_CALL:
		strait_transfer_run(&t, STRAIT_FOREVER, res);
		return true;
	case BY_QUEUE:
		rc = strait_queue_submit(g->q, &t, 1);
		if (!rc)
			ASSERT_EQ(strait_queue_wait(g->q, 1, 1, STRAIT_FOREVER, res), 1);
		break;
	default:
		rc = strait_stream_transfer(g->s, &st);
		if (!rc)
			ASSERT_OK(strait_stream_wait(g->s, STRAIT_FOREVER));
		res->status = result < 0 ? (int)result : 0;
		res->bytes = result < 0 ? UINT64_MAX : (uint64_t)result;
	}
	if (rc)
		ASSERT_GT(rc, -4096);
	return !rc;
}

/* @file_failed: the fault was in a file operation, not in the device. */
static void check_read(struct rig *g, uint64_t len, const struct strait_result *res, bool file_failed)
{
	ASSERT_OK(strait_region_copy_out(g->r, 0, g->buf, LONG_LEN));
	if (res->status)
		ASSERT_GT(res->status, -4096);
	if (res->bytes == UINT64_MAX)
		return;
	ASSERT_LE(res->bytes, len);
	ASSERT_MEMEQ(g->buf, g->old + OFF, res->bytes);
	if (g->host || !file_failed)
		return;
	/* The rest is unchanged if its first byte is and all bytes are equal. */
	if (res->bytes == LONG_LEN ||
	    (g->buf[res->bytes] == FILL &&
	     !memcmp(g->buf + res->bytes, g->buf + res->bytes + 1, LONG_LEN - res->bytes - 1)))
		return;
	for (uint64_t i = res->bytes; i < LONG_LEN; i++)
		if (g->buf[i] != FILL)
			FAIL("byte %llu was touched, %llu are good, status %d", (unsigned long long)i,
			     (unsigned long long)res->bytes, res->status);
}

static void check_write(struct rig *g, uint64_t len, const struct strait_result *res)
{
	uint64_t good = res->bytes;

	if (good == UINT64_MAX)
		return;
	ASSERT_LE(good, len);
	if (!res->status)
		ASSERT_EQ(good, len);
	else
		ASSERT_GT(res->status, -4096);
	file_expect(g->path, 0, g->old, OFF);
	file_expect(g->path, OFF, g->new, good);
	/* Direct overwrites in place may have been in flight. */
	if (!g->direct)
		file_expect(g->path, OFF + good, g->old + OFF + good, OFF + LONG_LEN - OFF - good);
}

static void one(struct rig *g, uint32_t op, enum how how, uint64_t len, bool file_failed)
{
	struct strait_result res = { 0 };

	if (!attempt(g, op, how, len, &res))
		return;
	os_inject = NULL;
	if (op == STRAIT_READ)
		check_read(g, len, &res, file_failed);
	else
		check_write(g, len, &res);
}

static void prepare(struct rig *g, uint32_t op, bool cold)
{
	if (op == STRAIT_READ) {
		ASSERT_OK(strait_region_fill(g->r, 0, FILL, LONG_LEN));
		if (cold)
			evict(g->path, 0, 0);
	} else {
		region_put_bytes(g->r, 0, g->new, LONG_LEN);
		write_at(g->path, g->old, OFF + LONG_LEN, 0);
	}
}

/* A transfer succeeds with the right bytes. */
static void works(struct rig *g, uint32_t op, enum how how, uint64_t len, bool cold)
{
	struct strait_result res = { 0 };

	prepare(g, op, cold);
	ASSERT_TRUE(attempt(g, op, how, len, &res));
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, len);
	if (op == STRAIT_READ)
		check_read(g, len, &res, true);
	else
		check_write(g, len, &res);
}

/* The fault has no lasting effect. */
static void works_again(struct rig *g, uint32_t op, enum how how, uint64_t len)
{
	works(g, op, how, len, false);
}

/* Returns how often the call was made. */
static unsigned int every_place(const struct mode *m, const struct fault *f, int64_t ret, uint32_t op, enum how how,
				uint64_t len, bool fresh)
{
	unsigned int calls, sum = 0, nth = 0;
	struct rig g;

	bytes_new(&g);
	rig_open(&g, m);
	/* Until the call in question is no longer reached. */
	do {
		nth++;
		/* In a context that has all its objects, and in a fresh one. */
		if (fresh && nth > 1) {
			rig_close(&g);
			rig_open(&g, m);
		}
		prepare(&g, op, nth % 2);
		start_fault(f, nth, 0, ret);
		one(&g, op, how, len, f->call != OS_VM_READ);
		inject_off();
		calls = inject_calls();
		sum += calls;
		if (nth <= 2)
			works_again(&g, op, how, len);
	} while (calls >= nth);
	works_again(&g, op, how, len);
	rig_close(&g);
	bytes_free(&g);
	return sum;
}

static unsigned int all_rets(const struct mode *m, const struct fault *f, uint32_t op, enum how how)
{
	/* Opening a GPU takes long. */
	size_t rets = on_cuda() ? 1 : ARRAY_SIZE(f->rets);
	unsigned int calls = 0;

	for (size_t i = 0; i < rets && (!i || f->rets[i]); i++) {
		/* Errors are compared in the release build only: instrumented builds are slow. */
		if (!i || test_slow() == 1)
			calls += every_place(m, f, f->rets[i], op, how, LONG_LEN - 10, false);
		calls += every_place(m, f, f->rets[i], op, how, SHORT_LEN, true);
	}
	return calls;
}

TEST_VARIANTS(while_reading, struct fault, read_faults)
{
	unsigned int calls = 0;

	make_file("file", OFF + LONG_LEN, 1);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		for (enum how how = BY_CALL; how < HOWS; how++)
			if (how == BY_CALL || i < 3)
				calls += all_rets(&modes[i], v, STRAIT_READ, how);
	if (v->call != OS_VM_READ || !on_cuda()) /* the emulated engine copies by it */
		ASSERT_GT(calls, 0);
}

TEST_VARIANTS(while_writing, struct fault, write_faults)
{
	unsigned int calls = 0;

	make_file("file", OFF + LONG_LEN, 1);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		for (enum how how = BY_CALL; how < HOWS; how++)
			if (modes[i].routes != ROUTE(PAGECACHE) && (how == BY_CALL || i < 3))
				calls += all_rets(&modes[i], v, STRAIT_WRITE, how);
	ASSERT_GT(calls, 0);
}

static const struct fault all_faults[] = {
	BOTH_WAYS,
	{ "pread", OS_PREAD, { -EIO } },
	{ "pread-eof", OS_PREAD, { 0 } },
	{ "cachestat", OS_CACHESTAT, { -EPERM } },
	{ "mincore", OS_MINCORE, { -EPERM } },
	{ "vm-read", OS_VM_READ, { -EFAULT } },
	{ "pwrite", OS_PWRITE, { -ENOSPC } },
	{ "pwrite-nothing", OS_PWRITE, { 0 } },
};

/* A fault that stays. */
TEST_VARIANTS(from_some_call_on, struct fault, all_faults)
{
	struct rig g;

	make_file("file", OFF + LONG_LEN, 1);
	bytes_new(&g);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		for (unsigned int nth = 1; nth < 8; nth += 3) {
			for (uint32_t op = STRAIT_READ; op <= STRAIT_WRITE; op++) {
				if (op == STRAIT_WRITE && modes[i].routes == ROUTE(PAGECACHE))
					continue;
				rig_open(&g, &modes[i]);
				for (enum how how = BY_CALL; how < HOWS; how++) {
					prepare(&g, op, true);
					start_fault(v, nth, UINT32_MAX, v->rets[0]);
					one(&g, op, how, nth % 2 ? LONG_LEN - 10 : SHORT_LEN, v->call != OS_VM_READ);
					inject_off();
				}
				if (op == STRAIT_WRITE)
					write_at(g.path, g.old, OFF + LONG_LEN, 0);
				works_again(&g, op, BY_CALL, LONG_LEN - 10);
				write_at(g.path, g.old, OFF + LONG_LEN, 0);
				rig_close(&g);
			}
		}
	}
	bytes_free(&g);
}

/* If signals keep the kernel from starting a thread, it gives the request up: the library must recover. */
TEST(given_up_by_the_kernel)
{
	unsigned int calls = 0;
	struct rig g;

	make_file("file", OFF + LONG_LEN, 1);
	bytes_new(&g);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		rig_open(&g, &modes[i]);
		for (uint32_t op = STRAIT_READ; op <= STRAIT_WRITE; op++) {
			for (enum how how = BY_CALL; how < HOWS; how++) {
				inject(OS_RING_RESULT, 1, UINT32_MAX, -ECANCELED);
				works(&g, op, how, LONG_LEN, true);
				inject_off();
				calls += inject_calls();
			}
		}
		write_at(g.path, g.old, OFF + LONG_LEN, 0);
		rig_close(&g);
	}
	ASSERT_GT(calls, 0);
	bytes_free(&g);
}

/* Partly over existing data, partly past it: a failure in the first part leaves the length unchanged. */
TEST(an_extending_write_stops_where_it_failed)
{
	struct strait_result res = { 0 };
	unsigned int calls, nth, failed = 0;
	uint64_t half = OFF + LONG_LEN / 2;
	struct rig g;

	g.old = pattern_new(0, OFF + LONG_LEN, 1);
	g.new = pattern_new(0, LONG_LEN, 2);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		for (int kind = 0; kind < 2; kind++) {
			for (nth = 1, calls = 1; calls >= nth - 1; nth++) {
				const char *path = make_file("file", half, 1);

				rig_open(&g, &modes[i]);
				region_put_bytes(g.r, 0, g.new, LONG_LEN);
				inject(kind ? OS_RING_RESULT : OS_PWRITE, nth, 0, kind ? -EIO : -ENOSPC);
				ASSERT_TRUE(attempt(&g, STRAIT_WRITE, BY_CALL, LONG_LEN, &res));
				inject_off();
				calls = inject_calls();
				if (res.status) {
					failed++;
					ASSERT_EQ(file_length(path), max_u64(OFF + res.bytes, half));
				} else {
					ASSERT_EQ(file_length(path), OFF + LONG_LEN);
				}
				file_expect(path, OFF, g.new, res.bytes);
				rig_close(&g);
			}
		}
	}
	ASSERT_GT(failed, 20);
	free(g.old);
	free(g.new);
}

/* The copy engine fails: the error is the device's, with its own code, and the reported bytes are good. */
static const struct mode copy_modes[] = {
	{ "any", "emu:0", 0, 0, 0 },
	{ "pagecache", "emu:0", ROUTE(PAGECACHE), 0, 0 },
	{ "direct", "emu:0", ROUTE(STAGED), STRAIT_FILE_DIRECT, 0 },
};

TEST_WHERE(copy_errors, where_emulated)
TEST_VARIANTS(copy_errors, struct mode, copy_modes)
{
	struct strait_emu_model models[] = { { sizeof(models[0]), 0, 0 }, { sizeof(models[0]), GIB(2), 1000 } };
	struct rig g;

	make_file("file", OFF + LONG_LEN, 1);
	bytes_new(&g);
	for (int k = 0; k < 2; k++) {
		for (uint32_t op = STRAIT_READ; op <= STRAIT_WRITE; op++) {
			bool failed = true;

			if (op == STRAIT_WRITE && v->routes == ROUTE(PAGECACHE))
				continue;
			rig_open(&g, v);
			ASSERT_OK(strait_emu_set_model(g.dev, &models[k]));
			for (int64_t nth = 0; failed; nth++) {
				for (uint64_t len = SHORT_LEN; len < LONG_LEN; len += LONG_LEN - 10 - SHORT_LEN) {
					struct strait_result res = { 0 };

					prepare(&g, op, false);
					emu_inject_copy_error(g.dev, nth, -EIO);
					ASSERT_TRUE(attempt(&g, op, nth % 2 ? BY_QUEUE : BY_CALL, len, &res));
					emu_inject_copy_error(g.dev, INT64_MAX, 0);
					failed = res.status;
					if (failed) {
						ASSERT_EQ(res.status, -EIO);
						ASSERT_EQ(res.device_status, EIO);
						ASSERT_LT(res.bytes, len);
					} else {
						ASSERT_EQ(res.device_status, 0);
						ASSERT_EQ(res.bytes, len);
						ASSERT_GT(nth, 0);
					}
					if (op == STRAIT_READ)
						check_read(&g, len, &res, false);
					else
						check_write(&g, len, &res);
				}
			}
			works_again(&g, op, BY_CALL, LONG_LEN - 10);
			write_at(g.path, g.old, OFF + LONG_LEN, 0);
			rig_close(&g);
		}
	}
	bytes_free(&g);
}

/* A direct read that meets blocks which a store to a mapping of the file is allocating: the page cache has the bytes. */
TEST(direct_read_collides)
{
	const struct mode staged = { "staged", "emu:0", ROUTE(STAGED), 0, 0 };
	struct strait_result res = { 0 };
	struct rig g;

	make_file("file", OFF + LONG_LEN, 1);
	bytes_new(&g);
	rig_open(&g, &staged);
	prepare(&g, STRAIT_READ, true);
	inject(OS_RING_RESULT, 1, 0, -EIO);
	ASSERT_TRUE(attempt(&g, STRAIT_READ, BY_CALL, LONG_LEN, &res));
	inject_off();
	ASSERT_GE(inject_calls(), 1);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, LONG_LEN);
	check_read(&g, LONG_LEN, &res, true);
	rig_close(&g);
	bytes_free(&g);
}
