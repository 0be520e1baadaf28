/* SPDX-License-Identifier: MIT */
/* Files over RDMA: every byte, and what goes wrong: short files, killed peers, hostile requests, too many clients. */
#include "base/crc32c.h"
#include "rdma.h"

TEST_PROGRAM_NEEDS(rdma_missing)

#define SECOND 1000000000ull
#define LEN (very_slow() ? MIB(1) : MIB(6))

struct rig {
	struct strait_context *ctx;
	struct strait_rdma_server *server;
	struct strait_rdma_client *client;
	struct strait_region *region;
};

static void rig_open(struct rig *r, uint32_t flags)
{
	rdma_address(); /* skips without RDMA */
	make_file("data", LEN, 5);
	r->ctx = context_new(NULL);
	r->server = rdma_serve_dir(r->ctx, test_dir(), flags, 0);
	r->client = rdma_client_new(r->ctx);
	r->region = rdma_memory(r->ctx, LEN, 0xa5);
}

static void rig_close(struct rig *r)
{
	strait_rdma_client_close(r->client);
	strait_rdma_server_close(r->server);
	strait_region_close(r->region);
	strait_context_close(r->ctx);
}

static int pull(struct rig *r, uint64_t file_off, uint64_t off, uint64_t len, struct strait_rdma_result *res)
{
	struct strait_rdma_file f = { .size = sizeof(f),
				      .path = "data",
				      .file_offset = file_off,
				      .region = r->region,
				      .region_offset = off,
				      .length = len };

	*res = (struct strait_rdma_result){ .size = sizeof(*res) };
	return strait_rdma_pull(r->client, &f, res);
}

static int push(struct rig *r, const char *path, uint64_t file_off, uint64_t off, uint64_t len,
		struct strait_rdma_result *res)
{
	struct strait_rdma_file f = { .size = sizeof(f),
				      .path = path,
				      .file_offset = file_off,
				      .region = r->region,
				      .region_offset = off,
				      .length = len };

	*res = (struct strait_rdma_result){ .size = sizeof(*res) };
	return strait_rdma_push(r->client, &f, res);
}

TEST_TIMEOUT(random_ranges_arrive_and_nothing_else_changes, 120)
{
	uint8_t *want = malloc(LEN), *have = malloc(LEN), *file = pattern_new(0, LEN, 5);
	unsigned int rounds = very_slow() ? 5 : 20;
	struct strait_rdma_result res;
	uint64_t state = 9;
	struct rig r;

	rig_open(&r, 0);
	memset(want, 0xa5, LEN);
	for (unsigned int i = 0; i < rounds; i++) {
		uint64_t len = 1 + prng_below(&state, prng_below(&state, 2) ? 5000 : LEN / 2);
		uint64_t from = prng_below(&state, LEN - len), to = prng_below(&state, LEN - len);

		ASSERT_OK(pull(&r, from, to, len, &res));
		ASSERT_EQ(res.bytes, len);
		ASSERT_EQ(res.bytes_direct, len);
		ASSERT_EQ(res.bytes_staged, 0);
		ASSERT_EQ(res.registrations, i == 0);
		memcpy(want + to, file + from, len);
		ASSERT_OK(strait_region_copy_out(r.region, 0, have, LEN));
		ASSERT_MEMEQ(have, want, LEN);
	}
	free(want);
	free(have);
	free(file);
	rig_close(&r);
}

