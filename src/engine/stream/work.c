/* SPDX-License-Identifier: MIT */
/*
 * A function ordered on a stream: when all earlier work is complete a worker calls it, and later work waits until it has
 * returned. As for a transfer (ordered.c) the stream gets a notice and a wait for its word.
 */
#include <stdlib.h>

#include "engine/stream/internal.h"

struct ordered_work {
	struct task task;
	struct strait_stream *stream;
	strait_stream_fn *fn;
	void *arg;
	uint32_t sequence;
	atomic_uint refs;      /* of the stream, and of stream_run_work() */
	atomic_bool abandoned; /* stream_run_work() failed: do not call @fn */
	bool ended;	       /* under the stream's lock */
};

static void work_unref(struct ordered_work *w)
{
	if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) == 1)
		free(w);
}

static void work_end(struct ordered_work *w)
{
	struct strait_stream *s = w->stream;

	s->dev->ops->stream_waits_end(s->dev);
	pthread_mutex_lock(&s->lock);
	w->ended = true;
	s->in_flight--;
	pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
	work_unref(w);
}

static void work_run(struct task *task)
{
	struct ordered_work *w = container_of(task, struct ordered_work, task);
	struct strait_stream *s = w->stream;

	if (!atomic_load_explicit(&w->abandoned, memory_order_acquire)) {
		w->fn(w->arg);
		s->dev->ops->word_post(s->dev, s->word->at, w->sequence);
	}
	work_end(w);
}

/* Called when the stream has come to the notice. */
static void work_start(void *arg)
{
	struct ordered_work *w = arg;

	/* stream_run_work() has made sure that there is a worker. */
	workers_post(&w->stream->ctx->workers, &w->task);
}

/* The stream does not wait for the function, so the submitter waits until its notice was called. */
static void work_abandon(struct strait_stream *s, struct ordered_work *w)
{
	atomic_store_explicit(&w->abandoned, true, memory_order_release);
	/* On a failed stream this wait calls the notice. */
	s->dev->ops->stream_wait(s->stream, STRAIT_FOREVER);
	pthread_mutex_lock(&s->lock);
	while (!w->ended)
		pthread_cond_wait(&s->idle, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

int stream_run_work(struct strait_stream *s, strait_stream_fn *before, strait_stream_fn *fn, void *arg)
{
	struct ordered_work *w;
	int rc;

	rc = workers_ensure(&s->ctx->workers);
	if (rc)
		return rc;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	task_init(&w->task, work_run);
	w->stream = s;
	w->fn = fn;
	w->arg = arg;
	atomic_init(&w->refs, 2);
	s->dev->ops->stream_waits_begin(s->dev);
	pthread_mutex_lock(&s->lock);
	s->in_flight++;
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_lock(&s->order);
	if (before)
		before(arg);
	w->sequence = s->sequence + 1;
	rc = s->dev->ops->stream_notify(s->stream, work_start, w);
	if (rc) {
		pthread_mutex_unlock(&s->order);
		work_end(w);
		work_unref(w);
		return rc;
	}
	s->sequence = w->sequence;
	rc = s->dev->ops->stream_wait_word(s->stream, s->word->at, s->word->dev_addr, w->sequence);
	pthread_mutex_unlock(&s->order);
	if (rc)
		work_abandon(s, w);
	work_unref(w);
	return rc;
}

struct strait_device *stream_device(const struct strait_stream *s)
{
	return s->dev;
}

struct dev_stream *stream_native(const struct strait_stream *s)
{
	return s->stream;
}
