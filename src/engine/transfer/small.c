/* SPDX-License-Identifier: MIT */
/* Small transfers: one staging chunk, read and copied by the calling thread. */
#include "engine/transfer/transfer.h"

#include "base/util.h"
#include "engine/transfer/host_direct.h"

static ssize_t read_full(struct strait_endpoint *ep, void *buf, uint64_t off, uint64_t len, uint64_t done)
{
	while (done < len) {
		ssize_t n = ep->ops->read(ep, IO_BUFFERED, (char *)buf + done, len - done, off + done);

		if (n < 0)
			return n;
		if (!n)
			break;
		done += (uint64_t)n;
	}
	return (ssize_t)done;
}

static ssize_t read_direct(struct strait_context *ctx, struct strait_endpoint *ep, void *buf, uint64_t off,
			   uint64_t len, uint64_t *skip)
{
	uint64_t align = ep->facts.dio_align, start = align_down(off, align), got;
	ssize_t n = ep->ops->read(ep, IO_DIRECT, buf, small_span(ep, off, len), start);

	*skip = off - start;
	if (n < 0)
		return n;
	got = (uint64_t)n > *skip ? min_u64((uint64_t)n - *skip, len) : 0;
	stat_add(&ctx->stats.direct_bytes, got);
	return (ssize_t)got;
}

ssize_t small_read(struct strait_context *ctx, struct strait_endpoint *ep, void *buf, uint64_t off, uint64_t len,
		   uint64_t *skip)
{
	const struct endpoint_facts *facts = &ep->facts;
	ssize_t n = 0;

	*skip = 0;
	if (!facts->can_buffered || facts->force_direct) {
		n = read_direct(ctx, ep, buf, off, len, skip);
		if (!facts->can_buffered || n == (ssize_t)len || (n < 0 && n != -EINVAL))
			return n;
		/* Short, or refused for its alignment: a buffered read tells where the file ends. */
		*skip = 0;
		return read_full(ep, buf, off, len, 0);
	}
	if (facts->can_direct) {
		n = ep->ops->read_cached(ep, buf, len, off);
		if (n == -EAGAIN) {
			n = read_direct(ctx, ep, buf, off, len, skip);
			if (n == (ssize_t)len)
				return n;
			*skip = 0;
			n = 0;
		}
		if (n < 0)
			n = 0;
	}
	return read_full(ep, buf, off, len, (uint64_t)n);
}

uint64_t small_write(struct strait_context *ctx, struct strait_endpoint *ep, const void *buf, uint64_t off,
		     uint64_t len, int *err)
{
	const struct endpoint_facts *facts = &ep->facts;
	enum io_mode mode = IO_BUFFERED;
	uint64_t done = 0;

	*err = 0;
	if (!facts->can_buffered || (facts->force_direct && !(off % facts->dio_align) && !(len % facts->dio_align) &&
				     !((uintptr_t)buf % facts->dio_mem_align)))
		mode = IO_DIRECT;
	while (done < len) {
		ssize_t n = ep->ops->write(ep, mode, (const char *)buf + done, len - done, off + done);

		if (n == -EINVAL && mode == IO_DIRECT && facts->can_buffered) {
			mode = IO_BUFFERED;
			continue;
		}
		if (n <= 0) {
			*err = n ? (int)n : -EIO;
			break;
		}
		if (mode == IO_DIRECT)
			stat_add(&ctx->stats.direct_bytes, (uint64_t)n);
		if (facts->can_buffered)
			mode = IO_BUFFERED;
		done += (uint64_t)n;
	}
	return done;
}

static void finish(struct strait_result *r, int route, uint64_t bytes, int status)
{
	r->bytes = bytes;
	r->status = status;
	if (bytes) {
		r->routes = STRAIT_ROUTE_MASK(route);
		r->route_bytes[route] = bytes;
	}
}

static ssize_t read_host(struct strait_context *ctx, struct strait_endpoint *ep, void *buf, uint64_t off, uint64_t len)
{
	uint64_t part, done = 0;
	ssize_t n = 0;

	if (ep->facts.force_direct && host_direct_aligned(ep, buf, off)) {
		part = host_direct_part(ep, off, len);
		n = part ? ep->ops->read(ep, IO_DIRECT, buf, part, off) : 0;
		if (n < 0 && n != -EINVAL)
			return n;
		done = n < 0 ? 0 : (uint64_t)n;
		if (n >= 0 && done < len) {
			n = host_direct_rest(ep, (char *)buf + done, off + done, len - done);
			done += n < 0 ? 0 : (uint64_t)n;
		}
		stat_add(&ctx->stats.direct_bytes, done);
	}
	return read_full(ep, buf, off, len, done);
}