TEST_TIMEOUT(random_ranges_are_pushed, 120)
{
	uint8_t *memory = pattern_new(0, LEN, 8), *file = pattern_new(0, LEN, 5);
	struct strait_rdma_server_info info = { .size = sizeof(info) };
	unsigned int rounds = very_slow() ? 4 : 12;
	struct strait_rdma_result res;
	uint64_t state = 4;
	struct rig r;

	rig_open(&r, STRAIT_RDMA_SERVE_WRITE);
	ASSERT_OK(strait_region_copy_in(r.region, 0, memory, LEN));
	for (unsigned int i = 0; i < rounds; i++) {
		uint64_t len = 1 + prng_below(&state, prng_below(&state, 2) ? 5000 : LEN / 2);
		uint64_t from = prng_below(&state, LEN - len), to = prng_below(&state, LEN - len);

		ASSERT_OK(push(&r, "data", to, from, len, &res));
		ASSERT_EQ(res.bytes_direct, len);
		memcpy(file + to, memory + from, len);
		file_expect(test_path("data"), 0, file, LEN);
	}
	ASSERT_OK(push(&r, "new", 0, 0, 12345, &res));
	file_expect(test_path("new"), 0, memory, 12345);
	ASSERT_EQ(file_length(test_path("new")), 12345);
	strait_rdma_client_close(r.client);
	r.client = NULL;
	for (unsigned int i = 0; i < 100 && (strait_rdma_server_info(r.server, &info), info.sessions); i++)
		usleep(100000);
	ASSERT_EQ(info.sessions, 0);
	ASSERT_GT(info.bytes_in, 0);
	free(memory);
	free(file);
	rig_close(&r);
}

static bool is_long(const void *v)
{
	return getenv("RDMA_LONG");
}

/* The region stays the same: it is registered once for each direction, and no byte is copied by the CPU. */
TEST_TIMEOUT(one_gib_passes_through_a_region_each_way, 1800)
{
	struct strait_rdma_result res;
	uint64_t len = MIB(48), total = 0;
	uint32_t want = 0, have;
	struct rig r;
	uint8_t *file;

	rig_open(&r, STRAIT_RDMA_SERVE_WRITE);
	strait_region_close(r.region);
	make_file("data", len, 6);
	file = pattern_new(0, len, 6);
	want = crc32c_update(0, file, len);
	r.region = rdma_memory(r.ctx, len, 0);
	for (unsigned int i = 0; total < GIB(1); i++) {
		have = 0;
		ASSERT_OK(strait_region_fill(r.region, 0, (uint8_t)i, len));
		ASSERT_OK(pull(&r, 0, 0, len, &res));
		ASSERT_EQ(res.bytes_direct, len);
		ASSERT_EQ(res.registrations, i == 0);
		ASSERT_OK(strait_region_crc32c(r.region, 0, len, &have));
		ASSERT_EQ(have, want);
		ASSERT_OK(push(&r, i % 2 ? "odd" : "even", 0, 0, len, &res));
		ASSERT_EQ(res.bytes_direct, len);
		ASSERT_EQ(res.registrations, i == 0);
		file_expect(test_path(i % 2 ? "odd" : "even"), 0, file, len);
		ASSERT_OK(unlink(test_path(i % 2 ? "odd" : "even")));
		total += len;
	}
	free(file);
	rig_close(&r);
}
TEST_WHERE(one_gib_passes_through_a_region_each_way, is_long)

/* Memory of the lab's GPU of the kind that cannot be pinned: through host memory, with the reason. */
TEST_TIMEOUT(memory_that_cannot_be_registered_is_staged, 120)
{
	const char *name = getenv("STRAIT_TEST_DEVICE");
	uint8_t *have = malloc(LEN), *file = pattern_new(0, LEN, 5);
	struct strait_rdma_result res;
	struct strait_device *dev;
	struct rig r;

	if (!name || strncmp(name, "vgpu", 4))
		SKIP("all memory of this device can be registered");
	rig_open(&r, STRAIT_RDMA_SERVE_WRITE);
	strait_region_close(r.region);
	ASSERT_OK(strait_device_find(r.ctx, name, &dev));
	ASSERT_OK(strait_region_alloc(dev, LEN, &r.region));
	ASSERT_OK(pull(&r, 1000, 500, LEN - 1000, &res));
	ASSERT_EQ(res.kind, STRAIT_RDMA_NONE);
	ASSERT_EQ(res.bytes_staged, LEN - 1000);
	ASSERT_EQ(res.bytes_direct, 0);
	printf("%s\n", res.reason);
	ASSERT_TRUE(strstr(res.reason, "CPU mapping: ") != NULL);
	ASSERT_OK(strait_region_copy_out(r.region, 500, have, LEN - 1000));
	ASSERT_MEMEQ(have, file + 1000, LEN - 1000);
	ASSERT_OK(push(&r, "back", 0, 500, LEN - 1000, &res));
	ASSERT_EQ(res.bytes_staged, LEN - 1000);
	file_expect(test_path("back"), 0, file + 1000, LEN - 1000);
	free(have);
	free(file);
	rig_close(&r);
}

