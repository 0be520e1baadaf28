/* SPDX-License-Identifier: MIT */
/*
 * Reads of at most one staging chunk, out of the page cache, in pieces: one is copied while the next is read. While few
 * callers are active workers help to read; while many are, their copies are combined.
 *
 * A piece is read by one thread. Pieces are copied in their order, by the caller alone: so no byte behind a piece that
 * turns out to be short reaches the device, and no two threads queue for the driver's lock, which takes longer than the
 * copy of a piece. Helpers wait for nothing but file I/O; the caller waits for them before it copies the rest.
 */
#include "base/util.h"
#include "engine/transfer/helpers.h"
#include "engine/transfer/transfer.h"

#define PIECE_BYTES KIB(256)
#define COMBINED_BYTES KIB(128)
#define ALONE_BYTES MIB(2) /* of a piece whose copy waits for those of other streams: fewer copies are quicker */
#define COPY_MOST MIB(1)   /* so many bytes that are read are worth a copy while others are read */
#define PIECES_MAX 64
#define HELPERS_MOST 3
#define HELPED_BYTES KIB(512)	     /* for each thread */
#define STREAM_HELPED_BYTES KIB(256) /* the same while a stream waits, which has nothing else to do */
#define HELPED_CALLERS 2	     /* with more, one helper for a read of more than ALONE_BYTES */
#define HELPED_CALLERS_LONG 4

struct chunk_read {
	const struct strait_transfer *t;
	struct strait_device *dev;
	uint64_t deadline;
	const atomic_bool *cancel;
	bool isolated;
	struct chunk *chunk;
	uint64_t len, piece;
	unsigned int n;
	unsigned int copied;  /* pieces before this one are being copied, or were; the caller's */
	pthread_mutex_t lock; /* protects the members below */
	unsigned int next;    /* piece to be read next */
	uint64_t ready;	      /* bitmap of pieces that were read */
	uint64_t limit;	      /* bytes of the transfer that are valid */
	int err;	      /* why it is short */
	int32_t device_status;
};

static uint64_t addr_of(const struct chunk_read *c, uint64_t off)
{
	return c->t->region->mem.addr + c->t->region_offset + off;
}

static uint64_t piece_len(const struct chunk_read *c, unsigned int i)
{
	return min_u64(c->piece, c->len - i * c->piece);
}

static void stop_at_locked(struct chunk_read *c, uint64_t off, int err, int32_t device_status)
{
	if (off >= c->limit)
		return;
	c->limit = off;
	c->err = err;
	c->device_status = device_status;
}

/* Reads piece @i. Returns its bytes; fewer than its length end the transfer there. */
static uint64_t read_piece(struct chunk_read *c, unsigned int i)
{
	uint64_t off = i * c->piece, want = piece_len(c, i), got = 0;
	int err = os_stop(c->deadline, c->cancel);
	ssize_t n;

	if (!err) {
		n = read_full(c->t->endpoint, (char *)c->chunk->ptr + off, c->t->endpoint_offset + off, want, 0);
		err = n < 0 ? (int)n : 0;
		got = n < 0 ? 0 : (uint64_t)n;
	}
	if (got < want) {
		pthread_mutex_lock(&c->lock);
		stop_at_locked(c, off + got, err, 0);
		pthread_mutex_unlock(&c->lock);
	}
	return got;
}

/* The next piece to read. False: none is left. */
static bool take_piece(struct chunk_read *c, unsigned int *i)
{
	bool more;

	pthread_mutex_lock(&c->lock);
	more = c->next < c->n && c->next * c->piece < c->limit;
	if (more)
		*i = c->next++;
	pthread_mutex_unlock(&c->lock);
	return more;
}

static void mark_read(struct chunk_read *c, unsigned int i)
{
	pthread_mutex_lock(&c->lock);
	c->ready |= 1ull << i;
	pthread_mutex_unlock(&c->lock);
}

