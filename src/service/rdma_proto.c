/* SPDX-License-Identifier: MIT */
#include "service/rdma_proto.h"

#include <errno.h>
#include <string.h>

#include "base/cursor.h"
#include "base/util.h"

#define REPLY 0x8000u
#define ERRNO_MAX 4095

size_t proto_put_request(const struct proto_request *r, uint8_t out[STRAIT_RDMA_MESSAGE_MAX])
{
	struct put_cursor c = { .p = out, .left = STRAIT_RDMA_MESSAGE_MAX };
	size_t len;

	put_uint(&c, r->op, 2);
	put_uint(&c, r->id, 4);
	switch (r->op) {
	case PROTO_OPEN:
		len = strlen(r->path);
		put_uint(&c, r->flags, 4);
		put_uint(&c, len, 2);
		put_bytes(&c, r->path, len);
		break;
	case PROTO_OFFER:
		put_uint(&c, r->slot, 4);
		put_bytes(&c, r->offer, STRAIT_RDMA_OFFER_TEXT - 1);
		break;
	case PROTO_READ:
	case PROTO_WRITE:
		put_uint(&c, r->slot, 4);
		put_uint(&c, r->file_offset, 8);
		put_uint(&c, r->offer_offset, 8);
		put_uint(&c, r->length, 8);
		break;
	case PROTO_SYNC:
		break;
	}
	return c.bad ? 0 : STRAIT_RDMA_MESSAGE_MAX - c.left;
}

static void get_path(struct get_cursor *c, struct proto_request *r)
{
	size_t len;

	r->flags = (uint32_t)get_uint(c, 4);
	len = (size_t)get_uint(c, 2);
	if (!len || len > PROTO_PATH || r->flags & ~PROTO_OPEN_WRITE) {
		c->bad = true;
		return;
	}
	get_bytes(c, r->path, len);
	r->path[len] = '\0';
	/* A NUL inside would end the path earlier than the peer's check of it. */
	c->bad |= strlen(r->path) != len;
}

static void get_range(struct get_cursor *c, struct proto_request *r)
{
	r->slot = (uint32_t)get_uint(c, 4);
	r->file_offset = get_uint(c, 8);
	r->offer_offset = get_uint(c, 8);
	r->length = get_uint(c, 8);
	c->bad |= r->slot >= PROTO_SLOTS || !r->length || r->length > PROTO_LENGTH_MAX ||
		  !range_fits_off_t(r->file_offset, r->length) || r->offer_offset > UINT64_MAX - r->length;
}

int proto_get_request(const void *msg, size_t len, struct proto_request *r)
{
	struct get_cursor c = { .p = msg, .left = len };
	uint32_t op = (uint32_t)get_uint(&c, 2);

	memset(r, 0, sizeof(*r));
	r->id = (uint32_t)get_uint(&c, 4);
	switch (op) {
	case PROTO_OPEN:
		get_path(&c, r);
		break;
	case PROTO_OFFER:
		r->slot = (uint32_t)get_uint(&c, 4);
		get_bytes(&c, r->offer, STRAIT_RDMA_OFFER_TEXT - 1);
		c.bad |= r->slot >= PROTO_SLOTS;
		break;
	case PROTO_READ:
	case PROTO_WRITE:
		get_range(&c, r);
		break;
	case PROTO_SYNC:
		break;
	default:
		c.bad = true;
	}
	r->op = (enum proto_op)op;
	return c.bad || c.left ? -EBADMSG : 0;
}

size_t proto_put_reply(const struct proto_reply *r, uint8_t out[STRAIT_RDMA_MESSAGE_MAX])
{
	struct put_cursor c = { .p = out, .left = STRAIT_RDMA_MESSAGE_MAX };

	put_uint(&c, REPLY, 2);
	put_uint(&c, r->id, 4);
	put_uint(&c, (uint64_t)-r->status, 4);
	put_uint(&c, r->bytes, 8);
	put_uint(&c, r->length, 8);
	put_uint(&c, r->inode, 8);
	put_uint(&c, r->mtime, 8);
	return c.bad ? 0 : STRAIT_RDMA_MESSAGE_MAX - c.left;
}

int proto_get_reply(const void *msg, size_t len, struct proto_reply *r)
{
	struct get_cursor c = { .p = msg, .left = len };
	uint64_t error;

	memset(r, 0, sizeof(*r));
	c.bad = get_uint(&c, 2) != REPLY;
	r->id = (uint32_t)get_uint(&c, 4);
	error = get_uint(&c, 4);
	r->bytes = get_uint(&c, 8);
	r->length = get_uint(&c, 8);
	r->inode = get_uint(&c, 8);
	r->mtime = get_uint(&c, 8);
	if (c.bad || c.left || error > ERRNO_MAX)
		return -EBADMSG;
	r->status = -(int32_t)error;
	return 0;
}
