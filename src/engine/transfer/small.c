/* SPDX-License-Identifier: MIT */
/* Small transfers: one staging buffer, read and copied by the calling thread. */
#include "engine/transfer/transfer.h"

#include "base/util.h"
#include "engine/transfer/host_direct.h"

ssize_t read_full(struct strait_endpoint *ep, void *buf, uint64_t off, uint64_t len, uint64_t done)
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

/* The staging buffer and the stream of one transfer: a small lane, or a chunk of the pool while all lanes are busy. */
struct small_buf {
	struct small_lane *lane; /* NULL: @chunk */
	struct chunk *chunk;
	struct staging_user user;
	char *ptr;
	uint64_t dev_addr;
	struct lane_stream *ls;
	bool broken;
};

static int buf_from_pool(struct strait_device *dev, const struct provider_mem *m, bool isolated, struct small_buf *b)
{
	struct staging_pool *pool = &device_engine(dev)->pool;
	int rc = staging_enter(pool, &b->user);

	if (rc)
		return rc;
	b->chunk = staging_try(pool, &b->user);
	rc = b->chunk ? engine_stream_get(dev, m, isolated, &b->ls) : -EAGAIN;
	if (rc) {
		if (b->chunk)
			staging_put(pool, &b->user, b->chunk);
		staging_leave(pool, &b->user);
		return rc;
	}
	b->ptr = b->chunk->ptr;
	b->dev_addr = b->chunk->dev_addr;
	return 0;
}

/* @span: bytes of buffer that are needed. -EAGAIN: there is none right now. */
static int buf_get(struct strait_device *dev, const struct provider_mem *m, bool isolated, uint64_t span,
		   struct small_buf *b)
{
	struct device_engine *de = device_engine(dev);
	int rc = -EAGAIN;

	memset(b, 0, sizeof(*b));
	if (span <= de->small_lanes.buf_bytes)
		rc = small_lane_get(dev, m, isolated, &b->lane);
	if (rc == -EAGAIN)
		return span <= de->pool.chunk_bytes ? buf_from_pool(dev, m, isolated, b) : rc;
	if (rc)
		return rc;
	b->ptr = b->lane->buf;
	b->dev_addr = b->lane->dev_addr;
	b->ls = b->lane->ls;
	return 0;
}

static void buf_put(struct strait_device *dev, struct small_buf *b)
{
	struct staging_pool *pool = &device_engine(dev)->pool;

	if (b->lane) {
		small_lane_put(dev, b->lane, b->broken);
		return;
	}
	engine_stream_put(dev, b->ls, b->broken);
	staging_put(pool, &b->user, b->chunk);
	staging_leave(pool, &b->user);
}

/* One of many callers: its copy goes along with those of the others. -EAGAIN: nothing was done. */
static int copy_combined(const struct strait_transfer *t, struct small_buf *b, uint64_t skip, uint64_t len,
			 struct strait_result *r)
{
	struct strait_device *dev = t->region->dev;
	struct copy_request req;
	struct copy_group g;
	int rc = combine_begin(dev, b->ls, len, &g);

	if (rc)
		return rc;
	combine_start(dev, &g, &req,
		      (struct copy_seg){ t->region->mem.addr + t->region_offset, b->dev_addr + skip, len });
	rc = combine_wait(dev, &g, &req);
	if (rc) {
		r->device_status = g.device_status;
		b->broken = true;
	}
	return rc;
}

static int copy_alone(const struct strait_transfer *t, struct small_buf *b, void *host, uint64_t len, bool out,
		      struct strait_result *r)
{
	int rc = t->region->dev->ops->copy_now(b->ls->stream, t->region->mem.addr + t->region_offset, host, len, out);

	if (rc) {
		r->device_status = b->ls->stream->status;
		b->broken = true;
	}
	return rc;
}

static void read_staged(struct strait_context *ctx, const struct strait_transfer *t, struct small_buf *b, bool combine,
			struct strait_result *r)
{
	uint64_t skip;
	ssize_t n = small_read(ctx, t->endpoint, b->ptr, t->endpoint_offset, t->length, &skip);
	int rc = 0;

	if (n < 0) {
		finish(r, STRAIT_ROUTE_STAGED, 0, (int)n);
		return;
	}
	if (n)
		rc = combine ? copy_combined(t, b, skip, (uint64_t)n, r) : -EAGAIN;
	if (rc == -EAGAIN)
		rc = copy_alone(t, b, b->ptr + skip, (uint64_t)n, false, r);
	finish(r, STRAIT_ROUTE_STAGED, rc ? 0 : (uint64_t)n, rc);
}

static void write_staged(struct strait_context *ctx, const struct strait_transfer *t, struct small_buf *b,
			 struct strait_result *r)
{
	uint64_t done;
	int err, rc = copy_alone(t, b, b->ptr, t->length, true, r);

	if (rc) {
		finish(r, STRAIT_ROUTE_STAGED, 0, rc);
		return;
	}
	done = small_write(ctx, t->endpoint, b->ptr, t->endpoint_offset, t->length, &err);
	finish(r, STRAIT_ROUTE_STAGED, done, err);
}

int small_run(const struct strait_transfer *t, uint32_t mask, bool isolated, struct strait_result *r)
{
	struct strait_context *ctx = t->endpoint->owner;
	struct strait_device *dev = t->region->dev;
	uint64_t span = small_span(t->endpoint, t->endpoint_offset, t->length);
	struct small_buf b;
	bool combine;
	int rc;

	if (mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_HOST))
		return run_host(ctx, t, r);
	if (!(mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED)))
		return -EAGAIN;
	if (t->op == STRAIT_WRITE && !t->endpoint->facts.can_buffered)
		return -EAGAIN;
	rc = buf_get(dev, &t->region->mem, isolated, span, &b);
	if (rc == -EAGAIN)
		return rc;
	if (rc) {
		r->status = rc;
		return 0;
	}
	combine = combine_pays(callers_enter(dev), t->length) && !isolated;
	if (t->op == STRAIT_READ)
		read_staged(ctx, t, &b, combine, r);
	else
		write_staged(ctx, t, &b, r);
	callers_leave(dev);
	buf_put(dev, &b);
	stat_add(&ctx->stats.small, 1);
	return 0;
}
