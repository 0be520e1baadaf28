/* SPDX-License-Identifier: MIT */
/* Every byte arrives where it belongs, and no other byte changes. */
#include "common.h"

#define GUARD 4096u
#define FILL 0xa5

static const struct mode read_modes[] = { READ_MODES };
static const struct mode write_modes[] = { WRITE_MODES };

static const uint64_t sizes[] = {
	0, 1, 511, 512, 513, 4095, 4096, 4097, KIB(64) - 1, KIB(64), KIB(64) + 1, MIB(1) - 1, MIB(1), MIB(1) + 1,
};

/* A random offset: unaligned, or aligned to a sector, a page or a megabyte. */
static uint64_t odd_offset(uint64_t *state, uint64_t max)
{
	static const uint64_t aligns[] = { 1, 1, 512, 4096, MIB(1) };
	uint64_t off = prng_below(state, max + 1);

	return align_down(off, aligns[prng_below(state, ARRAY_SIZE(aligns))]);
}

struct rig {
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_region *r;
	const char *path;
	uint64_t len;
	unsigned char *model; /* of the file */
	uint32_t routes;
};

static void rig_open(struct rig *g, const struct mode *m, uint64_t len, int oflags)
{
	g->path = strdup(make_file("data", len, 7));
	g->len = len;
	g->model = pattern_new(0, len, 7);
	g->routes = m->routes;
	g->ctx = context_for(m);
	g->ep = file_new(g->ctx, g->path, oflags, m->file);
	g->r = region_new(device_named(g->ctx, m->device), len + 4 * GUARD);
}

static void rig_close(struct rig *g)
{
	strait_region_close(g->r);
	strait_endpoint_close(g->ep);
	strait_context_close(g->ctx);
	free(g->model);
	free((char *)g->path);
}

static void check_read(struct rig *g, uint64_t file_off, uint64_t off, uint64_t len)
{
	uint64_t want = file_off >= g->len ? 0 : min_u64(len, g->len - file_off);
	struct strait_result res;

	ASSERT_OK(strait_region_fill(g->r, off, FILL, len + 2 * GUARD));
	res = move(STRAIT_READ, g->routes, g->ep, file_off, g->r, off + GUARD, len);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, want);
	ASSERT_EQ(res.route_bytes[0] + res.route_bytes[1] + res.route_bytes[2] + res.route_bytes[3], want);
	if (g->routes)
		ASSERT_EQ(res.routes & ~g->routes, 0);
	ASSERT_EQ(!res.routes, !want);
	region_expect(g->r, off + GUARD, g->model + (want ? file_off : 0), want);
	region_expect_byte(g->r, off, FILL, GUARD);
	region_expect_byte(g->r, off + GUARD + len, FILL, GUARD);
}

TEST_WHERE(reads_of_every_size, where_host_once)
TEST_VARIANTS(reads_of_every_size, struct mode, read_modes)
{
	const uint64_t len = MIB(3) + 123;
	uint64_t state = 1;
	struct rig g;

	rig_open(&g, v, len, O_RDONLY);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (int k = 0; k < (very_slow() ? 4 : 8); k++) {
			/* Parts of the file are cached. */
			if (k % 3 == 0)
				evict(g.path, k == 3 ? MIB(1) : 0, k == 3 ? MIB(1) : 0);
			check_read(&g, odd_offset(&state, len - sizes[i]), odd_offset(&state, len - sizes[i]),
				   sizes[i]);
		}
	}
	rig_close(&g);
}

/* Longer than many chunks, and longer than a page-cache window. */
TEST_WHERE(reads_of_many_chunks, where_host_once)
TEST_VARIANTS(reads_of_many_chunks, struct mode, read_modes)
{
	const uint64_t len = MIB(21) + 4097;
	uint64_t state = 2;
	struct rig g;

	rig_open(&g, v, len, O_RDONLY);
	check_read(&g, 0, 1, len);
	check_read(&g, 0, 0, len);
	for (int i = 0; i < (very_slow() ? 2 : 4); i++) {
		uint64_t off = odd_offset(&state, MIB(2));

		evict(g.path, 0, i % 2 ? MIB(9) : 0);
		check_read(&g, off, odd_offset(&state, MIB(2)), len - MIB(2) - prng_below(&state, 5000));
	}
	rig_close(&g);
}

