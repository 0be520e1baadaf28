/* SPDX-License-Identifier: MIT */
/* Sessions used by several threads at once, closed while they are used, and memory that goes away meanwhile. */
#include <sys/mman.h>

#include "endpoint/rdma/session.h"
#include "rdma.h"

TEST_PROGRAM_NEEDS(rdma_missing)

#define SECOND 1000000000ll
#define LEN MIB(1)
/* Less than every wait that a peer could prolong, on emulated processors, too. */
#define SOON (5ull * SECOND * test_slow())

struct rig {
	struct rdma_pair p;
	struct strait_region *far, *near; /* offered; of the initiator */
	struct strait_rdma_offer *offer;
	char text[STRAIT_RDMA_OFFER_TEXT];
};

static void offer_far(struct rig *r)
{
	ASSERT_OK(strait_rdma_offer(r->p.offers, r->far, 0, LEN, STRAIT_RDMA_PEER_WRITES | STRAIT_RDMA_PEER_READS,
				    STRAIT_FOREVER, &r->offer));
	ASSERT_OK(strait_rdma_offer_text(r->offer, r->text, NULL));
}

static void rig_open(struct rig *r)
{
	struct strait_device *host;

	rdma_pair_open(&r->p);
	r->far = rdma_memory(r->p.ctx, LEN, 0x11);
	ASSERT_OK(strait_device_find(r->p.ctx, "host", &host));
	ASSERT_OK(strait_region_alloc(host, LEN, &r->near));
	ASSERT_OK(strait_region_fill(r->near, 0, 0x22, LEN));
	offer_far(r);
}

static void rig_close(struct rig *r)
{
	strait_rdma_offer_close(r->offer);
	rdma_pair_close(&r->p);
	strait_region_close(r->near);
	strait_region_close(r->far);
}

static struct strait_rdma_info info_of(struct strait_rdma_session *s)
{
	struct strait_rdma_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_rdma_info(s, &info));
	return info;
}

static int post_write(struct rig *r, uint64_t len, int64_t timeout_ns, uint64_t *ticket)
{
	struct strait_rdma_request q = { .op = STRAIT_WRITE, .region = r->near, .offer = r->text, .length = len };

	return strait_rdma_post(r->p.initiates, &q, timeout_ns, ticket);
}

static int write_far(struct rig *r, uint64_t len)
{
	uint64_t ticket;
	int rc = post_write(r, len, 20 * SECOND, &ticket);

	return rc ? rc : strait_rdma_wait(r->p.initiates, ticket, 60 * SECOND);
}

/* A thread that waits for a message without a time limit, and what it gets. */
struct receiver {
	pthread_t thread;
	struct strait_rdma_session *s;
	char msg[STRAIT_RDMA_MESSAGE_MAX];
	ssize_t n;
};

static void *receive(void *arg)
{
	struct receiver *v = arg;

	v->n = strait_rdma_recv(v->s, v->msg, sizeof(v->msg), STRAIT_FOREVER);
	return NULL;
}

static void receiver_start(struct receiver *v, struct strait_rdma_session *s)
{
	v->s = s;
	ASSERT_EQ(pthread_create(&v->thread, NULL, receive, v), 0);
	usleep(200000);
}

static ssize_t receiver_end(struct receiver *v)
{
	ASSERT_EQ(pthread_join(v->thread, NULL), 0);
	return v->n;
}

