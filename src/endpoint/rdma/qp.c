/* SPDX-License-Identifier: MIT */
/* The queue pair's resources, flow control of the send queue, and completions. */
#include <sched.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"

#define RECV_ID (1ull << 63) /* wr_id of a receive: this bit and the slot. Of a send: its number */
#define EVENTS_UNACKED 64u
#define INLINE_WANTED 256u
#define DRAIN_NS 2000000000ull
#define CONTROL_BYTES (2ull * CONTROL_SLOTS * WIRE_MAX)

static uint8_t *recv_slot(struct strait_rdma_session *s, uint32_t slot)
{
	return s->control + (CONTROL_SLOTS + slot) * (size_t)WIRE_MAX;
}

static int post_recv(struct strait_rdma_session *s, uint32_t slot)
{
	struct ibv_sge sge = { .addr = (uintptr_t)recv_slot(s, slot), .length = WIRE_MAX, .lkey = s->control_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RECV_ID | slot, .sg_list = &sge, .num_sge = 1 }, *bad;
	int err = ibv_post_recv(s->qp, &wr, &bad);

	s->receives += !err;
	return -err;
}

static int create_qp(struct strait_rdma_session *s)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = s->opts.depth,
			 .max_recv_wr = CONTROL_SLOTS,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = INLINE_WANTED },
	};

	if (verbs.rdma_create_qp(s->id, s->pd, &attr)) {
		/* Not every device sends inline. */
		attr.cap.max_inline_data = 0;
		if (verbs.rdma_create_qp(s->id, s->pd, &attr))
			return -errno;
	}
	s->qp = s->id->qp;
	s->inline_max = attr.cap.max_inline_data;
	return 0;
}

int qp_open(struct strait_rdma_session *s)
{
	void *control;
	int rc;

	s->pd = verbs.ibv_alloc_pd(s->id->verbs);
	s->channel = s->pd ? verbs.ibv_create_comp_channel(s->id->verbs) : NULL;
	/* A failed queue pair completes every request, signalled or not. */
	s->cq = s->channel ?
			verbs.ibv_create_cq(s->id->verbs, (int)(s->opts.depth + CONTROL_SLOTS), NULL, s->channel, 0) :
			NULL;
	if (!s->cq)
		return errno ? -errno : -ENOMEM;
	rc = os_set_nonblocking(s->channel->fd);
	if (!rc)
		rc = create_qp(s);
	if (!rc)
		rc = os_map_anon(CONTROL_BYTES, -1, &control);
	if (rc)
		return rc;
	s->control = control;
	os_dont_fork(control, CONTROL_BYTES);
	s->control_mr = verbs.ibv_reg_mr(s->pd, control, CONTROL_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (!s->control_mr)
		return -errno;
	for (uint32_t i = 0; !rc && i < CONTROL_SLOTS; i++)
		rc = post_recv(s, i);
	return rc;
}

void qp_close(struct strait_rdma_session *s)
{
	if (s->qp)
		verbs.rdma_destroy_qp(s->id);
	s->qp = NULL;
	if (s->cq_events)
		verbs.ibv_ack_cq_events(s->cq, s->cq_events);
	s->cq_events = 0;
	if (s->cq)
		verbs.ibv_destroy_cq(s->cq);
	if (s->channel)
		verbs.ibv_destroy_comp_channel(s->channel);
	if (s->control_mr)
		verbs.ibv_dereg_mr(s->control_mr);
	if (s->control)
		os_unmap(s->control, CONTROL_BYTES);
	if (s->pd)
		verbs.ibv_dealloc_pd(s->pd);
}

static void completed(struct strait_rdma_session *s, const struct ibv_wc *wc)
{
	int none = 0;

	if (wc->wr_id & RECV_ID)
		s->receives--;
	else
		s->ended = wc->wr_id;
	if (wc->status != IBV_WC_SUCCESS) {
		/* Requests after the failed one are flushed: their status does not say why. */
		if (wc->status != IBV_WC_WR_FLUSH_ERR)
			atomic_compare_exchange_strong(&s->status, &none, (int)wc->status);
		session_fail(s, wc->status == IBV_WC_WR_FLUSH_ERR ? -ECONNRESET : -EIO);
		return;
	}
	if (!(wc->wr_id & RECV_ID)) {
		atomic_store_explicit(&s->completed, wc->wr_id, memory_order_release);
		return;
	}
	if (s->received_n < CONTROL_SLOTS) {
		uint32_t at = (s->received_first + s->received_n++) % CONTROL_SLOTS;

		s->received[at].slot = (uint32_t)(wc->wr_id & ~RECV_ID) % CONTROL_SLOTS;
		s->received[at].len = wc->byte_len <= WIRE_MAX ? wc->byte_len : 0;
	}
}

/* How many completions there were; a negative errno. */
static int reap(struct strait_rdma_session *s)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(s->cq, ARRAY_SIZE(wc), wc);

	for (int i = 0; i < n; i++)
		completed(s, &wc[i]);
	return n < 0 ? -EIO : n;
}

static void take_cq_events(struct strait_rdma_session *s)
{
	struct ibv_cq *cq;
	void *arg;

	while (!verbs.ibv_get_cq_event(s->channel, &cq, &arg))
		s->cq_events++;
	if (s->cq_events >= EVENTS_UNACKED) {
		verbs.ibv_ack_cq_events(s->cq, s->cq_events);
		s->cq_events = 0;
	}
}

