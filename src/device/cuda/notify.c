/* SPDX-License-Identifier: MIT */
/*
 * Notices: functions that are called when a stream has reached a point, without making the stream wait for them.
 *
 * The driver calls the host functions of all streams from one thread, so a host function of the application that blocks
 * delays all others, and deadlocks if it waits for a transfer. For a notice the GPU writes a number to a word instead.
 * A waiter polls the word with cuda_stream_poll_notices(); otherwise the device's watch thread polls it.
 */
#include <stdlib.h>

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "os/os.h"

/* The poll interval grows from NAP_NS to LONG_NAP_NS while no notice is due. */
#define NAP_NS 20000u
#define LONG_NAP_NS 500000u

/*
 * Calls the due notices of a stream and sets @any if there was one. False: none is pending. The caller holds
 * cuda_watch.lock or keeps the stream open.
 */
static bool run_due_notices(struct cuda_stream *s, bool *any)
{
	struct cuda_call *c;
	bool more;

	while ((c = cuda_call_due(s, &more))) {
		*any = true;
		c->fn(c->arg);
		free(c);
	}
	return more;
}

static void *watch_main(void *arg)
{
	struct cuda_watch *w = arg;
	uint64_t last = os_now_ns();

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		bool any = w->fresh;

		w->fresh = false;
		if (list_empty(&w->streams)) {
			pthread_cond_wait(&w->changed, &w->lock);
			continue;
		}
		list_for_each_safe(it, tmp, &w->streams) {
			struct cuda_stream *s = list_entry(it, struct cuda_stream, watch_node);

			if (!run_due_notices(s, &any)) {
				s->watched = false;
				list_del(&s->watch_node);
			}
		}
		if (any)
			last = os_now_ns();
		pthread_mutex_unlock(&w->lock);
		os_sleep_ns(min_u64(max_u64((os_now_ns() - last) / 8, NAP_NS), LONG_NAP_NS));
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

void cuda_watch_init(struct cuda_watch *w)
{
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	list_init(&w->streams);
}

void cuda_watch_fini(struct cuda_watch *w)
{
	if (w->started) {
		pthread_mutex_lock(&w->lock);
		w->stop = true;
		pthread_cond_signal(&w->changed);
		pthread_mutex_unlock(&w->lock);
		pthread_join((pthread_t)w->thread, NULL);
	}
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
}

/* Starts the watch thread, once. False: that failed. */
static bool watch_start(struct cuda_watch *w)
{
	bool started;

	pthread_mutex_lock(&w->lock);
	if (!w->started)
		w->started = !os_thread("strait-cuda", watch_main, w, &w->thread);
	started = w->started;
	pthread_mutex_unlock(&w->lock);
	return started;
}

static void watch_add(struct cuda_watch *w, struct cuda_stream *s)
{
	pthread_mutex_lock(&w->lock);
	if (!s->watched) {
		s->watched = true;
		list_add_tail(&w->streams, &s->watch_node);
		w->fresh = true;
		pthread_cond_signal(&w->changed);
	}
	pthread_mutex_unlock(&w->lock);
}

void cuda_stream_unwatch(struct cuda_stream *s)
{
	struct cuda_watch *w = &s->ctx->cd->watch;

	pthread_mutex_lock(&w->lock);
	if (s->watched)
		list_del(&s->watch_node);
	s->watched = false;
	pthread_mutex_unlock(&w->lock);
}

static cu_result stream_put_notice(struct cuda_stream *s, strait_stream_fn *fn, void *arg)
{
	struct cuda_watch *w = &s->ctx->cd->watch;
	cu_result r;

	if (cu.stream_write_value && !s->no_notices && !s->notify_word && watch_start(w))
		s->notify_word = cuda_word_get(s->ctx, &s->notify_value);
	if (!s->notify_word)
		return cuda_call_put(s, fn, arg, false);
	r = cuda_call_put(s, fn, arg, true);
	if (cuda_errno(r) == -EOPNOTSUPP) {
		/* The GPU cannot write words: use host functions. */
		s->no_notices = true;
		cuda_word_put(s->ctx, s->notify_word);
		s->notify_word = NULL;
		return cuda_call_put(s, fn, arg, false);
	}
	if (!r)
		watch_add(w, s);
	return r;
}

int cuda_stream_notify(struct dev_stream *stream, strait_stream_fn *fn, void *arg)
{
	struct cuda_stream *s = cuda_stream(stream);
	struct cuda_entry e;
	int rc = cuda_stream_enter(s, &e);

	return rc ? rc : cuda_stream_leave(s, &e, stream_put_notice(s, fn, arg));
}

void cuda_stream_poll_notices(struct dev_stream *stream)
{
	bool any;

	run_due_notices(cuda_stream(stream), &any);
}
