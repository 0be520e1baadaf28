/* SPDX-License-Identifier: MIT */
/* Moves the bytes of a batch: one copy list for all its runs, through pinned memory. */
#include <stdlib.h>

#include "base/util.h"
#include "engine/transfer/transfer.h"
#include "mapping/copy.h"
#include "mapping/parts.h"

/* Copies between the stage and device memory, one part after the other: for isolated streams, and single parts. */
static int copy_each(struct parts *p, struct dev_stream *s, struct stage *st, bool out)
{
	const struct provider_ops *ops = p->v->dev->ops;
	int rc = 0;

	for (unsigned int i = 0; i < p->n && !rc; i++) {
		struct part *part = &p->part[i];
		char *host = st->ptr + part->at;

		rc = out ? ops->copy_out(s, host, part_addr(part), part_len(part)) :
			   ops->copy_in(s, part_addr(part), host, part_len(part));
	}
	return rc;
}

static int copy_as_list(struct parts *p, struct dev_stream *s, struct stage *st, bool out)
{
	struct copy_seg *segs = calloc(p->n, sizeof(*segs));
	int rc;

	if (!segs)
		return -ENOMEM;
	for (unsigned int i = 0; i < p->n; i++) {
		uint64_t host = st->reg.dev_addr + p->part[i].at, dev = part_addr(&p->part[i]);

		segs[i] = (struct copy_seg){ out ? host : dev, out ? dev : host, part_len(&p->part[i]) };
	}
	rc = p->v->dev->ops->copy_list(s, segs, p->n);
	free(segs);
	return rc;
}

/* Copies all parts between the stage and the device, and waits. */
static int copy_parts(struct parts *p, struct stage *st, bool out, bool isolated)
{
	struct strait_device *dev = p->v->dev;
	uint64_t began = os_now_ns();
	struct lane_stream *ls;
	int rc, done;

	rc = engine_stream_get(dev, &p->part->extent->data->mem, isolated, &ls);
	if (rc)
		return rc;
	rc = isolated || p->n == 1 ? copy_each(p, ls->stream, st, out) : copy_as_list(p, ls->stream, st, out);
	done = dev->ops->stream_wait(ls->stream, STRAIT_FOREVER);
	if (!rc)
		rc = done;
	engine_stream_put(dev, ls, rc != 0);
	count_since(&p->v->map->device_ns, began);
	return rc;
}

/* Fills pages of the CPU's copies. */
static int fill_parts(struct parts *p, struct stage *st)
{
	int rc = 0;

	for (unsigned int i = 0; i < p->n && !rc; i++)
		rc = copy_fill(p->v, p->part[i].span.first, p->part[i].span.end - p->part[i].span.first,
			       st->ptr + p->part[i].at);
	return rc;
}

void batch_end(struct strait_mapping *m, struct view *v, const struct batch *b, uint64_t good, enum granule_event yes,
	       enum granule_event no)
{
	struct map_index *x = m->index;
	uint64_t began;

	pthread_mutex_lock(&x->lock);
	began = os_now_ns();
	for (unsigned int i = 0; i < b->n; i++)
		for (uint64_t g = b->runs[i].first; g < b->runs[i].end; g++)
			index_event_locked(x, v, g, good ? (good--, yes) : no);
	count_since(&m->walk_ns, began);
	if (b->from)
		b->from->users--;
	pthread_cond_broadcast(&x->moved);
	pthread_mutex_unlock(&x->lock);
}

/* Stores bytes of a view on the host. *@good: granules that were stored. */
static int store_runs(struct view *from, const struct batch *b, bool isolated, uint64_t *good)
{
	struct parts p;
	struct stage *st;
	uint64_t at = 0, began;
	int rc;

	rc = parts_get(&p, from, b);
	if (rc)
		goto put_parts;
	rc = stage_get(from, STAGE_BYTES, &st);
	if (rc)
		goto put_parts;
	rc = copy_parts(&p, st, true, isolated);
	began = os_now_ns();
	for (unsigned int i = 0; i < b->n && !rc; i++) {
		uint64_t n = b->runs[i].end - b->runs[i].first;

		rc = host_store(from->map, b->runs[i].first, n, st->ptr + at);
		at += n << GRANULE_SHIFT;
		if (!rc)
			*good += n;
	}
	count_since(&from->map->stage_ns, began);
	stage_put(from, st);
put_parts:
	parts_put(&p);
	return rc;
}

