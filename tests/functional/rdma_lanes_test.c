/* SPDX-License-Identifier: MIT */
/* Sessions with several queue pairs: how many, which bytes, one that fails, and peers that agree on them wrongly. */
#include "endpoint/rdma/mac.h"
#include "endpoint/rdma/session.h"
#include "engine/engine.h"
#include "rdma.h"
#include "service/rdma_client.h"

TEST_PROGRAM_NEEDS(rdma_missing)

#define SECOND 1000000000ll
#define LEN MIB(4)

struct rig {
	struct rdma_pair p;
	struct strait_region *far, *near; /* offered; of the initiator */
	struct strait_rdma_offer *offer;
	char text[STRAIT_RDMA_OFFER_TEXT];
};

static uint32_t queue_pairs_of(struct strait_rdma_session *s)
{
	struct strait_rdma_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_rdma_info(s, &info));
	return info.queue_pairs;
}

static void pair_open(struct rdma_pair *p, uint32_t initiates, uint32_t offers)
{
	struct strait_rdma_opts l = rdma_opts_of(STRAIT_RDMA_INITIATES), c = rdma_opts_of(STRAIT_RDMA_OFFERS);

	l.queue_pairs = initiates;
	c.queue_pairs = offers;
	rdma_pair_open_with(p, &l, &c);
}

static void rig_open(struct rig *r, uint32_t lanes)
{
	pair_open(&r->p, lanes, lanes);
	ASSERT_EQ(queue_pairs_of(r->p.initiates), lanes);
	r->far = rdma_memory(r->p.ctx, LEN, 0x11);
	r->near = rdma_memory(r->p.ctx, LEN, 0x22);
	ASSERT_OK(strait_rdma_offer(r->p.offers, r->far, 0, LEN, STRAIT_RDMA_PEER_WRITES | STRAIT_RDMA_PEER_READS,
				    STRAIT_FOREVER, &r->offer));
	ASSERT_OK(strait_rdma_offer_text(r->offer, r->text, NULL));
}

static void rig_close(struct rig *r)
{
	strait_rdma_offer_close(r->offer);
	rdma_pair_close(&r->p);
	strait_region_close(r->near);
	strait_region_close(r->far);
}

static int post(struct rig *r, uint32_t op, uint64_t near, uint64_t far, uint64_t len, uint64_t *ticket)
{
	struct strait_rdma_request q = {
		.op = op, .region = r->near, .region_offset = near, .offer = r->text, .offer_offset = far, .length = len
	};

	return strait_rdma_post(r->p.initiates, &q, 60 * SECOND, ticket);
}

static const struct agreed {
	const char *name;
	uint32_t initiates, offers, want;
} numbers[] = {
	{ "default", 0, 0, 1 },	 { "only one side", 4, 0, 1 },		{ "the listener has less", 2, 8, 2 },
	{ "the most", 8, 8, 8 }, { "the connector has less", 5, 3, 3 },
};

TEST_VARIANTS(a_session_has_the_smaller_number_of_both_sides, struct agreed, numbers)
{
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_rdma_listener *l;
	struct rdma_pair p;
	char got[16];

	pair_open(&p, v->initiates, v->offers);
	ASSERT_EQ(queue_pairs_of(p.initiates), v->want);
	ASSERT_EQ(queue_pairs_of(p.offers), v->want);
	ASSERT_OK(strait_rdma_send(p.offers, "hello", 5, SECOND));
	ASSERT_EQ(strait_rdma_recv(p.initiates, got, sizeof(got), 20 * SECOND), 5);
	o.queue_pairs = STRAIT_RDMA_QUEUE_PAIRS_MAX + 1;
	ASSERT_EQ(strait_rdma_listen(p.ctx, &o, &l), -EINVAL);
	rdma_pair_close(&p);
}

static __typeof__(verbs.ibv_create_qp) real_create;

/* Three on each side: the sides are threads. */
static struct ibv_qp *create_few(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static _Thread_local unsigned int made;

	if (made++ < 3)
		return real_create(pd, attr);
	errno = ENOMEM;
	return NULL;
}

