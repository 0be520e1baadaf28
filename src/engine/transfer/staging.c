/* SPDX-License-Identifier: MIT */
#include "engine/transfer/staging.h"

#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "os/os.h"

int staging_init(struct staging_pool *p, struct strait_device *dev, uint64_t bytes, uint64_t chunk_bytes)
{
	memset(p, 0, sizeof(*p));
	p->dev = dev;
	p->chunk_bytes = chunk_bytes;
	p->want_bytes = max_u64(align_down(bytes, chunk_bytes), chunk_bytes);
	pthread_mutex_init(&p->lock, NULL);
	cond_init_monotonic(&p->freed);
	return 0;
}

void staging_fini(struct staging_pool *p)
{
	if (p->n) {
		p->dev->ops->host_unregister(p->dev, &p->reg);
		os_unmap(p->reg.ptr, p->n * p->chunk_bytes);
		free(p->chunks);
	}
	pthread_cond_destroy(&p->freed);
	pthread_mutex_destroy(&p->lock);
}

/* With the lock held. Allocates less if memory is short, one chunk at least. */
static int staging_fill(struct staging_pool *p)
{
	uint64_t bytes = p->want_bytes;
	int rc = -ENOMEM;
	void *ptr;

	for (; bytes >= p->chunk_bytes; bytes = align_down(bytes / 2, p->chunk_bytes)) {
		rc = os_map_anon(bytes, p->dev->numa_node, &ptr);
		if (rc)
			continue;
		rc = p->dev->ops->host_register(p->dev, ptr, bytes, 0, &p->reg);
		if (!rc)
			break;
		os_unmap(ptr, bytes);
		if (rc != -ENOMEM && rc != -EAGAIN && rc != -EPERM)
			break;
	}
	if (rc)
		return rc;
	p->chunks = calloc(bytes / p->chunk_bytes, sizeof(*p->chunks));
	if (!p->chunks) {
		p->dev->ops->host_unregister(p->dev, &p->reg);
		os_unmap(ptr, bytes);
		return -ENOMEM;
	}
	os_dont_fork(ptr, bytes);
	p->n = (unsigned int)(bytes / p->chunk_bytes);
	for (unsigned int i = p->n; i-- > 0;) {
		struct chunk *c = &p->chunks[i];

		c->ptr = (char *)ptr + i * p->chunk_bytes;
		c->dev_addr = p->reg.dev_addr + i * p->chunk_bytes;
		c->next = p->free;
		p->free = c;
	}
	atomic_fetch_add_explicit(p->stat_bytes, bytes, memory_order_relaxed);
	return 0;
}

int staging_enter(struct staging_pool *p, struct staging_user *u)
{
	int rc = 0;

	u->held = 0;
	pthread_mutex_lock(&p->lock);
	if (!p->n)
		rc = staging_fill(p);
	if (!rc)
		p->users++;
	pthread_mutex_unlock(&p->lock);
	return rc;
}

void staging_leave(struct staging_pool *p, struct staging_user *u)
{
	(void)u;
	pthread_mutex_lock(&p->lock);
	p->users--;
	if (p->waiters)
		pthread_cond_broadcast(&p->freed); /* every user's share has grown */
	pthread_mutex_unlock(&p->lock);
}

static struct chunk *take(struct staging_pool *p, struct staging_user *u)
{
	struct chunk *c = p->free;

	if (!c)
		return NULL;
	/* A share is at least one chunk: a user without any gets a free one. */
	if (u->held && u->held >= p->n / p->users)
		return NULL;
	p->free = c->next;
	u->held++;
	return c;
}

struct chunk *staging_try(struct staging_pool *p, struct staging_user *u)
{
	struct chunk *c;

	pthread_mutex_lock(&p->lock);
	c = take(p, u);
	pthread_mutex_unlock(&p->lock);
	return c;
}

struct chunk *staging_try_spare(struct staging_pool *p, struct staging_user *u)
{
	struct chunk *c;

	pthread_mutex_lock(&p->lock);
	c = p->free && p->free->next ? take(p, u) : NULL;
	pthread_mutex_unlock(&p->lock);
	return c;
}

struct chunk *staging_wait(struct staging_pool *p, struct staging_user *u, int64_t timeout_ns)
{
	uint64_t end = os_now_ns() + (uint64_t)timeout_ns;
	struct chunk *c;

	pthread_mutex_lock(&p->lock);
	p->waiters++;
	while (!(c = take(p, u))) {
		atomic_fetch_add_explicit(p->stat_waits, 1, memory_order_relaxed);
		if (cond_wait_until(&p->freed, &p->lock, end))
			break;
	}
	p->waiters--;
	pthread_mutex_unlock(&p->lock);
	return c;
}

void staging_put(struct staging_pool *p, struct staging_user *u, struct chunk *c)
{
	pthread_mutex_lock(&p->lock);
	c->next = p->free;
	p->free = c;
	u->held--;
	if (p->waiters)
		pthread_cond_broadcast(&p->freed);
	pthread_mutex_unlock(&p->lock);
}
