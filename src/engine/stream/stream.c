/* SPDX-License-Identifier: MIT */
/* Streams: opening, closing, waiting. Transfers on them are in ordered.c. */
#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "engine/stream/internal.h"
#include "os/os.h"

#define DETACH_SECONDS 10

struct strait_context *stream_context(const struct strait_stream *s)
{
	return s->ctx;
}

int stream_open(struct strait_device *dev, bool import, void *native, struct strait_stream **ret)
{
	struct strait_stream *s;
	int rc;

	if (!(dev->caps & STRAIT_DEVICE_STREAMS))
		return -EOPNOTSUPP;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->dev = dev;
	s->ctx = device_context(dev);
	rc = words_get(&device_engine(dev)->words, &s->word);
	if (rc)
		goto free_stream;
	if (import)
		rc = dev->ops->stream_import(dev, native, &s->stream);
	else
		rc = dev->ops->stream_open(dev, NULL, &s->stream);
	if (rc)
		goto put_word;
	pthread_mutex_init(&s->order, NULL);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->readahead_lock, NULL);
	list_init(&s->waiting);
	cond_init_monotonic(&s->idle);
	s->imported = import;
	s->sequence = atomic_load_explicit(s->word->at, memory_order_relaxed);
	engine_ref(s->ctx);
	*ret = s;
	return 0;
put_word:
	words_put(&device_engine(dev)->words, s->word);
free_stream:
	free(s);
	return rc;
}

static void stream_free(struct strait_stream *s)
{
	struct strait_context *ctx = s->ctx;

	pthread_cond_destroy(&s->idle);
	pthread_mutex_destroy(&s->readahead_lock);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->order);
	free(s);
	engine_unref(ctx);
}

void stream_close(struct strait_stream *s)
{
	/*
	 * Wait for the device first: it may still read the word, and on a failed stream this wait is what starts the
	 * transfers that the device did not, so that they end.
	 */
	s->dev->ops->stream_wait(s->stream, STRAIT_FOREVER);
	pthread_mutex_lock(&s->lock);
	while (s->in_flight)
		pthread_cond_wait(&s->idle, &s->lock);
	pthread_mutex_unlock(&s->lock);
	s->dev->ops->stream_close(s->stream);
	words_put(&device_engine(s->dev)->words, s->word);
	stream_free(s);
}

void stream_detach(struct strait_stream *s)
{
	uint64_t end = os_now_ns() + DETACH_SECONDS * 1000000000ull;
	int rc = 0;

	if (!s->imported) {
		stream_close(s);
		return;
	}
	pthread_mutex_lock(&s->lock);
	while (s->in_flight && !rc)
		rc = cond_wait_until(&s->idle, &s->lock, end);
	rc = s->in_flight > 0;
	pthread_mutex_unlock(&s->lock);
	if (rc) {
		/* The device has failed, or is busy with other work for long: leak the stream rather than free it in use. */
		log_warn(&s->ctx->log, "a stream was abandoned with transfers in flight: its memory is not freed");
		return;
	}
	s->dev->ops->stream_detach(s->stream);
	/* The device may still read the word: words.h says why it can be given out again. */
	words_put(&device_engine(s->dev)->words, s->word);
	stream_free(s);
}

int stream_call(struct strait_stream *s, strait_stream_fn *fn, void *arg)
{
	return s->dev->ops->stream_call(s->stream, fn, arg);
}

int stream_wait(struct strait_stream *s, int64_t timeout_ns)
{
	return s->dev->ops->stream_wait(s->stream, timeout_ns);
}
