/* SPDX-License-Identifier: MIT */
/* Sessions, offers and requests: what is refused, and what a peer sees when memory or a peer goes away. */
#include "rdma.h"

#define SECOND 1000000000ll
#define LEN MIB(1)

static const char *status_of(struct strait_rdma_session *s)
{
	struct strait_rdma_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_rdma_info(s, &info));
	return strait_rdma_status_name(info.status);
}

static int error_of(struct strait_rdma_session *s)
{
	struct strait_rdma_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_rdma_info(s, &info));
	return info.error;
}

/* Needs no RDMA device. */
TEST(arguments_are_checked)
{
	struct strait_rdma_opts o = { .size = sizeof(o) };
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_listener *l;
	struct strait_rdma_session *s;
	struct strait_rdma_client *c;
	struct strait_rdma_offer *f;
	char text[512];
	uint64_t t;
	int rc;

	rc = strait_rdma_missing_reason(text, sizeof(text));
	ASSERT_TRUE(rc == -EEXIST ? !text[0] : rc == 0 && text[0]);
	ASSERT_STREQ(strait_rdma_kind_name(STRAIT_RDMA_DMABUF), "dma-buf");
	ASSERT_STREQ(strait_rdma_kind_name(99), "staged");
	ASSERT_STREQ(strait_rdma_status_name(12), "IBV_WC_RETRY_EXC_ERR");
	ASSERT_EQ(strait_rdma_nic(1000, &(struct strait_rdma_nic){ .size = sizeof(struct strait_rdma_nic) }), -ENOENT);
	ASSERT_EQ(strait_rdma_client_open(ctx, &o, &c), -EDESTADDRREQ);
	strait_rdma_close(NULL);
	strait_rdma_listener_close(NULL);
	strait_rdma_offer_close(NULL);
	strait_rdma_client_close(NULL);
	strait_rdma_server_close(NULL);
	if (strait_rdma_connect(ctx, &o, &s) == -EOPNOTSUPP)
		SKIP("this build has no RDMA");
	ASSERT_EQ(strait_rdma_connect(ctx, &o, &s), -EDESTADDRREQ);
	o.address = "127.0.0.1";
	rc = strait_rdma_listen(ctx, &o, &l); /* without a role */
	ASSERT_TRUE(rc == -EINVAL || rc == -EOPNOTSUPP);
	o.role = STRAIT_RDMA_OFFERS;
	o.key = "short";
	o.key_len = 5;
	rc = strait_rdma_listen(ctx, &o, &l);
	ASSERT_TRUE(rc == -EINVAL || rc == -EOPNOTSUPP);
	ASSERT_EQ(strait_rdma_accept(NULL, 0, &s), -EINVAL);
	ASSERT_EQ(strait_rdma_authenticate(NULL), -EINVAL);
	ASSERT_EQ(strait_rdma_send(NULL, "", 0, 0), -EINVAL);
	ASSERT_EQ(strait_rdma_recv(NULL, text, 1, 0), -EINVAL);
	ASSERT_EQ(strait_rdma_offer(NULL, NULL, 0, 1, 1, 1, &f), -EINVAL);
	ASSERT_EQ(strait_rdma_offer_text(NULL, text, NULL), -EINVAL);
	ASSERT_EQ(strait_rdma_offer_flush(NULL), -EINVAL);
	ASSERT_EQ(strait_rdma_region_flush(NULL), -EINVAL);
	ASSERT_EQ(strait_rdma_post(NULL, NULL, 0, &t), -EINVAL);
	ASSERT_EQ(strait_rdma_wait(NULL, 0, 0), -EINVAL);
	ASSERT_EQ(strait_rdma_probe(NULL, NULL, NULL), -EINVAL);
	strait_context_close(ctx);
}

