/* SPDX-License-Identifier: MIT */
/*
 * /dev/strait: memory that is revoked while a call is between two steps. In each test one side is delayed at the critical
 * place by a window (kernel/window.h), and the test asserts that the other side passed meanwhile.
 */
#include "p2p.h"

#define SEED 83
#define LEN MIB(1)
#define PIECE KIB(64)
#define WIDE 400 /* ms */

static const struct place raw = { "raw", NULL };

static int open_bridge(void)
{
	int ko = ko_open_p2p();

	if (!(ko_info(ko).features & STRAIT_FEATURE_IMPORT_NVP2P))
		SKIP("the bridge is not loaded");
	return ko;
}

static void await(const char *window)
{
	for (int i = 0; i < 20000 && !window_inside(window); i++)
		sleep_ms(1);
	ASSERT_TRUE(window_inside(window));
}

/* One call, in a thread of its own. */
struct call {
	int ko, file;
	uint32_t kind, handle;
	void *p;
	int64_t rc;
	pthread_t thread;
};

static void *read_piece(void *arg)
{
	struct call *c = arg;

	c->rc = ko_io(c->ko, STRAIT_OP_READ, c->handle, c->file, 0, 0, PIECE, NULL);
	return NULL;
}

static void *import(void *arg)
{
	struct call *c = arg;
	struct strait_ioc_import imp;

	c->rc = ko_try_import(c->ko, c->kind, c->p, LEN, &imp);
	return NULL;
}

/* Starts the call, and returns when it waits in the window. */
static void start_call(struct call *c, void *(*fn)(void *arg), const char *window)
{
	window_open(window, WIDE);
	c->rc = 1;
	ASSERT_EQ(pthread_create(&c->thread, NULL, fn, c), 0);
	await(window);
}

/* The other side has passed; the call ends with that result. */
static void end_call(struct call *c, const char *window, int64_t rc)
{
	ASSERT_GT(window_met(window), 0);
	window_close(window);
	ASSERT_EQ(pthread_join(c->thread, NULL), 0);
	ASSERT_EQ(c->rc, rc);
}

static const struct use {
	const char *name;
	uint32_t kind;
	bool release;
	int64_t rc;
} uses[] = {
	/* Pages stay pinned until the read that found them has ended. */
	{ "freed", STRAIT_IMPORT_P2P, false, PIECE },
	{ "released", STRAIT_IMPORT_P2P, true, PIECE },
	/* The driver's memory has a new owner when the free returns. */
	{ "freed_by_the_driver", STRAIT_IMPORT_NVP2P, false, -ENODEV },
	{ "released_to_the_driver", STRAIT_IMPORT_NVP2P, true, PIECE },
};

/* A read has found the region's memory and does not use it yet. */
TEST_VARIANTS(before_it_is_used, struct use, uses)
{
	int gpu = gpu_open();
	struct call c = { .ko = v->kind == STRAIT_IMPORT_P2P ? ko_open_p2p() : open_bridge() };
	struct gpu_mem m;
	uint64_t before[2];

	c.file = place_file(&raw, LEN, SEED, 0);
	gpu_all_free(gpu, before);
	m = gpu_alloc(gpu, PLAIN, LEN);
	c.handle = ko_import(c.ko, v->kind, m.p, m.len);
	start_call(&c, read_piece, "strait:use");
	if (v->release)
		ASSERT_OK(ko_release(c.ko, c.handle));
	else
		ASSERT_OK(gpu_free(&m));
	end_call(&c, "strait:use", v->rc);
	ASSERT_EQ(ko_io(c.ko, STRAIT_OP_READ, c.handle, c.file, 0, 0, PIECE, NULL), v->release ? -ENOENT : -ENODEV);
	if (v->release)
		ASSERT_OK(gpu_free(&m));
	gpu_unmap(&m);
	gpu_expect_free(gpu, before);
	ko_expect_counter("device_bytes", 0);
	ko_expect_counter("in_flight", 0);
}

/*
 * Pages are replaced after a read has verified them, before it records that. The read that is in flight uses the pages
 * that it verified; the next one notices.
 */
TEST(replaced_after_they_were_verified)
{
	struct call c = { .ko = ko_open() };
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_TRUE(p != MAP_FAILED);
	memset(p, 1, LEN);
	c.file = place_file(&raw, LEN, SEED, 0);
	c.handle = ko_import(c.ko, STRAIT_IMPORT_USER, p, LEN);
	/* A change after which the same pages are there. */
	ASSERT_EQ(madvise(p, LEN, MADV_FREE), 0);
	start_call(&c, read_piece, "strait:verify");
	ASSERT_EQ(madvise(p, LEN, MADV_DONTNEED), 0);
	end_call(&c, "strait:verify", PIECE);
	ASSERT_TRUE(all_zero(p, LEN));
	ASSERT_EQ(ko_io(c.ko, STRAIT_OP_READ, c.handle, c.file, 0, 0, PIECE, NULL), -ENODEV);
	ko_expect_counter("pinned_bytes", 0);
}

static const struct kind {
	const char *name;
	uint32_t kind;
} kinds[] = { { "device", STRAIT_IMPORT_P2P }, { "host", STRAIT_IMPORT_USER } };