static int batch_store(struct strait_mapping *m, struct batch *b, bool isolated)
{
	struct strait_mapping *owner = b->from->map;
	uint64_t good = 0;
	int rc = store_runs(b->from, b, isolated, &good);

	if (rc)
		atomic_store_explicit(&owner->error, rc, memory_order_relaxed);
	if (b->from != copy_view(owner)) {
		count(&owner->to_host, good << GRANULE_SHIFT);
		count(&owner->copies, 1);
	}
	batch_end(m, NULL, b, good, GRANULE_STORED, GRANULE_STORE_FAILED);
	return rc;
}

/* A batch that is read into the stage, in pieces. */
#define READ_PIECE 64u /* granules */
struct read_job {
	struct strait_mapping *m;
	const struct batch *b;
	char *to;
	pthread_mutex_t lock; /* protects what follows */
	uint64_t good;	      /* granules before the first that cannot be read */
	int rc;		      /* why it cannot */
};

/* Reads granules [i * READ_PIECE, (i + 1) * READ_PIECE) of the batch. */
static void read_piece(void *arg, unsigned int i)
{
	struct read_job *j = arg;
	uint64_t at = 0, from = (uint64_t)i * READ_PIECE, end = min_u64(from + READ_PIECE, j->b->granules);

	for (unsigned int k = 0; k < j->b->n && at < end; k++) {
		struct span run = j->b->runs[k];
		uint64_t len = run.end - run.first, skip, n, good;
		int rc;

		if (at + len > from) {
			skip = from > at ? from - at : 0;
			n = min_u64(len - skip, end - at - skip);
			rc = host_read(j->m, run.first + skip, n, j->to + ((at + skip) << GRANULE_SHIFT), &good);
			pthread_mutex_lock(&j->lock);
			if (rc && at + skip + good < j->good) {
				j->good = at + skip + good;
				j->rc = rc;
			}
			pthread_mutex_unlock(&j->lock);
		}
		at += len;
	}
}

/* Copies the host's bytes into the stage. *@good: granules before the first that cannot be read. */
static int read_runs(struct strait_mapping *m, const struct batch *b, char *to, uint64_t *good)
{
	struct read_job j = { .m = m, .b = b, .to = to, .good = b->granules };

	pthread_mutex_init(&j.lock, NULL);
	parallel_for(&m->ctx->workers, (unsigned int)((b->granules + READ_PIECE - 1) / READ_PIECE), read_piece, &j);
	pthread_mutex_destroy(&j.lock);
	*good = j.good;
	return j.rc;
}

/* Reads all runs into the stage and copies those before the first that cannot be read. */
static int fetch_runs(struct strait_mapping *m, struct view *v, const struct batch *b, bool isolated, uint64_t *good)
{
	struct stage *st;
	struct parts p;
	uint64_t read, began;
	int rc, copied;

	rc = parts_get(&p, v, b);
	if (rc)
		goto put_parts;
	rc = stage_get(v, STAGE_BYTES, &st);
	if (rc)
		goto put_parts;
	began = os_now_ns();
	rc = read_runs(m, b, st->ptr, &read);
	count_since(&m->stage_ns, began);
	/* A part that was not read as a whole is not copied. */
	while (p.n && ((p.part[p.n - 1].at + part_len(&p.part[p.n - 1])) >> GRANULE_SHIFT) > read)
		p.n--;
	read = p.n ? (p.part[p.n - 1].at + part_len(&p.part[p.n - 1])) >> GRANULE_SHIFT : 0;
	if (v == copy_view(m))
		copied = fill_parts(&p, st);
	else
		copied = p.n ? copy_parts(&p, st, false, isolated) : 0;
	*good = copied ? 0 : read;
	if (!rc)
		rc = copied;
	stage_put(v, st);
put_parts:
	parts_put(&p);
	return rc;
}

/* Fills [from, to) of the extent's memory with zeros: the end of the file lies in its last granule. */
static int fill_zeros(struct extent *e, uint64_t from, uint64_t to, bool isolated)
{
	struct strait_device *dev = e->data->dev;
	struct lane_stream *ls;
	int rc, done;

	rc = engine_stream_get(dev, &e->data->mem, isolated, &ls);
	if (rc)
		return rc;
	rc = dev->ops->fill(ls->stream, e->data->mem.addr + from, 0, to - from);
	done = dev->ops->stream_wait(ls->stream, STRAIT_FOREVER);
	rc = rc ? rc : done;
	engine_stream_put(dev, ls, rc != 0);
	return rc;
}

