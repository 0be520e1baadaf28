/* SPDX-License-Identifier: MIT */
/* One session of a server: takes requests, replies in their order. */
#include <errno.h>
#include <strait/device.h>
#include <strait/region.h>
#include <strait/transfer.h>
#include <string.h>
#include <time.h>

#include "base/util.h"
#include "service/rdma_serve.h"

#define REPLY_NS 10000000000ll
#define IDLE_LIMIT_NS 600000000000ull

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int reply(struct serving *v, const struct proto_reply *r)
{
	uint8_t msg[STRAIT_RDMA_MESSAGE_MAX];

	return strait_rdma_send(v->session, msg, proto_put_reply(r, msg), REPLY_NS);
}

/* A READ or WRITE: up to the end of what is open. */
static struct transfer_request new_transfer(const struct serving *v, const struct proto_request *q)
{
	const struct source *src = &v->source;
	struct transfer_request t = { .q = *q, .length = q->length };

	if (src->fixed)
		t.length = q->file_offset < src->length ? min_u64(src->length - q->file_offset, q->length) : 0;
	t.good = t.length;
	if ((!src->endpoint && !src->region) || !v->offer[q->slot][0] || (q->op == PROTO_WRITE && !src->writable)) {
		t.status = -EBADF;
		t.good = 0;
	}
	return t;
}

/* The error of the session, not of the request. */
static int take_request(struct serving *v, const struct proto_request *q)
{
	struct proto_reply r = { .id = q->id };

	if (q->op == PROTO_READ || q->op == PROTO_WRITE) {
		if (v->n == PROTO_REQUESTS)
			return -EPROTO;
		v->request[(v->first + v->n++) % PROTO_REQUESTS] = new_transfer(v, q);
		return 0;
	}
	/* The replies of transfers come first. */
	if (v->n)
		return -EPROTO;
	if (q->op == PROTO_OPEN) {
		r.status = source_open(v->server, q->path, q->flags & PROTO_OPEN_WRITE, &v->source, &r);
	} else if (q->op == PROTO_OFFER) {
		memcpy(v->offer[q->slot], q->offer, sizeof(v->offer[0]));
	} else {
		r.status = source_sync(&v->source);
	}
	return reply(v, &r);
}

/* All messages that are there; waits up to @timeout_ns for the first. */
static int take_messages(struct serving *v, int64_t timeout_ns, bool *some)
{
	uint8_t msg[STRAIT_RDMA_MESSAGE_MAX];
	struct proto_request q;

	for (;;) {
		ssize_t n = strait_rdma_recv(v->session, msg, sizeof(msg), timeout_ns);
		int rc;

		if (n == -EAGAIN || n == -ETIMEDOUT)
			return 0;
		if (n < 0)
			return (int)n;
		rc = proto_get_request(msg, (size_t)n, &q);
		if (!rc)
			rc = take_request(v, &q);
		if (rc)
			return rc;
		*some = true;
		timeout_ns = 0;
		/* A client may never stop to send. */
		if (atomic_load(&v->server->stop))
			return 0;
	}
}

static int reply_done(struct serving *v)
{
	int rc = 0;

	while (!rc && v->n) {
		struct transfer_request *t = &v->request[v->first];
		struct proto_reply r = { .id = t->q.id, .status = t->status, .bytes = t->good };

		if (t->in_flight || (t->started < t->length && !t->status))
			break;
		if (!r.status && t->length < t->q.length)
			r.status = t->q.op == PROTO_READ ? -ENODATA : -ENOSPC;
		v->first = (v->first + 1) % PROTO_REQUESTS;
		v->n--;
		rc = reply(v, &r);
	}
	return rc;
}

static int serve_requests(struct serving *v)
{
	uint64_t last = now_ns();
	int rc = 0;

	while (!rc && !atomic_load(&v->server->stop)) {
		bool some = false;

		rc = take_messages(v, v->n ? 0 : STOP_NS, &some);
		if (!rc)
			rc = chunks_start(v);
		if (!rc)
			rc = chunks_advance(v, v->n ? STOP_NS : 0);
		if (!rc)
			rc = reply_done(v);
		if (some || v->n)
			last = now_ns();
		if (!rc && now_ns() - last > IDLE_LIMIT_NS)
			rc = -ETIMEDOUT;
	}
	return rc;
}

static int open_resources(struct serving *v)
{
	struct strait_queue_opts o = { .size = sizeof(o), .entries = CHUNKS };
	struct strait_device *host;
	int rc = strait_device_find(v->server->ctx, "host", &host);

	if (!rc)
		rc = strait_region_alloc(host, (size_t)CHUNKS * CHUNK_BYTES, &v->ring);
	if (!rc)
		rc = strait_region_map(v->ring, &v->ring_cpu);
	if (!rc)
		rc = strait_queue_open(v->server->ctx, &o, &v->queue);
	return rc;
}

void serving_run(struct served *e)
{
	struct strait_rdma_server *server = e->server;
	struct serving v = { .server = server, .session = e->session };
	struct strait_rdma_info info = { .size = sizeof(info) };

	if (!strait_rdma_info(v.session, &info) && !open_resources(&v)) {
		v.unordered = info.queue_pairs > 1;
		serve_requests(&v);
	}
	if (!strait_rdma_info(v.session, &info)) {
		atomic_fetch_add(&server->requests, info.requests);
		atomic_fetch_add(&server->signalled, info.signalled);
	}
	/* File I/O ends before the memory of its chunks is freed, and the session before that memory is deregistered. */
	strait_queue_close(v.queue);
	served_close(e);
	strait_region_close(v.ring);
	source_close(&v.source);
}