TEST(a_read_only_server_is_not_written)
{
	struct strait_rdma_result res;
	struct rig r;

	rig_open(&r, 0);
	ASSERT_EQ(push(&r, "data", 0, 0, 4096, &res), -EROFS);
	ASSERT_EQ(push(&r, "new", 0, 0, 4096, &res), -EROFS);
	ASSERT_LT(access(test_path("new"), F_OK), 0);
	ASSERT_OK(pull(&r, 0, 0, 4096, &res));
	rig_close(&r);
}

TEST(a_file_that_shrinks_ends_the_pull)
{
	struct strait_rdma_result res;
	struct rig r;
	uint64_t len;

	rig_open(&r, 0);
	ASSERT_OK(strait_rdma_client_length(r.client, "data", &len));
	ASSERT_EQ(len, LEN);
	ASSERT_OK(truncate(test_path("data"), 300000));
	ASSERT_EQ(pull(&r, 0, 0, LEN, &res), -ENODATA);
	ASSERT_EQ(res.bytes, 300000);
	ASSERT_EQ(pull(&r, 300000, 0, 1, &res), -ENODATA);
	ASSERT_OK(pull(&r, 0, 0, 300000, &res));
	ASSERT_EQ(strait_rdma_client_length(r.client, "missing", &len), -ENOENT);
	ASSERT_EQ(strait_rdma_client_length(r.client, "../data", &len), -EXDEV);
	rig_close(&r);
}

/* Regions that are used in turn stay registered, in both directions; more than a server has slots for take turns. */
TEST(several_regions_stay_registered)
{
	struct strait_region *region[9];
	uint8_t *want = pattern_new(0, 65536, 5), *have = malloc(65536);
	struct strait_rdma_result res;
	struct rig r;

	rig_open(&r, STRAIT_RDMA_SERVE_WRITE);
	region[0] = r.region;
	for (unsigned int i = 1; i < 9; i++)
		region[i] = rdma_memory(r.ctx, 65536, (uint8_t)i);
	for (unsigned int round = 0; round < 3; round++) {
		for (unsigned int i = 0; i < 4; i++) {
			r.region = region[i];
			ASSERT_OK(pull(&r, 0, 0, 65536, &res));
			ASSERT_EQ(res.registrations, round == 0);
			ASSERT_EQ(res.kind, STRAIT_RDMA_MAPPING);
			ASSERT_OK(push(&r, "back", 65536 * i, 0, 65536, &res));
			ASSERT_EQ(res.registrations, round == 0);
			file_expect(test_path("back"), 65536 * i, want, 65536);
		}
	}
	for (unsigned int i = 0; i < 9; i++) {
		r.region = region[i];
		ASSERT_OK(strait_region_fill(r.region, 0, 0, 65536));
		ASSERT_OK(pull(&r, 0, 0, 65536, &res));
		ASSERT_EQ(res.registrations, i >= 4);
		ASSERT_OK(strait_region_copy_out(r.region, 0, have, 65536));
		ASSERT_MEMEQ(have, want, 65536);
	}
	for (unsigned int i = 1; i < 9; i++)
		strait_region_close(region[i]);
	r.region = region[0];
	free(want);
	free(have);
	rig_close(&r);
}

/* Closing the region stops the session; the next call connects again. */
TEST(a_client_outlives_its_regions)
{
	struct strait_rdma_result res;
	struct rig r;

	rig_open(&r, 0);
	for (unsigned int i = 0; i < 3; i++) {
		ASSERT_OK(pull(&r, 0, 0, 65536, &res));
		ASSERT_EQ(res.registrations, 1);
		strait_region_close(r.region);
		r.region = rdma_memory(r.ctx, LEN, 0);
	}
	rig_close(&r);
}

