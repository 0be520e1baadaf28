/* SPDX-License-Identifier: MIT */
/* The ring of chunks: I/O of files and drives overlapped with the network; memory straight to the network. */
#include <errno.h>
#include <strait/endpoint.h>
#include <strait/region.h>
#include <strait/transfer.h>

#include "base/util.h"
#include "service/rdma_serve.h"

#define NETWORK_NS 60000000000ll /* longest time that a request may wait for room in the send queue */

static int submit_file(struct serving *v, unsigned int i)
{
	struct ring_chunk *c = &v->chunk[i];
	const struct proto_request *q = &c->request->q;
	struct strait_transfer t = { .op = q->op == PROTO_READ ? STRAIT_READ : STRAIT_WRITE,
				     .endpoint = v->source.endpoint,
				     .region = v->ring,
				     .endpoint_offset = q->file_offset + c->offset,
				     .region_offset = (uint64_t)i * CHUNK_BYTES,
				     .length = c->length,
				     .user_data = i };
	int rc = strait_queue_submit(v->queue, &t, 1);

	if (rc)
		return rc;
	c->state = CHUNK_FILE;
	v->in_file++;
	return 0;
}

static void *ring_at(const struct serving *v, unsigned int i)
{
	return (char *)v->ring_cpu + (size_t)i * CHUNK_BYTES;
}

/* Between the client's memory and the ring, or exported memory. */
static int post(struct serving *v, unsigned int i, bool direct)
{
	struct ring_chunk *c = &v->chunk[i];
	const struct proto_request *q = &c->request->q;
	struct strait_rdma_request r = { .op = q->op == PROTO_READ ? STRAIT_WRITE : STRAIT_READ,
					 .region = direct ? v->source.region : v->ring,
					 .region_offset = direct ? q->file_offset + c->offset :
								   (uint64_t)i * CHUNK_BYTES,
					 .offer = v->offer[q->slot],
					 .offer_offset = q->offer_offset + c->offset,
					 .length = c->length,
					 .flags = v->unordered ? STRAIT_RDMA_AWAITED : 0 };

	c->direct = direct;
	return strait_rdma_post(v->session, &r, NETWORK_NS, &c->ticket);
}

static int post_network(struct serving *v, unsigned int i)
{
	struct ring_chunk *c = &v->chunk[i];
	const struct proto_request *q = &c->request->q;
	struct source *src = &v->source;
	int rc = -EOPNOTSUPP;

	if (src->region && !src->staged)
		rc = post(v, i, true);
	if (rc == -EOPNOTSUPP) {
		src->staged = src->region;
		rc = src->staged && q->op == PROTO_READ ?
			     strait_region_copy_out(src->region, q->file_offset + c->offset, ring_at(v, i), c->length) :
			     0;
		if (!rc)
			rc = post(v, i, false);
	}
	if (!rc)
		c->state = CHUNK_NETWORK;
	return rc;
}

/* The chunk's part of its request ends after @bytes. */
static void end_chunk(struct ring_chunk *c, uint64_t bytes, int status)
{
	struct transfer_request *r = c->request;

	if (bytes < c->length && c->offset + bytes < r->good) {
		r->good = c->offset + bytes;
		r->status = status ? status : -ENODATA;
	}
	r->in_flight--;
}

static void free_chunk(struct ring_chunk *c)
{
	c->state = CHUNK_FREE;
	c->request = NULL;
}

/*
 * An offer that does not allow it, or memory that cannot be registered or was revoked, fails the request; every other
 * error is the session's.
 */
static bool is_of_request(int err)
{
	return err == -EBADMSG || err == -EACCES || err == -EPERM || err == -ESTALE || err == -EINVAL ||
	       err == -ENOMEM || err == -ENODEV;
}

/* The bytes to send are there: write them to the client. The session's error. */
static int send_chunk(struct serving *v, unsigned int i, uint64_t bytes, int status)
{
	struct ring_chunk *c = &v->chunk[i];
	uint64_t wanted = c->length;
	int rc = 0;

	if (bytes && bytes <= wanted) {
		c->length = bytes;
		rc = post_network(v, i);
		c->length = wanted;
	}
	if (rc && !is_of_request(rc))
		return rc;
	if (rc || !bytes) {
		end_chunk(c, 0, rc ? rc : status);
		free_chunk(c);
		return 0;
	}
	atomic_fetch_add(&v->server->bytes_out, bytes);
	c->bytes = bytes;
	c->status = status;
	/* The reply may now be sent before the chunk is free: it arrives after the chunk's bytes. */
	if (!v->unordered) {
		end_chunk(c, bytes, status);
		c->request = NULL;
	}
	return 0;
}

