/* SPDX-License-Identifier: MIT */
/* On a GPU: every byte arrives, by every route and with every kind of call. */
#include "gpu/gpu.h"

static const struct mode modes[] = {
	{ "any", "cuda:0", 0, 0, 0 },
	{ "staged", "cuda:0", ROUTE(STAGED), 0, 0 },
	{ "pagecache", "cuda:0", ROUTE(PAGECACHE), 0, 0 },
	{ "direct", "cuda:0", 0, STRAIT_FILE_DIRECT, 0 },
	{ "direct-threads", "cuda:0", 0, STRAIT_FILE_DIRECT, STRAIT_CONTEXT_NO_URING },
	{ "immutable", "cuda:0", 0, STRAIT_FILE_IMMUTABLE, 0 },
};

static const uint64_t sizes[] = { 1,	    511,	  4096,	      4097,	      KIB(64),
				  KIB(128), KIB(128) + 1, MIB(4) - 1, MIB(16) + 4097, MIB(33) + 5,
				  MIB(100) };

TEST(says_what_it_is)
{
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_context *ctx;

	need_gpu();
	ctx = context_new(NULL);
	ASSERT_OK(strait_device_info(device_named(ctx, "cuda:0"), &info));
	ASSERT_STREQ(info.provider, "cuda");
	ASSERT_TRUE(info.model[0]);
	ASSERT_EQ(strlen(info.pci), 12);
	ASSERT_GT(info.mem_total, GIB(1));
	ASSERT_LE(info.mem_free, info.mem_total);
	strait_context_close(ctx);
}

TEST_VARIANTS_TIMEOUT(reads_what_the_file_has, struct mode, modes, 120)
{
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	struct strait_region *r;
	const char *path;

	need_gpu();
	path = make_file("data", MIB(104), 1);
	ctx = context_for(v);
	ep = file_new(ctx, path, O_RDONLY, v->file);
	r = region_new(device_named(ctx, "cuda:0"), MIB(104));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t off = i * 4099, at = i * 513;
		void *want = pattern_new(off, sizes[i], 1);
		struct strait_result res;

		ASSERT_OK(strait_region_fill(r, 0, 0x5a, MIB(104)));
		res = move(STRAIT_READ, v->routes, ep, off, r, at, sizes[i]);
		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, sizes[i]);
		region_expect(r, at, want, sizes[i]);
		region_expect_byte(r, at + sizes[i], 0x5a, 4096);
		free(want);
	}
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	ASSERT_EQ(now_current(), NULL);
}

static bool where_written(const void *v)
{
	const struct mode *m = v;

	return m->routes != ROUTE(PAGECACHE); /* the pagecache route only reads */
}

TEST_WHERE(writes_what_the_region_has, where_written)
TEST_VARIANTS_TIMEOUT(writes_what_the_region_has, struct mode, modes, 120)
{
	struct strait_endpoint *ep;
	struct strait_context *ctx;
	struct strait_region *r;
	const char *path;
	char *bytes;

	need_gpu();
	path = make_file("data", MIB(104), 1);
	ctx = context_for(v);
	ep = file_new(ctx, path, O_RDWR, v->file);
	r = region_new(device_named(ctx, "cuda:0"), MIB(104));
	bytes = pattern_new(0, MIB(104), 2);
	region_put_bytes(r, 0, bytes, MIB(104));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t off = i * 4099, at = i * 513;
		struct strait_result res = move(STRAIT_WRITE, v->routes, ep, off, r, at, sizes[i]);

		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, sizes[i]);
		file_expect(path, off, bytes + at, sizes[i]);
	}
	free(bytes);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

enum { QUEUED = 900 };

