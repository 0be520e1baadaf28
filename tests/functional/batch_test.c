/* SPDX-License-Identifier: MIT */
/* Many transfers on queues: each completes once, in any order, whatever its size. */
#include "common.h"

static const struct mode small_modes[] = {
	{ "emu", "emu:0", 0, 0, 0 },
	{ "emu-staged", "emu:0", ROUTE(STAGED), 0, 0 },
	{ "emu-pagecache", "emu:0", ROUTE(PAGECACHE), 0, 0 },
	{ "emu-direct", "emu:0", 0, STRAIT_FILE_DIRECT, 0 },
	{ "emu-threads", "emu:0", 0, STRAIT_FILE_DIRECT, STRAIT_CONTEXT_NO_URING },
	{ "emu-immutable", "emu:0", 0, STRAIT_FILE_IMMUTABLE, 0 },
	{ "host", "host", 0, 0, 0 },
};

/* The whole file in small pieces of odd lengths, in no order. */
TEST_VARIANTS(many_small_transfers, struct mode, small_modes)
{
	enum { N = 10000 };
	const uint64_t piece = 417, len = N * piece;
	const char *path = make_file("many", len, 1), *copy = make_file("copy", len, 2);
	unsigned char *want = pattern_new(0, len, 1);
	struct strait_context *ctx = context_for(v);
	struct strait_region *r = region_new(device_named(ctx, v->device), len);
	struct strait_endpoint *in = file_new(ctx, path, O_RDONLY, v->file), *out = file_new(ctx, copy, O_RDWR, 0);
	struct strait_queue *q = queue_new(ctx, 0);
	unsigned int order[N], n = v->routes == ROUTE(PAGECACHE) || very_slow() ? N / 10 : N;
	static unsigned char seen[N];
	uint64_t state = 5;

	for (unsigned int i = 0; i < n; i++)
		order[i] = i;
	for (unsigned int i = n - 1; i; i--) {
		unsigned int k = (unsigned int)prng_below(&state, i + 1), tmp = order[i];

		order[i] = order[k];
		order[k] = tmp;
	}
	evict(path, 0, len / 3);
	for (uint32_t op = STRAIT_READ; op <= STRAIT_WRITE; op++) {
		unsigned int sent = 0, got = 0;

		if (op == STRAIT_WRITE && v->routes == ROUTE(PAGECACHE))
			break;
		memset(seen, 0, sizeof(seen));
		while (got < n) {
			struct strait_transfer t[64];
			struct strait_result res[100];
			unsigned int k = 0;
			int rc;

			for (; k < 1 + prng_below(&state, 64) && sent + k < n; k++)
				t[k] = (struct strait_transfer){ .op = op,
								 .routes = op == STRAIT_READ ? v->routes : 0,
								 .endpoint = op == STRAIT_READ ? in : out,
								 .region = r,
								 .endpoint_offset = order[sent + k] * piece,
								 .region_offset = order[sent + k] * piece,
								 .length = piece,
								 .user_data = order[sent + k] };
			rc = strait_queue_submit(q, t, k);
			if (!rc)
				sent += k;
			else
				ASSERT_EQ(rc, -EAGAIN);
			rc = (int)ASSERT_OK(strait_queue_wait(q, rc ? 50 : 0, 100, STRAIT_FOREVER, res));
			for (int i = 0; i < rc; i++) {
				ASSERT_LT(res[i].user_data, n);
				ASSERT_EQ(seen[res[i].user_data]++, 0);
				ASSERT_EQ(res[i].status, 0);
				ASSERT_EQ(res[i].bytes, piece);
				ASSERT_NE(res[i].routes, 0);
				if (op == STRAIT_READ && v->routes)
					ASSERT_EQ(res[i].routes, v->routes);
			}
			got += (unsigned int)rc;
		}
		ASSERT_EQ(sent, n);
		ASSERT_EQ(strait_queue_wait(q, 1, 1, STRAIT_FOREVER, (struct strait_result[1]){ { 0 } }), 0);
		region_expect(r, 0, want, n * piece);
	}
	if (n == N)
		file_expect(copy, 0, want, len);
	if (strcmp(v->device, "host") && n == N) {
		struct strait_stats s = stats_of(ctx);

		ASSERT_EQ(s.coalesced, 2 * N);
		ASSERT_LT(s.coalesced_copies, s.coalesced / 4);
		ASSERT_EQ(s.transfers, 2 * N);
	}
	strait_queue_close(q);
	strait_endpoint_close(in);
	strait_endpoint_close(out);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
}

