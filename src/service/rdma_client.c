/* SPDX-License-Identifier: MIT */
/* A client: its connection and its requests. */
#include "service/rdma_client.h"

#include <errno.h>
#include <stdlib.h>
#include <strait/region.h>
#include <string.h>

#include "base/util.h"

#define CALL_NS 30000000000ll

STRAIT_API int strait_rdma_client_open(struct strait_context *ctx, const struct strait_rdma_opts *user,
				       struct strait_rdma_client **ret)
{
	struct strait_rdma_client *c;
	int rc;

	if (!ctx || !user || !ret)
		return -EINVAL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	rc = struct_in(&c->opts, sizeof(c->opts), user, STRAIT_RDMA_OPTS_SIZE_V1);
	if (!rc && !c->opts.address)
		rc = -EDESTADDRREQ;
	if (!rc && (strlen(c->opts.address) >= sizeof(c->address) || c->opts.key_len > sizeof(c->key) ||
		    !c->opts.key != !c->opts.key_len))
		rc = -EINVAL;
	if (rc) {
		free(c);
		return rc;
	}
	c->opts.role = STRAIT_RDMA_OFFERS;
	str_copy(c->address, sizeof(c->address), c->opts.address);
	c->opts.address = c->address;
	if (c->opts.key) {
		memcpy(c->key, c->opts.key, c->opts.key_len);
		c->opts.key = c->key;
	}
	c->ctx = ctx;
	pthread_mutex_init(&c->lock, NULL);
	rc = client_connect(c);
	if (rc) {
		strait_rdma_client_close(c);
		return rc;
	}
	*ret = c;
	return 0;
}

void client_disconnect(struct strait_rdma_client *c)
{
	struct strait_rdma_info info = { .size = sizeof(info) };

	if (c->session && !strait_rdma_info(c->session, &info) && info.status)
		c->status = info.status;
	/* The session first: it stops the peer before the memory is deregistered. */
	strait_rdma_close(c->session);
	client_offers_close(c);
	c->session = NULL;
}

STRAIT_API void strait_rdma_client_close(struct strait_rdma_client *c)
{
	if (!c)
		return;
	client_disconnect(c);
	strait_region_close(c->stage);
	pthread_mutex_destroy(&c->lock);
	explicit_bzero(c, sizeof(*c));
	free(c);
}

int client_connect(struct strait_rdma_client *c)
{
	uint8_t msg[STRAIT_RDMA_MESSAGE_MAX];
	int rc;

	c->lost = false;
	/* Between calls no message is to come: only the end of a session, by a server that was stopped or had a limit. */
	c->fresh = !c->session || strait_rdma_recv(c->session, msg, sizeof(msg), 0) != -EAGAIN;
	if (!c->fresh)
		return 0;
	client_disconnect(c);
	rc = strait_rdma_connect(c->ctx, &c->opts, &c->session);
	c->lost = rc;
	return rc;
}

bool client_was_stale(const struct strait_rdma_client *c, int err)
{
	return c->lost && !c->fresh && (err == -ECONNRESET || err == -EIO);
}

int client_send(struct strait_rdma_client *c, struct proto_request *q, int64_t timeout_ns)
{
	uint8_t msg[STRAIT_RDMA_MESSAGE_MAX];
	size_t len;
	int rc;

	q->id = c->next_id++;
	len = proto_put_request(q, msg);
	rc = len ? strait_rdma_send(c->session, msg, len, timeout_ns) : -ENAMETOOLONG;
	c->lost |= rc != 0;
	return rc;
}

int client_reply(struct strait_rdma_client *c, uint32_t id, int64_t timeout_ns, struct proto_reply *r)
{
	uint8_t msg[STRAIT_RDMA_MESSAGE_MAX];
	ssize_t n = strait_rdma_recv(c->session, msg, sizeof(msg), timeout_ns);
	int rc = n < 0 ? (int)n : proto_get_reply(msg, (size_t)n, r);

	if (!rc && r->id != id)
		rc = -EPROTO;
	c->lost |= rc != 0;
	return rc;
}

int client_call(struct strait_rdma_client *c, struct proto_request *q, int64_t timeout_ns, struct proto_reply *r)
{
	int rc = client_send(c, q, timeout_ns);

	if (!rc)
		rc = client_reply(c, q->id, timeout_ns, r);
	return rc ? rc : r->status;
}

STRAIT_API int strait_rdma_client_length(struct strait_rdma_client *c, const char *path, uint64_t *length)
{
	struct proto_request q = { .op = PROTO_OPEN };
	struct proto_reply r;
	int rc;

	if (!c || !path || !length || !*path)
		return -EINVAL;
	if (strlen(path) > PROTO_PATH)
		return -ENAMETOOLONG;
	str_copy(q.path, sizeof(q.path), path);
	pthread_mutex_lock(&c->lock);
	do {
		rc = client_connect(c);
		if (!rc)
			rc = client_call(c, &q, CALL_NS, &r);
		if (c->lost)
			client_disconnect(c);
	} while (client_was_stale(c, rc));
	pthread_mutex_unlock(&c->lock);
	if (!rc)
		*length = r.length;
	return rc;
}