TEST(a_receiver_delays_no_other_thread)
{
	struct strait_rdma_offer *second;
	struct receiver a, b;
	uint64_t start, ticket;
	char got[16];
	struct rig r;

	rig_open(&r);
	receiver_start(&a, r.p.offers);
	receiver_start(&b, r.p.initiates);
	start = os_now_ns();
	ASSERT_EQ(info_of(r.p.offers).error, 0);
	ASSERT_OK(strait_rdma_offer(r.p.offers, r.far, 0, 4096, STRAIT_RDMA_PEER_READS, STRAIT_FOREVER, &second));
	strait_rdma_offer_close(second);
	ASSERT_EQ(strait_rdma_recv(r.p.offers, got, sizeof(got), 0), -EAGAIN);
	ASSERT_EQ(strait_rdma_recv(r.p.offers, got, sizeof(got), SECOND / 10), -ETIMEDOUT);
	/* A wait for a request beside the wait for a message. */
	for (unsigned int i = 0; i < 20; i++) {
		ASSERT_OK(post_write(&r, 65536, SECOND, &ticket));
		ASSERT_OK(strait_rdma_wait(r.p.initiates, ticket, 60 * SECOND));
	}
	ASSERT_OK(strait_rdma_send(r.p.offers, "to b", 4, SECOND));
	ASSERT_EQ(receiver_end(&b), 4);
	ASSERT_OK(strait_rdma_send(r.p.initiates, "to a", 4, SECOND));
	ASSERT_EQ(receiver_end(&a), 4);
	ASSERT_MEMEQ(a.msg, "to a", 4);
	ASSERT_LT(os_now_ns() - start, 4 * SOON);
	rig_close(&r);
}

TEST(every_message_reaches_one_of_several_receivers)
{
	struct receiver v[3];
	unsigned int seen = 0;
	struct rdma_pair p;

	rdma_pair_open(&p);
	for (unsigned int i = 0; i < 3; i++)
		receiver_start(&v[i], p.offers);
	for (unsigned int i = 0; i < 3; i++)
		ASSERT_OK(strait_rdma_send(p.initiates, &(char){ (char)i }, 1, SECOND));
	for (unsigned int i = 0; i < 3; i++) {
		ASSERT_EQ(receiver_end(&v[i]), 1);
		seen |= 1u << v[i].msg[0];
	}
	ASSERT_EQ(seen, 7);
	rdma_pair_close(&p);
}

TEST(polling_sessions_are_shared_by_threads)
{
	struct strait_rdma_opts l = rdma_opts_of(STRAIT_RDMA_INITIATES), c = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct receiver v;
	uint8_t *bytes = malloc(LEN);
	struct rig r;

	l.flags = c.flags = STRAIT_RDMA_POLL;
	rdma_pair_open_with(&r.p, &l, &c);
	r.far = rdma_memory(r.p.ctx, LEN, 0x11);
	r.near = rdma_memory(r.p.ctx, LEN, 0x22);
	offer_far(&r);
	ASSERT_OK(write_far(&r, LEN));
	ASSERT_OK(strait_rdma_offer_flush(r.offer));
	ASSERT_OK(strait_region_copy_out(r.far, 0, bytes, LEN));
	for (uint64_t i = 0; i < LEN; i++)
		ASSERT_EQ(bytes[i], 0x22);
	free(bytes);
	receiver_start(&v, r.p.offers);
	ASSERT_EQ(info_of(r.p.offers).error, 0);
	ASSERT_OK(strait_rdma_send(r.p.initiates, "x", 1, 20 * SECOND));
	ASSERT_EQ(receiver_end(&v), 1);
	rig_close(&r);
}

static void *close_session(void *s)
{
	strait_rdma_close(s);
	return NULL;
}

TEST(closing_a_session_wakes_its_threads)
{
	struct receiver a, b;
	struct rdma_pair p;

	rdma_pair_open(&p);
	receiver_start(&a, p.offers);
	receiver_start(&b, p.offers);
	close_session(p.offers);
	p.offers = NULL;
	ASSERT_EQ(receiver_end(&a), -ECANCELED);
	ASSERT_EQ(receiver_end(&b), -ECANCELED);
	rdma_pair_close(&p);
}

TEST(a_cancelled_session_can_only_be_closed)
{
	struct receiver v;
	struct rig r;

	rig_open(&r);
	receiver_start(&v, r.p.offers);
	ASSERT_OK(strait_rdma_cancel(r.p.offers));
	ASSERT_EQ(receiver_end(&v), -ECANCELED);
	ASSERT_EQ(strait_rdma_send(r.p.offers, "x", 1, SECOND), -ECANCELED);
	/* And its memory is out of reach. */
	ASSERT_LT(write_far(&r, 4096), 0);
	rig_close(&r);
}