/* Takes the run of pieces that can be copied now, of @least bytes. False: there is none. */
static bool take_run(struct chunk_read *c, uint64_t least, uint64_t *start, uint64_t *end)
{
	unsigned int to = c->copied;
	bool enough;

	pthread_mutex_lock(&c->lock);
	while (to < c->n && (c->ready >> to & 1))
		to++;
	*start = c->copied * c->piece;
	*end = min_u64(to * c->piece, c->limit);
	pthread_mutex_unlock(&c->lock);
	enough = *end > *start && *end - *start >= least;
	if (enough)
		c->copied = to;
	return enough;
}

static void help(void *arg)
{
	struct chunk_read *c = arg;
	unsigned int i;

	while (take_piece(c, &i)) {
		read_piece(c, i);
		mark_read(c, i);
	}
}

static int copy_run(struct chunk_read *c, struct lane_stream *ls, uint64_t start, uint64_t end)
{
	int rc = c->dev->ops->copy_in(ls->stream, addr_of(c, start), (char *)c->chunk->ptr + start, end - start);

	if (rc) {
		pthread_mutex_lock(&c->lock);
		stop_at_locked(c, 0, rc, ls->stream->status);
		pthread_mutex_unlock(&c->lock);
	}
	return rc;
}

/* Reads pieces beside the helpers and copies what has been read. */
static int read_and_copy(struct chunk_read *c, struct lane_stream *ls)
{
	uint64_t start, end, least = min_u64(c->len / 2, COPY_MOST);
	unsigned int i;
	int rc = 0;

	while (!rc && take_piece(c, &i)) {
		read_piece(c, i);
		mark_read(c, i);
		if (take_run(c, least, &start, &end))
			rc = copy_run(c, ls, start, end);
	}
	return rc;
}

static int read_helped(struct chunk_read *c, unsigned int helpers)
{
	const struct provider_ops *ops = c->dev->ops;
	struct lane_stream *ls;
	struct helpers h;
	uint64_t start, end;
	int rc = engine_stream_get(c->dev, &c->t->region->mem, c->isolated, &ls);

	if (rc)
		return rc;
	helpers_begin(&h, &device_context(c->dev)->workers, HELPERS_IDLE, helpers, help, c);
	rc = read_and_copy(c, ls);
	helpers_end(&h);
	if (!rc && take_run(c, 0, &start, &end))
		rc = copy_run(c, ls, start, end);
	if (!rc && c->copied)
		rc = ops->stream_wait_soon(ls->stream);
	if (rc) {
		/* Copies may be in flight, and the chunk is free to be used again after an error. */
		ops->stream_wait(ls->stream, STRAIT_FOREVER);
		stop_at_locked(c, 0, rc, ls->stream->status); /* the helpers have ended */
	}
	engine_stream_put(c->dev, ls, rc != 0);
	return 0;
}

/* One of many callers: reads all pieces, and their copies go along with those of the others. -EAGAIN: nothing was done. */
static int read_combined(struct chunk_read *c)
{
	struct copy_request req[PIECES_MAX + 1];
	struct lane_stream *ls;
	struct copy_group g;
	unsigned int n = 0;
	int rc = engine_stream_get(c->dev, &c->t->region->mem, false, &ls);

	if (rc)
		return rc;
	rc = combine_begin(c->dev, ls, c->len, &g);
	if (rc) {
		engine_stream_put(c->dev, ls, false);
		return rc;
	}
	for (unsigned int i = 0; i < c->n && i * c->piece < c->limit; i++) {
		uint64_t off = i * c->piece, got = read_piece(c, i);

		if (!got)
			break;
		combine_start(c->dev, &g, &req[n++],
			      (struct copy_seg){ addr_of(c, off), c->chunk->dev_addr + off, got });
	}
	rc = combine_wait(c->dev, &g, &req[n]);
	if (rc)
		stop_at_locked(c, 0, rc, g.device_status); /* no other thread has @c */
	engine_stream_put(c->dev, ls, rc != 0);
	return 0;
}