TEST(messages_pass_both_ways)
{
	char big[STRAIT_RDMA_MESSAGE_MAX], got[STRAIT_RDMA_MESSAGE_MAX];
	struct rdma_pair p;

	rdma_pair_open(&p);
	ASSERT_EQ(strait_rdma_recv(p.offers, got, sizeof(got), 0), -EAGAIN);
	ASSERT_EQ(strait_rdma_recv(p.offers, got, sizeof(got), SECOND / 10), -ETIMEDOUT);
	memset(big, 7, sizeof(big));
	/* More than there are slots. */
	for (unsigned int i = 0; i < 150; i++) {
		big[0] = (char)i;
		ASSERT_OK(strait_rdma_send(p.offers, big, sizeof(big), 5 * SECOND));
		ASSERT_EQ(strait_rdma_recv(p.initiates, got, sizeof(got), 5 * SECOND), sizeof(big));
		ASSERT_MEMEQ(got, big, sizeof(big));
		ASSERT_OK(strait_rdma_send(p.initiates, &i, sizeof(i), 5 * SECOND));
		ASSERT_EQ(strait_rdma_recv(p.offers, got, sizeof(got), 5 * SECOND), sizeof(i));
	}
	ASSERT_EQ(strait_rdma_send(p.offers, big, sizeof(big) + 1, 0), -EMSGSIZE);
	rdma_pair_close(&p);
}

struct rig {
	struct rdma_pair p;
	struct strait_region *far, *near; /* offered; of the initiator */
	struct strait_rdma_offer *offer;
	char text[STRAIT_RDMA_OFFER_TEXT];
};

static void rig_open(struct rig *r, uint32_t rights)
{
	struct strait_rdma_reach reach = { .size = sizeof(reach) };
	struct strait_device *host;

	rdma_pair_open(&r->p);
	r->far = rdma_memory(r->p.ctx, LEN, 0x11);
	ASSERT_OK(strait_device_find(r->p.ctx, "host", &host));
	ASSERT_OK(strait_region_alloc(host, LEN, &r->near));
	ASSERT_OK(strait_region_fill(r->near, 0, 0x22, LEN));
	ASSERT_OK(strait_rdma_offer(r->p.offers, r->far, 4096, LEN - 8192, rights, STRAIT_FOREVER, &r->offer));
	ASSERT_OK(strait_rdma_offer_text(r->offer, r->text, &reach));
	ASSERT_NE(reach.kind, STRAIT_RDMA_NONE);
}

static void rig_close(struct rig *r)
{
	strait_rdma_offer_close(r->offer);
	rdma_pair_close(&r->p);
	strait_region_close(r->near);
	strait_region_close(r->far);
}

static int request(struct rig *r, uint32_t op, uint64_t off, uint64_t len)
{
	struct strait_rdma_request q = {
		.op = op, .region = r->near, .offer = r->text, .offer_offset = off, .length = len
	};
	uint64_t ticket;
	int rc = strait_rdma_post(r->p.initiates, &q, 5 * SECOND, &ticket);

	return rc ? rc : strait_rdma_wait(r->p.initiates, ticket, 60 * SECOND);
}

TEST(exactly_the_offered_bytes_are_written)
{
	uint8_t *bytes = malloc(LEN);
	struct rig r;

	rig_open(&r, STRAIT_RDMA_PEER_WRITES);
	ASSERT_OK(request(&r, STRAIT_WRITE, 100, 1000));
	ASSERT_OK(request(&r, STRAIT_WRITE, LEN - 8192 - 1, 1));
	ASSERT_OK(strait_rdma_offer_flush(r.offer));
	ASSERT_OK(strait_region_copy_out(r.far, 0, bytes, LEN));
	for (uint64_t i = 0; i < LEN; i++) {
		bool written = (i >= 4196 && i < 5196) || i == LEN - 4097;

		ASSERT_EQ(bytes[i], written ? 0x22 : 0x11);
	}
	free(bytes);
	rig_close(&r);
}

/* Writes of all lengths around the one up to which the bytes are in the request itself. */
TEST(short_writes_arrive)
{
	uint8_t want[600], have[600];
	struct rig r;

	rig_open(&r, STRAIT_RDMA_PEER_WRITES);
	for (uint64_t len = 1; len <= sizeof(want); len += len < 20 || (len > 230 && len < 260) ? 1 : 13) {
		prng_fill(want, sizeof(want), len);
		ASSERT_OK(strait_region_fill(r.far, 4096, 0x11, sizeof(have)));
		ASSERT_OK(strait_region_copy_in(r.near, 0, want, sizeof(want)));
		ASSERT_OK(request(&r, STRAIT_WRITE, 0, len));
		ASSERT_OK(strait_rdma_offer_flush(r.offer));
		ASSERT_OK(strait_region_copy_out(r.far, 4096, have, sizeof(have)));
		ASSERT_MEMEQ(have, want, len);
		for (uint64_t i = len; i < sizeof(have); i++)
			ASSERT_EQ(have[i], 0x11);
	}
	rig_close(&r);
}

