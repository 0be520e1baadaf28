/* SPDX-License-Identifier: MIT */
/* The copies that one device has of a mapping. */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/mapping.h"
#include "os/os.h"

static struct view *view_new(struct strait_mapping *m, struct strait_device *dev)
{
	uint64_t chunks = (m->end - 1) / CHUNK_GRANULES - m->first / CHUNK_GRANULES + 1;
	struct view *v = calloc(1, sizeof(*v));
	void *ptr;

	if (!v)
		return NULL;
	v->chunks_len = chunks * sizeof(*v->chunks);
	if (os_map_anon(v->chunks_len, -1, &ptr)) {
		free(v);
		return NULL;
	}
	v->chunks = ptr;
	v->map = m;
	v->dev = dev;
	list_init(&v->extents);
	list_init(&v->stages);
	list_init(&v->results);
	pthread_mutex_init(&v->memory_lock, NULL);
	pthread_mutex_init(&v->stage_lock, NULL);
	pthread_cond_init(&v->stage_free, NULL);
	return v;
}

static void view_free(struct view *v)
{
	stages_free(v);
	os_unmap(v->chunks, v->chunks_len);
	pthread_cond_destroy(&v->stage_free);
	pthread_mutex_destroy(&v->stage_lock);
	pthread_mutex_destroy(&v->memory_lock);
	free(v);
}

/* Gives the view a number. -EMFILE: all are taken. */
static int view_number_locked(struct view *v)
{
	struct map_index *x = v->map->index;

	for (unsigned int i = 1; i <= VIEWS_MAX; i++) {
		if (x->views[i])
			continue;
		x->views[i] = v;
		v->number = i;
		return 0;
	}
	return -EMFILE;
}

int view_open(struct strait_mapping *m, struct strait_device *dev, struct view **ret)
{
	struct view *v = view_new(m, dev);
	int rc;

	if (!v)
		return -ENOMEM;
	pthread_mutex_lock(&m->index->lock);
	rc = view_number_locked(v);
	pthread_mutex_unlock(&m->index->lock);
	if (rc)
		view_free(v);
	else
		*ret = v;
	return rc;
}

int view_get(struct strait_mapping *m, struct strait_device *dev, struct view **ret)
{
	struct view *v, *mine;
	int rc = 0;

	pthread_mutex_lock(&m->index->lock);
	v = m->views[dev->number];
	pthread_mutex_unlock(&m->index->lock);
	if (v) {
		*ret = v;
		return 0;
	}
	mine = view_new(m, dev);
	if (!mine)
		return -ENOMEM;
	pthread_mutex_lock(&m->index->lock);
	v = m->views[dev->number];
	if (!v)
		rc = view_number_locked(mine);
	if (!v && !rc)
		m->views[dev->number] = mine;
	pthread_mutex_unlock(&m->index->lock);
	if (v || rc)
		view_free(mine);
	if (!rc)
		*ret = v ? v : mine;
	return rc;
}

/* The caller has stored what the view had newest, as far as that was possible, and no call uses the mapping. */
void view_close(struct view *v)
{
	struct map_index *x = v->map->index;
	uint64_t lost = 0;

	pthread_mutex_lock(&x->lock);
	while (v->users)
		pthread_cond_wait(&x->moved, &x->lock);
	for (uint64_t g = v->map->first; g < v->map->end; g++) {
		struct map_chunk *c = index_chunk(x, g);

		if (!c->newer) {
			g |= CHUNK_GRANULES - 1;
			continue;
		}
		if (c->granules[g % CHUNK_GRANULES].newest != v->number)
			continue;
		/* The bytes are lost: what the host has is the newest there is. */
		index_event_locked(x, NULL, g, GRANULE_PUBLISH_HOST);
		lost++;
	}
	x->views[v->number] = NULL;
	pthread_cond_broadcast(&x->moved);
	pthread_mutex_unlock(&x->lock);
	if (lost)
		log_warn(&v->map->ctx->log, "%s: a mapping was closed with %llu KiB that could not be written",
			 v->dev->name, (unsigned long long)lost * (GRANULE_BYTES / 1024));
	extents_free(v);
	view_free(v);
}

struct view_chunk *view_chunk(struct view *v, uint64_t g)
{
	return &v->chunks[g / CHUNK_GRANULES - v->map->first / CHUNK_GRANULES];
}

struct extent *view_extent_locked(struct view *v, uint64_t g)
{
	list_for_each(it, &v->extents) {
		struct extent *e = list_entry(it, struct extent, node);

		if (g - e->first < e->n)
			return e;
	}
	return NULL;
}