/* Is it in the page cache, so that reading it takes no longer than copying? */
static bool in_memory(const struct strait_transfer *t, const struct route_plan *plan, uint64_t len)
{
	uint64_t bytes;

	if (plan->io == ROUTE_IO_BUFFERED)
		return true;
	return !t->endpoint->ops->cached(t->endpoint, t->endpoint_offset, len, &bytes) && bytes >= len - len / 16;
}

static void divide(struct chunk_read *c, uint64_t piece)
{
	c->piece = max_u64(piece, align_up((c->len + PIECES_MAX - 1) / PIECES_MAX, os_page_size()));
	c->n = (unsigned int)((c->len + c->piece - 1) / c->piece);
}

/* Each helper takes a processor that a caller may want. */
static unsigned int helpers_for(const struct chunk_read *c, unsigned int callers)
{
	uint64_t each = c->isolated ? STREAM_HELPED_BYTES : HELPED_BYTES;

	if (callers <= HELPED_CALLERS)
		return (unsigned int)min_u64((c->len - 1) / each, HELPERS_MOST);
	return callers <= HELPED_CALLERS_LONG && c->len > ALONE_BYTES;
}

/* Two pieces for each thread: all threads end together, and the first half is copied while the second is read. */
static uint64_t helped_piece(const struct chunk_read *c, unsigned int helpers)
{
	uint64_t threads = helpers + 1;

	return min_u64(align_up((c->len + 2 * threads - 1) / (2 * threads), os_page_size()), PIECE_BYTES);
}

static void run(struct chunk_read *c, struct strait_result *r)
{
	unsigned int callers = callers_enter(c->dev), helpers;
	bool combine = combine_pays(callers, c->len) && !c->isolated;
	int rc = -EAGAIN;

	pthread_mutex_init(&c->lock, NULL);
	if (combine) {
		divide(c, COMBINED_BYTES);
		rc = read_combined(c);
	}
	if (rc == -EAGAIN) {
		helpers = helpers_for(c, callers);
		divide(c, callers <= HELPED_CALLERS ? helped_piece(c, helpers) : ALONE_BYTES);
		rc = read_helped(c, helpers);
	}
	callers_leave(c->dev);
	pthread_mutex_destroy(&c->lock);
	if (rc) {
		r->status = rc;
		return;
	}
	r->bytes = r->route_bytes[STRAIT_ROUTE_STAGED] = c->limit;
	r->routes = c->limit ? STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED) : 0;
	r->status = c->err;
	r->device_status = c->device_status;
}

int chunk_read_run(const struct strait_transfer *t, const struct route_plan *plan, uint64_t deadline,
		   const atomic_bool *cancel, bool isolated, struct strait_result *r)
{
	struct strait_device *dev = t->region->dev;
	struct staging_pool *pool = &device_engine(dev)->pool;
	struct chunk_read c = { .t = t, .dev = dev, .deadline = deadline, .cancel = cancel, .isolated = isolated };
	struct staging_user user;
	uint64_t len;
	int rc;

	if (t->endpoint->ops->length(t->endpoint, &len))
		return -EAGAIN;
	c.len = t->endpoint_offset < len ? min_u64(t->length, len - t->endpoint_offset) : 0;
	/* Some files have bytes and no length: the job finds their end by reading. */
	if (!c.len || !in_memory(t, plan, c.len))
		return -EAGAIN;
	rc = staging_enter(pool, &user);
	if (rc) {
		r->status = rc;
		return 0;
	}
	staging_count(pool, c.len);
	c.chunk = staging_try(pool, &user);
	if (c.chunk) {
		c.limit = c.len;
		run(&c, r);
		staging_put(pool, &user, c.chunk);
	}
	staging_leave(pool, &user);
	return c.chunk ? 0 : -EAGAIN;
}