TEST(a_device_without_more_queue_pairs_has_fewer)
{
	char why[256];
	struct rig r;
	uint64_t ticket;

	ASSERT_OK(verbs_load(why, sizeof(why)));
	real_create = verbs.ibv_create_qp;
	verbs.ibv_create_qp = create_few;
	pair_open(&r.p, 8, 8);
	verbs.ibv_create_qp = real_create;
	ASSERT_EQ(queue_pairs_of(r.p.initiates), 4);
	ASSERT_EQ(queue_pairs_of(r.p.offers), 4);
	rdma_pair_close(&r.p);
	rig_open(&r, 8);
	ASSERT_OK(post(&r, STRAIT_WRITE, 0, 0, LEN, &ticket));
	ASSERT_OK(strait_rdma_wait(r.p.initiates, ticket, 60 * SECOND));
	rig_close(&r);
}

#define PARTS 32u
#define PART (LEN / PARTS)

/* The parts of a region in random order, a random range of each: written, and read back to where they were not. */
TEST_TIMEOUT(requests_in_flight_on_several_queue_pairs_are_exact, 120)
{
	uint8_t *want = pattern_new(0, LEN, 4), *far = malloc(LEN), *have = malloc(LEN);
	struct strait_rdma_info info = { .size = sizeof(info) };
	uint64_t state = 8, ticket[PARTS];
	struct rig r;

	rig_open(&r, 4);
	ASSERT_OK(strait_region_copy_in(r.near, 0, want, LEN));
	memset(far, 0x11, LEN);
	for (unsigned int i = 0; i < PARTS; i++) {
		uint64_t len = 1 + prng_below(&state, PART), from = prng_below(&state, LEN - len);
		uint64_t to = (i * 7 % PARTS) * PART + prng_below(&state, PART - len + 1);

		ASSERT_OK(post(&r, STRAIT_WRITE, from, to, len, &ticket[i]));
		memcpy(far + to, want + from, len);
	}
	ASSERT_OK(strait_rdma_wait(r.p.initiates, ticket[PARTS - 1], 60 * SECOND));
	for (unsigned int i = 0; i < PARTS; i++)
		ASSERT_OK(strait_rdma_wait(r.p.initiates, ticket[i], 0));
	ASSERT_OK(strait_rdma_offer_flush(r.offer));
	ASSERT_OK(strait_region_copy_out(r.far, 0, have, LEN));
	ASSERT_MEMEQ(have, far, LEN);
	for (unsigned int i = 0; i < PARTS; i++) {
		uint64_t at = (i * 5 % PARTS) * PART;

		ASSERT_OK(post(&r, STRAIT_READ, at, LEN - PART - at, PART, &ticket[i]));
		memcpy(want + at, far + LEN - PART - at, PART);
	}
	ASSERT_OK(strait_rdma_wait(r.p.initiates, ticket[PARTS - 1], 60 * SECOND));
	ASSERT_OK(strait_region_copy_out(r.near, 0, have, LEN));
	ASSERT_MEMEQ(have, want, LEN);
	ASSERT_OK(strait_rdma_info(r.p.initiates, &info));
	ASSERT_EQ(info.registrations, 1);
	for (uint32_t i = 0; i < 4; i++)
		ASSERT_GE(r.p.initiates->lane[i].posted, SIGNAL_EVERY);
	free(want);
	free(far);
	free(have);
	rig_close(&r);
}

static void stop_lane(struct strait_rdma_session *s, uint32_t i)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	session_lock(s);
	ASSERT_LT(i, s->lanes);
	ASSERT_EQ(verbs.ibv_modify_qp(s->lane[i].qp, &attr, IBV_QP_STATE), 0);
	pthread_mutex_unlock(&s->lock);
}

TEST_TIMEOUT(the_failure_of_a_queue_pair_ends_the_session, 120)
{
	struct strait_rdma_info info = { .size = sizeof(info) };
	uint64_t ticket;
	struct rig r;
	int rc;

	rig_open(&r, 4);
	ASSERT_OK(post(&r, STRAIT_WRITE, 0, 0, LEN, &ticket));
	ASSERT_OK(strait_rdma_wait(r.p.initiates, ticket, 60 * SECOND));
	stop_lane(r.p.offers, 2);
	rc = post(&r, STRAIT_WRITE, 0, 0, LEN, &ticket);
	if (!rc)
		rc = strait_rdma_wait(r.p.initiates, ticket, 60 * SECOND);
	ASSERT_EQ(rc, -EIO);
	ASSERT_OK(strait_rdma_info(r.p.initiates, &info));
	printf("%s\n", strait_rdma_status_name(info.status));
	ASSERT_TRUE(!strncmp(strait_rdma_status_name(info.status), "IBV_WC_RE", 9));
	/* No queue pair of it is used any more, messages included. */
	ASSERT_EQ(post(&r, STRAIT_WRITE, 0, 0, 1, &ticket), -EIO);
	ASSERT_EQ(strait_rdma_send(r.p.initiates, "x", 1, SECOND), -EIO);
	rig_close(&r);
}