TEST(a_request_outside_the_offer_is_not_posted)
{
	struct strait_rdma_info info = { .size = sizeof(info) };
	struct rig r;
	char good;

	rig_open(&r, STRAIT_RDMA_PEER_WRITES);
	ASSERT_EQ(request(&r, STRAIT_READ, 0, 1), -EPERM);
	ASSERT_EQ(request(&r, STRAIT_WRITE, LEN - 8192, 1), -EINVAL);
	ASSERT_EQ(request(&r, STRAIT_WRITE, UINT64_MAX, 2), -EINVAL);
	good = r.text[80];
	r.text[80] = good == '0' ? '1' : '0';
	ASSERT_EQ(request(&r, STRAIT_WRITE, 0, 1), -EACCES);
	r.text[80] = 'x';
	ASSERT_EQ(request(&r, STRAIT_WRITE, 0, 1), -EBADMSG);
	r.text[80] = good;
	/* The side that offers does not initiate, nor the other way round. */
	ASSERT_EQ(strait_rdma_offer(r.p.initiates, r.near, 0, 1, STRAIT_RDMA_PEER_READS, 1, &r.offer), -EPERM);
	ASSERT_OK(request(&r, STRAIT_WRITE, 0, 1));
	ASSERT_OK(strait_rdma_info(r.p.initiates, &info));
	ASSERT_EQ(info.bytes_written, 1);
	rig_close(&r);
}

TEST(an_offer_expires)
{
	struct strait_rdma_offer *soon;
	struct rig r;

	rig_open(&r, STRAIT_RDMA_PEER_WRITES);
	ASSERT_OK(strait_rdma_offer(r.p.offers, r.far, 0, 4096, STRAIT_RDMA_PEER_WRITES, SECOND / 2, &soon));
	ASSERT_OK(strait_rdma_offer_text(soon, r.text, NULL));
	usleep(1500000);
	ASSERT_EQ(request(&r, STRAIT_WRITE, 0, 1), -ESTALE);
	strait_rdma_offer_close(soon);
	rig_close(&r);
}

TEST(a_closed_offer_is_closed_to_the_peer)
{
	struct rig r;

	rig_open(&r, STRAIT_RDMA_PEER_WRITES);
	ASSERT_OK(request(&r, STRAIT_WRITE, 0, 4096));
	strait_rdma_offer_close(r.offer);
	r.offer = NULL;
	ASSERT_EQ(request(&r, STRAIT_WRITE, 0, 4096), -EIO);
	ASSERT_STREQ(status_of(r.p.initiates), "IBV_WC_REM_ACCESS_ERR");
	ASSERT_EQ(request(&r, STRAIT_WRITE, 0, 4096), -EIO);
	rig_close(&r);
}

/* The session is stopped and the memory deregistered before it is freed. */
TEST(freeing_offered_memory_stops_the_session)
{
	struct rig r;

	rig_open(&r, STRAIT_RDMA_PEER_WRITES | STRAIT_RDMA_PEER_READS);
	ASSERT_OK(request(&r, STRAIT_READ, 0, 65536));
	strait_region_close(r.far);
	r.far = NULL;
	ASSERT_EQ(error_of(r.p.offers), -ENODEV);
	ASSERT_LT(request(&r, STRAIT_WRITE, 0, 4096), 0);
	printf("the peer sees %s\n", status_of(r.p.initiates));
	ASSERT_TRUE(!strncmp(status_of(r.p.initiates), "IBV_WC_RE", 9));
	rig_close(&r);
}

