/* SPDX-License-Identifier: MIT */
/* Exports of a server, memory and files by a name: every byte, what is refused, memory that is taken away, servers that change. */
#include "engine/engine.h"
#include "rdma.h"
#include "service/rdma_serve.h"

TEST_PROGRAM_NEEDS(rdma_missing)

#define SECOND 1000000000ll
#define LEN (very_slow() ? MIB(1) : MIB(6))

struct rig {
	struct strait_context *ctx;
	struct strait_rdma_server *server;
	struct strait_rdma_client *client;
	struct strait_region *region; /* the client's */
	struct strait_region *memory; /* "@memory": the server's */
	struct strait_endpoint *file; /* "@file" */
};

static struct strait_rdma_server *serve(struct strait_context *ctx, const char *root,
					const struct strait_rdma_export *exports, uint32_t n)
{
	struct strait_rdma_opts session = rdma_opts_of(STRAIT_RDMA_INITIATES);
	struct strait_rdma_server_opts o = {
		.size = sizeof(o), .session = &session, .root = root, .exports = exports, .export_count = n
	};
	struct strait_rdma_server *server;
	int rc;

	do
		rc = strait_rdma_serve(ctx, &o, &server);
	while (rc == -EADDRINUSE && !usleep(100000));
	ASSERT_OK(rc);
	return server;
}

static void rig_open_with(struct rig *r, struct strait_region *memory, uint32_t flags)
{
	struct strait_rdma_export e[] = { { .name = "memory", .region = memory, .flags = flags },
					  { .name = "file", .flags = flags } };

	make_file("data", LEN, 5);
	make_file("@memory", 1000, 6);
	r->memory = memory;
	ASSERT_OK(strait_file_open(r->ctx, test_path("data"), O_RDWR, 0, 0, &r->file));
	e[1].endpoint = r->file;
	r->server = serve(r->ctx, test_dir(), e, 2);
	r->client = rdma_client_new(r->ctx);
	r->region = rdma_memory(r->ctx, LEN, 0xa5);
}

static void rig_open(struct rig *r, uint32_t flags)
{
	r->ctx = context_new(NULL);
	rig_open_with(r, rdma_memory(r->ctx, LEN, 0x33), flags);
}

static void rig_close(struct rig *r)
{
	strait_rdma_client_close(r->client);
	strait_rdma_server_close(r->server);
	strait_endpoint_close(r->file);
	strait_region_close(r->region);
	strait_region_close(r->memory);
	strait_context_close(r->ctx);
}

static int transfer(struct rig *r, bool push, const char *path, uint64_t file_off, uint64_t off, uint64_t len,
		    struct strait_rdma_result *res)
{
	struct strait_rdma_file f = { .size = sizeof(f),
				      .path = path,
				      .file_offset = file_off,
				      .region = r->region,
				      .region_offset = off,
				      .length = len };

	*res = (struct strait_rdma_result){ .size = sizeof(*res) };
	return push ? strait_rdma_push(r->client, &f, res) : strait_rdma_pull(r->client, &f, res);
}

/* Random ranges both ways between memory of the server and of the client. */
static void exchange(struct rig *r)
{
	uint8_t *mine = malloc(LEN), *theirs = pattern_new(0, LEN, 9), *have = malloc(LEN);
	unsigned int rounds = very_slow() ? 5 : 16;
	struct strait_rdma_result res;
	uint64_t state = 6;

	memset(mine, 0xa5, LEN);
	ASSERT_OK(strait_region_copy_in(r->memory, 0, theirs, LEN));
	for (unsigned int i = 0; i < rounds; i++) {
		uint64_t len = 1 + prng_below(&state, prng_below(&state, 2) ? 5000 : LEN / 2);
		uint64_t from = prng_below(&state, LEN - len), to = prng_below(&state, LEN - len);
		bool push = i % 2;

		ASSERT_OK(transfer(r, push, "@memory", from, to, len, &res));
		ASSERT_EQ(res.bytes_direct, len);
		if (push)
			memcpy(theirs + from, mine + to, len);
		else
			memcpy(mine + to, theirs + from, len);
		ASSERT_OK(strait_region_copy_out(r->region, 0, have, LEN));
		ASSERT_MEMEQ(have, mine, LEN);
		ASSERT_OK(strait_region_copy_out(r->memory, 0, have, LEN));
		ASSERT_MEMEQ(have, theirs, LEN);
	}
	free(mine);
	free(theirs);
	free(have);
}

