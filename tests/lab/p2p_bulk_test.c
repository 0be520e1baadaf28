/* SPDX-License-Identifier: MIT */
/*
 * Route p2p of the library, with much data: P2P_BULK_MIB in each direction, in windows of random sizes in random order
 * in the file and in another order in memory. The machine's host compares drive and memory with the expected bytes. No
 * other route carries a byte, and the staging memory, filled with poison before, is unchanged.
 */
#include "outside.h"
#include "p2p.h"

#include <strait/strait.h>

#include "engine/engine.h"

#define P2P STRAIT_ROUTE_P2P
#define STAGED STRAIT_ROUTE_STAGED
#define FILE_BYTES MIB(256)
#define REGION_BYTES MIB(128)
#define BLOCK 4096u
#define WINDOWS 4096
#define POISON 0x5c
#define DEPTH 16

static const struct place places[] = PLACES;

/* A window and its place. */
struct window {
	uint64_t len, file, mem;
};

struct bulk {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct strait_region *r;
	struct gpu_mem mem;
	int fd;
	uint64_t random, moved;
	struct window w[WINDOWS];
	unsigned int n;
};

static void shuffle(struct bulk *b)
{
	for (unsigned int i = b->n; i > 1; i--) {
		unsigned int other = (unsigned int)prng_below(&b->random, i);
		struct window tmp = b->w[i - 1];

		b->w[i - 1] = b->w[other];
		b->w[other] = tmp;
	}
}

/* All of the region and as much of the file from @off: most windows short, some up to 8 MiB. */
static void cut(struct bulk *b, uint64_t off)
{
	uint64_t at = 0;

	for (b->n = 0; at < REGION_BYTES; at += b->w[b->n++].len) {
		uint64_t blocks = prng_below(&b->random, prng_below(&b->random, 4) ? 256 : 2048) + 1;

		ASSERT_LT(b->n, WINDOWS);
		b->w[b->n].len = min_u64(blocks * BLOCK, REGION_BYTES - at);
		b->w[b->n].mem = at;
	}
	shuffle(b);
	for (unsigned int i = 0; i < b->n; i++) {
		b->w[i].file = off;
		off += b->w[i].len;
	}
	shuffle(b);
}

static void take(struct bulk *b, const struct strait_result *res)
{
	ASSERT_EQ(res->status, 0);
	ASSERT_EQ(res->bytes, b->w[res->user_data].len);
	ASSERT_EQ(res->route_bytes[P2P], res->bytes);
	ASSERT_EQ(res->routes, STRAIT_ROUTE_MASK(P2P));
	b->moved += res->bytes;
}

static struct strait_transfer request(const struct bulk *b, uint32_t op, unsigned int i)
{
	return (struct strait_transfer){ .op = op,
					 .endpoint = b->ep,
					 .region = b->r,
					 .endpoint_offset = b->w[i].file,
					 .region_offset = b->w[i].mem,
					 .length = b->w[i].len,
					 .user_data = i };
}

static void move_each(struct bulk *b, uint32_t op)
{
	for (unsigned int i = 0; i < b->n; i++) {
		struct strait_transfer t = request(b, op, i);
		struct strait_result res;

		ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
		res.user_data = i;
		take(b, &res);
	}
}

static void move_queued(struct bulk *b, uint32_t op)
{
	unsigned int sent = 0, done = 0;
	struct strait_result res[DEPTH];
	struct strait_queue *q;

	ASSERT_OK(strait_queue_open(b->ctx, NULL, &q));
	while (done < b->n) {
		for (; sent < b->n && sent - done < DEPTH; sent++) {
			struct strait_transfer t = request(b, op, sent);

			ASSERT_OK(strait_queue_submit(q, &t, 1));
		}
		for (int n = (int)ASSERT_OK(strait_queue_wait(q, 1, DEPTH, STRAIT_FOREVER, res)); n-- > 0; done++)
			take(b, &res[n]);
	}
	strait_queue_close(q);
}

static struct staging_pool *staging(struct bulk *b)
{
	return &device_engine(b->dev)->pool;
}

static void read_staged(struct bulk *b, uint64_t len)
{
	struct strait_transfer t = {
		.op = STRAIT_READ, .routes = STRAIT_ROUTE_MASK(STAGED), .endpoint = b->ep, .region = b->r, .length = len
	};
	struct strait_result res;

	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	ASSERT_EQ(res.route_bytes[STAGED], len);
}