/* Fill the slots of both sides: the peer's application receives nothing. The number of messages. */
static unsigned int send_until_full(struct strait_rdma_session *s)
{
	for (unsigned int i = 0; i < 4 * CONTROL_SLOTS; i++) {
		int rc = strait_rdma_send(s, &i, sizeof(i), SECOND);

		if (rc) {
			ASSERT_EQ(rc, -ETIMEDOUT);
			return i;
		}
	}
	FAIL("messages are sent without a receiver");
}

TEST(a_send_that_timed_out_harms_no_session)
{
	unsigned int n, got;
	struct rdma_pair p;

	rdma_pair_open(&p);
	n = send_until_full(p.initiates);
	ASSERT_EQ(info_of(p.initiates).error, 0);
	for (unsigned int i = 0; i < n; i++) {
		ASSERT_EQ(strait_rdma_recv(p.offers, &got, sizeof(got), 20 * SECOND), sizeof(got));
		ASSERT_EQ(got, i);
	}
	ASSERT_OK(strait_rdma_send(p.initiates, &n, sizeof(n), 20 * SECOND));
	ASSERT_EQ(strait_rdma_recv(p.offers, &got, sizeof(got), 20 * SECOND), sizeof(got));
	ASSERT_EQ(got, n);
	rdma_pair_close(&p);
}

struct poster {
	struct rig *r;
	atomic_uint posted;
	int rc;
};

static void *post_until_error(void *arg)
{
	struct poster *v = arg;
	uint64_t ticket;

	do {
		v->rc = post_write(v->r, 65536, STRAIT_FOREVER, &ticket);
		atomic_fetch_add(&v->posted, 1);
	} while (!v->rc);
	return NULL;
}

/* The send queue is full behind messages that the peer does not take, and a thread waits for room in it. */
TEST(closing_a_region_waits_for_no_peer)
{
	struct poster v = { 0 };
	unsigned int before;
	pthread_t thread;
	uint64_t start;
	struct rig r;

	rig_open(&r);
	send_until_full(r.p.initiates);
	v.r = &r;
	ASSERT_EQ(pthread_create(&thread, NULL, post_until_error, &v), 0);
	do {
		before = atomic_load(&v.posted);
		usleep(500000);
	} while (atomic_load(&v.posted) != before);
	start = os_now_ns();
	strait_region_close(r.near);
	r.near = NULL;
	ASSERT_LT(os_now_ns() - start, SOON);
	pthread_join(thread, NULL);
	ASSERT_EQ(v.rc, -ENODEV);
	rig_close(&r);
}

static void fill_is(struct strait_region *r, uint8_t want)
{
	uint8_t *bytes = malloc(LEN);

	ASSERT_OK(strait_region_copy_out(r, 0, bytes, LEN));
	for (uint64_t i = 0; i < LEN; i++)
		ASSERT_EQ(bytes[i], want);
	free(bytes);
}

/* The queue pair is stopped and drained, then the memory deregistered, then freed: no write arrives in what is next there. */
TEST_TIMEOUT(memory_freed_in_mid_transfer_is_not_written_afterwards, 120)
{
	struct strait_rdma_info info;
	struct poster v = { 0 };
	struct strait_region *next;
	pthread_t thread;
	struct rig r;

	rig_open(&r);
	v.r = &r;
	ASSERT_EQ(pthread_create(&thread, NULL, post_until_error, &v), 0);
	while (atomic_load(&v.posted) < 50)
		usleep(10000);
	strait_region_close(r.far);
	r.far = NULL;
	next = rdma_memory(r.p.ctx, LEN, 0x77);
	ASSERT_EQ(info_of(r.p.offers).error, -ENODEV);
	ASSERT_EQ(info_of(r.p.offers).status, 0);
	pthread_join(thread, NULL);
	info = info_of(r.p.initiates);
	printf("the peer sees %s\n", strait_rdma_status_name(info.status));
	ASSERT_TRUE(!strncmp(strait_rdma_status_name(info.status), "IBV_WC_RE", 9));
	fill_is(next, 0x77);
	strait_region_close(next);
	rig_close(&r);
}