static int run_host(struct strait_context *ctx, const struct strait_transfer *t, struct strait_result *r)
{
	void *buf = (void *)(uintptr_t)(t->region->mem.addr + t->region_offset);
	ssize_t n;
	int err;

	if (!t->endpoint->facts.can_buffered)
		return -EAGAIN;
	if (t->op == STRAIT_READ) {
		n = read_host(ctx, t->endpoint, buf, t->endpoint_offset, t->length);
		finish(r, STRAIT_ROUTE_HOST, n < 0 ? 0 : (uint64_t)n, n < 0 ? (int)n : 0);
	} else {
		uint64_t done = small_write(ctx, t->endpoint, buf, t->endpoint_offset, t->length, &err);

		finish(r, STRAIT_ROUTE_HOST, done, err);
	}
	stat_add(&ctx->stats.small, 1);
	return 0;
}

/* Returns the status of the copy: after an error the stream must not be used again. */
static int read_staged(struct strait_context *ctx, const struct strait_transfer *t, struct chunk *c,
		       struct lane_stream *ls, struct strait_result *r)
{
	uint64_t skip;
	ssize_t n;
	int rc = 0;

	n = small_read(ctx, t->endpoint, c->ptr, t->endpoint_offset, t->length, &skip);
	if (n < 0) {
		finish(r, STRAIT_ROUTE_STAGED, 0, (int)n);
		return 0;
	}
	if (n)
		rc = t->region->dev->ops->copy_now(ls->stream, t->region->mem.addr + t->region_offset,
						   (char *)c->ptr + skip, (uint64_t)n, false);
	if (rc)
		r->device_status = ls->stream->status;
	finish(r, STRAIT_ROUTE_STAGED, rc ? 0 : (uint64_t)n, rc);
	return rc;
}

/* Returns the status of the copy, as read_staged() does. */
static int write_staged(struct strait_context *ctx, const struct strait_transfer *t, struct chunk *c,
			struct lane_stream *ls, struct strait_result *r)
{
	uint64_t done;
	int rc, err;

	rc = t->region->dev->ops->copy_now(ls->stream, t->region->mem.addr + t->region_offset, c->ptr, t->length, true);
	if (rc) {
		r->device_status = ls->stream->status;
		finish(r, STRAIT_ROUTE_STAGED, 0, rc);
		return rc;
	}
	done = small_write(ctx, t->endpoint, c->ptr, t->endpoint_offset, t->length, &err);
	finish(r, STRAIT_ROUTE_STAGED, done, err);
	return 0;
}

int small_run(const struct strait_transfer *t, uint32_t mask, bool isolated, struct strait_result *r)
{
	struct strait_context *ctx = t->endpoint->owner;
	struct strait_device *dev = t->region->dev;
	struct staging_pool *pool = &device_engine(dev)->pool;
	struct lane_stream *ls;
	struct staging_user user;
	struct chunk *c;
	int rc;

	if (mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_HOST))
		return run_host(ctx, t, r);
	if (!(mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED)) ||
	    small_span(t->endpoint, t->endpoint_offset, t->length) > pool->chunk_bytes)
		return -EAGAIN;
	if (t->op == STRAIT_WRITE && !t->endpoint->facts.can_buffered)
		return -EAGAIN;
	rc = staging_enter(pool, &user);
	if (rc) {
		r->status = rc;
		return 0;
	}
	c = staging_try(pool, &user);
	if (!c) {
		rc = -EAGAIN;
		goto leave_pool;
	}
	rc = engine_stream_get(dev, &t->region->mem, isolated, &ls);
	if (rc) {
		r->status = rc;
		rc = 0;
		goto put_chunk;
	}
	rc = t->op == STRAIT_READ ? read_staged(ctx, t, c, ls, r) : write_staged(ctx, t, c, ls, r);
	engine_stream_put(dev, ls, rc != 0);
	rc = 0;
	stat_add(&ctx->stats.small, 1);
put_chunk:
	staging_put(pool, &user, c);
leave_pool:
	staging_leave(pool, &user);
	return rc;
}