static int reap_file(struct serving *v, int64_t timeout_ns)
{
	struct strait_result done[CHUNKS];
	int n = strait_queue_wait(v->queue, timeout_ns ? 1 : 0, CHUNKS, timeout_ns, done), rc = 0;

	for (int k = 0; k < n && !rc; k++) {
		unsigned int i = (unsigned int)done[k].user_data;
		struct ring_chunk *c = &v->chunk[i];

		v->in_file--;
		if (c->request->q.op == PROTO_READ) {
			rc = send_chunk(v, i, done[k].bytes, done[k].status);
		} else {
			atomic_fetch_add(&v->server->bytes_in, done[k].bytes);
			end_chunk(c, done[k].bytes, done[k].status ? done[k].status : -EIO);
			free_chunk(c);
		}
	}
	return n < 0 ? n : rc;
}

/* The client's bytes are in the chunk: write them to the file, or copy them to memory that is not registered. */
static void received(struct serving *v, unsigned int i)
{
	struct ring_chunk *c = &v->chunk[i];
	const struct proto_request *q = &c->request->q;
	int rc = 0;

	if (!v->source.region) {
		rc = submit_file(v, i);
		if (!rc)
			return;
	} else if (!c->direct) {
		rc = strait_region_copy_in(v->source.region, q->file_offset + c->offset, ring_at(v, i), c->length);
	}
	if (!rc)
		atomic_fetch_add(&v->server->bytes_in, c->length);
	end_chunk(c, rc ? 0 : c->length, rc);
	free_chunk(c);
}

/* Chunks whose RDMA is complete, in the order of their tickets: free, or on to the file. */
static int reap_network(struct serving *v, int64_t timeout_ns)
{
	for (;;) {
		unsigned int oldest = CHUNKS;
		struct ring_chunk *c;
		int rc;

		for (unsigned int i = 0; i < CHUNKS; i++)
			if (v->chunk[i].state == CHUNK_NETWORK &&
			    (oldest == CHUNKS || v->chunk[i].ticket < v->chunk[oldest].ticket))
				oldest = i;
		if (oldest == CHUNKS)
			return 0;
		c = &v->chunk[oldest];
		rc = strait_rdma_wait(v->session, c->ticket, timeout_ns);
		if (rc)
			return rc == -EAGAIN || rc == -ETIMEDOUT ? 0 : rc;
		timeout_ns = 0;
		if (c->request && c->request->q.op == PROTO_WRITE) {
			received(v, oldest);
		} else {
			if (c->request)
				end_chunk(c, c->bytes, c->status);
			free_chunk(c);
		}
	}
}

/* Begin with a part of the request. The session's error. */
static int start(struct serving *v, unsigned int i, struct transfer_request *r)
{
	struct ring_chunk *c = &v->chunk[i];
	int rc;

	c->request = r;
	c->offset = r->started;
	c->length = min_u64(r->length - r->started, CHUNK_BYTES);
	r->started += c->length;
	r->in_flight++;
	if (r->q.op == PROTO_READ && v->source.region)
		return send_chunk(v, i, c->length, 0);
	rc = r->q.op == PROTO_READ ? submit_file(v, i) : post_network(v, i);
	if (!rc || (r->q.op == PROTO_WRITE && !is_of_request(rc)))
		return rc;
	end_chunk(c, 0, rc);
	free_chunk(c);
	return 0;
}

int chunks_start(struct serving *v)
{
	unsigned int i = 0;
	int rc = 0;

	for (unsigned int k = 0; !rc && k < v->n; k++) {
		struct transfer_request *r = &v->request[(v->first + k) % PROTO_REQUESTS];

		while (!rc && r->started < r->length && !r->status) {
			while (i < CHUNKS && v->chunk[i].state != CHUNK_FREE)
				i++;
			if (i == CHUNKS)
				return 0;
			rc = start(v, i, r);
		}
	}
	return rc;
}

static unsigned int chunks_in(const struct serving *v, enum ring_state state)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < CHUNKS; i++)
		n += v->chunk[i].state == state;
	return n;
}

int chunks_advance(struct serving *v, int64_t timeout_ns)
{
	int rc = reap_network(v, 0);

	if (!rc && v->in_file)
		return reap_file(v, timeout_ns);
	/* Only the network can free a chunk, or bring one for the file. The queue pair's own retries bound the time. */
	if (!rc && chunks_in(v, CHUNK_NETWORK) && v->n && timeout_ns)
		rc = reap_network(v, timeout_ns);
	return rc;
}