TEST(requests_that_are_none_end_the_session_only)
{
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_rdma_session *s;
	struct strait_rdma_result res;
	char buf[STRAIT_RDMA_MESSAGE_MAX];
	uint64_t state = 2;
	struct rig r;

	rig_open(&r, 0);
	for (unsigned int i = 0; i < 5; i++) {
		ssize_t n;

		ASSERT_OK(strait_rdma_connect(r.ctx, &o, &s));
		prng_fill(buf, sizeof(buf), prng_next(&state));
		ASSERT_OK(strait_rdma_send(s, buf, prng_below(&state, sizeof(buf)), (int64_t)SECOND));
		n = strait_rdma_recv(s, buf, sizeof(buf), (int64_t)(20 * SECOND));
		ASSERT_TRUE(n == -ECONNRESET || n == -EIO);
		strait_rdma_close(s);
	}
	ASSERT_OK(pull(&r, 0, 0, 65536, &res));
	rig_close(&r);
}

TEST(a_silent_server_is_not_waited_for)
{
	struct strait_rdma_file f = { .size = sizeof(f), .path = "data", .length = 4096, .timeout_ns = SECOND };
	struct strait_rdma_result res = { .size = sizeof(res) };
	struct rdma_pair p = { 0 };
	struct strait_rdma_opts l = rdma_opts_of(STRAIT_RDMA_INITIATES), c = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_rdma_session *s;
	struct strait_rdma_client *client;
	struct rdma_child silent;
	uint64_t start;

	if (!rdma_child_make(&silent)) {
		p.ctx = context_new(NULL);
		ASSERT_OK(strait_rdma_listen(p.ctx, &l, &p.listener));
		ASSERT_OK(strait_rdma_accept(p.listener, (int64_t)(60 * SECOND), &s));
		ASSERT_OK(strait_rdma_authenticate(s));
		for (;;)
			pause();
	}
	rdma_child_start(&silent);
	p.ctx = context_new(NULL);
	while (strait_rdma_client_open(p.ctx, &c, &client) == -ECONNREFUSED)
		usleep(100000);
	f.region = rdma_memory(p.ctx, 4096, 0);
	start = os_now_ns();
	ASSERT_EQ(strait_rdma_pull(client, &f, &res), -ETIMEDOUT);
	ASSERT_LT(os_now_ns() - start, 20 * SECOND);
	rdma_child_kill(&silent);
	strait_rdma_client_close(client);
	strait_region_close(f.region);
	strait_context_close(p.ctx);
}

static void make_server(struct rdma_child *c)
{
	if (rdma_child_make(c))
		return;
	rdma_serve_dir(context_new(NULL), test_dir(), 0, 0);
	for (;;)
		pause();
}

static void *kill_and_replace(void *arg)
{
	struct rdma_child *server = arg;

	usleep(150000);
	rdma_child_kill(&server[0]);
	rdma_child_start(&server[1]);
	return NULL;
}

/* The pull goes on at the new server after the last window of the old one. */
TEST_TIMEOUT(a_pull_survives_a_killed_server, 180)
{
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_rdma_file f = { .size = sizeof(f), .path = "data", .retries = 100 };
	struct strait_rdma_result res = { .size = sizeof(res) };
	uint64_t len = very_slow() ? MIB(9) : MIB(40);
	struct strait_rdma_client *client;
	struct rdma_child server[2];
	struct strait_context *ctx;
	uint8_t *want, *have;
	pthread_t killer;

	make_file("data", len, 3);
	make_server(&server[0]);
	make_server(&server[1]);
	rdma_child_start(&server[0]);
	ctx = context_new(NULL);
	while (strait_rdma_client_open(ctx, &o, &client) == -ECONNREFUSED)
		usleep(100000);
	f.region = rdma_memory(ctx, len, 0);
	f.length = len;
	ASSERT_EQ(pthread_create(&killer, NULL, kill_and_replace, server), 0);
	ASSERT_OK(strait_rdma_pull(client, &f, &res));
	pthread_join(killer, NULL);
	ASSERT_GE(res.reconnects, 1);
	ASSERT_EQ(res.bytes, len);
	want = pattern_new(0, len, 3);
	have = malloc(len);
	ASSERT_OK(strait_region_copy_out(f.region, 0, have, len));
	ASSERT_MEMEQ(have, want, len);
	free(want);
	free(have);
	rdma_child_kill(&server[1]);
	/* Without a server, and without retries, an error. */
	f.retries = 0;
	ASSERT_LT(strait_rdma_pull(client, &f, &res), 0);
	strait_rdma_client_close(client);
	strait_region_close(f.region);
	strait_context_close(ctx);
}

