/* SPDX-License-Identifier: MIT */
/* strait_read_rows(): rows of a cached file, packed into device memory. */
#include <strait/rows.h>

#include "common.h"

#define BYTES MIB(12)
#define SEED 5

static const char *rows_path;

/* Reads rows and compares them, and the bytes of the region around them. */
static void read_and_compare(struct strait_endpoint *ep, struct strait_region *r, const char *file,
			     const struct strait_rows *rows, uint64_t offset)
{
	uint64_t total = rows->length * rows->count;
	char *want = malloc(total);
	struct strait_result res;
	int rc;

	ASSERT_TRUE(want);
	for (uint64_t i = 0; i < rows->count; i++)
		memcpy(want + i * rows->length, file + rows->offset + i * rows->pitch, rows->length);
	ASSERT_OK(strait_region_fill(r, 0, 0xa5, BYTES));
	/* -EAGAIN: pages of the file are not in memory. The kernel may have taken them for others. */
	for (int i = 0; (rc = strait_read_rows(ep, rows, r, offset, &res)) == -EAGAIN && i < 100; i++)
		warm(rows_path);
	ASSERT_OK(rc);
	ASSERT_EQ(res.bytes, total);
	ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_STAGED], total);
	region_expect_byte(r, 0, 0xa5, offset);
	region_expect(r, offset, want, total);
	region_expect_byte(r, offset + total, 0xa5, BYTES - offset - total);
	free(want);
}

TEST(rows_of_many_shapes)
{
	static const struct strait_rows shapes[] = {
		{ 0, 1, 1, 1 },		 { 0, 4096, 4096, 300 },	  { 100, 16384, 2048, 700 },
		{ 7, 16385, 2049, 600 }, { 4095, 8192, 1, 1400 },	  { 1, KIB(300), KIB(256), 30 },
		{ 3, 100, 33, 100000 },	 { BYTES - 4096, 4096, 4096, 1 },
	};
	struct strait_context *ctx = context_new(NULL);
	const char *path = rows_path = make_file("rows", BYTES, SEED);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_region *r = region_new(device_named(ctx, "emu:0"), BYTES);
	char *file = pattern_new(0, BYTES, SEED);
	struct strait_stats before = stats_of(ctx);

	warm(path);
	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
		read_and_compare(ep, r, file, &shapes[i], i * 1000);
	ASSERT_EQ(stats_of(ctx).transfers - before.transfers, ARRAY_SIZE(shapes));
	free(file);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

TEST(rows_that_cannot_be_read)
{
	struct strait_context *ctx = context_new(NULL), *other = context_new(NULL);
	const char *path = rows_path = make_file("rows", BYTES, SEED);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0), *direct;
	struct strait_device *dev = device_named(ctx, "emu:0");
	struct strait_region *r = region_new(dev, MIB(1)), *host = region_new(device_named(ctx, "host"), MIB(1));
	struct strait_region *far = region_new(device_named(other, "emu:0"), MIB(1));
	struct strait_rows rows = { 0, 16384, 1024, 700 };
	struct strait_result res;

	warm(path);
	ASSERT_EQ(strait_read_rows(NULL, &rows, r, 0, &res), -EINVAL);
	ASSERT_EQ(strait_read_rows(ep, NULL, r, 0, &res), -EINVAL);
	ASSERT_EQ(strait_read_rows(ep, &rows, NULL, 0, &res), -EINVAL);
	ASSERT_EQ(strait_read_rows(ep, &rows, r, 0, NULL), -EINVAL);
	ASSERT_EQ(strait_read_rows(ep, &rows, far, 0, &res), -EINVAL);
	ASSERT_EQ(strait_read_rows(ep, &rows, r, MIB(1) - 699 * 1024, &res), -EINVAL);
	ASSERT_EQ(strait_read_rows(ep, &(struct strait_rows){ 0, 4, 0, 1 }, r, 0, &res), -EINVAL);
	ASSERT_EQ(strait_read_rows(ep, &(struct strait_rows){ 0, 4, 4, 0 }, r, 0, &res), -EINVAL);
	ASSERT_EQ(strait_read_rows(ep, &(struct strait_rows){ 0, 4, 5, 1 }, r, 0, &res), -EINVAL);
	ASSERT_EQ(strait_read_rows(ep, &(struct strait_rows){ 0, UINT64_MAX / 2, 5, 3 }, r, 0, &res), -EINVAL);
	ASSERT_EQ(strait_read_rows(ep, &(struct strait_rows){ INT64_MAX, 8, 5, 3 }, r, 0, &res), -EINVAL);
	/* To be read in another way. */
	ASSERT_EQ(strait_read_rows(ep, &rows, host, 0, &res), -EAGAIN);
	ASSERT_EQ(strait_read_rows(ep, &(struct strait_rows){ 0, KIB(512), KIB(257), 2 }, r, 0, &res), -EAGAIN);
	ASSERT_EQ(strait_read_rows(ep, &(struct strait_rows){ BYTES + 4096, 4096, 10, 2 }, r, 0, &res), -EAGAIN);
	direct = file_new(ctx, path, O_RDONLY, STRAIT_FILE_DIRECT);
	if (file_info(direct).caps & STRAIT_FILE_CAN_DIRECT)
		ASSERT_EQ(strait_read_rows(direct, &rows, r, 0, &res), -EAGAIN);
	strait_endpoint_close(direct);
	if (evict(path, 0, 0))
		ASSERT_EQ(strait_read_rows(ep, &rows, r, 0, &res), -EAGAIN);
	warm(path);
	/* The last row ends one byte past the file. */
	rows = (struct strait_rows){ BYTES - 16384 * 10 + 1, 16384, 16384, 10 };
	ASSERT_EQ(strait_read_rows(ep, &rows, r, 0, &res), -ENODATA);
	ASSERT_EQ(res.status, -ENODATA);
	ASSERT_OK(strait_region_revoke(r));
	ASSERT_EQ(strait_read_rows(ep, &(struct strait_rows){ 0, 4096, 10, 2 }, r, 0, &res), -ENODEV);
	strait_region_close(r);
	strait_region_close(far);
	strait_region_close(host);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	strait_context_close(other);
}

