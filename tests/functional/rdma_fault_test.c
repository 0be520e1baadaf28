/* SPDX-License-Identifier: MIT */
/* Files over RDMA with peers that fail or do not follow the protocol: what a client reports, and that a server can be stopped. */
#include "endpoint/rdma/session.h"
#include "engine/engine.h"
#include "rdma.h"
#include "service/rdma_proto.h"

TEST_PROGRAM_NEEDS(rdma_missing)

#define SECOND 1000000000ll
#define LEN MIB(1)
#define SOON (5ull * SECOND * test_slow())

/* A server whose replies the test decides; it moves no bytes. One session after the other. */
struct fake {
	struct strait_context *ctx;
	struct strait_rdma_listener *listener;
	pthread_t thread;
	atomic_bool stop;
	atomic_uint sessions, opens, offers, reads;
	atomic_int offer_status, read_status;
	atomic_ullong read_bytes; /* reported in place of the request's length, with @read_status */
	atomic_bool too_long;	  /* answer with a message that no receive has room for */
};

static void answer(struct fake *f, struct strait_rdma_session *s, const struct proto_request *q)
{
	struct proto_reply r = { .id = q->id, .length = LEN };
	uint8_t msg[2 * WIRE_MAX] = { 0 };

	if (q->op == PROTO_OPEN) {
		atomic_fetch_add(&f->opens, 1);
	} else if (q->op == PROTO_OFFER) {
		atomic_fetch_add(&f->offers, 1);
		r.status = atomic_load(&f->offer_status);
	} else if (q->op == PROTO_READ) {
		atomic_fetch_add(&f->reads, 1);
		r.status = atomic_load(&f->read_status);
		r.bytes = r.status ? atomic_load(&f->read_bytes) : q->length;
	}
	if (!atomic_load(&f->too_long)) {
		strait_rdma_send(s, msg, proto_put_reply(&r, msg), SECOND);
		return;
	}
	session_lock(s);
	qp_send(s, msg, sizeof(msg), os_deadline(SECOND));
	pthread_mutex_unlock(&s->lock);
}

static void *run_fake(void *arg)
{
	struct fake *f = arg;
	uint8_t msg[STRAIT_RDMA_MESSAGE_MAX];
	struct strait_rdma_session *s;
	struct proto_request q;

	while (!atomic_load(&f->stop)) {
		ssize_t n = 0;

		if (strait_rdma_accept(f->listener, SECOND / 10, &s))
			continue;
		atomic_fetch_add(&f->sessions, 1);
		if (strait_rdma_authenticate(s))
			n = -EACCES;
		while (!atomic_load(&f->stop) && (n >= 0 || n == -ETIMEDOUT)) {
			n = strait_rdma_recv(s, msg, sizeof(msg), SECOND / 10);
			if (n >= 0 && !proto_get_request(msg, (size_t)n, &q))
				answer(f, s, &q);
		}
		strait_rdma_close(s);
	}
	return NULL;
}

static void fake_open(struct fake *f, struct strait_context *ctx)
{
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_INITIATES);

	f->ctx = ctx;
	ASSERT_OK(strait_rdma_listen(ctx, &o, &f->listener));
	ASSERT_EQ(pthread_create(&f->thread, NULL, run_fake, f), 0);
}

static void fake_close(struct fake *f)
{
	atomic_store(&f->stop, true);
	pthread_join(f->thread, NULL);
	strait_rdma_listener_close(f->listener);
}

struct rig {
	struct strait_context *ctx;
	struct fake fake;
	struct strait_rdma_client *client;
	struct strait_region *region;
};

static void rig_open(struct rig *r)
{
	rdma_address(); /* skips without RDMA */
	*r = (struct rig){ .ctx = context_new(NULL) };
	fake_open(&r->fake, r->ctx);
	r->client = rdma_client_new(r->ctx);
	r->region = rdma_memory(r->ctx, LEN, 0xa5);
}

static void rig_close(struct rig *r)
{
	strait_rdma_client_close(r->client);
	fake_close(&r->fake);
	strait_region_close(r->region);
	strait_context_close(r->ctx);
}