TEST_TIMEOUT(memory_is_pulled_and_pushed, 180)
{
	struct strait_rdma_server_info info = { .size = sizeof(info) };
	struct strait_rdma_info session = { .size = sizeof(session) };
	struct rig r;

	rig_open(&r, STRAIT_RDMA_EXPORT_WRITE);
	exchange(&r);
	ASSERT_OK(strait_rdma_server_info(r.server, &info));
	ASSERT_GT(info.bytes_out, 0);
	ASSERT_GT(info.bytes_in, 0);
	/* The memory itself is registered, and nothing that bytes would be copied through. */
	ASSERT_OK(strait_rdma_info(r.server->served[0].session, &session));
	ASSERT_EQ(session.registrations, 1);
	rig_close(&r);
}

/* Of the kind that the RDMA device cannot register: through the server's ring. */
TEST_TIMEOUT(memory_that_cannot_be_registered_is_served, 180)
{
	const char *name = getenv("STRAIT_TEST_DEVICE");
	struct strait_region *memory;
	struct strait_device *dev;
	struct rig r;

	if (!name || strncmp(name, "vgpu", 4))
		SKIP("all memory of this device can be registered");
	r.ctx = context_new(NULL);
	ASSERT_OK(strait_device_find(r.ctx, name, &dev));
	ASSERT_OK(strait_region_alloc(dev, LEN, &memory));
	rig_open_with(&r, memory, STRAIT_RDMA_EXPORT_WRITE);
	exchange(&r);
	rig_close(&r);
}

TEST(an_export_ends_where_it_ends)
{
	uint8_t have[2000], *want = pattern_new(LEN - 1000, 1000, 5);
	struct strait_rdma_result res;
	uint64_t len;
	struct rig r;

	rig_open(&r, STRAIT_RDMA_EXPORT_WRITE);
	ASSERT_OK(strait_rdma_client_length(r.client, "@memory", &len));
	ASSERT_EQ(len, LEN);
	ASSERT_EQ(transfer(&r, false, "@memory", LEN - 1000, 0, 4096, &res), -ENODATA);
	ASSERT_EQ(res.bytes, 1000);
	ASSERT_OK(strait_region_copy_out(r.region, 0, have, 1001));
	ASSERT_EQ(have[999], 0x33);
	ASSERT_EQ(have[1000], 0xa5);
	ASSERT_EQ(transfer(&r, false, "@memory", LEN, 0, 1, &res), -ENODATA);
	ASSERT_EQ(transfer(&r, false, "@memory", INT64_MAX - 1, 0, 1, &res), -ENODATA);
	ASSERT_EQ(transfer(&r, true, "@memory", LEN - 10, 0, 11, &res), -ENOSPC);
	ASSERT_EQ(res.bytes, 10);
	ASSERT_EQ(transfer(&r, true, "@memory", LEN + 5, 0, 1, &res), -ENOSPC);
	/* A file that is exported has the end that it has now. */
	ASSERT_EQ(transfer(&r, false, "@file", LEN - 1000, 0, 4096, &res), -ENODATA);
	ASSERT_EQ(res.bytes, 1000);
	ASSERT_OK(strait_region_copy_out(r.region, 0, have, 1000));
	ASSERT_MEMEQ(have, want, 1000);
	ASSERT_OK(transfer(&r, true, "@file", LEN, 0, 1000, &res));
	ASSERT_EQ(file_length(test_path("data")), LEN + 1000);
	file_expect(test_path("data"), LEN, want, 1000);
	free(want);
	rig_close(&r);
}

TEST(exports_are_read_only_unless_asked)
{
	uint8_t *want = pattern_new(0, LEN, 5), first;
	struct strait_rdma_result res;
	struct rig r;

	rig_open(&r, 0);
	ASSERT_EQ(transfer(&r, true, "@memory", 0, 0, 4096, &res), -EROFS);
	ASSERT_EQ(transfer(&r, true, "@file", 0, 0, 4096, &res), -EROFS);
	ASSERT_OK(strait_region_copy_out(r.memory, 0, &first, 1));
	ASSERT_EQ(first, 0x33);
	file_expect(test_path("data"), 0, want, LEN);
	ASSERT_OK(transfer(&r, false, "@memory", 0, 0, 4096, &res));
	ASSERT_OK(transfer(&r, false, "@file", 0, 0, LEN, &res));
	free(want);
	rig_close(&r);
}