/* One of the waiting threads sleeps for all. When it ends, for whatever reason, another one has to. */
static int sleep_until_event(struct strait_rdma_session *s, uint64_t deadline)
{
	int rc;

	if (s->sleeping)
		return cond_wait_until(&s->changed, &s->lock, deadline) ? -ETIMEDOUT : 0;
	s->sleeping = true;
	rc = session_sleep(s, s->channel->fd, deadline);
	s->sleeping = false;
	take_cq_events(s);
	pthread_cond_broadcast(&s->changed);
	return rc;
}

/* A thread that polls would keep the lock: mutexes are not fair. */
static int poll_once(struct strait_rdma_session *s, uint64_t deadline)
{
	if (deadline != UINT64_MAX && os_now_ns() >= deadline)
		return -ETIMEDOUT;
	if (atomic_load(&s->lock_wanted)) {
		pthread_mutex_unlock(&s->lock);
		sched_yield();
		session_lock(s);
	}
	return 0;
}

int qp_progress(struct strait_rdma_session *s, uint64_t deadline)
{
	bool polls = s->opts.flags & STRAIT_RDMA_POLL;
	int n = reap(s), rc;

	/* A completion before the request for an event raises none. */
	if (!n && !polls)
		n = ibv_req_notify_cq(s->cq, 0) ? -EIO : reap(s);
	if (n > 0)
		pthread_cond_broadcast(&s->changed);
	if (n < 0)
		session_fail(s, n);
	rc = atomic_load(&s->error);
	if (n || rc)
		return rc;
	rc = polls ? poll_once(s, deadline) : sleep_until_event(s, deadline);
	/* What another thread has processed meanwhile, the caller sees. */
	session_cm_events(s);
	n = reap(s);
	if (n > 0)
		pthread_cond_broadcast(&s->changed);
	if (atomic_load(&s->error))
		return atomic_load(&s->error);
	return n > 0 ? 0 : rc;
}

void qp_drain(struct strait_rdma_session *s)
{
	struct ibv_send_wr last = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	uint64_t deadline = os_now_ns() + DRAIN_NS;

	if (!s->qp)
		return;
	/* Requests that are not signalled and were successful are not reported; this one is. */
	last.wr_id = s->posted + 1;
	if (!ibv_post_send(s->qp, &last, &bad))
		s->posted++;
	while (s->receives || s->ended < s->posted) {
		int n = reap(s);

		if (n < 0 || (!n && os_now_ns() >= deadline)) {
			log_warn(s->log, "rdma: the device has not completed %u receives and %llu requests",
				 s->receives, (unsigned long long)(s->posted - s->ended));
			return;
		}
		if (!n)
			os_sleep_ns(100000);
	}
}

bool qp_is_full(const struct strait_rdma_session *s)
{
	return s->posted - atomic_load(&s->completed) >= s->opts.depth;
}

int qp_post_room(struct strait_rdma_session *s, uint64_t n, uint64_t deadline)
{
	int rc = atomic_load(&s->error);

	/* The last ones that were posted need not be signalled: they complete with later ones only. */
	n = min_u64(n, s->opts.depth - SIGNAL_EVERY);
	while (!rc && s->posted - atomic_load(&s->completed) + n > s->opts.depth)
		rc = qp_progress(s, deadline);
	return rc;
}

int qp_post(struct strait_rdma_session *s, struct ibv_send_wr *wr, uint64_t deadline)
{
	struct ibv_send_wr *bad;
	int rc = qp_post_room(s, 1, deadline);

	if (rc)
		return rc;
	wr->wr_id = s->posted + 1;
	if (wr->send_flags & IBV_SEND_SIGNALED || wr->wr_id - s->signalled_at >= SIGNAL_EVERY)
		wr->send_flags |= IBV_SEND_SIGNALED;
	rc = -ibv_post_send(s->qp, wr, &bad);
	if (rc) {
		session_fail(s, rc);
		return rc;
	}
	s->posted++;
	s->requests++;
	if (wr->send_flags & IBV_SEND_SIGNALED) {
		s->signalled_at = s->posted;
		s->signalled++;
	}
	return 0;
}

int qp_wait(struct strait_rdma_session *s, uint64_t ticket, uint64_t deadline)
{
	struct ibv_send_wr empty = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };
	int rc = 0;

	if (ticket > s->posted)
		return -EINVAL;
	while (atomic_load(&s->completed) < ticket) {
		if (s->signalled_at < ticket && deadline)
			rc = qp_post(s, &empty, deadline);
		if (!rc)
			rc = qp_progress(s, deadline);
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
		uint64_t before = s->slot_ticket[s->sent % CONTROL_SLOTS];

		if (before > atomic_load(&s->completed))
			rc = qp_wait(s, before, deadline);
		else if (qp_is_full(s))
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
	rc = qp_post(s, &wr, deadline);
	if (rc)
		return rc;
	s->slot_ticket[slot] = s->posted;
	s->sent++;
	return 0;
}

int qp_recv(struct strait_rdma_session *s, uint64_t deadline, const uint8_t **msg, size_t *len)
{
	while (!s->received_n) {
		int rc = qp_progress(s, deadline);

		/* A message that arrived before the session's end is not lost. */
		if (rc && !s->received_n)
			return rc;
	}
	*msg = recv_slot(s, s->received[s->received_first].slot);
	*len = s->received[s->received_first].len;
	return 0;
}

int qp_release(struct strait_rdma_session *s)
{
	uint32_t slot = s->received[s->received_first].slot;

	s->received_first = (s->received_first + 1) % CONTROL_SLOTS;
	s->received_n--;
	return atomic_load(&s->error) ? 0 : post_recv(s, slot);
}