static int pull(struct strait_rdma_client *client, struct strait_region *region, uint32_t retries,
		struct strait_rdma_result *res)
{
	struct strait_rdma_file f = {
		.size = sizeof(f), .path = "data", .region = region, .length = LEN, .retries = retries
	};

	*res = (struct strait_rdma_result){ .size = sizeof(*res) };
	return strait_rdma_pull(client, &f, res);
}

/* The server's disk fails: connecting again would not help, and is not tried. */
TEST(an_error_of_the_file_is_not_one_of_the_connection)
{
	static const int errors[] = { -EIO, -ETIMEDOUT, -ECONNRESET };
	struct strait_rdma_result res;
	struct rig r;

	rig_open(&r);
	for (unsigned int i = 0; i < ARRAY_SIZE(errors); i++) {
		atomic_store(&r.fake.read_status, errors[i]);
		ASSERT_EQ(pull(r.client, r.region, 3, &res), errors[i]);
		ASSERT_EQ(res.reconnects, 0);
		ASSERT_EQ(res.bytes, 0);
	}
	/* The session goes on. */
	atomic_store(&r.fake.read_status, 0);
	ASSERT_OK(pull(r.client, r.region, 0, &res));
	ASSERT_EQ(atomic_load(&r.fake.sessions), 1);
	rig_close(&r);
}

static unsigned int flushes;
static int flush_result;

static int count_flush(struct strait_device *dev)
{
	flushes++;
	return flush_result;
}

/* Also those that a transfer reports which failed after them. */
TEST(bytes_are_flushed_before_they_are_reported)
{
	const struct provider_ops *real;
	struct strait_rdma_result res;
	struct provider_ops ops;
	struct rig r;

	rig_open(&r);
	real = r.region->dev->ops;
	ops = *real;
	ops.flush_peer_writes = count_flush;
	r.region->dev->ops = &ops;
	atomic_store(&r.fake.read_status, -ENODATA);
	atomic_store(&r.fake.read_bytes, 1000);
	ASSERT_EQ(pull(r.client, r.region, 0, &res), -ENODATA);
	ASSERT_EQ(flushes, 1);
	ASSERT_EQ(res.bytes, 1000);
	ASSERT_EQ(res.bytes_direct, 1000);
	/* Bytes that cannot be flushed are not reported. */
	flush_result = -EIO;
	ASSERT_EQ(pull(r.client, r.region, 0, &res), -ENODATA);
	ASSERT_EQ(flushes, 2);
	ASSERT_EQ(res.bytes, 0);
	r.region->dev->ops = real;
	rig_close(&r);
}

/* The status of a failed completion is the session's, which is gone when the result is filled. */
TEST(a_failed_completion_is_named_in_the_result)
{
	struct strait_rdma_result res;
	struct rig r;

	rig_open(&r);
	ASSERT_OK(pull(r.client, r.region, 0, &res));
	ASSERT_EQ(res.status, 0);
	atomic_store(&r.fake.too_long, true);
	ASSERT_LT(pull(r.client, r.region, 0, &res), 0);
	printf("%d: %s\n", res.status, strait_rdma_status_name(res.status));
	ASSERT_NE(res.status, 0);
	rig_close(&r);
}

/* The server refuses an offer: it still has the one before, and gets the new one again. */
TEST(a_refused_offer_is_not_used)
{
	struct strait_region *other;
	struct strait_rdma_result res;
	struct rig r;

	rig_open(&r);
	other = rdma_memory(r.ctx, LEN, 0);
	ASSERT_OK(pull(r.client, r.region, 0, &res));
	ASSERT_OK(pull(r.client, r.region, 0, &res));
	ASSERT_EQ(atomic_load(&r.fake.offers), 1);
	atomic_store(&r.fake.offer_status, -ENOMEM);
	ASSERT_EQ(pull(r.client, other, 0, &res), -ENOMEM);
	atomic_store(&r.fake.offer_status, 0);
	ASSERT_OK(pull(r.client, r.region, 0, &res));
	ASSERT_EQ(res.registrations, 0);
	ASSERT_EQ(atomic_load(&r.fake.offers), 2);
	ASSERT_OK(pull(r.client, other, 0, &res));
	ASSERT_EQ(res.registrations, 1);
	ASSERT_EQ(atomic_load(&r.fake.offers), 3);
	ASSERT_EQ(atomic_load(&r.fake.reads), 4);
	strait_region_close(other);
	rig_close(&r);
}

