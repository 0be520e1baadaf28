/* SPDX-License-Identifier: MIT */
/* Route p2p in queues, where one thread keeps a drive busy, and in the order of streams. */
#include "p2p.h"

#include <pthread.h>
#include <stdatomic.h>

#include <strait/strait.h>

#include "os/os.h"

#define P2P STRAIT_ROUTE_P2P
#define SEED 17
#define LEN MIB(32)
#define SLOTS 64

static const struct place places[] = PLACES;
static const struct place ext4 = PLACE_EXT4;

struct rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct strait_region *r;
	struct strait_queue *q;
	unsigned char *want, *have;
	uint64_t len;
	int fd;
};

/* One thread: all transfers in flight are on its ring. */
static struct rig rig_open(const struct place *place, uint64_t len)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 1, .queue_depth = 33 };
	struct rig g = { .want = malloc(len), .have = malloc(len), .len = len };

	close(ko_open_p2p());
	ASSERT_TRUE(g.want && g.have);
	ASSERT_OK(strait_context_open(&opts, &g.ctx));
	ASSERT_OK(strait_device_find(g.ctx, "vgpu:0", &g.dev));
	g.fd = place_file(place, len, SEED, 0);
	ASSERT_OK(strait_file_import(g.ctx, g.fd, STRAIT_FILE_DIRECT, &g.ep));
	ASSERT_OK(strait_region_alloc(g.dev, len, &g.r));
	ASSERT_OK(strait_queue_open(g.ctx, NULL, &g.q));
	file_pattern(g.want, 0, len, SEED);
	return g;
}

static void rig_close(struct rig *g)
{
	strait_queue_close(g->q);
	strait_region_close(g->r);
	strait_endpoint_close(g->ep);
	ko_expect_counter("in_flight", 0);
	ko_expect_counter("device_bytes", 0);
	strait_context_close(g->ctx);
	close(g->fd);
	place_unmount();
	free(g->want);
	free(g->have);
}

static struct strait_transfer request(const struct rig *g, uint32_t op, uint64_t off, uint64_t len, uint64_t tag)
{
	return (struct strait_transfer){ .op = op,
					 .endpoint = g->ep,
					 .region = g->r,
					 .endpoint_offset = off,
					 .region_offset = off,
					 .length = len,
					 .user_data = tag };
}

static void submit(struct rig *g, uint32_t op, uint64_t off, uint64_t len, uint64_t tag)
{
	struct strait_transfer t = request(g, op, off, len, tag);

	ASSERT_OK(strait_queue_submit(g->q, &t, 1));
}

static struct strait_result one(struct rig *g)
{
	struct strait_result res;

	ASSERT_EQ(strait_queue_wait(g->q, 1, 1, STRAIT_FOREVER, &res), 1);
	return res;
}

static void expect_memory(struct rig *g)
{
	ASSERT_OK(strait_region_copy_out(g->r, 0, g->have, g->len));
	ASSERT_MEMEQ(g->have, g->want, g->len);
}

/* The whole file in one batch, and written back changed. */
TEST_VARIANTS_TIMEOUT(many_in_one_batch, struct place, places, 120)
{
	struct rig g = rig_open(v, LEN);
	struct strait_stats stats = { .size = sizeof(stats) };
	struct strait_transfer t[SLOTS];
	uint64_t most = 0;

	for (int round = 0; round < 20 && (round < 2 || most < 2); round++) {
		ASSERT_OK(strait_region_fill(g.r, 0, 0xee, LEN));
		for (unsigned int i = 0; i < SLOTS; i++)
			t[i] = request(&g, STRAIT_READ, i * (LEN / SLOTS), LEN / SLOTS, i);
		ASSERT_OK(strait_queue_submit(g.q, t, SLOTS));
		for (unsigned int i = 0; i < SLOTS; i++) {
			struct strait_result res;

			while (!ASSERT_OK(strait_queue_wait(g.q, 1, 1, 0, &res)))
				most = max_u64(most, ko_counter("in_flight"));
			ASSERT_EQ(res.status, 0);
			ASSERT_EQ(res.route_bytes[P2P], LEN / SLOTS);
		}
		expect_memory(&g);
	}
	/* The drive had more than one command of one thread in flight. */
	ASSERT_GT(most, 1);
	fill(g.want, LEN, 2);
	ASSERT_OK(strait_region_copy_in(g.r, 0, g.want, LEN));
	for (unsigned int i = 0; i < SLOTS; i++)
		t[i].op = STRAIT_WRITE;
	ASSERT_OK(strait_queue_submit(g.q, t, SLOTS));
	for (unsigned int i = 0; i < SLOTS; i++)
		ASSERT_EQ(one(&g).route_bytes[P2P], LEN / SLOTS);
	ASSERT_EQ(pread(g.fd, g.have, LEN, 0), LEN);
	ASSERT_MEMEQ(g.have, g.want, LEN);
	ASSERT_OK(strait_stats_get(g.ctx, &stats));
	ASSERT_EQ(stats.route[P2P].write_bytes, LEN);
	ASSERT_EQ(stats.route[STRAIT_ROUTE_STAGED].read_bytes + stats.route[STRAIT_ROUTE_STAGED].write_bytes, 0);
	rig_close(&g);
}