struct breaker {
	struct strait_rdma_server *server;
	struct strait_rdma_client *client;
};

static void *break_a_lane(void *arg)
{
	struct strait_rdma_server_info info = { .size = sizeof(info) };
	struct breaker *v = arg;

	while (!strait_rdma_server_info(v->server, &info) && info.bytes_out < MIB(6))
		usleep(1000);
	stop_lane(v->client->session, 1);
	return NULL;
}

TEST_TIMEOUT(a_pull_is_resumed_after_the_failure_of_a_queue_pair, 240)
{
	uint64_t len = very_slow() ? MIB(12) : MIB(40);
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS), so = rdma_opts_of(STRAIT_RDMA_INITIATES);
	struct strait_rdma_server_opts sv = { .size = sizeof(sv), .session = &so, .root = test_dir() };
	struct strait_rdma_file f = { .size = sizeof(f), .path = "data", .length = len, .retries = 5 };
	struct strait_rdma_result res = { .size = sizeof(res) };
	uint8_t *want = pattern_new(0, len, 5), *have = malloc(len);
	struct strait_context *ctx = context_new(NULL);
	struct breaker b;
	pthread_t thread;

	make_file("data", len, 5);
	o.queue_pairs = so.queue_pairs = 4;
	so.ack_timeout = 16;
	ASSERT_OK(strait_rdma_serve(ctx, &sv, &b.server));
	ASSERT_OK(strait_rdma_client_open(ctx, &o, &b.client));
	f.region = rdma_memory(ctx, len, 0);
	ASSERT_EQ(pthread_create(&thread, NULL, break_a_lane, &b), 0);
	ASSERT_OK(strait_rdma_pull(b.client, &f, &res));
	pthread_join(thread, NULL);
	ASSERT_GE(res.reconnects, 1);
	ASSERT_EQ(res.bytes, len);
	ASSERT_OK(strait_region_copy_out(f.region, 0, have, len));
	ASSERT_MEMEQ(have, want, len);
	free(want);
	free(have);
	strait_rdma_client_close(b.client);
	strait_rdma_server_close(b.server);
	strait_region_close(f.region);
	strait_context_close(ctx);
}

/* Writes to all queue pairs but the first are held back for a while. */
static struct {
	int (*post)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	pthread_mutex_t lock;
	struct {
		struct ibv_qp *qp;
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		uint64_t due;
	} held[4096];
	unsigned int first, n;
	atomic_bool stop;
} late = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int post_late(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	unsigned int at;

	if (!WR_LANE(wr->wr_id) || wr->opcode != IBV_WR_RDMA_WRITE)
		return late.post(qp, wr, bad);
	pthread_mutex_lock(&late.lock);
	at = (late.first + late.n++) % ARRAY_SIZE(late.held);
	late.held[at].qp = qp;
	late.held[at].wr = *wr;
	late.held[at].due = os_now_ns() + 300000000;
	if (wr->num_sge) {
		late.held[at].sge = *wr->sg_list;
		late.held[at].wr.sg_list = &late.held[at].sge;
	}
	pthread_mutex_unlock(&late.lock);
	return 0;
}

static void *post_held(void *arg)
{
	struct ibv_send_wr *bad;

	while (!atomic_load(&late.stop)) {
		pthread_mutex_lock(&late.lock);
		while (late.n && late.held[late.first].due <= os_now_ns()) {
			late.post(late.held[late.first].qp, &late.held[late.first].wr, &bad);
			late.first = (late.first + 1) % ARRAY_SIZE(late.held);
			late.n--;
		}
		pthread_mutex_unlock(&late.lock);
		usleep(5000);
	}
	return NULL;
}

