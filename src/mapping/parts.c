/* SPDX-License-Identifier: MIT */
/* Where the bytes of a batch are in device memory. */
#include "mapping/parts.h"

#include <stdlib.h>

#include "base/util.h"

static bool has_twin_locked(struct view *v, uint64_t g)
{
	return view_chunk(v, g)->copies[g % CHUNK_GRANULES].state & COPY_TWIN;
}

static unsigned int parts_count_locked(struct view *v, const struct batch *b, struct part *out)
{
	bool store = v == b->from;
	unsigned int n = 0;
	uint64_t at = 0;

	for (unsigned int i = 0; i < b->n; i++) {
		for (uint64_t g = b->runs[i].first; g < b->runs[i].end;) {
			struct extent *e = view_extent_locked(v, g);
			uint64_t end = min_u64(b->runs[i].end, e->first + e->n), to = g + 1;
			bool twin = store && has_twin_locked(v, g);

			while (to < end && (store && has_twin_locked(v, to)) == twin)
				to++;
			if (out)
				out[n] = (struct part){ e, { g, to }, at, twin };
			at += (to - g) << GRANULE_SHIFT;
			g = to;
			n++;
		}
	}
	return n;
}

int parts_get(struct parts *p, struct view *v, const struct batch *b)
{
	struct map_index *x = v->map->index;
	int rc = 0;

	*p = (struct parts){ .v = v };
	pthread_mutex_lock(&x->lock);
	p->n = parts_count_locked(v, b, NULL);
	p->part = calloc(p->n, sizeof(*p->part));
	if (p->part)
		parts_count_locked(v, b, p->part);
	pthread_mutex_unlock(&x->lock);
	if (!p->part)
		return -ENOMEM;
	for (; p->used < p->n && !rc; p->used++) {
		rc = region_use(p->part[p->used].extent->data, 0, 0);
		if (rc)
			break;
	}
	return rc;
}

void parts_put(struct parts *p)
{
	for (unsigned int i = 0; i < p->used; i++)
		region_unuse(p->part[i].extent->data);
	free(p->part);
}
