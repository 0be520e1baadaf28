/* SPDX-License-Identifier: MIT */
/* The versions of a file's granules, shared by all mappings of the file in this process. */
#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "mapping/mapping.h"
#include "os/os.h"

/* Chunks that are allocated together: zeroed memory that takes no room until it is used. */
struct slab {
	struct list node;
	void *ptr;
	size_t len;
};

OS_FORK_LOCK(table_lock, NULL)
static struct list table = LIST_INIT(table);

static struct map_index *index_new(void)
{
	struct map_index *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->refs = 1;
	pthread_mutex_init(&x->lock, NULL);
	pthread_mutex_init(&x->host_lock, NULL);
	pthread_cond_init(&x->moved, NULL);
	list_init(&x->node);
	list_init(&x->slabs);
	list_init(&x->mappings);
	return x;
}

static void index_free(struct map_index *x)
{
	list_for_each_safe(it, tmp, &x->slabs) {
		struct slab *s = list_entry(it, struct slab, node);

		os_unmap(s->ptr, s->len);
		free(s);
	}
	pthread_cond_destroy(&x->moved);
	pthread_mutex_destroy(&x->host_lock);
	pthread_mutex_destroy(&x->lock);
	free(x->chunks);
	free(x);
}

static int slab_add_locked(struct map_index *x, uint64_t first, uint64_t n)
{
	struct slab *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->len = n * sizeof(struct map_chunk);
	rc = os_map_anon(s->len, -1, &s->ptr);
	if (rc) {
		free(s);
		return rc;
	}
	list_add(&x->slabs, &s->node);
	for (uint64_t i = 0; i < n; i++)
		x->chunks[first + i] = (struct map_chunk *)s->ptr + i;
	return 0;
}

/* Makes the chunks that a mapping needs and that do not exist yet. */
static int index_grow_locked(struct map_index *x, uint64_t first, uint64_t end)
{
	int rc = 0;

	if (end > x->n_chunks) {
		struct map_chunk **more = reallocarray(x->chunks, end, sizeof(struct map_chunk *));

		if (!more)
			return -ENOMEM;
		memset(more + x->n_chunks, 0, (end - x->n_chunks) * sizeof(struct map_chunk *));
		x->chunks = more;
		x->n_chunks = end;
	}
	while (first < end && !rc) {
		uint64_t n = 0;

		while (first + n < end && !x->chunks[first + n])
			n++;
		if (n)
			rc = slab_add_locked(x, first, n);
		first += n ? n : 1;
	}
	return rc;
}

/* What identifies the bytes in this process. An endpoint that is no file stands for itself. */
static int identity(const struct strait_mapping *m, uint64_t *dev, uint64_t *ino)
{
	struct stat st;
	int rc;

	if (!endpoint_has_file(m->ep)) {
		*dev = UINT64_MAX;
		*ino = (uintptr_t)m->ep;
		return 0;
	}
	rc = os_fstat(m->ep->ops->fd(m->ep, IO_BUFFERED), &st);
	*dev = st.st_dev;
	*ino = st.st_ino;
	return rc;
}

static struct map_index *table_find_locked(uint64_t dev, uint64_t ino)
{
	list_for_each(it, &table) {
		struct map_index *x = list_entry(it, struct map_index, node);

		if (x->dev == dev && x->ino == ino) {
			x->refs++;
			return x;
		}
	}
	return NULL;
}

static int table_get(struct strait_mapping *m, struct map_index **ret)
{
	struct map_index *x = NULL;
	uint64_t dev = 0, ino = 0;
	int rc;

	if (!map_is_private(m)) {
		rc = identity(m, &dev, &ino);
		if (rc)
			return rc;
		pthread_mutex_lock(&table_lock);
		x = table_find_locked(dev, ino);
	}
	if (!x)
		x = index_new();
	if (x && !map_is_private(m)) {
		if (list_empty(&x->node))
			list_add(&table, &x->node);
		x->dev = dev;
		x->ino = ino;
		pthread_mutex_unlock(&table_lock);
	} else if (!map_is_private(m)) {
		pthread_mutex_unlock(&table_lock);
	}
	*ret = x;
	return x ? 0 : -ENOMEM;
}

static void table_put(struct map_index *x)
{
	bool last;

	pthread_mutex_lock(&table_lock);
	last = !--x->refs;
	if (last)
		list_del(&x->node);
	pthread_mutex_unlock(&table_lock);
	if (last)
		index_free(x);
}

int index_get(struct strait_mapping *m)
{
	struct map_index *x;
	int rc;

	rc = table_get(m, &x);
	if (rc)
		return rc;
	pthread_mutex_lock(&x->host_lock);
	pthread_mutex_lock(&x->lock);
	rc = index_grow_locked(x, m->first / CHUNK_GRANULES, (m->end + CHUNK_GRANULES - 1) / CHUNK_GRANULES);
	if (!rc)
		list_add(&x->mappings, &m->in_index);
	pthread_mutex_unlock(&x->lock);
	pthread_mutex_unlock(&x->host_lock);
	if (rc) {
		table_put(x);
		return rc;
	}
	m->index = x;
	return 0;
}

void index_put(struct strait_mapping *m)
{
	struct map_index *x = m->index;

	pthread_mutex_lock(&x->host_lock);
	pthread_mutex_lock(&x->lock);
	list_del(&m->in_index);
	pthread_mutex_unlock(&x->lock);
	pthread_mutex_unlock(&x->host_lock);
	table_put(x);
	m->index = NULL;
}

struct map_chunk *index_chunk(struct map_index *x, uint64_t g)
{
	return x->chunks[g / CHUNK_GRANULES];
}

enum granule_step index_event_locked(struct map_index *x, struct view *v, uint64_t g, enum granule_event event)
{
	struct map_chunk *c = index_chunk(x, g);
	struct granule *gr = &c->granules[g % CHUNK_GRANULES], old = *gr;
	struct view_chunk *vc = v ? view_chunk(v, g) : NULL;
	struct granule_copy *copy = v ? &vc->copies[g % CHUNK_GRANULES] : NULL;
	uint64_t group = g % CHUNK_GRANULES / GROUP_GRANULES;
	bool was_present = v && copy->version;
	enum granule_step step;

	step = granule_event(gr, copy, v ? v->number : 0, event);
	if (step == STEP_ZAP && event != GRANULE_READ_FAULTS)
		count(&v->map->copy_evictions, 1);
	if (v)
		v->present += (uint64_t) !!copy->version - was_present;
	c->newer += (uint32_t) !!gr->newest - (uint32_t) !!old.newest;
	c->storing += (uint32_t)(gr->state & GRANULE_STORING) - (uint32_t)(old.state & GRANULE_STORING);
	if (gr->version != old.version) {
		c->changes++;
		c->group_changes[group]++;
		/* A view stays current with what it published itself. */
		if (event == GRANULE_PUBLISH_COPY && step == STEP_DONE) {
			vc->current_at += vc->current_at == c->changes;
			vc->group_current_at[group] += vc->group_current_at[group] == c->group_changes[group];
		}
	}
	/* Copies of the chunk are not all current, or missing, any more. */
	if (event == GRANULE_DROP || event == GRANULE_EVICT || event == GRANULE_FETCH_FAILED ||
	    event == GRANULE_PEER_FAILED || (v && copy->version == COPY_OLD))
		vc->current_at = vc->group_current_at[group] = 0;
	return step;
}
