/* SPDX-License-Identifier: MIT */
/*
 * Reads of many short rows at equal distances, out of the page cache, packed into device memory.
 *
 * Each thread takes a block of rows at a time, reads them one after the other into its staging chunk, and starts the copy
 * of the block while it reads the next. A chunk that is full is used again once its copies are complete. Helpers wait for
 * file I/O and their copies only; one that gets no staging memory or finds no chunk ends.
 */
#include "base/util.h"
#include "engine/transfer/helpers.h"
#include "engine/transfer/transfer.h"
#include "os/os.h"

#define BLOCK_BYTES KIB(256) /* of rows: one copy. A block is no longer than a chunk */
#define SAMPLES 8	     /* places of the file whose presence in the page cache is looked at */
#define SAMPLE_BYTES KIB(256)

struct rows_read {
	const struct strait_transfer *t;
	const struct strait_rows *rows;
	struct strait_device *dev;
	uint64_t block; /* rows */
	pthread_mutex_t lock;
	uint64_t next; /* row to be read next; under @lock, as are the members below */
	int err;
	int32_t device_status;
};

static void fail(struct rows_read *c, int err, int32_t device_status)
{
	pthread_mutex_lock(&c->lock);
	if (!c->err) {
		c->err = err;
		c->device_status = device_status;
	}
	pthread_mutex_unlock(&c->lock);
}

/* The next rows to read. False: none is left, or another thread has failed. */
static bool take_block(struct rows_read *c, uint64_t *first, uint64_t *n)
{
	pthread_mutex_lock(&c->lock);
	*first = c->next;
	*n = c->err ? 0 : min_u64(c->block, c->rows->count - c->next);
	c->next += *n;
	pthread_mutex_unlock(&c->lock);
	return *n;
}

static int read_block(struct rows_read *c, char *buf, uint64_t first, uint64_t n)
{
	const struct strait_rows *rows = c->rows;

	for (uint64_t i = 0; i < n; i++) {
		ssize_t got = read_full(c->t->endpoint, buf + i * rows->length,
					rows->offset + (first + i) * rows->pitch, rows->length, 0);

		if (got < 0)
			return (int)got;
		if ((uint64_t)got < rows->length)
			return -ENODATA;
	}
	return 0;
}

static void read_blocks(struct rows_read *c, struct lane_stream *ls, const struct chunk *chunk)
{
	const struct provider_ops *ops = c->dev->ops;
	uint64_t room = device_engine(c->dev)->pool.chunk_bytes, used = 0, first, n;
	uint64_t base = c->t->region->mem.addr + c->t->region_offset;
	int rc = 0, err = 0;

	while (!rc && !err && take_block(c, &first, &n)) {
		uint64_t bytes = n * c->rows->length;
		char *buf;

		if (used + bytes > room) {
			rc = ops->stream_wait_soon(ls->stream);
			used = 0;
		}
		buf = (char *)chunk->ptr + used;
		if (!rc)
			err = read_block(c, buf, first, n);
		if (!rc && !err)
			rc = ops->copy_in(ls->stream, base + first * c->rows->length, buf, bytes);
		used += align_up(bytes, os_page_size());
	}
	if (!rc)
		rc = ops->stream_wait_soon(ls->stream);
	if (rc) {
		/* Copies may be in flight, and the chunk is free to be used again after an error. */
		ops->stream_wait(ls->stream, STRAIT_FOREVER);
		ls->broken = true;
	}
	if (rc || err)
		fail(c, rc ? rc : err, rc ? ls->stream->status : 0);
}

/* Reads on the calling thread. @wait: for a chunk; otherwise the thread is not needed without one. */
static void read_on_thread(struct rows_read *c, bool wait)
{
	struct staging_pool *pool = &device_engine(c->dev)->pool;
	struct lane_stream *ls;
	struct staging_user user;
	struct chunk *chunk;
	int rc = staging_enter(pool, &user);

	if (rc) {
		if (wait)
			fail(c, rc, 0);
		return;
	}
	chunk = wait ? staging_wait(pool, &user, STRAIT_FOREVER) : staging_try_spare(pool, &user);
	if (chunk) {
		rc = engine_stream_get(c->dev, &c->t->region->mem, false, &ls);
		if (!rc) {
			read_blocks(c, ls, chunk);
			engine_stream_put(c->dev, ls, ls->broken);
		}
		staging_put(pool, &user, chunk);
	}
	staging_leave(pool, &user);
	/* Without a stream the other threads read all rows. */
	if (rc && wait)
		fail(c, rc, 0);
}

static void help(void *arg)
{
	read_on_thread(arg, false);
}

static void read_helped(struct rows_read *c)
{
	struct strait_context *ctx = device_context(c->dev);
	uint64_t blocks = (c->rows->count + c->block - 1) / c->block;
	struct helpers h;

	helpers_begin(&h, &ctx->workers, HELPERS_ANY, (unsigned int)min_u64(ctx->threads, blocks) - 1, help, c);
	read_on_thread(c, true);
	helpers_end(&h);
}

/* Is what was looked at in the page cache? */
static bool in_memory(struct strait_endpoint *ep, uint64_t off, uint64_t span)
{
	uint64_t len = min_u64(SAMPLE_BYTES, span), bytes;

	for (unsigned int i = 0; i < SAMPLES; i++) {
		uint64_t at = off + (span - len) / (SAMPLES - 1) * i;

		if (ep->ops->cached(ep, at, len, &bytes) || bytes < len - len / 16)
			return false;
	}
	return true;
}

int rows_check(const struct strait_context *ctx, const struct strait_rows *rows, struct strait_transfer *t)
{
	uint64_t span;

	if (!rows->length || !rows->count || rows->pitch < rows->length)
		return -EINVAL;
	if (__builtin_mul_overflow(rows->pitch, rows->count, &span) || !range_fits_off_t(rows->offset, span))
		return -EINVAL;
	*t = (struct strait_transfer){ .op = STRAIT_READ,
				       .endpoint = t->endpoint,
				       .region = t->region,
				       .endpoint_offset = rows->offset,
				       .region_offset = t->region_offset,
				       .length = rows->length * rows->count };
	return transfer_check(ctx, t);
}

int rows_read(const struct strait_transfer *t, const struct strait_rows *rows, struct strait_result *r)
{
	const struct endpoint_facts *facts = &t->endpoint->facts;
	struct strait_device *dev = t->region->dev;
	uint64_t block_bytes = min_u64(BLOCK_BYTES, device_engine(dev)->pool.chunk_bytes);
	struct rows_read c = { .t = t, .rows = rows, .dev = dev };

	if (!facts->can_buffered || facts->force_direct || dev->caps & STRAIT_DEVICE_HOST ||
	    t->region->mem.caps & STRAIT_REGION_DMA_ONLY || rows->length > block_bytes)
		return -EAGAIN;
	if (!in_memory(t->endpoint, rows->offset, (rows->count - 1) * rows->pitch + rows->length))
		return -EAGAIN;
	c.block = block_bytes / rows->length;
	pthread_mutex_init(&c.lock, NULL);
	staging_count(&device_engine(dev)->pool, t->length);
	read_helped(&c);
	pthread_mutex_destroy(&c.lock);
	*r = (struct strait_result){ .status = c.err, .device_status = c.device_status };
	if (!c.err) {
		r->bytes = r->route_bytes[STRAIT_ROUTE_STAGED] = t->length;
		r->routes = STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED);
	}
	stats_transfer(&device_context(dev)->stats, STRAIT_READ, r);
	return c.err;
}