/* Allocates the staging memory, of small transfers too, and fills it with a value that does not occur in the data. */
static void poison(struct bulk *b)
{
	struct small_lanes *lanes = &device_engine(b->dev)->small_lanes;

	read_staged(b, KIB(64));
	read_staged(b, KIB(256));
	ASSERT_EQ(staging(b)->slabs, 1); /* it grows only when chunks run short */
	memset(staging(b)->slab[0].reg.ptr, POISON, staging(b)->slab[0].bytes);
	ASSERT_GT(atomic_load(&lanes->n), 0);
	memset(lanes->reg.ptr, POISON, lanes->reg.len);
}

static void expect_unused(const void *mem, uint64_t len)
{
	const uint64_t *p = mem, want = UINT64_MAX / 255 * POISON;

	for (uint64_t i = 0; i < len / 8; i++)
		if (p[i] != want)
			FAIL("the staging memory was used, at %llu", (unsigned long long)i * 8);
}

static void expect_poison(struct bulk *b)
{
	const struct small_lanes *lanes = &device_engine(b->dev)->small_lanes;

	ASSERT_EQ(staging(b)->slabs, 1);
	expect_unused(staging(b)->slab[0].reg.ptr, staging(b)->slab[0].bytes);
	expect_unused(lanes->reg.ptr, lanes->reg.len);
}

/* Memory to file and back, at other places, compared from outside after each step. */
static void go_round(struct bulk *b, unsigned int round, unsigned char *made, unsigned char *want)
{
	uint64_t off = round % (FILE_BYTES / REGION_BYTES) * REGION_BYTES;
	void (*move)(struct bulk * b, uint32_t op) = round % 2 ? move_queued : move_each;

	fill(made, REGION_BYTES, round + 1);
	memcpy(b->mem.p, made, REGION_BYTES);
	cut(b, off);
	move(b, STRAIT_WRITE);
	for (unsigned int i = 0; i < b->n; i++)
		memcpy(want + (b->w[i].file - off), made + b->w[i].mem, b->w[i].len);
	outside_expect_file(b->fd, off, want, REGION_BYTES);
	memset(b->mem.p, 0xa5, REGION_BYTES);
	cut(b, off);
	move(b, STRAIT_READ);
	for (unsigned int i = 0; i < b->n; i++)
		memcpy(made + b->w[i].mem, want + (b->w[i].file - off), b->w[i].len);
	for (uint64_t at = 0, n, bar; at < REGION_BYTES; at += n) {
		n = gpu_run(&b->mem, at, REGION_BYTES - at, &bar);
		outside_expect("bar", bar, made + at, n);
	}
}

TEST_VARIANTS_TIMEOUT(both_ways, struct place, places, 1200)
{
	uint64_t want = MIB(getenv("P2P_BULK_MIB") ? strtoull(getenv("P2P_BULK_MIB"), NULL, 0) :
						     (very_slow() ? 128 : 256)),
		 kernel;
	struct strait_stats before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
	unsigned char *made = malloc(REGION_BYTES), *other = malloc(REGION_BYTES);
	struct bulk *b = calloc(1, sizeof(*b));
	unsigned int round = 0;

	close(ko_open_p2p());
	ASSERT_TRUE(made && other && b);
	b->random = 7;
	ASSERT_OK(strait_context_open(NULL, &b->ctx));
	ASSERT_OK(strait_device_find(b->ctx, "vgpu:0", &b->dev));
	b->fd = place_file(v, MIB(1), 1, 0);
	if (v->mkfs)
		ASSERT_EQ(fallocate(b->fd, 0, 0, FILE_BYTES), 0);
	ASSERT_OK(strait_file_import(b->ctx, b->fd, STRAIT_FILE_DIRECT, &b->ep));
	b->mem = gpu_alloc(gpu_open(), PLAIN, REGION_BYTES);
	ASSERT_OK(strait_region_import(b->ctx, b->dev, b->mem.p, b->mem.len, &b->r));
	poison(b);
	ASSERT_OK(strait_stats_get(b->ctx, &before));
	kernel = ko_counter("read_bytes") + ko_counter("written_bytes");
	while (b->moved < 2 * want)
		go_round(b, round++, made, other);
	ASSERT_OK(strait_stats_get(b->ctx, &after));
	ASSERT_EQ(after.route[P2P].read_bytes, b->moved / 2);
	ASSERT_EQ(after.route[P2P].write_bytes, b->moved / 2);
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
		if (r != P2P) {
			ASSERT_EQ(after.route[r].read_bytes, before.route[r].read_bytes);
			ASSERT_EQ(after.route[r].write_bytes, before.route[r].write_bytes);
		}
	ASSERT_EQ(ko_counter("read_bytes") + ko_counter("written_bytes") - kernel, b->moved);
	expect_poison(b);
	strait_region_close(b->r);
	strait_endpoint_close(b->ep);
	strait_context_close(b->ctx);
	close(b->fd);
	place_unmount();
}