TEST(paths_and_names_do_not_meet)
{
	static const char *const none[] = { "@",	"@memory/", "@/memory", "@other",
					    "@../data", "@memory ", "@Memory",	"memory" };
	struct strait_rdma_result res;
	struct rig r;
	uint64_t len;

	rig_open(&r, 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(none); i++)
		ASSERT_EQ(strait_rdma_client_length(r.client, none[i], &len), -ENOENT);
	/* A file of that name. */
	ASSERT_OK(strait_rdma_client_length(r.client, "./@memory", &len));
	ASSERT_EQ(len, 1000);
	ASSERT_OK(strait_rdma_client_length(r.client, "@memory", &len));
	ASSERT_EQ(len, LEN);
	/* What was open stays so when another open fails; the directory's rules are as they were. */
	ASSERT_EQ(strait_rdma_client_length(r.client, "../data", &len), -EXDEV);
	ASSERT_OK(transfer(&r, false, "data", 0, 0, LEN, &res));
	ASSERT_EQ(transfer(&r, true, "data", 0, 0, 1, &res), -EROFS);
	rig_close(&r);
}

TEST(a_server_without_a_directory_has_exports_only)
{
	struct strait_rdma_export e = { .name = "it" };
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_server *server;
	struct strait_rdma_client *client;
	uint64_t len;

	e.region = rdma_memory(ctx, 4096, 1);
	server = serve(ctx, NULL, &e, 1);
	client = rdma_client_new(ctx);
	ASSERT_OK(strait_rdma_client_length(client, "@it", &len));
	ASSERT_EQ(len, 4096);
	ASSERT_EQ(strait_rdma_client_length(client, "data", &len), -ENOENT);
	ASSERT_EQ(strait_rdma_client_length(client, "/etc/passwd", &len), -ENOENT);
	strait_rdma_client_close(client);
	strait_rdma_server_close(server);
	strait_region_close(e.region);
	strait_context_close(ctx);
}

TEST(exports_are_checked)
{
	static const char *const bad[] = {
		NULL, "",     "a b", "a/b",
		"@a", "..\n", "ä",   "a-name-that-is-longer-than-the-sixty-three-letters-that-are-allowed"
	};
	struct strait_rdma_opts session = rdma_opts_of(STRAIT_RDMA_INITIATES);
	struct strait_rdma_export e[2] = { { .name = "a" }, { .name = "a" } };
	struct strait_rdma_server_opts o = { .size = sizeof(o), .session = &session, .exports = e, .export_count = 1 };
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_server *server;
	struct strait_region *region = rdma_memory(ctx, 4096, 1);

	make_file("data", 1000, 5);
	ASSERT_EQ(strait_rdma_serve(ctx, &o, &server), -EINVAL); /* neither */
	e[0].region = e[1].region = region;
	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		e[0].name = bad[i];
		ASSERT_EQ(strait_rdma_serve(ctx, &o, &server), -EINVAL);
	}
	e[0].name = "a";
	o.export_count = 2; /* the same name */
	ASSERT_EQ(strait_rdma_serve(ctx, &o, &server), -EINVAL);
	o.export_count = STRAIT_RDMA_EXPORTS_MAX + 1;
	ASSERT_EQ(strait_rdma_serve(ctx, &o, &server), -EINVAL);
	o.export_count = 1;
	e[0].flags = 2;
	ASSERT_EQ(strait_rdma_serve(ctx, &o, &server), -EINVAL);
	e[0].flags = 0;
	ASSERT_OK(strait_file_open(ctx, test_path("data"), O_RDONLY, 0, 0, &e[0].endpoint)); /* both */
	ASSERT_EQ(strait_rdma_serve(ctx, &o, &server), -EINVAL);
	o.export_count = 0;
	ASSERT_EQ(strait_rdma_serve(ctx, &o, &server), -ENOENT);
	strait_endpoint_close(e[0].endpoint);
	strait_region_close(region);
	strait_context_close(ctx);
}

