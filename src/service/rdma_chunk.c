/* SPDX-License-Identifier: MIT */
/* The ring of chunks: file I/O overlapped with the network. */
#include <errno.h>
#include <strait/endpoint.h>
#include <strait/transfer.h>

#include "base/util.h"
#include "service/rdma_serve.h"

#define NETWORK_NS 60000000000ll /* longest time that a request may wait for room in the send queue */

static int submit_file(struct serving *v, unsigned int i)
{
	struct ring_chunk *c = &v->chunk[i];
	const struct proto_request *q = &c->request->q;
	struct strait_transfer t = { .op = q->op == PROTO_READ ? STRAIT_READ : STRAIT_WRITE,
				     .endpoint = v->file,
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

static int post_network(struct serving *v, unsigned int i)
{
	struct ring_chunk *c = &v->chunk[i];
	const struct proto_request *q = &c->request->q;
	struct strait_rdma_request r = { .op = q->op == PROTO_READ ? STRAIT_WRITE : STRAIT_READ,
					 .region = v->ring,
					 .region_offset = (uint64_t)i * CHUNK_BYTES,
					 .offer = v->offer[q->slot],
					 .offer_offset = q->offer_offset + c->offset,
					 .length = c->length,
					 .flags = v->unordered ? STRAIT_RDMA_AWAITED : 0 };
	int rc = strait_rdma_post(v->session, &r, NETWORK_NS, &c->ticket);

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

/* An offer that does not allow it fails the request; every other error is the session's. */
static bool is_of_request(int err)
{
	return err == -EBADMSG || err == -EACCES || err == -EPERM || err == -ESTALE || err == -EINVAL;
}

/* The file's bytes are in the chunk: write them to the client. The session's error. */
static int file_read(struct serving *v, unsigned int i, uint64_t bytes, int status)
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
			rc = file_read(v, i, done[k].bytes, done[k].status);
		} else {
			atomic_fetch_add(&v->server->bytes_in, done[k].bytes);
			end_chunk(c, done[k].bytes, done[k].status ? done[k].status : -EIO);
			free_chunk(c);
		}
	}
	return n < 0 ? n : rc;
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
			rc = submit_file(v, oldest);
			if (rc) {
				end_chunk(c, 0, rc);
				free_chunk(c);
			}
		} else {
			if (c->request)
				end_chunk(c, c->bytes, c->status);
			free_chunk(c);
		}
	}
}

int chunks_start(struct serving *v)
{
	unsigned int i = 0;

	for (unsigned int k = 0; k < v->n; k++) {
		struct transfer_request *r = &v->request[(v->first + k) % PROTO_REQUESTS];

		while (r->started < r->q.length && !r->status) {
			struct ring_chunk *c;
			int rc;

			while (i < CHUNKS && v->chunk[i].state != CHUNK_FREE)
				i++;
			if (i == CHUNKS)
				return 0;
			c = &v->chunk[i];
			c->request = r;
			c->offset = r->started;
			c->length = min_u64(r->q.length - r->started, CHUNK_BYTES);
			r->started += c->length;
			r->in_flight++;
			rc = r->q.op == PROTO_READ ? submit_file(v, i) : post_network(v, i);
			if (!rc)
				continue;
			if (r->q.op == PROTO_WRITE && !is_of_request(rc))
				return rc;
			end_chunk(c, 0, rc);
			free_chunk(c);
		}
	}
	return 0;
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