/* Messages go to the first queue pair, which is faster here than the bytes on the others. */
TEST_TIMEOUT(a_server_replies_after_the_bytes, 120)
{
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS), so = rdma_opts_of(STRAIT_RDMA_INITIATES);
	struct strait_rdma_server_opts sv = { .size = sizeof(sv), .session = &so, .root = test_dir() };
	struct strait_rdma_file f = { .size = sizeof(f), .path = "data", .length = MIB(5) };
	struct strait_rdma_result res = { .size = sizeof(res) };
	uint8_t *want = pattern_new(0, MIB(5), 5), *have = malloc(MIB(5));
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_server *server;
	struct strait_rdma_client *client;
	struct ibv_context *device;
	pthread_t thread;

	make_file("data", MIB(5), 5);
	o.queue_pairs = so.queue_pairs = 3;
	ASSERT_OK(strait_rdma_serve(ctx, &sv, &server));
	ASSERT_OK(strait_rdma_client_open(ctx, &o, &client));
	f.region = rdma_memory(ctx, f.length, 0);
	device = client->session->id->verbs;
	late.post = device->ops.post_send;
	ASSERT_EQ(pthread_create(&thread, NULL, post_held, NULL), 0);
	device->ops.post_send = post_late;
	for (unsigned int i = 0; i < 2; i++) {
		ASSERT_OK(strait_region_fill(f.region, 0, 0xa5, f.length));
		ASSERT_OK(strait_rdma_pull(client, &f, &res));
		ASSERT_OK(strait_region_copy_out(f.region, 0, have, f.length));
		ASSERT_MEMEQ(have, want, f.length);
	}
	/* A range past the end: its bytes and the length of the rest. */
	f.length = MIB(1);
	f.file_offset = MIB(5) - 1000;
	ASSERT_OK(strait_region_fill(f.region, 0, 0xa5, f.length));
	ASSERT_EQ(strait_rdma_pull(client, &f, &res), -ENODATA);
	ASSERT_EQ(res.bytes, 1000);
	ASSERT_OK(strait_region_copy_out(f.region, 0, have, 1001));
	ASSERT_MEMEQ(have, want + MIB(5) - 1000, 1000);
	ASSERT_EQ(have[1000], 0xa5);
	device->ops.post_send = late.post;
	strait_rdma_client_close(client);
	strait_rdma_server_close(server);
	atomic_store(&late.stop, true);
	pthread_join(thread, NULL);
	free(want);
	free(have);
	strait_region_close(f.region);
	strait_context_close(ctx);
}

/* The handshake as a peer does it that has the key: what follows is the test's to decide. With the session's lock held. */
static void authenticate_by_hand(struct strait_rdma_session *s, bool listener)
{
	uint64_t deadline = os_deadline(20 * SECOND);
	uint8_t out[WIRE_MAX], nonce[HS_NONCE];
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct handshake hs;
	struct hs_view view;
	const uint8_t *msg;
	size_t len;
	int n;

	prng_fill(nonce, sizeof(nonce), listener ? 3 : 4);
	ASSERT_EQ(verbs.ibv_query_qp(s->lane[0].qp, &attr, IBV_QP_DEST_QPN | IBV_QP_AV, &init), 0);
	address_encode(rdma_get_local_addr(s->id), view.local);
	address_encode(rdma_get_peer_addr(s->id), view.peer);
	view.local_qp = s->lane[0].qp->qp_num;
	view.peer_qp = attr.dest_qp_num;
	ASSERT_OK(hs_init(&hs, mac_hmac, listener, s->opts.role, s->opts.key, s->opts.key_len, &view, nonce));
	if (!listener) {
		n = hs_begin(&hs, out);
		ASSERT_OK(qp_send(s, out, (size_t)n, deadline));
	}
	while (hs.state != HS_DONE) {
		ASSERT_OK(qp_recv(s, deadline, &msg, &len));
		ASSERT_OK(hs_input(&hs, msg, len, out, &len));
		if (len)
			ASSERT_OK(qp_send(s, out, len, deadline));
		ASSERT_OK(qp_release(s));
	}
	s->send = hs.send;
	s->recv = hs.recv;
}

