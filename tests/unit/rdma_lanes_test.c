/* SPDX-License-Identifier: MIT */
/*
 * Requests spread over several queue pairs, against a model of the RDMA device: queue pairs complete in their own order and
 * at their own speed, in the order that a generator of random numbers decides.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/rdma/session.h"
#include "harness/harness.h"
#include "os/os.h"

#define NUMBERS 65536u

/* A queue pair of the model. Requests are numbered from 1. */
struct model_lane {
	struct ibv_qp qp;
	uint64_t posted, done;	   /* done: the device has carried it out */
	uint64_t reported, polled; /* last one with a completion; last one whose completion was taken */
	bool signalled[NUMBERS];   /* by number, modulo */
	unsigned int speed;	   /* of 16 chances to complete a request, so many are used */
};

static struct model {
	struct strait_rdma_session *s;
	struct ibv_context ctx;
	struct ibv_cq cq;
	struct ibv_mr mr;
	struct model_lane lane[LANES_MAX];
	uint64_t state;
	uint32_t last_lane; /* of the last request */
	bool fails;	    /* the next completion */
} m;

static int model_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	uint32_t i = qp->qp_num;
	struct model_lane *l = &m.lane[i];

	ASSERT_EQ(WR_LANE(wr->wr_id), i);
	ASSERT_EQ(WR_NUMBER(wr->wr_id), l->posted + 1);
	/* A request that was not reported has its entry in the queue. */
	ASSERT_LT(l->posted - l->polled, m.s->opts.depth);
	if (wr->opcode == IBV_WR_SEND)
		ASSERT_EQ(i, 0);
	l->posted++;
	l->signalled[l->posted % NUMBERS] = wr->send_flags & IBV_SEND_SIGNALED;
	m.last_lane = i;
	return 0;
}

/* The device carries out some requests, and reports some of those that are signalled. */
static int model_poll(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	int n = 0;

	for (unsigned int k = 0; k < 16; k++) {
		struct model_lane *l = &m.lane[prng_below(&m.state, m.s->lanes)];

		if (l->done < l->posted && prng_below(&m.state, 16) < l->speed)
			l->done++;
	}
	for (uint32_t i = 0; i < m.s->lanes && n < room; i++) {
		struct model_lane *l = &m.lane[i];

		while (l->reported < l->done && n < room && prng_below(&m.state, 4)) {
			l->reported++;
			if (!l->signalled[l->reported % NUMBERS] && !m.fails)
				continue;
			l->polled = l->reported;
			wc[n++] = (struct ibv_wc){ .wr_id = WR_ID(i, l->reported),
						   .status = m.fails ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS };
			m.fails = false;
		}
	}
	return n;
}

static int no_event(struct rdma_event_channel *channel, struct rdma_cm_event **e)
{
	errno = EAGAIN;
	return -1;
}

static unsigned int stopped; /* queue pairs that were put into the error state */

static int model_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	stopped += attr->qp_state == IBV_QPS_ERR;
	return 0;
}

static void model_open(uint32_t lanes, uint32_t depth, uint64_t seed)
{
	struct strait_rdma_session *s = calloc(1, sizeof(*s));

	memset(&m, 0, sizeof(m));
	stopped = 0;
	m.s = s;
	m.state = seed;
	m.ctx.ops.post_send = model_post;
	m.ctx.ops.poll_cq = model_poll;
	m.cq.context = &m.ctx;
	verbs.rdma_get_cm_event = no_event;
	verbs.ibv_modify_qp = model_modify;
	for (uint32_t i = 0; i < lanes; i++) {
		m.lane[i].qp = (struct ibv_qp){ .context = &m.ctx, .qp_num = i };
		m.lane[i].speed = 1 + (unsigned int)prng_below(&m.state, 16);
		s->lane[i].qp = &m.lane[i].qp;
	}
	s->lanes = lanes;
	s->cq = &m.cq;
	s->opts.depth = depth;
	s->opts.queue_pairs = lanes;
	s->opts.flags = STRAIT_RDMA_POLL;
	s->control = calloc(2 * CONTROL_SLOTS, WIRE_MAX);
	s->control_mr = &m.mr;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	ASSERT_OK(os_event_fd(&s->wake));
	ASSERT_OK(qp_alloc_order(s));
	pthread_mutex_lock(&s->lock);
}

static void model_close(void)
{
	pthread_mutex_unlock(&m.s->lock);
	os_close(m.s->wake);
	pthread_cond_destroy(&m.s->changed);
	pthread_mutex_destroy(&m.s->lock);
	free(m.s->control);
	free(m.s->order);
	free(m.s);
}

/* Where the test's tickets went. */
struct placed {
	uint32_t lane;
	uint64_t number;
};

static void post(struct placed *at, bool awaited)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = awaited ? IBV_SEND_SIGNALED : 0 };

	ASSERT_FALSE(qp_is_full(m.s));
	ASSERT_EQ(qp_post(m.s, &wr), 0);
	*at = (struct placed){ m.last_lane, m.lane[m.last_lane].posted };
}

/* All requests up to @ticket have been carried out. */
static void is_complete(const struct placed *at, uint64_t from, uint64_t ticket)
{
	for (uint64_t t = from; t <= ticket; t++)
		ASSERT_LE(at[t].number, m.lane[at[t].lane].done);
}

static const struct shape {
	const char *name;
	uint32_t lanes, depth;
} shapes[] = {
	{ "1 of 32", 1, 32 }, { "1 of 256", 1, 256 }, { "2 of 32", 2, 32 },
	{ "3 of 40", 3, 40 }, { "4 of 256", 4, 256 }, { "8 of 64", 8, 64 },
};