TEST_WHERE(reads_across_and_past_the_end, where_host_once)
TEST_VARIANTS(reads_across_and_past_the_end, struct mode, read_modes)
{
	static const uint64_t lens[] = { 1, 511, 4096, 5000, KIB(64) + 7, MIB(1), MIB(2) + 4095, MIB(9) + 513 };

	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		uint64_t len = lens[i];
		struct rig g;

		rig_open(&g, v, len, O_RDONLY);
		/* The region is a little longer than the file. */
		check_read(&g, 0, 0, len + GUARD);
		evict(g.path, 0, 0);
		check_read(&g, len / 2, 0, len);
		check_read(&g, len - 1, 0, 2);
		check_read(&g, len - 1, 1, len);
		check_read(&g, len, 0, 1);
		check_read(&g, len, 0, len);
		check_read(&g, len + 1, 0, len);
		check_read(&g, GIB(7) + 1, 0, len);
		check_read(&g, INT64_MAX - len, 0, len);
		rig_close(&g);
	}
}

TEST_WHERE(an_empty_file_gives_nothing, where_host_once)
TEST_VARIANTS(an_empty_file_gives_nothing, struct mode, read_modes)
{
	struct rig g;

	rig_open(&g, v, 0, O_RDONLY);
	check_read(&g, 0, 0, 1);
	check_read(&g, 0, 0, GUARD);
	check_read(&g, 5, 0, 0);
	rig_close(&g);
}

TEST_WHERE(holes_and_offsets_past_4_gib, where_host_once)
TEST_VARIANTS(holes_and_offsets_past_4_gib, struct mode, read_modes)
{
	const uint64_t at = 5 * GIB(1) + 333, len = MIB(2) + 77;
	struct strait_context *ctx = context_for(v);
	struct strait_region *r = region_new(device_named(ctx, v->device), MIB(4));
	const char *path = make_file("sparse", 0, 0);
	unsigned char *data = pattern_new(at, len, 3), *zeros = calloc(1, MIB(4));
	struct strait_endpoint *ep;

	write_at(path, data, len, at);
	ep = file_new(ctx, path, O_RDONLY, v->file);
	for (int k = 0; k < 2; k++) {
		evict(path, at, len);
		ASSERT_EQ(move(STRAIT_READ, v->routes, ep, at, r, 0, MIB(4)).bytes, len);
		region_expect(r, 0, data, len);
		/* A hole, then data. */
		ASSERT_EQ(move(STRAIT_READ, v->routes, ep, at - MIB(1), r, 0, MIB(2)).bytes, MIB(2));
		region_expect(r, 0, zeros, MIB(1));
		region_expect(r, MIB(1), data, MIB(1));
		/* A hole only. */
		ASSERT_OK(strait_region_fill(r, 0, FILL, MIB(4)));
		ASSERT_EQ(move(STRAIT_READ, v->routes, ep, GIB(4) - 100, r, 0, MIB(4)).bytes, MIB(4));
		region_expect(r, 0, zeros, MIB(4));
	}
	free(data);
	free(zeros);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
}

static void check_write(struct rig *g, uint64_t file_off, uint64_t off, uint64_t len, uint64_t seed)
{
	unsigned char *data = pattern_new(0, len + 2 * GUARD, seed);
	struct strait_result res;

	region_put_bytes(g->r, off, data, len + 2 * GUARD);
	res = move(STRAIT_WRITE, g->routes, g->ep, file_off, g->r, off + GUARD, len);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, len);
	ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_STAGED] + res.route_bytes[STRAIT_ROUTE_HOST] +
			  res.route_bytes[STRAIT_ROUTE_P2P],
		  len);
	memcpy(g->model + file_off, data + GUARD, len);
	ASSERT_EQ(file_length(g->path), g->len);
	/* The whole file: nothing around the range changed. */
	file_expect(g->path, 0, g->model, g->len);
	region_expect(g->r, off, data, len + 2 * GUARD);
	free(data);
}

TEST_WHERE(writes_of_every_size, where_host_once)
TEST_VARIANTS(writes_of_every_size, struct mode, write_modes)
{
	const uint64_t len = MIB(2) + 123;
	uint64_t state = 3;
	struct rig g;

	rig_open(&g, v, len, O_RDWR);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		for (int k = 0; k < (very_slow() ? 2 : 6); k++)
			check_write(&g, odd_offset(&state, len - sizes[i]), odd_offset(&state, len - sizes[i]),
				    sizes[i], 100 + i * 8 + (uint64_t)k);
	rig_close(&g);
}