/* Long and short, reads and writes, on two devices and the host, on several queues at the same time. */
TEST_WHERE(a_mixture_of_everything, where_emulated)
TEST(a_mixture_of_everything)
{
	enum { QUEUES = 3, N = 120 };
	const uint64_t len = MIB(6);
	const char *path = make_file("in", len, 1);
	unsigned char *want = pattern_new(0, len, 1);
	static const char *const names[] = { "emu:0", "emu:1", "host" };
	struct strait_queue *q[QUEUES];
	struct strait_region *r[3], *src;
	struct strait_endpoint *in, *out;
	struct strait_context *ctx;
	uint64_t state = 1, bytes = 0;

	setenv("STRAIT_EMU_DEVICES", "2", 1);
	ctx = context_new(NULL);
	in = file_new(ctx, path, O_RDONLY, 0);
	out = file_new(ctx, make_file("out", 0, 0), O_RDWR, 0);
	for (int i = 0; i < 3; i++)
		r[i] = region_new(device_named(ctx, names[i]), QUEUES * N * MIB(1));
	src = region_new(device_named(ctx, "emu:0"), len);
	region_put_bytes(src, 0, want, len);
	for (int i = 0; i < QUEUES; i++)
		q[i] = queue_new(ctx, N);
	for (uint64_t k = 0; k < QUEUES * N; k++) {
		uint64_t at = prng_below(&state, len - MIB(1)), n = prng_below(&state, k % 3 ? KIB(70) : MIB(1));
		struct strait_transfer t = { .endpoint = in,
					     .region = r[prng_below(&state, 3)],
					     .endpoint_offset = at,
					     .region_offset = k * MIB(1),
					     .length = n,
					     .user_data = k };

		if (k % 5 == 0)
			/* Its place in the file depends on its number alone, so transfers do not overlap. */
			t = (struct strait_transfer){ .op = STRAIT_WRITE,
						      .endpoint = out,
						      .region = src,
						      .endpoint_offset = k * MIB(1),
						      .region_offset = at,
						      .length = n,
						      .user_data = k };
		if (k % 7 == 0)
			evict(path, at, n + 1);
		ASSERT_OK(strait_queue_submit(q[k % QUEUES], &t, 1));
		bytes += n;
	}
	for (int i = 0; i < QUEUES; i++) {
		struct strait_result res[N];

		ASSERT_EQ(strait_queue_wait(q[i], N, N, STRAIT_FOREVER, res), N);
		for (int k = 0; k < N; k++) {
			ASSERT_EQ(res[k].status, 0);
			bytes -= res[k].bytes;
		}
	}
	ASSERT_EQ(bytes, 0);
	state = 1;
	for (uint64_t k = 0; k < QUEUES * N; k++) {
		uint64_t at = prng_below(&state, len - MIB(1)), n = prng_below(&state, k % 3 ? KIB(70) : MIB(1));
		struct strait_region *to = r[prng_below(&state, 3)];

		if (k % 5)
			region_expect(to, k * MIB(1), want + at, n);
		else
			file_expect(test_path("out"), k * MIB(1), want + at, n);
	}
	for (int i = 0; i < QUEUES; i++)
		strait_queue_close(q[i]);
	for (int i = 0; i < 3; i++)
		strait_region_close(r[i]);
	strait_region_close(src);
	strait_endpoint_close(in);
	strait_endpoint_close(out);
	strait_context_close(ctx);
	free(want);
}

/* A short transfer whose direct read, rounded outwards, does not fit one chunk. */
TEST(small_ones_as_long_as_a_chunk)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .chunk_bytes = KIB(64), .pool_bytes = KIB(64) };
	struct strait_context *ctx = context_new(&opts);
	const uint64_t len = MIB(2);
	const char *path = make_file("file", len, 1);
	unsigned char *want = pattern_new(0, len, 1);
	struct strait_region *r = region_new(device_named(ctx, "emu"), len);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDWR, STRAIT_FILE_DIRECT);
	struct strait_queue *q = queue_new(ctx, 0);
	struct strait_result res[32];

	for (uint32_t op = STRAIT_READ; op <= STRAIT_WRITE; op++) {
		for (uint64_t i = 0; i < 16; i++) {
			struct strait_transfer t = { .op = op,
						     .endpoint = ep,
						     .region = r,
						     .endpoint_offset = i * KIB(65) + i + 1,
						     .region_offset = i * KIB(65) + i + 1,
						     .length = KIB(64) - (i & 3) };

			ASSERT_OK(strait_queue_submit(q, &t, 1));
		}
		ASSERT_EQ(strait_queue_wait(q, 16, 32, STRAIT_FOREVER, res), 16);
		for (int i = 0; i < 16; i++)
			ASSERT_EQ(res[i].status, 0);
		for (uint64_t i = 0; i < 16; i++)
			region_expect(r, i * KIB(65) + i + 1, want + i * KIB(65) + i + 1, KIB(64) - (i & 3));
	}
	file_expect(path, 0, want, len);
	strait_queue_close(q);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
}