/* The server was started again since the last call. */
TEST(a_session_that_has_ended_is_replaced_without_a_retry)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_server *server;
	struct strait_rdma_client *client;
	struct strait_rdma_result res;
	struct strait_region *region;
	uint64_t len;

	make_file("data", LEN, 5);
	server = rdma_serve_dir(ctx, test_dir(), 0, 0);
	client = rdma_client_new(ctx);
	region = rdma_memory(ctx, LEN, 0);
	ASSERT_OK(pull(client, region, 0, &res));
	for (unsigned int i = 0; i < 4; i++) {
		strait_rdma_server_close(server);
		server = rdma_serve_dir(ctx, test_dir(), 0, 0);
		/* Sometimes the client has not yet been told. */
		if (i % 2)
			usleep(300000);
		if (i < 2) {
			ASSERT_OK(pull(client, region, 0, &res));
			ASSERT_EQ(res.bytes, LEN);
		} else {
			ASSERT_OK(strait_rdma_client_length(client, "data", &len));
			ASSERT_EQ(len, LEN);
		}
	}
	strait_rdma_client_close(client);
	strait_rdma_server_close(server);
	strait_region_close(region);
	strait_context_close(ctx);
}

static void make_server(struct rdma_child *c)
{
	if (rdma_child_make(c))
		return;
	rdma_serve_dir(context_new(NULL), test_dir(), STRAIT_RDMA_SERVE_WRITE, 0);
	for (;;)
		pause();
}

static void *kill_and_lose_file(void *arg)
{
	struct rdma_child *server = arg;

	/* Of four windows of 4 MiB in flight, the first was acknowledged before the fifth began. */
	while (access(test_path("data"), F_OK) || file_length(test_path("data")) < MIB(17))
		usleep(10000);
	rdma_child_kill(&server[0]);
	/* What was not synced may be lost with the machine. */
	ASSERT_OK(unlink(test_path("data")));
	rdma_child_start(&server[1]);
	return NULL;
}

TEST_TIMEOUT(a_push_is_resumed_after_what_is_synced, 180)
{
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_rdma_file f = { .size = sizeof(f), .path = "data", .retries = 100, .length = MIB(32) };
	struct strait_rdma_result res = { .size = sizeof(res) };
	struct strait_rdma_client *client;
	struct rdma_child server[2];
	struct strait_context *ctx;
	uint8_t *want;
	pthread_t killer;

	if (very_slow())
		SKIP("takes long on an emulated kernel with checkers");
	make_server(&server[0]);
	make_server(&server[1]);
	rdma_child_start(&server[0]);
	ctx = context_new(NULL);
	while (strait_rdma_client_open(ctx, &o, &client) == -ECONNREFUSED)
		usleep(100000);
	f.region = rdma_memory(ctx, f.length, 0);
	want = pattern_new(0, f.length, 3);
	ASSERT_OK(strait_region_copy_in(f.region, 0, want, f.length));
	ASSERT_EQ(pthread_create(&killer, NULL, kill_and_lose_file, server), 0);
	ASSERT_OK(strait_rdma_push(client, &f, &res));
	pthread_join(killer, NULL);
	ASSERT_GE(res.reconnects, 1);
	ASSERT_EQ(res.bytes, f.length);
	ASSERT_EQ(res.bytes_direct, f.length);
	file_expect(test_path("data"), 0, want, f.length);
	free(want);
	rdma_child_kill(&server[1]);
	strait_rdma_client_close(client);
	strait_region_close(f.region);
	strait_context_close(ctx);
}

struct shrinker {
	struct strait_rdma_server *server;
	uint64_t length;
};

static void *shrink(void *arg)
{
	struct strait_rdma_server_info info = { .size = sizeof(info) };
	struct shrinker *s = arg;

	while (!strait_rdma_server_info(s->server, &info) && info.bytes_out < MIB(1))
		usleep(1000);
	ASSERT_OK(truncate(test_path("data"), (off_t)s->length));
	return NULL;
}