TEST_WHERE(writes_of_many_chunks, where_host_once)
TEST_VARIANTS(writes_of_many_chunks, struct mode, write_modes)
{
	const uint64_t len = MIB(17) + 4097;
	uint64_t state = 4;
	struct rig g;

	rig_open(&g, v, len, O_RDWR);
	check_write(&g, 0, 0, len, 50);
	for (uint64_t i = 0; i < (very_slow() ? 1 : 4); i++)
		check_write(&g, odd_offset(&state, MIB(2)), odd_offset(&state, MIB(2)),
			    len - MIB(2) - prng_below(&state, 9000), 51 + i);
	rig_close(&g);
}

/* A write past the end extends the file; the gap reads as zeros. */
TEST_WHERE(writes_extend_a_file, where_host_once)
TEST_VARIANTS(writes_extend_a_file, struct mode, write_modes)
{
	static const uint64_t starts[] = { 0, 100, 4096, MIB(1) + 1 };
	struct strait_context *ctx = context_for(v);
	struct strait_region *r = region_new(device_named(ctx, v->device), MIB(5));
	unsigned char *data = pattern_new(0, MIB(5), 9), *zeros = calloc(1, MIB(2));

	region_put_bytes(r, 0, data, MIB(5));
	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		const char *path = make_file("grows", 100, 1);
		uint64_t len = MIB(5) - 3 - i * 513, gap = starts[i] > 100 ? starts[i] - 100 : 0;
		struct strait_endpoint *ep = file_new(ctx, path, O_WRONLY, v->file);

		ASSERT_EQ(move(STRAIT_WRITE, v->routes, ep, starts[i], r, 3, len).bytes, len);
		ASSERT_OK(strait_endpoint_sync(ep));
		ASSERT_EQ(file_info(ep).length, starts[i] + len);
		strait_endpoint_close(ep);
		ASSERT_EQ(file_length(path), starts[i] + len);
		file_expect(path, starts[i], data + 3, len);
		file_expect(path, 100, zeros, gap);
	}
	free(data);
	free(zeros);
	strait_region_close(r);
	strait_context_close(ctx);
}

TEST(simple_calls_give_byte_counts)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_region *r = region_new(device_named(ctx, "emu"), MIB(2));
	const char *path = make_file("simple", MIB(1) + 5, 6);
	unsigned char *want = pattern_new(0, MIB(1) + 5, 6);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDWR, 0);

	ASSERT_EQ(strait_read(ep, 0, r, 0, MIB(2)), (ssize_t)MIB(1) + 5);
	region_expect(r, 0, want, MIB(1) + 5);
	ASSERT_EQ(strait_read(ep, 3, r, 1, 100), 100);
	region_expect(r, 1, want + 3, 100);
	ASSERT_EQ(strait_read(ep, MIB(4), r, 0, 100), 0);
	ASSERT_EQ(strait_write(ep, 50, r, 1, 100), 100);
	file_expect(path, 50, want + 3, 100);
	ASSERT_EQ(strait_write(ep, 50, r, 1, 0), 0);
	ASSERT_EQ(strait_read(ep, 0, r, MIB(2), 1), -EINVAL);
	free(want);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
}

/* Regions over memory of the application, at any address. */
TEST_WHERE(imported_memory_of_any_alignment, where_emulated)
TEST(imported_memory_of_any_alignment)
{
	struct strait_context *ctx = context_new(NULL);
	const uint64_t len = MIB(3) + 11;
	const char *path = make_file("import", len, 8);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDWR, STRAIT_FILE_DIRECT);
	unsigned char *want = pattern_new(0, len, 8), *host = malloc(len + 4096);
	void *dev;

	ASSERT_OK(strait_emu_malloc(device_named(ctx, "emu"), len + 4096, &dev));
	for (uint64_t shift = 0; shift < 4096; shift += very_slow() ? 1531 : 509) {
		struct strait_region *r;

		evict(path, 0, 0);
		ASSERT_OK(strait_region_import(ctx, device_named(ctx, "host"), host + shift, len, &r));
		ASSERT_EQ(strait_read(ep, 0, r, 0, len), (ssize_t)len);
		ASSERT_MEMEQ(host + shift, want, len);
		ASSERT_EQ(strait_write(ep, 0, r, 0, len), (ssize_t)len);
		strait_region_close(r);
		ASSERT_OK(strait_region_import(ctx, NULL, (char *)dev + shift, len, &r));
		ASSERT_EQ(strait_read(ep, 0, r, 0, len), (ssize_t)len);
		region_expect(r, 0, want, len);
		strait_region_close(r);
	}
	file_expect(path, 0, want, len);
	ASSERT_OK(strait_emu_free(device_named(ctx, "emu"), dev));
	free(want);
	free(host);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}
