/* SPDX-License-Identifier: MIT */
/* Copies the newest bytes from one device to another, without the host. */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/parts.h"

/* The copies: a part of one side may be several parts of the other. */
static unsigned int peer_segs(const struct parts *to, const struct parts *from, struct copy_seg *segs)
{
	unsigned int n = 0, i = 0, k = 0;
	uint64_t at = 0;

	while (i < to->n && k < from->n) {
		const struct part *d = &to->part[i], *s = &from->part[k];
		uint64_t end = min_u64(d->at + part_len(d), s->at + part_len(s));

		segs[n++] = (struct copy_seg){ part_addr(d) + (at - d->at), part_addr(s) + (at - s->at), end - at };
		at = end;
		i += at == d->at + part_len(d);
		k += at == s->at + part_len(s);
	}
	return n;
}

static int peer_copy(struct parts *to, struct parts *from)
{
	struct copy_seg *segs = calloc((size_t)to->n + from->n, sizeof(*segs));
	struct strait_device *dev = to->v->dev;
	struct lane_stream *ls;
	int rc, done;

	if (!segs)
		return -ENOMEM;
	rc = engine_stream_get(dev, &to->part->extent->data->mem, false, &ls);
	if (rc)
		goto free_segs;
	rc = dev->ops->copy_peer(ls->stream, &to->part->extent->data->mem, from->v->dev, &from->part->extent->data->mem,
				 segs, peer_segs(to, from, segs));
	done = dev->ops->stream_wait(ls->stream, STRAIT_FOREVER);
	if (!rc)
		rc = done;
	engine_stream_put(dev, ls, rc && rc != -EOPNOTSUPP);
free_segs:
	free(segs);
	return rc;
}

void batch_peer(struct strait_mapping *m, struct view *v, struct batch *b)
{
	struct parts to, from = { 0 };
	uint64_t began = os_now_ns();
	int rc;

	rc = parts_get(&to, v, b);
	if (!rc)
		rc = parts_get(&from, b->from, b);
	if (!rc)
		rc = peer_copy(&to, &from);
	parts_put(&from);
	parts_put(&to);
	count_since(&m->device_ns, began);
	if (rc) {
		pthread_mutex_lock(&m->index->lock);
		v->peer_refused[b->from->number] = true;
		pthread_mutex_unlock(&m->index->lock);
	} else {
		count(&m->between, b->granules << GRANULE_SHIFT);
		count(&m->copies, 1);
	}
	batch_end(m, v, b, rc ? 0 : b->granules, GRANULE_PEERED, GRANULE_PEER_FAILED);
	if (rc)
		b->granules = 0;
}