static void make_puller(struct rdma_child *c)
{
	struct strait_rdma_result res;
	struct rig mine = { 0 };

	if (rdma_child_make(c))
		return;
	mine.ctx = context_new(NULL);
	mine.client = rdma_client_new(mine.ctx);
	mine.region = rdma_memory(mine.ctx, LEN, 0);
	for (;;)
		ASSERT_OK(pull(&mine, 0, 0, LEN, &res));
}

/* Killed clients leave nothing behind. */
TEST_TIMEOUT(a_server_survives_killed_clients, 180)
{
	struct strait_rdma_server_info info = { .size = sizeof(info) };
	struct strait_rdma_result res;
	struct rdma_child puller[3];
	struct rig r;

	for (unsigned int i = 0; i < 3; i++)
		make_puller(&puller[i]);
	rig_open(&r, 0);
	for (unsigned int i = 0; i < 3; i++) {
		uint64_t before;

		ASSERT_OK(strait_rdma_server_info(r.server, &info));
		before = info.bytes_out;
		rdma_child_start(&puller[i]);
		for (unsigned int k = 0; k < 1000 && info.bytes_out == before; k++) {
			usleep(20000);
			ASSERT_OK(strait_rdma_server_info(r.server, &info));
		}
		ASSERT_GT(info.bytes_out, before);
		rdma_child_kill(&puller[i]);
	}
	for (unsigned int i = 0; i < 600 && info.sessions > 1; i++) {
		usleep(100000);
		ASSERT_OK(strait_rdma_server_info(r.server, &info));
	}
	ASSERT_EQ(info.sessions, 1);
	ASSERT_OK(pull(&r, 0, 0, LEN, &res));
	rig_close(&r);
}

TEST_TIMEOUT(clients_are_bounded, 240)
{
	unsigned int most = 4, rounds = very_slow() ? 20 : 200;
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_rdma_server_info info = { .size = sizeof(info) };
	struct strait_rdma_client *c[4], *more;
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_server *server;
	uint64_t len;
	int rc;

	make_file("data", 1000, 5);
	server = rdma_serve_dir(ctx, test_dir(), 0, most);
	for (unsigned int i = 0; i < most; i++)
		ASSERT_OK(strait_rdma_client_open(ctx, &o, &c[i]));
	ASSERT_EQ(strait_rdma_client_open(ctx, &o, &more), -ECONNREFUSED);
	for (unsigned int i = 0; i < most; i++)
		ASSERT_OK(strait_rdma_client_length(c[i], "data", &len));
	/* One after the other, each in place of one that left. */
	for (unsigned int i = 0; i < rounds; i++) {
		strait_rdma_client_close(c[i % most]);
		do
			rc = strait_rdma_client_open(ctx, &o, &c[i % most]);
		while (rc == -ECONNREFUSED && !usleep(50000));
		ASSERT_OK(rc);
		ASSERT_OK(strait_rdma_client_length(c[i % most], "data", &len));
	}
	ASSERT_OK(strait_rdma_server_info(server, &info));
	ASSERT_EQ(info.accepted, most + rounds);
	for (unsigned int i = 0; i < most; i++)
		strait_rdma_client_close(c[i]);
	strait_rdma_server_close(server);
	strait_context_close(ctx);
}
