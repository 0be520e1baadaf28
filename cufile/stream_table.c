/* SPDX-License-Identifier: MIT */
/*
 * table_lock is never held across a call to Strait: such a call may wait for the GPU, and the GPU for a transfer that
 * another thread is about to enqueue. A stream is unlisted first, and closed or detached when it has no users.
 */
#include "stream_table.h"

#include <stdlib.h>

#include <strait/interpose.h>

#define MAX_STREAMS 64 /* unregistered streams beyond this number are evicted */

static struct cf_hash streams;
static uint64_t use_count;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t streams_unused = PTHREAD_COND_INITIALIZER; /* a stream with @awaited set has no users */

void stream_table_forked(void)
{
	streams = (struct cf_hash){ 0 };
	pthread_mutex_init(&table_lock, NULL);
	pthread_cond_init(&streams_unused, NULL);
}

static struct stream *stream_find_locked(CUstream native, const struct strait_device *dev)
{
	struct cf_node *n = cf_hash_find(&streams, (uintptr_t)native);

	while (n && cf_object(n, struct stream, node)->dev != dev)
		n = cf_hash_again(n);
	return n ? cf_object(n, struct stream, node) : NULL;
}

static void stream_use_locked(struct stream *s)
{
	s->users++;
	s->last_use = ++use_count;
}

static void stream_unlist_locked(struct stream *s)
{
	cf_hash_del(&streams, &s->node);
	s->listed = false;
}

/* The stream is unlisted and has no users. */
static void stream_detach(struct stream *s)
{
	strait_stream_detach(s->stream);
	/* If detaching it timed out, transfers in flight still refer to it. */
	if (!atomic_load_explicit(&s->in_flight, memory_order_acquire))
		free(s);
}

void stream_put(struct stream *s)
{
	bool last, awaited;

	pthread_mutex_lock(&table_lock);
	last = !--s->users && !s->listed;
	awaited = s->awaited;
	if (last && awaited)
		pthread_cond_broadcast(&streams_unused);
	pthread_mutex_unlock(&table_lock);
	if (last && !awaited)
		stream_detach(s);
}

/* The least recently used of the unregistered streams without users or transfers in flight. */
static struct stream *stream_oldest_idle_locked(void)
{
	struct stream *oldest = NULL;
	bool registered;

	for (size_t i = 0; i < streams.size; i++)
		for (struct cf_node *n = streams.buckets[i]; n; n = n->next) {
			struct stream *s = cf_object(n, struct stream, node);

			stream_flags(s->native, &registered);
			if (!registered && !s->users && !atomic_load_explicit(&s->in_flight, memory_order_acquire) &&
			    (!oldest || s->last_use < oldest->last_use))
				oldest = s;
		}
	return oldest;
}

/* Makes room for one more stream if the table is full. */
static void streams_evict_one(void)
{
	struct stream *oldest = NULL;

	pthread_mutex_lock(&table_lock);
	if (streams.n >= MAX_STREAMS)
		oldest = stream_oldest_idle_locked();
	if (oldest)
		stream_unlist_locked(oldest);
	pthread_mutex_unlock(&table_lock);
	if (oldest)
		stream_detach(oldest);
}

/* Lists @s unless the table has a stream for its handle and device. @ret: the listed one, with a user added. */
static int stream_list(struct stream *s, struct stream **ret)
{
	struct stream *there;
	int rc = 0;

	pthread_mutex_lock(&table_lock);
	there = stream_find_locked(s->native, s->dev);
	if (!there) {
		rc = cf_hash_add(&streams, &s->node, (uintptr_t)s->native);
		if (!rc) {
			s->listed = true;
			there = s;
		}
	}
	if (there)
		stream_use_locked(there);
	pthread_mutex_unlock(&table_lock);
	*ret = there;
	return rc ? -ENOMEM : 0;
}

static int stream_new(CUstream native, struct strait_device *dev, struct stream **ret)
{
	struct stream *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->native = native;
	s->dev = dev;
	rc = strait_stream_import(dev, native, &s->stream);
	if (rc) {
		free(s);
		return rc;
	}
	rc = stream_list(s, ret);
	/* Another thread listed one first. */
	if (rc || *ret != s)
		stream_detach(s);
	return rc;
}

int stream_get(CUstream native, struct strait_device *dev, struct stream **ret)
{
	struct stream *s;

	pthread_mutex_lock(&table_lock);
	s = stream_find_locked(native, dev);
	if (s)
		stream_use_locked(s);
	pthread_mutex_unlock(&table_lock);
	*ret = s;
	if (s)
		return 0;
	streams_evict_one();
	return stream_new(native, dev, ret);
}

/*
 * The default stream of the first device is used. Which device's default stream the application means is unknown, so
 * those of the other devices of the same provider are waited for.
 */
int stream_get_for_host(struct strait_context *ctx, CUstream native, struct stream **ret)
{
	struct strait_device_info info;
	struct strait_device *dev;
	struct stream *s;
	char kind[sizeof(info.provider)] = "";
	int rc = -EINVAL;

	for (unsigned int i = 0; !strait_device_at(ctx, i, &dev); i++) {
		info = (struct strait_device_info){ .size = sizeof(info) };
		/* Handles are only valid for their own provider. */
		if (strait_device_info(dev, &info) || !(info.caps & STRAIT_DEVICE_STREAMS) ||
		    (native && strcmp(info.provider, "cuda")) || (kind[0] && strcmp(info.provider, kind)) ||
		    stream_get(native, dev, &s))
			continue;
		if (native) {
			*ret = s;
			return 0;
		}
		if (rc) {
			*ret = s;
		} else {
			strait_stream_wait(s->stream, STRAIT_FOREVER);
			stream_put(s);
		}
		memcpy(kind, info.provider, sizeof(kind));
		rc = 0;
	}
	return rc;
}

bool stream_known(CUstream native)
{
	bool known;

	pthread_mutex_lock(&table_lock);
	known = cf_hash_find(&streams, (uintptr_t)native);
	pthread_mutex_unlock(&table_lock);
	return known;
}

bool stream_unlist_idle(struct stream *s)
{
	bool idle;

	pthread_mutex_lock(&table_lock);
	idle = !atomic_load_explicit(&s->in_flight, memory_order_acquire);
	if (idle && s->listed)
		stream_unlist_locked(s);
	pthread_mutex_unlock(&table_lock);
	return idle;
}

/* Unlists a stream with this handle and waits for its users. NULL if there is none. */
static struct stream *stream_take(CUstream native)
{
	struct stream *s = NULL;
	struct cf_node *n;

	pthread_mutex_lock(&table_lock);
	n = cf_hash_find(&streams, (uintptr_t)native);
	if (n) {
		s = cf_object(n, struct stream, node);
		stream_unlist_locked(s);
		s->awaited = true;
		while (s->users)
			pthread_cond_wait(&streams_unused, &table_lock);
	}
	pthread_mutex_unlock(&table_lock);
	return s;
}

void streams_close(CUstream native)
{
	struct stream *s;

	while ((s = stream_take(native))) {
		strait_stream_close(s->stream);
		free(s);
	}
}

void streams_detach_all(void)
{
	struct cf_node *n;

	for (;;) {
		pthread_mutex_lock(&table_lock);
		n = cf_hash_take(&streams);
		pthread_mutex_unlock(&table_lock);
		if (!n)
			break;
		stream_detach(cf_object(n, struct stream, node));
	}
}