static const struct wrong {
	const char *name;
	enum wire_type type[2];
	struct {
		uint8_t data[WIRE_LANES_BYTES + 8];
		size_t len;
	} payload[2];
	int want;
} wrongs[] = {
	{ "a message of the application", { WIRE_DATA }, { { { 0 }, 1 } }, -EPROTO },
	{ "nothing", { WIRE_LANES }, { { { 0 }, 0 } }, -EBADMSG },
	{ "more than there can be", { WIRE_LANES }, { { { 8, 1, [9] = 1 }, 65 } }, -EBADMSG },
	{ "fewer than it says", { WIRE_LANES }, { { { 2, 9 }, 9 } }, -EBADMSG },
	{ "bytes after it", { WIRE_LANES }, { { { 1, 9 }, 10 } }, -EBADMSG },
	{ "a queue pair of 0", { WIRE_LANES }, { { { 1 }, 9 } }, -EBADMSG },
	{ "a queue pair of more than 24 bits", { WIRE_LANES }, { { { 1, 1, 0, 0, 1 }, 9 } }, -EBADMSG },
	{ "not ready", { WIRE_LANES, WIRE_LANES }, { { { 1, 9 }, 9 }, { { 1, 9 }, 9 } }, -EPROTO },
	{ "ready with more", { WIRE_LANES, WIRE_READY }, { { { 1, 9 }, 9 }, { { 0 }, 40 } }, -EBADMSG },
	{ "never ready", { WIRE_LANES }, { { { 1, 9 }, 9 } }, -ETIMEDOUT },
};

struct listening {
	struct strait_rdma_listener *l;
	struct strait_rdma_session *s;
	int rc;
};

static void *authenticate(void *arg)
{
	struct listening *v = arg;

	ASSERT_OK(strait_rdma_accept(v->l, 20 * SECOND * test_slow(), &v->s));
	v->rc = strait_rdma_authenticate(v->s);
	return NULL;
}

TEST_VARIANTS(a_connector_that_agrees_wrongly_is_refused, struct wrong, wrongs)
{
	struct strait_rdma_opts l = rdma_opts_of(STRAIT_RDMA_INITIATES), c = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_session *s;
	struct listening side;
	pthread_t thread;

	l.queue_pairs = c.queue_pairs = 4;
	l.timeout_ns = (uint64_t)(3 * SECOND * test_slow());
	ASSERT_OK(strait_rdma_listen(ctx, &l, &side.l));
	ASSERT_EQ(pthread_create(&thread, NULL, authenticate, &side), 0);
	ASSERT_OK(session_new(&ctx->set, &c, &s));
	session_lock(s);
	ASSERT_OK(session_connect(s, c.address, os_deadline(20 * SECOND)));
	authenticate_by_hand(s, false);
	for (unsigned int i = 0; i < 2 && v->type[i]; i++)
		ASSERT_OK(message_send_type(s, v->type[i], v->payload[i].data, v->payload[i].len,
					    os_deadline(20 * SECOND)));
	pthread_mutex_unlock(&s->lock);
	pthread_join(thread, NULL);
	ASSERT_EQ(side.rc, v->want);
	ASSERT_EQ(strait_rdma_send(side.s, "x", 1, 0), v->want);
	strait_rdma_close(side.s);
	session_close(s);
	strait_rdma_listener_close(side.l);
	strait_context_close(ctx);
}

static void *answer_with_more(void *arg)
{
	uint8_t lanes[WIRE_LANES_BYTES] = { 3, 9, [9] = 9, [17] = 9 }, asked[WIRE_LANES_BYTES];
	struct listening *v = arg;
	struct strait_rdma_session *s;

	ASSERT_OK(strait_rdma_accept(v->l, 20 * SECOND * test_slow(), &s));
	session_lock(s);
	ASSERT_OK(session_connect(s, NULL, os_deadline(20 * SECOND)));
	authenticate_by_hand(s, true);
	ASSERT_EQ(message_recv_type(s, WIRE_LANES, asked, sizeof(asked), os_deadline(20 * SECOND)), 9);
	ASSERT_OK(message_send_type(s, WIRE_LANES, lanes, 25, os_deadline(20 * SECOND)));
	pthread_mutex_unlock(&s->lock);
	v->s = s;
	return NULL;
}

TEST(a_listener_that_agrees_to_more_than_was_asked_is_refused)
{
	struct strait_rdma_opts l = rdma_opts_of(STRAIT_RDMA_INITIATES), c = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_session *s;
	struct listening side;
	pthread_t thread;

	c.queue_pairs = 2;
	ASSERT_OK(strait_rdma_listen(ctx, &l, &side.l));
	ASSERT_EQ(pthread_create(&thread, NULL, answer_with_more, &side), 0);
	ASSERT_EQ(strait_rdma_connect(ctx, &c, &s), -EPROTO);
	pthread_join(thread, NULL);
	strait_rdma_close(side.s);
	strait_rdma_listener_close(side.l);
	strait_context_close(ctx);
}