/* Many small transfers at once use the copy list kernel. */
static void queue_of(uint32_t op, uint32_t file, bool aligned)
{
	const char *path = make_file("data", MIB(16), 3);
	struct strait_context *ctx = context_new(NULL);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDWR, file);
	struct strait_region *r = region_new(device_named(ctx, "cuda:0"), MIB(24));
	static struct strait_transfer t[QUEUED];
	static struct strait_result res[QUEUED];
	char *model = pattern_new(0, MIB(24), 4);
	char *content = pattern_new(0, MIB(16), 3);
	uint64_t state = 9;
	unsigned int done = 0;
	struct strait_queue *q;

	region_put_bytes(r, 0, model, MIB(24));
	ASSERT_OK(strait_queue_open(ctx, NULL, &q));
	for (unsigned int i = 0; i < QUEUED; i++) {
		uint64_t len = 1 + prng_below(&state, 9000), off = i * 15000ull + prng_below(&state, 2000);
		uint64_t at = i * 24000ull + prng_below(&state, 9000);

		if (aligned) {
			off = align_up(off, 512);
			at = align_up(at, 512);
			len = 4096;
		}
		t[i] = (struct strait_transfer){ .op = op,
						 .endpoint = ep,
						 .region = r,
						 .endpoint_offset = off,
						 .region_offset = at,
						 .length = len,
						 .user_data = i };
		if (op == STRAIT_READ)
			memcpy(model + at, content + off, len);
		else
			memcpy(content + off, model + at, len);
	}
	ASSERT_OK(strait_queue_submit(q, t, QUEUED));
	while (done < QUEUED) {
		int n = strait_queue_wait(q, 1, QUEUED, STRAIT_FOREVER, res);

		ASSERT_GT(n, 0);
		for (int i = 0; i < n; i++) {
			ASSERT_EQ(res[i].status, 0);
			ASSERT_EQ(res[i].bytes, t[res[i].user_data].length);
		}
		done += (unsigned int)n;
	}
	if (op == STRAIT_READ)
		region_expect(r, 0, model, MIB(24));
	else
		file_expect(path, 0, content, MIB(16));
	strait_queue_close(q);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(model);
	free(content);
}

static const struct queue_mode {
	const char *name;
	uint32_t op, file;
	bool aligned;
} queue_modes[] = {
	{ "read", STRAIT_READ, 0, false },
	{ "read-aligned", STRAIT_READ, 0, true },
	{ "read-direct", STRAIT_READ, STRAIT_FILE_DIRECT, true },
	{ "read-in-place", STRAIT_READ, STRAIT_FILE_IMMUTABLE, false },
	{ "write", STRAIT_WRITE, 0, false },
	{ "write-aligned", STRAIT_WRITE, 0, true },
};

TEST_VARIANTS(queues, struct queue_mode, queue_modes)
{
	need_gpu();
	queue_of(v->op, v->file, v->aligned);
}

static const struct length {
	const char *name;
	uint64_t len;
} lengths[] = { { "small", KIB(70) + 3 }, { "medium", MIB(5) + 77 }, { "large", MIB(200) + 12345 } };

TEST_VARIANTS_TIMEOUT(kernels_agree_with_the_cpu, struct length, lengths, 120)
{
	uint64_t len = v->len, state = 5;
	struct strait_context *ctx;
	struct strait_region *r;
	char *model;

	need_gpu();
	ctx = context_new(NULL);
	r = region_new(device_named(ctx, "cuda:0"), len);
	model = pattern_new(0, len, 6);
	region_put_bytes(r, 0, model, len);
	for (int i = 0; i < 60; i++) {
		uint64_t off = prng_below(&state, KIB(8));
		uint64_t n = i < 20 ? prng_below(&state, 1700) : prng_below(&state, len - off);
		uint32_t crc = (uint32_t)i, want = crc32c_update(crc, model + off, n);

		ASSERT_OK(strait_region_crc32c(r, off, n, &crc));
		ASSERT_EQ(crc, want);
	}
	for (int i = 0; i < 40; i++) {
		uint64_t a = prng_below(&state, 600), b = len / 2 + prng_below(&state, 600), where;
		uint64_t n = 1 + prng_below(&state, len / 2 - 600), at = prng_below(&state, n);
		char byte;

		ASSERT_OK(strait_region_copy_in(r, b, model + a, n));
		ASSERT_OK(strait_region_compare(r, a, r, b, n, &where));
		ASSERT_EQ(where, n);
		byte = (char)(model[a + at] + 1);
		ASSERT_OK(strait_region_copy_in(r, b + at, &byte, 1));
		ASSERT_OK(strait_region_compare(r, a, r, b, n, &where));
		ASSERT_EQ(where, at);
	}
	ASSERT_OK(strait_region_fill(r, 13, 7, len - 13));
	region_expect_byte(r, 13, 7, len - 13);
	strait_region_close(r);
	strait_context_close(ctx);
	free(model);
}