#define TICKETS 20000u

TEST_VARIANTS(requests_complete_in_the_order_of_their_tickets, struct shape, shapes)
{
	struct placed *at = calloc(TICKETS + 1, sizeof(*at));
	uint64_t posted = 0, complete = 0, seed = 7;

	model_open(v->lanes, v->depth, v->lanes * 1000 + v->depth);
	while (posted < TICKETS) {
		uint64_t burst = min_u64(1 + prng_below(&seed, 2 * v->depth), TICKETS - posted), ticket;
		int rc;

		switch (prng_below(&seed, 8)) {
		case 0:
			ASSERT_EQ(qp_send(m.s, "message", 7, UINT64_MAX), 0);
			break;
		case 1:
		case 2:
			ticket = prng_below(&seed, posted + 1);
			ASSERT_EQ(qp_wait(m.s, ticket, UINT64_MAX), 0);
			if (ticket > complete) {
				is_complete(at, complete + 1, ticket);
				complete = ticket;
			}
			break;
		case 3:
			ticket = prng_below(&seed, posted + 1);
			rc = qp_wait(m.s, ticket, 0);
			ASSERT_TRUE(rc == 0 || rc == -ETIMEDOUT);
			if (!rc && ticket > complete) {
				is_complete(at, complete + 1, ticket);
				complete = ticket;
			}
			break;
		default:
			while (burst) {
				ASSERT_EQ(qp_post_room(m.s, burst, UINT64_MAX), 0);
				do
					post(&at[++posted], burst == 1 && prng_below(&seed, 2));
				while (--burst && !qp_is_full(m.s));
			}
		}
		ASSERT_EQ(m.s->posted, posted);
	}
	ASSERT_EQ(qp_wait(m.s, posted, UINT64_MAX), 0);
	is_complete(at, complete + 1, posted);
	ASSERT_EQ(m.s->completed, posted);
	ASSERT_EQ(qp_wait(m.s, posted + 1, 0), -EINVAL);
	model_close();
	free(at);
}

TEST_VARIANTS(queue_pairs_take_turns_and_report_one_request_in_16, struct shape, shapes)
{
	uint64_t least = UINT64_MAX, most = 0;
	struct placed at;

	model_open(v->lanes, v->depth, 3);
	for (unsigned int i = 0; i < 16000; i++) {
		ASSERT_EQ(qp_post_room(m.s, 1, UINT64_MAX), 0);
		post(&at, false);
	}
	for (uint32_t i = 0; i < v->lanes; i++) {
		least = min_u64(least, m.lane[i].posted);
		most = m.lane[i].posted > most ? m.lane[i].posted : most;
	}
	ASSERT_LE(most - least, SIGNAL_EVERY);
	ASSERT_EQ(m.s->signalled, 16000 / SIGNAL_EVERY);
	/* A request that is awaited by itself ends its queue pair's turn: few in flight are on different ones, too. */
	for (unsigned int i = 0; i < v->lanes; i++) {
		uint32_t before = m.last_lane;

		ASSERT_EQ(qp_post_room(m.s, 1, UINT64_MAX), 0);
		post(&at, true);
		ASSERT_TRUE(v->lanes == 1 || at.lane != before);
	}
	model_close();
}

/* One queue pair does not complete anything: what the others have done is not reported, and memory stays in use. */
TEST(a_stuck_queue_pair_holds_later_tickets_back)
{
	struct placed at[200];
	uint64_t n = 0;

	model_open(4, 32, 5);
	for (uint32_t i = 0; i < 4; i++)
		m.lane[i].speed = i == 1 ? 0 : 16;
	while (n < 100)
		post(&at[++n], false);
	ASSERT_EQ(qp_wait(m.s, 16, UINT64_MAX), 0);
	for (unsigned int i = 0; i < 1000; i++)
		ASSERT_EQ(qp_wait(m.s, 33, 0), -ETIMEDOUT);
	ASSERT_EQ(m.lane[2].done, m.lane[2].posted);
	ASSERT_EQ(m.s->completed, 16);
	ASSERT_EQ(qp_wait(m.s, 33, os_deadline(20000000)), -ETIMEDOUT);
	/* Nor is there room for ever, and the wait for it ends. */
	while (!qp_is_full(m.s))
		post(&at[++n], false);
	ASSERT_LE(n, 200);
	ASSERT_EQ(qp_post_room(m.s, 1, os_deadline(20000000)), -ETIMEDOUT);
	m.lane[1].speed = 16;
	ASSERT_EQ(qp_wait(m.s, n, UINT64_MAX), 0);
	is_complete(at, 1, n);
	model_close();
}

TEST(the_failure_of_one_queue_pair_stops_all)
{
	struct placed at[64];

	model_open(4, 64, 9);
	for (unsigned int i = 0; i < 64; i++)
		post(&at[i], false);
	m.fails = true;
	ASSERT_EQ(qp_wait(m.s, 64, UINT64_MAX), -EIO);
	ASSERT_EQ(stopped, 4);
	ASSERT_EQ(atomic_load(&m.s->status), IBV_WC_RETRY_EXC_ERR);
	ASSERT_EQ(qp_wait(m.s, 64, UINT64_MAX), -EIO);
	ASSERT_EQ(qp_post_room(m.s, 1, UINT64_MAX), -EIO);
	ASSERT_EQ(qp_send(m.s, "x", 1, UINT64_MAX), -EIO);
	model_close();
}