/* A registration pins the pages: memory that the application unmaps stays out of use until it is deregistered. */
TEST(memory_freed_behind_our_back_is_not_reused_before)
{
	struct strait_device *host;
	uint8_t *old, *next;
	struct rig r;

	rig_open(&r);
	strait_rdma_offer_close(r.offer);
	strait_region_close(r.far);
	old = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(old != MAP_FAILED);
	memset(old, 0x11, LEN);
	ASSERT_OK(strait_device_find(r.p.ctx, "host", &host));
	ASSERT_OK(strait_region_import(r.p.ctx, host, old, LEN, &r.far));
	offer_far(&r);
	ASSERT_OK(write_far(&r, LEN));
	ASSERT_EQ(old[LEN - 1], 0x22);
	ASSERT_OK(munmap(old, LEN));
	next = mmap(old, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	ASSERT_TRUE(next == old);
	memset(next, 0x77, LEN);
	/* The peer still writes the old pages, which have no other user. */
	for (unsigned int i = 0; i < 4; i++)
		ASSERT_OK(write_far(&r, LEN));
	for (uint64_t i = 0; i < LEN; i++)
		ASSERT_EQ(next[i], 0x77);
	strait_region_close(r.far);
	r.far = NULL;
	ASSERT_LT(write_far(&r, LEN), 0);
	for (uint64_t i = 0; i < LEN; i++)
		ASSERT_EQ(next[i], 0x77);
	rig_close(&r);
}

static void send_raw(struct strait_rdma_session *s, const void *msg, size_t len)
{
	session_lock(s);
	ASSERT_OK(qp_send(s, msg, len, os_deadline(20 * SECOND)));
	pthread_mutex_unlock(&s->lock);
}

/* What a peer may access ends with its first message that does not verify, whenever the application closes the session. */
TEST(a_message_that_does_not_verify_ends_all_offers)
{
	uint8_t msg[WIRE_MAX];
	char got[STRAIT_RDMA_MESSAGE_MAX];
	struct rig r;
	int n;

	rig_open(&r);
	ASSERT_OK(write_far(&r, 4096));
	session_lock(r.p.initiates);
	n = wire_seal(&r.p.initiates->send, WIRE_DATA, "hello", 5, msg);
	pthread_mutex_unlock(&r.p.initiates->lock);
	ASSERT_GT(n, 0);
	msg[n - 1] ^= 1;
	send_raw(r.p.initiates, msg, (size_t)n);
	n = (int)strait_rdma_recv(r.p.offers, got, sizeof(got), 20 * SECOND);
	ASSERT_TRUE(n == -EACCES || n == -EBADMSG);
	ASSERT_LT(write_far(&r, 4096), 0);
	ASSERT_NE(info_of(r.p.initiates).error, 0);
	rig_close(&r);
}

static void *close_offer(void *o)
{
	strait_rdma_offer_close(o);
	return NULL;
}

TEST_TIMEOUT(an_offer_and_its_session_are_closed_at_once, 120)
{
	for (unsigned int i = 0; i < (very_slow() ? 3 : 10); i++) {
		pthread_t thread;
		struct rig r;

		rig_open(&r);
		ASSERT_EQ(pthread_create(&thread, NULL, i % 2 ? close_offer : close_session,
					 i % 2 ? (void *)r.offer : (void *)r.p.offers),
			  0);
		if (i % 2)
			close_session(r.p.offers);
		else
			close_offer(r.offer);
		pthread_join(thread, NULL);
		r.offer = NULL;
		r.p.offers = NULL;
		rig_close(&r);
	}
}

static struct ibv_mr *kept;

static int refuse_to_deregister(struct ibv_mr *mr)
{
	kept = mr;
	return EBUSY;
}

/* Memory that the device does not deregister is out of the peer's reach all the same. */
TEST(a_device_that_does_not_deregister_ends_the_session)
{
	__typeof__(verbs.ibv_dereg_mr) real;
	struct rig r;

	rig_open(&r);
	real = verbs.ibv_dereg_mr;
	verbs.ibv_dereg_mr = refuse_to_deregister;
	strait_rdma_offer_close(r.offer);
	r.offer = NULL;
	verbs.ibv_dereg_mr = real;
	ASSERT_EQ(info_of(r.p.offers).error, -EIO);
	ASSERT_LT(write_far(&r, 4096), 0);
	ASSERT_EQ(verbs.ibv_dereg_mr(kept), 0);
	rig_close(&r);
}