/* One by one, of all sizes, some unaligned and some past the end; each as soon as there is room. */
TEST_VARIANTS_TIMEOUT(one_after_the_other, struct place, places, 120)
{
	struct rig g = rig_open(v, LEN);
	uint64_t random = 5, p2p = 0, other = 0;
	unsigned int flying = 0;

	ASSERT_OK(strait_region_fill(g.r, 0, 0xee, LEN));
	for (uint64_t off = 0; off < LEN || flying;) {
		if (off < LEN && flying < 24) {
			uint64_t len = min_u64((prng_below(&random, 64) + 1) * 4096, LEN - off);

			if (!prng_below(&random, 4) && off + len < LEN)
				len -= prng_below(&random, 4096);
			submit(&g, STRAIT_READ, off, len, len);
			off += len;
			flying++;
			continue;
		}
		struct strait_result res = one(&g);

		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, res.user_data);
		p2p += res.route_bytes[P2P];
		other += res.bytes - res.route_bytes[P2P];
		flying--;
	}
	expect_memory(&g);
	ASSERT_GT(p2p, other);
	if (v->mkfs) {
		submit(&g, STRAIT_READ, LEN - KIB(64), KIB(64), 0);
		ASSERT_EQ(ftruncate(g.fd, LEN - KIB(32)), 0);
		ASSERT_LE(one(&g).bytes, KIB(64));
		submit(&g, STRAIT_READ, LEN - KIB(64), KIB(64), 0);
		ASSERT_EQ(one(&g).bytes, KIB(32));
	}
	rig_close(&g);
}

/* A transfer submitted while a long one is in flight does not wait for its end. */
TEST_TIMEOUT(a_short_one_beside_a_long_one, 120)
{
	struct rig g = rig_open(&ext4, LEN);
	unsigned int passed = 0;

	for (int i = 0; i < 10 && !passed; i++) {
		submit(&g, STRAIT_READ, 0, LEN, 1);
		/* Of two commands: the first is in flight. */
		for (int n = 0; n < 1000 && !ko_counter("in_flight"); n++)
			;
		submit(&g, STRAIT_READ, 0, KIB(4), 2);
		passed += one(&g).user_data == 2;
		one(&g);
	}
	ASSERT_GT(passed, 0);
	expect_memory(&g);
	rig_close(&g);
}

static enum os_call injected;
static atomic_int in;

static bool inject(enum os_call call, int64_t *ret)
{
	if (call != injected || atomic_fetch_sub(&in, 1) != 1)
		return false;
	*ret = -EIO;
	return true;
}

static const struct fault {
	const char *name;
	enum os_call call;
} faults[] = { { "setup", OS_RING_SETUP },
	       { "submit", OS_RING_SUBMIT },
	       { "result", OS_RING_RESULT },
	       { "event", OS_EVENTFD } };

/* A ring that fails at any point: every transfer completes, and is right. */
TEST_VARIANTS_TIMEOUT(a_ring_that_fails, struct fault, faults, 120)
{
	for (int nth = 1; nth < 8; nth += very_slow() ? 3 : 1) {
		struct rig g = rig_open(&places[0], MIB(4));
		struct strait_transfer t[SLOTS];

		ASSERT_OK(strait_region_fill(g.r, 0, 0xee, MIB(4)));
		for (unsigned int i = 0; i < SLOTS; i++)
			t[i] = request(&g, STRAIT_READ, i * (MIB(4) / SLOTS), MIB(4) / SLOTS, i);
		injected = v->call;
		atomic_store(&in, nth);
		os_inject = inject;
		ASSERT_OK(strait_queue_submit(g.q, t, SLOTS / 2));
		ASSERT_OK(strait_queue_submit(g.q, t + SLOTS / 2, SLOTS / 2));
		for (unsigned int i = 0; i < SLOTS; i++)
			ASSERT_EQ(one(&g).bytes, MIB(4) / SLOTS);
		os_inject = NULL;
		expect_memory(&g);
		rig_close(&g);
	}
}

