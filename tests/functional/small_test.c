/* SPDX-License-Identifier: MIT */
/* Small transfers: the calling thread does all the work. */
#include "common.h"

static const struct mode modes[] = {
	{ "emu", "emu:0", 0, 0, 0 },
	{ "emu-direct", "emu:0", 0, STRAIT_FILE_DIRECT, 0 },
	{ "emu-staged", "emu:0", ROUTE(STAGED), 0, 0 },
	{ "host", "host", 0, 0, 0 },
	{ "host-direct", "host", 0, STRAIT_FILE_DIRECT, 0 },
};

TEST_VARIANTS(no_thread_is_started, struct mode, modes)
{
	struct strait_context *ctx = context_for(v);
	const char *path = make_file("file", MIB(1), 1);
	unsigned char *want = pattern_new(0, MIB(1), 1);
	struct strait_region *r = region_new(device_named(ctx, v->device), MIB(1));
	struct strait_endpoint *ep = file_new(ctx, path, O_RDWR, v->file);
	uint64_t state = 4, n = 0;
	unsigned int threads;

	/* The first transfer may probe; a GPU's driver has threads of its own. */
	ASSERT_EQ(move(STRAIT_READ, v->routes, ep, 0, r, 0, 1).bytes, 1);
	n++;
	region_expect(r, 0, want, 1);
	threads = threads_now();
	for (int i = 0; i < 60; i++) {
		uint64_t len = 1 + prng_below(&state, KIB(64)), off = prng_below(&state, MIB(1) - len);

		if (i % 8 == 0)
			evict(path, 0, 0);
		ASSERT_EQ(move(STRAIT_READ, v->routes, ep, off, r, off, len).bytes, len);
		region_expect(r, off, want + off, len);
		ASSERT_EQ(move(STRAIT_WRITE, v->routes, ep, off, r, off, len).bytes, len);
		n += 2;
		ASSERT_EQ(stats_of(ctx).small, n);
		ASSERT_EQ(stats_of(ctx).transfers, n);
	}
	ASSERT_EQ(threads_now(), threads);
	file_expect(path, 0, want, MIB(1));
	/* Long transfers are not counted, nor are those that move nothing. */
	ASSERT_EQ(move(STRAIT_READ, v->routes, ep, 0, r, 0, MIB(1)).bytes, MIB(1));
	ASSERT_EQ(move(STRAIT_READ, v->routes, ep, 0, r, 0, 0).bytes, 0);
	ASSERT_EQ(stats_of(ctx).small, n);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
}

/* Plain reads into host memory go through the page cache, as pread(2) does. */
static const struct mode past_the_cache[] = {
	{ "emu", "emu:0", 0, 0, 0 },
	{ "emu-direct", "emu:0", 0, STRAIT_FILE_DIRECT, 0 },
	{ "emu-staged", "emu:0", ROUTE(STAGED), 0, 0 },
	{ "host-direct", "host", 0, STRAIT_FILE_DIRECT, 0 },
};

/* Direct reads leave no pages in the page cache, singly or coalesced: after a miss the next reads ask first. */
TEST_VARIANTS(the_page_cache_is_left_alone, struct mode, past_the_cache)
{
	const uint64_t file = MIB(32), n = 1024;
	struct strait_context *ctx = context_for(v);
	const char *path = make_file("file", file, 1);
	unsigned char *want = pattern_new(0, file, 1);
	struct strait_region *r = region_new(device_named(ctx, v->device), KIB(64));
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, v->file);
	struct strait_queue *q = queue_new(ctx, 0);
	uint64_t state = 4;

	if (!(file_info(ep).caps & STRAIT_FILE_CAN_DIRECT))
		SKIP("%s", strait_reason_text(file_info(ep).direct_reason));
	if (!evict(path, 0, 0))
		SKIP("pages cannot be evicted here");
	for (uint64_t i = 0; i < n; i += 16) {
		struct strait_transfer t[16];
		struct strait_result res[16];

		for (uint64_t k = 0; k < 16; k++)
			t[k] = (struct strait_transfer){ .endpoint = ep,
							 .region = r,
							 .endpoint_offset = prng_below(&state, file / 4096) * 4096,
							 .region_offset = k * 4096,
							 .length = 4096,
							 .routes = v->routes };
		if (i % 32) {
			ASSERT_OK(strait_queue_submit(q, t, 16));
			ASSERT_EQ(strait_queue_wait(q, 16, 16, STRAIT_FOREVER, res), 16);
		} else {
			for (int k = 0; k < 16; k++)
				ASSERT_OK(strait_transfer_run(&t[k], STRAIT_FOREVER, &res[k]));
		}
		for (int k = 0; k < 16; k++) {
			ASSERT_EQ(res[k].bytes, 4096);
			region_expect(r, (uint64_t)k * 4096, want + t[k].endpoint_offset, 4096);
		}
	}
	/* What the first attempt read, including readahead. */
	ASSERT_LE(cached(path, 0, file), MIB(1));
	ASSERT_GE(stats_of(ctx).direct_bytes, n * 4096 * 3 / 4);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
}

/* An unused context has no threads and no pinned memory. */
TEST_WHERE(opening_starts_nothing, where_not_cuda) /* its driver has threads of its own */
TEST(opening_starts_nothing)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_region *r = region_new(device_named(ctx, "emu"), MIB(1));
	struct strait_endpoint *ep = file_new(ctx, make_file("file", MIB(1), 1), O_RDWR, 0);
	unsigned int threads = threads_now();
	struct strait_queue *q;
	struct strait_stream *s;

	if (!strcmp(device_under_test(), "emu:0"))
		ASSERT_EQ(threads, 1);
	ASSERT_OK(strait_queue_open(ctx, NULL, &q));
	ASSERT_OK(strait_stream_open(device_named(ctx, "emu"), &s));
	ASSERT_EQ(threads_now(), threads);
	ASSERT_EQ(stats_of(ctx).pool_bytes, 0);
	strait_stream_close(s);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	ASSERT_EQ(threads_now(), 1);
}

/* Threads end with the context. */
TEST_WHERE(threads_go_with_the_context, where_not_cuda) /* its driver has threads of its own */
TEST(threads_go_with_the_context)
{
	for (int i = 0; i < 3; i++) {
		struct strait_context_opts opts = { .size = sizeof(opts), .threads = 4 };
		struct strait_context *ctx = context_new(&opts);
		struct strait_region *r = region_new(device_named(ctx, "emu"), MIB(64));
		struct strait_endpoint *ep = file_new(ctx, make_file("file", MIB(64), 1), O_RDONLY, STRAIT_FILE_LEASE);

		ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(64)), (ssize_t)MIB(64));
		ASSERT_LE(threads_now(), 1 + 4 + 1); /* the workers, and the one that watches leases */
		strait_context_close(ctx);
		strait_region_close(r);
		strait_endpoint_close(ep);
		ASSERT_EQ(threads_now(), 1);
	}
}