/* The memory goes while an import has pinned it and the region does not have it yet. */
TEST_VARIANTS(before_the_region_has_it, struct kind, kinds)
{
	int gpu = gpu_open();
	struct call c = { .ko = ko_open_p2p(), .kind = v->kind };
	struct gpu_mem m;
	uint64_t before[2];

	gpu_all_free(gpu, before);
	m = gpu_alloc(gpu, PLAIN, LEN);
	c.p = m.p;
	if (v->kind == STRAIT_IMPORT_USER)
		c.p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(c.p != MAP_FAILED);
	start_call(&c, import, "strait:set_backing");
	if (v->kind == STRAIT_IMPORT_USER)
		ASSERT_EQ(munmap(c.p, LEN), 0);
	ASSERT_OK(gpu_free(&m));
	end_call(&c, "strait:set_backing", -ENODEV);
	gpu_unmap(&m);
	gpu_expect_free(gpu, before);
	ko_expect_counter("device_bytes", 0);
	ko_expect_counter("pinned_bytes", 0);
}

/* The same in the bridge, before it has read the driver's page table, and after that before it published the memory. */
static const struct step {
	const char *name, *window;
} steps[] = { { "before_the_table_is_read", "strait_nvp2p:get" }, { "before_it_is_published", "strait:publish" } };

TEST_VARIANTS(freed_while_the_bridge_imports, struct step, steps)
{
	int gpu = gpu_open();
	struct call c = { .ko = open_bridge(), .kind = STRAIT_IMPORT_NVP2P };
	struct gpu_mem m;
	uint64_t before[2], calls, pinned = gpu_counters(gpu).p2p_pinned_bytes;

	gpu_all_free(gpu, before);
	m = gpu_alloc(gpu, PLAIN, LEN);
	c.p = m.p;
	calls = gpu_counters(gpu).callbacks;
	start_call(&c, import, v->window);
	ASSERT_EQ(gpu_counters(gpu).p2p_pinned_bytes - pinned, LEN);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(gpu_counters(gpu).callbacks, calls + 1);
	end_call(&c, v->window, -ENODEV);
	gpu_unmap(&m);
	gpu_expect_free(gpu, before);
	ko_expect_counter("device_bytes", 0);
}

/* The driver frees memory that the bridge is about to put: the callback ends before the driver's put does. */
TEST(freed_while_the_bridge_puts_it)
{
	int ko = open_bridge(), gpu = gpu_open();
	uint64_t before[2], calls;
	struct gpu_mem m;
	uint32_t handle;

	gpu_all_free(gpu, before);
	m = gpu_alloc(gpu, PLAIN, LEN);
	calls = gpu_counters(gpu).callbacks;
	handle = ko_import(ko, STRAIT_IMPORT_NVP2P, m.p, m.len);
	window_open("strait_nvp2p:put", WIDE);
	ASSERT_OK(ko_release(ko, handle));
	await("strait_nvp2p:put");
	ASSERT_OK(gpu_free(&m));
	ASSERT_GT(window_met("strait_nvp2p:put"), 0);
	window_close("strait_nvp2p:put");
	ASSERT_EQ(gpu_counters(gpu).callbacks, calls + 1);
	gpu_unmap(&m);
	ko_expect_counter("device_bytes", 0);
	gpu_expect_free(gpu, before);
}

#define COMMANDS 64

/* Submits reads to the ring, fetches their results, and requires all to be complete. */
static void *submit_and_reap(void *arg)
{
	struct call *c = arg;
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	unsigned int n = c->kind;

	ASSERT_OK(io_uring_queue_init(COMMANDS, &ring, 0));
	for (unsigned int i = 0; i < n; i++)
		ko_sqe(&ring, c->ko, STRAIT_URING_READ, c->handle, c->file, i * KIB(16), i * KIB(16), KIB(16));
	ASSERT_EQ(io_uring_submit(&ring), n);
	for (c->rc = 0; c->rc < n; c->rc++) {
		ASSERT_OK(io_uring_wait_cqe(&ring, &cqe));
		ASSERT_EQ(cqe->res, KIB(16));
		io_uring_cqe_seen(&ring, cqe);
	}
	io_uring_queue_exit(&ring);
	return NULL;
}

/* A command has dropped the memory and its result is not there yet: the free does not wait for the result. */
TEST(freed_before_a_result_is_posted)
{
	int gpu = gpu_open();
	struct call c = { .ko = open_bridge(), .kind = 1 };
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);

	c.file = place_file(&raw, LEN, SEED, 0);
	c.handle = ko_import(c.ko, STRAIT_IMPORT_NVP2P, m.p, m.len);
	start_call(&c, submit_and_reap, "strait:finish");
	ASSERT_EQ(ko_counter("in_flight"), 0);
	ASSERT_OK(gpu_free(&m));
	end_call(&c, "strait:finish", 1);
	ASSERT_OK(ko_release(c.ko, c.handle));
	gpu_unmap(&m);
	ko_expect_counter("device_bytes", 0);
}

#define REQUESTS "/sys/block/nvme0n1/queue/nr_requests"

/* Commands wait to be resubmitted, as the drive's queue was full: the free waits for them, and they complete. */
TEST_TIMEOUT(freed_before_a_command_is_resubmitted, 120)
{
	int gpu = gpu_open();
	struct call c = { .ko = open_bridge(), .kind = COMMANDS };
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	char requests[32];

	c.file = place_file(&raw, LEN, SEED, 0);
	ASSERT_OK(read_text(REQUESTS, requests, sizeof(requests)));
	ASSERT_OK(write_text(REQUESTS, "4"));
	c.handle = ko_import(c.ko, STRAIT_IMPORT_NVP2P, m.p, m.len);
	start_call(&c, submit_and_reap, "strait:retry");
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(ko_counter("in_flight"), 0);
	ASSERT_EQ(window_inside("strait:retry"), 0);
	end_call(&c, "strait:retry", COMMANDS);
	ASSERT_OK(write_text(REQUESTS, requests));
	ASSERT_OK(ko_release(c.ko, c.handle));
	gpu_unmap(&m);
	ko_expect_counter("device_bytes", 0);
}