static unsigned int flushes;

static int count_flush(struct strait_device *dev)
{
	flushes++;
	return 0;
}

/* The server's RDMA device wrote them: they are visible in device memory before the push returns. */
TEST(pushed_bytes_are_flushed)
{
	const struct provider_ops *real;
	struct strait_rdma_result res;
	struct provider_ops ops;
	struct rig r;

	rig_open(&r, STRAIT_RDMA_EXPORT_WRITE);
	real = r.memory->dev->ops;
	ops = *real;
	ops.flush_peer_writes = count_flush;
	r.memory->dev->ops = &ops;
	ASSERT_OK(transfer(&r, true, "@memory", 0, 0, LEN, &res));
	ASSERT_EQ(flushes, 1);
	ASSERT_OK(strait_rdma_region_flush(r.memory));
	ASSERT_EQ(flushes, 2);
	r.memory->dev->ops = real;
	rig_close(&r);
}

static void *revoke_in_mid_transfer(void *arg)
{
	struct strait_rdma_server_info info = { .size = sizeof(info) };
	struct rig *r = arg;

	while (!strait_rdma_server_info(r->server, &info) && info.bytes_out < LEN / 4)
		usleep(1000);
	ASSERT_OK(strait_region_revoke(r->memory));
	return NULL;
}

TEST_TIMEOUT(revoked_memory_is_no_longer_served, 120)
{
	struct strait_rdma_result res;
	pthread_t thread;
	struct rig r;
	int rc = 0;

	rig_open(&r, STRAIT_RDMA_EXPORT_WRITE);
	ASSERT_EQ(pthread_create(&thread, NULL, revoke_in_mid_transfer, &r), 0);
	for (unsigned int i = 0; i < 1000 && !rc; i++)
		rc = transfer(&r, false, "@memory", 0, 0, LEN, &res);
	printf("%s\n", strerror(-rc));
	ASSERT_LT(rc, 0);
	pthread_join(thread, NULL);
	/* The other ones are. */
	ASSERT_EQ(transfer(&r, false, "@memory", 0, 0, 4096, &res), -ENODEV);
	ASSERT_EQ(transfer(&r, true, "@memory", 0, 0, 4096, &res), -ENODEV);
	ASSERT_OK(transfer(&r, false, "@file", 0, 0, LEN, &res));
	rig_close(&r);
}

static void make_server(struct rdma_child *c, uint64_t len)
{
	struct strait_rdma_export e = { .name = "memory" };
	struct strait_context *ctx;

	if (rdma_child_make(c))
		return;
	ctx = context_new(NULL);
	e.region = rdma_memory(ctx, len, 0x44);
	serve(ctx, NULL, &e, 1);
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

/* The memory of another server is not that of the first one: half of each would be neither. */
TEST_TIMEOUT(a_pull_of_memory_is_not_continued_by_another_server, 180)
{
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS);
	uint64_t len = very_slow() ? MIB(9) : MIB(20);
	struct strait_rdma_file f = { .size = sizeof(f), .path = "@memory", .retries = 100, .length = len };
	struct strait_rdma_result res = { .size = sizeof(res) };
	struct rdma_child server[2];
	struct strait_context *ctx;
	struct strait_rdma_client *client;
	pthread_t killer;
	int rc = 0;

	make_server(&server[0], len);
	make_server(&server[1], len);
	rdma_child_start(&server[0]);
	ctx = context_new(NULL);
	while (strait_rdma_client_open(ctx, &o, &client) == -ECONNREFUSED)
		usleep(100000);
	f.region = rdma_memory(ctx, len, 0);
	ASSERT_EQ(pthread_create(&killer, NULL, kill_and_replace, server), 0);
	/* The kill may come between two calls: then the next one begins anew. */
	for (unsigned int i = 0; i < 100 && !rc; i++) {
		rc = strait_rdma_pull(client, &f, &res);
		if (!rc && res.reconnects)
			SKIP("the server was killed between two pulls");
	}
	pthread_join(killer, NULL);
	ASSERT_EQ(rc, -ESTALE);
	ASSERT_OK(strait_rdma_pull(client, &f, &res));
	rdma_child_kill(&server[1]);
	strait_rdma_client_close(client);
	strait_region_close(f.region);
	strait_context_close(ctx);
}