/* Memory that no request in flight uses is deregistered without harm. */
TEST(freeing_idle_memory_of_the_initiator_is_harmless)
{
	struct strait_device *host;
	struct rig r;

	rig_open(&r, STRAIT_RDMA_PEER_WRITES);
	ASSERT_OK(request(&r, STRAIT_WRITE, 0, 65536));
	strait_region_close(r.near);
	ASSERT_OK(strait_device_find(r.p.ctx, "host", &host));
	ASSERT_OK(strait_region_alloc(host, LEN, &r.near));
	ASSERT_OK(request(&r, STRAIT_WRITE, 0, 65536));
	ASSERT_EQ(error_of(r.p.initiates), 0);
	rig_close(&r);
}

TEST(few_requests_are_signalled)
{
	struct strait_rdma_info info = { .size = sizeof(info) };
	struct strait_rdma_request q;
	uint64_t ticket = 0;
	struct rig r;

	rig_open(&r, STRAIT_RDMA_PEER_WRITES);
	q = (struct strait_rdma_request){ .op = STRAIT_WRITE, .region = r.near, .offer = r.text, .length = 4096 };
	for (unsigned int i = 0; i < 640; i++)
		ASSERT_OK(strait_rdma_post(r.p.initiates, &q, 20 * SECOND, &ticket));
	ASSERT_OK(strait_rdma_wait(r.p.initiates, ticket, 60 * SECOND));
	ASSERT_OK(strait_rdma_info(r.p.initiates, &info));
	ASSERT_GE(info.requests, 640);
	/* One more may complete what the last signalled one does not. */
	ASSERT_LE(info.signalled, info.requests / 16 + 1);
	ASSERT_EQ(info.registrations, 1);
	rig_close(&r);
}

/* A child may use RDMA only if its parent had not. */
TEST(a_forked_child_is_told)
{
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_rdma_session *s;
	struct rdma_pair p;
	int status;
	pid_t child;

	rdma_pair_open(&p);
	child = fork();
	ASSERT_OK(child);
	if (!child)
		_exit(strait_rdma_connect(context_new(NULL), &o, &s) == -EOWNERDEAD &&
				      strait_rdma_send(p.offers, "x", 1, 0) == -EOWNERDEAD ?
			      0 :
			      1);
	ASSERT_EQ(waitpid(child, &status, 0), child);
	ASSERT_EQ(status, 0);
	ASSERT_OK(strait_rdma_send(p.offers, "x", 1, SECOND));
	rdma_pair_close(&p);
}

TEST(half_open_connections_are_bounded)
{
	struct strait_rdma_opts l = rdma_opts_of(STRAIT_RDMA_INITIATES), c = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_context *ctx = context_new(NULL);
	struct strait_rdma_session *half[3], *s;
	struct strait_rdma_listener *listener;
	struct rdma_child child[3];
	int status, refused = 0;

	/* Clients in other processes: each waits for an answer, or is refused. */
	for (unsigned int i = 0; i < 3; i++) {
		if (rdma_child_make(&child[i]))
			continue;
		c.timeout_ns = (uint64_t)(3 * SECOND * test_slow());
		_exit(strait_rdma_connect(context_new(NULL), &c, &s) == -ECONNREFUSED ? 7 : 0);
	}
	l.half_open = 2;
	ASSERT_OK(strait_rdma_listen(ctx, &l, &listener));
	for (unsigned int i = 0; i < 3; i++)
		rdma_child_start(&child[i]);
	ASSERT_OK(strait_rdma_accept(listener, 20 * SECOND, &half[0]));
	ASSERT_OK(strait_rdma_accept(listener, 20 * SECOND, &half[1]));
	ASSERT_EQ(strait_rdma_accept(listener, 3 * SECOND, &half[2]), -ETIMEDOUT);
	ASSERT_EQ(strait_rdma_send(half[0], "x", 1, 0), -EINVAL); /* not authenticated */
	for (unsigned int i = 0; i < 3; i++) {
		if (i == 1) {
			strait_rdma_close(half[0]);
			strait_rdma_close(half[1]);
		}
		refused += waitpid(child[i].pid, &status, i ? 0 : WNOHANG) > 0 && WIFEXITED(status) &&
			   WEXITSTATUS(status) == 7;
	}
	/* The third at once, the others when their sessions were closed. */
	ASSERT_GE(refused, 1);
	strait_rdma_listener_close(listener);
	strait_context_close(ctx);
}