struct reader {
	struct strait_endpoint *ep;
	struct strait_region *r;
	const char *file;
	unsigned int number;
};

static void *read_many(void *arg)
{
	struct reader *c = arg;

	for (unsigned int i = 0; i < 8; i++)
		read_and_compare(c->ep, c->r, c->file, &(struct strait_rows){ c->number * 11 + i, 16000, 1999, 700 },
				 i);
	return NULL;
}

TEST(rows_on_many_threads)
{
	/* One chunk for all of them: each waits for its turn. */
	struct strait_context_opts opts = { .size = sizeof(opts), .pool_bytes = MIB(1), .chunk_bytes = MIB(1) };
	struct strait_context *ctx = context_new(&opts);
	const char *path = rows_path = make_file("rows", BYTES, SEED);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	char *file = pattern_new(0, BYTES, SEED);
	struct reader c[6];
	pthread_t thread[6];

	warm(path);
	for (unsigned int i = 0; i < ARRAY_SIZE(c); i++) {
		c[i] = (struct reader){ ep, region_new(device_named(ctx, "emu:0"), BYTES), file, i };
		ASSERT_OK(pthread_create(&thread[i], NULL, read_many, &c[i]));
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(c); i++) {
		pthread_join(thread[i], NULL);
		strait_region_close(c[i].r);
	}
	free(file);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

/* Blocks of rows are no longer than a chunk: the last chunk of the pool ends at the end of its mapping. */
TEST(rows_in_the_smallest_chunks)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .pool_bytes = KIB(64), .chunk_bytes = KIB(64) };
	static const struct strait_rows shapes[] = {
		{ 0, 8192, 2048, 1000 },
		{ 5, 4099, 4097, 2000 },
		{ 1, KIB(70), KIB(64), 100 },
		{ 3, KIB(70), KIB(33), 100 },
	};

	for (unsigned int chunks = 1; chunks <= 16; chunks *= 4) {
		const char *path = rows_path = make_file("rows", BYTES, SEED);
		char *file = pattern_new(0, BYTES, SEED);
		struct strait_endpoint *ep;
		struct strait_context *ctx;
		struct strait_region *r;
		struct strait_result res;

		opts.pool_bytes = chunks * opts.chunk_bytes;
		ctx = context_new(&opts);
		ep = file_new(ctx, path, O_RDONLY, 0);
		r = region_new(device_named(ctx, "emu:0"), BYTES);
		warm(path);
		for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
			read_and_compare(ep, r, file, &shapes[i], i);
		/* A row that is longer than a chunk is read in another way. */
		ASSERT_EQ(strait_read_rows(ep, &(struct strait_rows){ 0, KIB(70), KIB(64) + 1, 2 }, r, 0, &res),
			  -EAGAIN);
		free(file);
		strait_region_close(r);
		strait_endpoint_close(ep);
		strait_context_close(ctx);
	}
}

static pthread_t caller;
static atomic_uint helpers_refused;

/* Only the calling thread gets staging memory. Its start of threads takes long, so that a helper asks for it first. */
static bool memory_for_the_caller(enum os_call call, int64_t *ret)
{
	bool helper = !pthread_equal(pthread_self(), caller);

	if (call == OS_THREAD && !helper)
		sleep_ms(1);
	if (call != OS_MMAP || !helper)
		return false;
	helpers_refused++;
	*ret = -ENOMEM;
	return true;
}

TEST(a_helper_without_memory)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 8 };
	const char *path = rows_path = make_file("rows", BYTES, SEED);
	char *file = pattern_new(0, BYTES, SEED);
	uint64_t end = os_now_ns() + 10000000000;

	caller = pthread_self();
	warm(path);
	while (!helpers_refused) {
		struct strait_context *ctx = context_new(&opts);
		struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
		struct strait_region *r = region_new(device_named(ctx, "emu:0"), BYTES);

		ASSERT_LT(os_now_ns(), end);
		os_inject = memory_for_the_caller;
		read_and_compare(ep, r, file, &(struct strait_rows){ 0, 4096, 4096, 2000 }, 0);
		os_inject = NULL;
		strait_region_close(r);
		strait_endpoint_close(ep);
		strait_context_close(ctx);
	}
	free(file);
}

TEST_WHERE(a_copy_that_fails, where_emulated)
TEST(a_copy_that_fails)
{
	struct strait_context *ctx = context_new(NULL);
	const char *path = rows_path = make_file("rows", BYTES, SEED);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_device *dev = device_named(ctx, "emu:0");
	struct strait_region *r = region_new(dev, BYTES);
	char *file = pattern_new(0, BYTES, SEED);
	struct strait_rows rows = { 0, 16384, 2048, 700 };
	struct strait_result res;

	warm(path);
	emu_inject_copy_error(dev, 2, -EIO);
	ASSERT_EQ(strait_read_rows(ep, &rows, r, 0, &res), -EIO);
	emu_inject_copy_error(dev, INT64_MAX, 0);
	read_and_compare(ep, r, file, &rows, 0);
	free(file);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}