/* Canceled in flight or before, and the queue closed with all of them in flight. */
TEST_TIMEOUT(canceled, 120)
{
	struct rig g = rig_open(&ext4, LEN);
	struct strait_transfer t[SLOTS];
	unsigned int canceled = 0;

	for (unsigned int i = 0; i < SLOTS; i++)
		t[i] = request(&g, STRAIT_READ, 0, LEN, i % 4);
	ASSERT_OK(strait_queue_submit(g.q, t, SLOTS));
	ASSERT_GT(strait_queue_cancel(g.q, 1), 0);
	for (unsigned int i = 0; i < SLOTS; i++) {
		struct strait_result res = one(&g);

		canceled += res.status == -ECANCELED;
		ASSERT_TRUE(res.status == -ECANCELED ? res.user_data == 1 : !res.status && res.bytes == LEN);
	}
	ASSERT_GT(canceled, 0);
	ASSERT_OK(strait_queue_submit(g.q, t, SLOTS));
	rig_close(&g);
}

/* The memory goes away under queued transfers. */
TEST_TIMEOUT(the_memory_goes, 120)
{
	struct rig g = rig_open(&ext4, LEN);
	struct gpu_mem m = gpu_alloc(gpu_open(), PLAIN, MIB(1));
	struct strait_transfer t[SLOTS];
	struct strait_region *r;
	unsigned int bad = 0;

	ASSERT_OK(strait_region_import(g.ctx, g.dev, m.p, m.len, &r));
	for (unsigned int i = 0; i < SLOTS; i++) {
		t[i] = request(&g, STRAIT_READ, 0, MIB(1), i);
		t[i].region = r;
	}
	ASSERT_OK(strait_queue_submit(g.q, t, SLOTS));
	ASSERT_OK(gpu_free(&m));
	for (unsigned int i = 0; i < SLOTS; i++)
		bad += one(&g).status < 0;
	printf("# %u of %u failed\n", bad, SLOTS);
	strait_region_close(r);
	gpu_unmap(&m);
	close(m.fd);
	rig_close(&g);
}

struct params {
	uint64_t off, at, len;
	int64_t result;
	struct strait_result r;
	unsigned char *seen; /* contents of the memory when the stream had passed it */
	struct rig *g;
};

static void done(void *arg, const struct strait_result *r)
{
	((struct params *)arg)->r = *r;
}

static void look(void *arg)
{
	struct params *p = arg;

	memcpy(p->seen, p->g->have, p->len);
}

/* Each sees what earlier ones have written, and host functions of the stream see each. */
TEST_TIMEOUT(in_the_order_of_a_stream, 120)
{
	struct rig g = rig_open(&ext4, LEN);
	unsigned char *seen = malloc(4 * MIB(1));
	struct params p[8];
	struct strait_stream *s;
	void *cpu;

	ASSERT_TRUE(seen);
	ASSERT_OK(strait_region_map(g.r, &cpu));
	free(g.have);
	g.have = cpu;
	ASSERT_OK(strait_stream_open(g.dev, &s));
	/* One place in memory, read from four places and each written to another. */
	for (unsigned int i = 0; i < 8; i++) {
		p[i] = (struct params){ .off = i % 2 ? MIB(16) + i / 2 * MIB(1) : i / 2 * MIB(1),
					.len = MIB(1),
					.seen = seen + i / 2 * MIB(1),
					.g = &g };
		ASSERT_OK(strait_stream_transfer(
			s, &(struct strait_stream_transfer){ .size = sizeof(struct strait_stream_transfer),
							     .op = i % 2 ? STRAIT_WRITE : STRAIT_READ,
							     .endpoint = g.ep,
							     .region = g.r,
							     .endpoint_offset = &p[i].off,
							     .region_offset = &p[i].at,
							     .length = &p[i].len,
							     .result = &p[i].result,
							     .done = done,
							     .done_arg = &p[i] }));
		if (i % 2)
			ASSERT_OK(strait_stream_call(s, look, &p[i]));
	}
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	g.have = malloc(LEN);
	for (unsigned int i = 0; i < 8; i++) {
		ASSERT_EQ(p[i].result, MIB(1));
		ASSERT_EQ(p[i].r.route_bytes[P2P], MIB(1));
	}
	ASSERT_MEMEQ(seen, g.want, 4 * MIB(1));
	ASSERT_EQ(pread(g.fd, g.have, 4 * MIB(1), MIB(16)), 4 * MIB(1));
	ASSERT_MEMEQ(g.have, g.want, 4 * MIB(1));
	strait_stream_close(s);
	free(seen);
	rig_close(&g);
}