/* Fetches a long run of a file by a transfer, which reads and copies at the same time. */
static int fetch_long(struct strait_mapping *m, struct extent *e, struct span s, bool isolated, uint64_t *good)
{
	struct strait_transfer t = {
		.op = STRAIT_READ,
		/* Of a file not p2p: the drive does not see what only the page cache has. */
		.routes = endpoint_has_file(m->ep) ?
				  STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE) | STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED) |
					  STRAIT_ROUTE_MASK(STRAIT_ROUTE_HOST) :
				  0,
		.endpoint = m->ep,
		.region = e->data,
		.endpoint_offset = granule_offset(s.first),
		.region_offset = (s.first - e->first) << GRANULE_SHIFT,
		.length = (s.end - s.first) << GRANULE_SHIFT,
	};
	struct strait_result r = { 0 };
	uint64_t part;
	int rc;

	rc = transfer_begin(&t);
	if (rc)
		return rc;
	transfer_execute(&t, UINT64_MAX, NULL, isolated, &r);
	transfer_end(&t, 1);
	rc = r.status;
	part = -r.bytes % GRANULE_BYTES;
	if (!rc && part)
		rc = fill_zeros(e, t.region_offset + r.bytes, t.region_offset + r.bytes + part, isolated);
	*good = rc ? r.bytes >> GRANULE_SHIFT : (r.bytes + part) >> GRANULE_SHIFT;
	if (!rc && *good < s.end - s.first)
		rc = -EFAULT;
	return rc;
}

static int batch_fetch(struct strait_mapping *m, struct view *v, struct batch *b, bool isolated)
{
	struct extent *e;
	uint64_t good = 0;
	int rc;

	pthread_mutex_lock(&m->index->lock);
	e = view_extent_locked(v, b->runs[0].first);
	pthread_mutex_unlock(&m->index->lock);
	if (b->n == 1 && b->granules >= LONG_GRANULES && !map_is_private(m) && v != copy_view(m) &&
	    b->runs[0].end <= e->first + e->n)
		rc = fetch_long(m, e, b->runs[0], isolated, &good);
	else
		rc = fetch_runs(m, v, b, isolated, &good);
	if (v != copy_view(m)) {
		count(&m->to_device, good << GRANULE_SHIFT);
		count(&m->copies, 1);
	}
	batch_end(m, v, b, good, GRANULE_FETCHED, GRANULE_FETCH_FAILED);
	return rc;
}

/* Copies the runs to their twin and waits. All are in one extent. */
static int twin_runs(struct view *v, const struct batch *b, struct extent *e, bool isolated)
{
	const struct provider_ops *ops = v->dev->ops;
	struct lane_stream *ls;
	int rc, done;

	rc = engine_stream_get(v->dev, &e->data->mem, isolated, &ls);
	if (rc)
		return rc;
	for (unsigned int i = 0; i < b->n && !rc; i++) {
		struct copy_seg seg = { extent_addr(e->twin, e, b->runs[i].first),
					extent_addr(e->data, e, b->runs[i].first),
					(b->runs[i].end - b->runs[i].first) << GRANULE_SHIFT };

		/* An isolated stream cannot run the kernel of a copy list. */
		rc = isolated ? ops->copy_within_now(ls->stream, seg.dst, seg.src, seg.len) : -EOPNOTSUPP;
		if (rc == -EOPNOTSUPP)
			rc = ops->copy_list(ls->stream, &seg, 1);
	}
	done = ops->stream_wait(ls->stream, STRAIT_FOREVER);
	if (!rc)
		rc = done;
	engine_stream_put(v->dev, ls, rc != 0);
	return rc;
}

static int batch_twin(struct strait_mapping *m, struct view *v, struct batch *b, bool isolated)
{
	struct extent *e;
	int rc;

	pthread_mutex_lock(&m->index->lock);
	e = view_extent_locked(v, b->runs[0].first);
	pthread_mutex_unlock(&m->index->lock);
	rc = region_use(e->data, 0, 0);
	if (!rc) {
		rc = twin_runs(v, b, e, isolated);
		region_unuse(e->data);
	}
	batch_end(m, v, b, rc ? 0 : b->granules, GRANULE_TWINNED, GRANULE_TWIN_FAILED);
	return rc;
}

/* Removes pages of the CPU's copies. A thread that touched one meanwhile faults again. */
static void batch_zap(struct strait_mapping *m, struct view *v, struct batch *b)
{
	copy_zap(v, b);
	batch_end(m, v, b, b->granules, GRANULE_ZAPPED, GRANULE_ZAPPED);
	copy_wake(v, b);
}

int batch_move(struct strait_mapping *m, struct view *v, struct batch *b, bool isolated)
{
	switch (b->step) {
	case STEP_STORE:
		return batch_store(m, b, isolated);
	case STEP_FETCH:
		return batch_fetch(m, v, b, isolated);
	case STEP_PEER:
		batch_peer(m, v, b);
		return 0;
	case STEP_ZAP:
		batch_zap(m, v, b);
		return 0;
	default:
		return batch_twin(m, v, b, isolated);
	}
}