TEST_TIMEOUT(a_file_that_shrinks_in_mid_pull_ends_it, 180)
{
	uint64_t len = very_slow() ? MIB(12) : MIB(48);
	struct shrinker s = { .length = len / 2 + 777 };
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_file f = { .size = sizeof(f), .path = "data", .length = len };
	struct strait_rdma_result res = { .size = sizeof(res) };
	struct strait_rdma_client *client;
	uint8_t *want, *have = malloc(len);
	pthread_t thread;

	rdma_address();
	make_file("data", len, 5);
	want = pattern_new(0, len, 5);
	s.server = rdma_serve_dir(ctx, test_dir(), 0, 0);
	client = rdma_client_new(ctx);
	f.region = rdma_memory(ctx, len, 0xa5);
	ASSERT_EQ(pthread_create(&thread, NULL, shrink, &s), 0);
	ASSERT_EQ(strait_rdma_pull(client, &f, &res), -ENODATA);
	pthread_join(thread, NULL);
	printf("%llu bytes, the file has %llu\n", (unsigned long long)res.bytes, (unsigned long long)s.length);
	/* What had been read before it shrank may be there. */
	ASSERT_GE(res.bytes, s.length);
	ASSERT_LT(res.bytes, len);
	ASSERT_OK(strait_region_copy_out(f.region, 0, have, len));
	ASSERT_MEMEQ(have, want, s.length);
	/* And the session goes on. */
	f.length = 4096;
	ASSERT_OK(strait_rdma_pull(client, &f, &res));
	free(want);
	free(have);
	strait_rdma_client_close(client);
	strait_rdma_server_close(s.server);
	strait_region_close(f.region);
	strait_context_close(ctx);
}

struct flood {
	struct strait_rdma_session *s;
	bool receives;
	atomic_uint sent;
};

static void *flood(void *arg)
{
	struct flood *v = arg;
	struct proto_request q = { .op = PROTO_OPEN, .path = "data" };
	uint8_t msg[STRAIT_RDMA_MESSAGE_MAX];
	size_t len = proto_put_request(&q, msg);
	char got[STRAIT_RDMA_MESSAGE_MAX];
	int rc;

	do {
		rc = strait_rdma_send(v->s, msg, len, 60 * SECOND);
		if (!rc && v->receives)
			rc = strait_rdma_recv(v->s, got, sizeof(got), 60 * SECOND) < 0;
		atomic_fetch_add(&v->sent, !rc);
	} while (!rc);
	return NULL;
}

/* One sends without end, another one also takes no replies, and a third does not even begin the handshake. */
TEST_TIMEOUT(no_client_keeps_a_server_from_being_closed, 120)
{
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct flood v[2] = { { .receives = true }, { .receives = false } };
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_session *silent;
	struct strait_rdma_server *server;
	pthread_t thread[2];
	uint64_t start;

	make_file("data", 1000, 5);
	server = rdma_serve_dir(ctx, test_dir(), 0, 0);
	for (unsigned int i = 0; i < 2; i++) {
		ASSERT_OK(strait_rdma_connect(ctx, &o, &v[i].s));
		ASSERT_EQ(pthread_create(&thread[i], NULL, flood, &v[i]), 0);
	}
	ASSERT_OK(session_new(&ctx->set, &o, &silent));
	session_lock(silent);
	ASSERT_OK(session_connect(silent, o.address, os_deadline(20 * SECOND)));
	pthread_mutex_unlock(&silent->lock);
	while (atomic_load(&v[0].sent) < 10 || atomic_load(&v[1].sent) < 64)
		usleep(10000);
	sleep(1);
	start = os_now_ns();
	strait_rdma_server_close(server);
	ASSERT_LT(os_now_ns() - start, SOON / 2);
	for (unsigned int i = 0; i < 2; i++) {
		pthread_join(thread[i], NULL);
		strait_rdma_close(v[i].s);
	}
	session_close(silent);
	strait_context_close(ctx);
}
