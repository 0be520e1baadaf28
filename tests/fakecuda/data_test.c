/* SPDX-License-Identifier: MIT */
/* Every byte arrives, by every kind of copy of the provider. */
#include "fakecuda/common.h"

#include "device/provider.h"

static const struct mode modes[] = {
	{ "any", "cuda:0", 0, 0, 0 },
	{ "staged", "cuda:0", ROUTE(STAGED), 0, 0 },
	{ "pagecache", "cuda:0", ROUTE(PAGECACHE), 0, 0 },
	{ "direct", "cuda:0", 0, STRAIT_FILE_DIRECT, 0 },
	{ "direct-threads", "cuda:0", 0, STRAIT_FILE_DIRECT, STRAIT_CONTEXT_NO_URING },
	{ "immutable", "cuda:0", 0, STRAIT_FILE_IMMUTABLE, 0 },
};

static const uint64_t sizes[] = { 1, 511, 4096, 4097, KIB(128), KIB(128) + 1, MIB(4) - 1, MIB(16) + 4097, MIB(33) };

TEST_VARIANTS(reads_what_the_file_has, struct mode, modes)
{
	const char *path = make_file("data", MIB(36), 1);
	struct strait_context *ctx = context_for(v);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, v->file);
	struct strait_region *r = region_new(device_named(ctx, "cuda:0"), MIB(34));

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t off = i * 4099, at = i * 513;
		void *want = pattern_new(off, sizes[i], 1);
		struct strait_result res;

		ASSERT_OK(strait_region_fill(r, 0, 0x5a, at + sizes[i] + 64));
		res = move(STRAIT_READ, v->routes, ep, off, r, at, sizes[i]);
		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, sizes[i]);
		region_expect(r, at, want, sizes[i]);
		region_expect_byte(r, at + sizes[i], 0x5a, 64);
		free(want);
	}
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	expect_clean();
	ASSERT_EQ(fake_depth(), 0);
	expect_usage(&(struct fake_usage){ 0 });
}

TEST_VARIANTS(writes_what_the_region_has, struct mode, modes)
{
	const char *path = make_file("data", MIB(36), 1);
	struct strait_context *ctx = context_for(v);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDWR, v->file);
	struct strait_region *r = region_new(device_named(ctx, "cuda:0"), MIB(34));
	void *bytes = pattern_new(0, MIB(34), 2);

	if (v->routes == ROUTE(PAGECACHE))
		SKIP("the pagecache route only reads");
	region_put_bytes(r, 0, bytes, MIB(34));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t off = i * 4099, at = i * 513;
		struct strait_result res = move(STRAIT_WRITE, v->routes, ep, off, r, at, sizes[i]);

		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, sizes[i]);
		file_expect(path, off, (char *)bytes + at, sizes[i]);
	}
	free(bytes);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

/* Many small transfers at once use the scatter kernel. */
static void queue_of(uint32_t op, uint32_t file)
{
	enum { N = 700 };
	const char *path = make_file("data", MIB(8), 3);
	struct strait_context *ctx = context_new(NULL);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDWR, file);
	struct strait_region *r = region_new(device_named(ctx, "cuda:0"), MIB(16));
	static struct strait_transfer t[N];
	static struct strait_result res[N];
	struct strait_queue *q;
	uint64_t state = 9;
	char *model = pattern_new(0, MIB(16), 4);
	char *content = pattern_new(0, MIB(8), 3);
	unsigned int done = 0, before = fake_launches();

	region_put_bytes(r, 0, model, MIB(16));
	ASSERT_OK(strait_queue_open(ctx, NULL, &q));
	for (unsigned int i = 0; i < N; i++) {
		uint64_t len = 1 + prng_below(&state, 9000), off = i * 11111 + prng_below(&state, 2000);

		t[i] = (struct strait_transfer){ .op = op,
						 .endpoint = ep,
						 .region = r,
						 .endpoint_offset = off,
						 .region_offset = i * 20000 + prng_below(&state, 9000),
						 .length = len,
						 .user_data = i };
		if (op == STRAIT_READ)
			memcpy(model + t[i].region_offset, content + off, len);
		else
			memcpy(content + off, model + t[i].region_offset, len);
	}
	ASSERT_OK(strait_queue_submit(q, t, N));
	while (done < N) {
		int n = strait_queue_wait(q, 1, N, STRAIT_FOREVER, res);

		ASSERT_GT(n, 0);
		for (int i = 0; i < n; i++) {
			ASSERT_EQ(res[i].status, 0);
			ASSERT_EQ(res[i].bytes, t[res[i].user_data].length);
		}
		done += (unsigned int)n;
	}
	if (op == STRAIT_READ)
		region_expect(r, 0, model, MIB(16));
	else
		file_expect(path, 0, content, MIB(8));
	ASSERT_GT(fake_launches(), before);
	strait_queue_close(q);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(model);
	free(content);
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

