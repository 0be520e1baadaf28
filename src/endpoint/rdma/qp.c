/* SPDX-License-Identifier: MIT */
/* The first queue pair, the session's resources, and completions of all queue pairs. */
#include <sched.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"

#define RECV_ID (1ull << 63) /* wr_id of a receive: this bit and the slot. Of other requests: see WR_ID() */
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
	int err = ibv_post_recv(s->lane[0].qp, &wr, &bad);

	s->receives += !err;
	return -err;
}

struct ibv_qp_init_attr qp_init_attr(struct strait_rdma_session *s)
{
	return (struct ibv_qp_init_attr){
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = s->opts.depth,
			 .max_recv_wr = CONTROL_SLOTS,
			 .max_send_sge = s->sges,
			 .max_recv_sge = 1,
			 .max_inline_data = INLINE_WANTED },
	};
}

static uint32_t sge_limit(int device)
{
	return device < 1 ? 1 : (uint32_t)min_u64((uint64_t)device, SGES_MAX);
}

/* How many ranges of memory the device takes in a work request. Reads may have a limit of their own. */
static int find_limits(struct strait_rdma_session *s)
{
	struct ibv_device_attr attr;
	int err = verbs.ibv_query_device(s->id->verbs, &attr);

	if (err)
		return -err;
	s->sges = sge_limit(attr.max_sge);
	s->sges_read = (uint32_t)min_u64(s->sges, sge_limit(attr.max_sge_rd));
	return 0;
}

static int create_qp(struct strait_rdma_session *s)
{
	struct ibv_qp_init_attr attr = qp_init_attr(s);
	int err = verbs.rdma_create_qp(s->id, s->pd, &attr);

	/* Not every device sends inline, or has so large requests in so deep a queue. */
	if (err) {
		attr = qp_init_attr(s);
		attr.cap.max_inline_data = 0;
		err = verbs.rdma_create_qp(s->id, s->pd, &attr);
	}
	if (err) {
		s->sges = s->sges_read = 1;
		attr = qp_init_attr(s);
		attr.cap.max_inline_data = 0;
		err = verbs.rdma_create_qp(s->id, s->pd, &attr);
	}
	if (err)
		return -errno;
	s->lane[0].qp = s->id->qp;
	s->lanes = 1;
	s->inline_max = attr.cap.max_inline_data;
	return 0;
}

int qp_alloc_order(struct strait_rdma_session *s)
{
	s->order_len = s->opts.queue_pairs * (s->opts.depth + 2 * SIGNAL_EVERY);
	s->order = calloc(s->order_len, sizeof(*s->order));
	return s->order ? 0 : -ENOMEM;
}

int qp_open(struct strait_rdma_session *s)
{
	uint32_t entries = s->opts.queue_pairs * s->opts.depth + CONTROL_SLOTS;
	void *control;
	int rc;

	s->pd = verbs.ibv_alloc_pd(s->id->verbs);
	s->channel = s->pd ? verbs.ibv_create_comp_channel(s->id->verbs) : NULL;
	/* A failed queue pair completes every request, signalled or not. */
	s->cq = s->channel ? verbs.ibv_create_cq(s->id->verbs, (int)entries, NULL, s->channel, 0) : NULL;
	if (!s->cq)
		return errno ? -errno : -ENOMEM;
	rc = os_set_nonblocking(s->channel->fd);
	if (!rc)
		rc = find_limits(s);
	if (!rc)
		rc = qp_alloc_order(s);
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
	lanes_close(s);
	if (s->lane[0].qp)
		verbs.rdma_destroy_qp(s->id);
	s->lane[0].qp = NULL;
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
	free(s->order);
}

/* Tickets complete in their order, whichever queue pair is faster. */
static void advance(struct strait_rdma_session *s)
{
	while (s->completed < s->posted) {
		const struct ticket_place *at = &s->order[(s->completed + 1) % s->order_len];

		if (s->lane[at->lane].completed < at->number)
			break;
		s->completed++;
	}
}

static void completed(struct strait_rdma_session *s, const struct ibv_wc *wc)
{
	struct lane *l = &s->lane[WR_LANE(wc->wr_id) % LANES_MAX];
	int none = 0;

	if (wc->wr_id & RECV_ID)
		s->receives--;
	else
		l->ended = WR_NUMBER(wc->wr_id);
	if (wc->status != IBV_WC_SUCCESS) {
		/* Requests after the failed one are flushed: their status does not say why. */
		if (wc->status != IBV_WC_WR_FLUSH_ERR)
			atomic_compare_exchange_strong(&s->status, &none, (int)wc->status);
		session_fail(s, wc->status == IBV_WC_WR_FLUSH_ERR ? -ECONNRESET : -EIO);
		return;
	}
	if (!(wc->wr_id & RECV_ID)) {
		l->completed = l->ended;
		advance(s);
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

/* Requests that were posted and have not completed. */
static uint64_t unfinished(const struct strait_rdma_session *s)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->lanes; i++)
		n += s->lane[i].posted - s->lane[i].ended;
	return n;
}

void qp_drain(struct strait_rdma_session *s)
{
	struct ibv_send_wr last = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	uint64_t deadline = os_now_ns() + DRAIN_NS;

	/* Requests that are not signalled and were successful are not reported; this one is. */
	for (uint32_t i = 0; i < s->lanes; i++) {
		last.wr_id = WR_ID(i, s->lane[i].posted + 1);
		if (!ibv_post_send(s->lane[i].qp, &last, &bad))
			s->lane[i].posted++;
	}
	while (s->receives || unfinished(s)) {
		int n = reap(s);

		if (n < 0 || (!n && os_now_ns() >= deadline)) {
			log_warn(s->log, "rdma: the device has not completed %u receives and %llu requests",
				 s->receives, (unsigned long long)unfinished(s));
			return;
		}
		if (!n)
			os_sleep_ns(100000);
	}
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
