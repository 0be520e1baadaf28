/* SPDX-License-Identifier: MIT */
/* Flow control of the send queues: which queue pair a request goes to, and when there is room for it. */
#include "base/util.h"
#include "endpoint/rdma/session.h"

static bool is_full(const struct strait_rdma_session *s, const struct lane *l)
{
	return l->posted - l->completed >= s->opts.depth;
}

/* Post to a queue pair that has room. */
static int post_now(struct strait_rdma_session *s, struct lane *l, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int rc;

	wr->wr_id = WR_ID(l - s->lane, l->posted + 1);
	if (l->posted + 1 - l->signalled_at >= SIGNAL_EVERY)
		wr->send_flags |= IBV_SEND_SIGNALED;
	rc = -ibv_post_send(l->qp, wr, &bad);
	if (rc) {
		session_fail(s, rc);
		return rc;
	}
	l->posted++;
	s->requests++;
	if (wr->send_flags & IBV_SEND_SIGNALED) {
		l->signalled_at = l->posted;
		s->signalled++;
	}
	return 0;
}

static int post_when_room(struct strait_rdma_session *s, struct lane *l, struct ibv_send_wr *wr, uint64_t deadline)
{
	int rc = atomic_load(&s->error);

	while (!rc && is_full(s, l))
		rc = qp_progress(s, deadline);
	return rc ? rc : post_now(s, l, wr);
}

/* How many of @want requests can be posted now: the turns are gone through. */
static uint64_t room(const struct strait_rdma_session *s, uint64_t want)
{
	uint64_t used[LANES_MAX], n = 0, left = SIGNAL_EVERY - s->in_turn;
	uint32_t turn = s->turn;

	for (uint32_t i = 0; i < s->lanes; i++)
		used[i] = min_u64(s->lane[i].posted - s->lane[i].completed, s->opts.depth);
	want = min_u64(want, s->order_len - (s->posted - s->completed));
	while (n < want) {
		uint64_t take = min_u64(min_u64(left, want - n), s->opts.depth - used[turn]);

		used[turn] += take;
		n += take;
		if (take < left)
			break;
		turn = (turn + 1) % s->lanes;
		left = SIGNAL_EVERY;
	}
	return n;
}

bool qp_is_full(const struct strait_rdma_session *s)
{
	return !room(s, 1);
}

int qp_post_room(struct strait_rdma_session *s, uint64_t n, uint64_t deadline)
{
	int rc = atomic_load(&s->error);

	/* The last ones that were posted need not be signalled: they complete with later ones only. */
	n = min_u64(n, s->opts.depth - SIGNAL_EVERY);
	while (!rc && room(s, n) < n)
		rc = qp_progress(s, deadline);
	return rc;
}

int qp_post(struct strait_rdma_session *s, struct ibv_send_wr *wr)
{
	bool last = s->lanes > 1 && (wr->send_flags & IBV_SEND_SIGNALED || s->in_turn + 1 == SIGNAL_EVERY);
	struct lane *l = &s->lane[s->turn];
	int rc;

	/* A queue pair that is not used for a while leaves nothing behind that a waiter would have to signal. */
	if (last)
		wr->send_flags |= IBV_SEND_SIGNALED;
	rc = post_now(s, l, wr);
	if (rc)
		return rc;
	s->posted++;
	s->order[s->posted % s->order_len] = (struct ticket_place){ .number = l->posted, .lane = s->turn };
	s->in_turn = last ? 0 : (s->in_turn + 1) % SIGNAL_EVERY;
	if (last)
		s->turn = (s->turn + 1) % s->lanes;
	return 0;
}

/* A queue pair with a request up to the ticket that no signalled one follows; NULL if there is none. */
static struct lane *unsignalled(struct strait_rdma_session *s, uint64_t ticket)
{
	uint32_t seen = 0, all = (1u << s->lanes) - 1;

	for (uint64_t t = ticket; t > s->completed && seen != all; t--) {
		const struct ticket_place *at = &s->order[t % s->order_len];

		if (!(seen & 1u << at->lane) && s->lane[at->lane].signalled_at < at->number)
			return &s->lane[at->lane];
		seen |= 1u << at->lane;
	}
	return NULL;
}

/* Wait for a request of the queue pair, by its number. */
static int wait_number(struct strait_rdma_session *s, struct lane *l, uint64_t number, uint64_t deadline)
{
	struct ibv_send_wr empty = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };
	int rc = 0;

	while (!rc && l->completed < number)
		rc = l->signalled_at < number ? post_when_room(s, l, &empty, deadline) : qp_progress(s, deadline);
	return rc;
}

int qp_wait(struct strait_rdma_session *s, uint64_t ticket, uint64_t deadline)
{
	struct ibv_send_wr empty = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };

	if (ticket > s->posted)
		return -EINVAL;
	while (s->completed < ticket) {
		struct lane *l = deadline ? unsignalled(s, ticket) : NULL;
		int rc = l ? post_when_room(s, l, &empty, deadline) : qp_progress(s, deadline);

		if (rc)
			return rc;
	}
	return 0;
}

/* Waiting for the slot or for the queue, other threads may use up the other one. */
int qp_send_room(struct strait_rdma_session *s, uint64_t deadline)
{
	int rc = atomic_load(&s->error);

	while (!rc) {
		uint64_t before = s->slot_number[s->sent % CONTROL_SLOTS];

		if (before > s->lane[0].completed)
			rc = wait_number(s, &s->lane[0], before, deadline);
		else if (is_full(s, &s->lane[0]))
			rc = qp_progress(s, deadline);
		else
			break;
	}
	return rc;
}

int qp_send(struct strait_rdma_session *s, const void *msg, size_t len, uint64_t deadline)
{
	struct ibv_sge sge = { .length = (uint32_t)len, .lkey = s->control_mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	int rc = qp_send_room(s, deadline);
	uint32_t slot = (uint32_t)(s->sent % CONTROL_SLOTS);
	uint8_t *buf = s->control + slot * (size_t)WIRE_MAX;

	if (rc)
		return rc;
	sge.addr = (uintptr_t)buf;
	memcpy(buf, msg, len);
	if (len <= s->inline_max)
		wr.send_flags = IBV_SEND_INLINE;
	rc = post_now(s, &s->lane[0], &wr);
	if (rc)
		return rc;
	s->slot_number[slot] = s->lane[0].posted;
	s->sent++;
	return 0;
}

int qp_flush_sends(struct strait_rdma_session *s, uint64_t deadline)
{
	return wait_number(s, &s->lane[0], s->lane[0].posted, deadline);
}