TEST(queue_reads)
{
	queue_of(STRAIT_READ, 0);
}

TEST(queue_reads_in_place)
{
	queue_of(STRAIT_READ, STRAIT_FILE_IMMUTABLE);
}

TEST(queue_writes)
{
	queue_of(STRAIT_WRITE, 0);
}

static void check_region_work(struct strait_region *r, const char *model, uint64_t len)
{
	/* ThreadSanitizer instruments every byte that is read. */
	int times = test_slow() > 4 ? 15 : 60;
	uint64_t state = 5;

	for (int i = 0; i < times; i++) {
		uint64_t off = prng_below(&state, KIB(8)),
			 n = i < times / 3 ? prng_below(&state, 700) : prng_below(&state, len - off);
		uint32_t crc = (uint32_t)i, want = crc32c_update(crc, model + off, n);

		ASSERT_OK(strait_region_crc32c(r, off, n, &crc));
		ASSERT_EQ(crc, want);
	}
	for (int i = 0; i < times; i++) {
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
}

static void region_work(void)
{
	uint64_t len = MIB(5) + 77;
	struct strait_context *ctx = context_new(NULL);
	struct strait_region *r = region_new(device_named(ctx, "cuda:0"), len);
	char *model = pattern_new(0, len, 6);

	region_put_bytes(r, 0, model, len);
	check_region_work(r, model, len);
	ASSERT_OK(strait_region_fill(r, 13, 7, MIB(2)));
	region_expect_byte(r, 13, 7, MIB(2));
	strait_region_close(r);
	strait_context_close(ctx);
	free(model);
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

/* The driver handles one registration at a time: a reader that unregistered would delay the next registration. */
TEST(readers_unregister_nothing)
{
	const struct strait_context_opts opts = { .size = sizeof(opts), .threads = 4 };
	const char *path = make_file("data", MIB(96), 1);
	struct strait_context *ctx = context_new(&opts);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_region *r = region_new(device_named(ctx, "cuda:0"), MIB(96));
	uint64_t registered = 0, staged = 0;
	void *want = pattern_new(0, MIB(96), 1);

	/* Ready to register: from then on it is the first lane that does. */
	ASSERT_EQ(move(STRAIT_READ, ROUTE(PAGECACHE), ep, 0, r, 0, 4096).bytes, 4096);
	/* Until the readers have had their share, which may be late. */
	for (int i = 0; i < 8 || (staged < MIB(96) && i < 400); i++) {
		struct strait_result res = move(STRAIT_READ, 0, ep, 0, r, 0, MIB(96));

		ASSERT_EQ(res.bytes, MIB(96));
		registered += res.route_bytes[STRAIT_ROUTE_PAGECACHE];
		staged += res.route_bytes[STRAIT_ROUTE_STAGED];
	}
	region_expect(r, 0, want, MIB(96));
	ASSERT_GT(registered, 0);
	ASSERT_GE(staged, MIB(96));
	ASSERT_EQ(fake_strangers(), 0);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(want);
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

/* Creating the windows' context holds up all copies: only a process that reads tens of GiB has it created. */
TEST(windows_are_staged_until_their_context_pays)
{
	const char *path = make_file("data", MIB(96), 1);
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "cuda:0");
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_region *r = region_new(dev, MIB(96));
	void *want = pattern_new(0, MIB(96), 1);
	unsigned int contexts = fake_usage().contexts;

	for (int i = 0; i < 3; i++) {
		struct strait_result res = move(STRAIT_READ, 0, ep, 0, r, 0, MIB(96));

		ASSERT_EQ(res.bytes, MIB(96));
		ASSERT_EQ(res.routes, ROUTE(STAGED));
	}
	region_expect(r, 0, want, MIB(96));
	ASSERT_FALSE(dev->ops->register_ready(dev, GIB(1)));
	ASSERT_EQ(fake_usage().contexts, contexts);
	while (!dev->ops->register_ready(dev, GIB(32)))
		sleep_ms(1);
	ASSERT_EQ(fake_usage().contexts, contexts + 1);
	ASSERT_OK(strait_region_fill(r, 0, 0, MIB(96)));
	ASSERT_EQ(move(STRAIT_READ, 0, ep, 0, r, 0, MIB(96)).bytes, MIB(96));
	region_expect(r, 0, want, MIB(96));
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	free(want);
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

TEST(works_on_regions)
{
	region_work();
	ASSERT_GT(fake_launches(), 0);
}

/* A driver without its compiler cannot load the kernels. */
TEST(works_on_regions_without_kernels)
{
	fake_fail("cuModuleLoadData", 1, 221);
	region_work();
	ASSERT_TRUE(fake_failed());
	ASSERT_EQ(fake_launches(), 0);
}
