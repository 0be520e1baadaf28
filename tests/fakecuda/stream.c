/* SPDX-License-Identifier: MIT */
/* Streams, each with a thread of its own, and events. */
#include <unistd.h>

#include "fakecuda/internal.h"

struct work {
	struct list node;
	work_fn *fn;
	void *args;
	uint64_t place; /* in the queue of the hardware */
};

struct cu_stream_st {
	struct list node;
	cu_context ctx;
	struct list works;
	bool running, stop, capturing, started;
	uint64_t submitted, done;
	unsigned int queue;
	pthread_t thread;
};

struct cu_event_st {
	struct list node;
	cu_context ctx;
	bool recorded;
	cu_stream stream;
	uint64_t turn; /* done when the stream has got so far */
};

static struct list streams = LIST_INIT(streams), events = LIST_INIT(events);
/* Destroyed ones stay on lists of their own and are never reused, so that their use is noticed. */
static struct list dead_streams = LIST_INIT(dead_streams), dead_events = LIST_INIT(dead_events);

static void *stream_thread(void *arg)
{
	cu_stream s = arg;
	cu_result r;

	pthread_mutex_lock(&fake_lock);
	for (;;) {
		struct work *w;

		while (list_empty(&s->works) && !s->stop)
			pthread_cond_wait(&fake_changed, &fake_lock);
		if (list_empty(&s->works))
			break;
		w = list_first(&s->works, struct work, node);
		list_del(&w->node);
		s->running = true;
		r = CU_OK;
		/* Work that was put into the same queue before comes first, on any stream. */
		while (fake_machine.queues && s->ctx->alive && !s->ctx->sticky && s->ctx->passed[s->queue] < w->place)
			pthread_cond_wait(&fake_changed, &fake_lock);
		if (s->ctx->alive && !s->ctx->sticky) {
			pthread_mutex_unlock(&fake_lock);
			r = w->fn(s->ctx, w->args);
			pthread_mutex_lock(&fake_lock);
		}
		if (r && s->ctx->alive)
			s->ctx->sticky = r;
		s->running = false;
		s->done++;
		s->ctx->passed[s->queue]++;
		pthread_cond_broadcast(&fake_changed);
		free(w->args);
		free(w);
	}
	pthread_mutex_unlock(&fake_lock);
	return NULL;
}

/* The lock is held. */
static cu_stream stream_new(cu_context ctx)
{
	cu_stream s = calloc(1, sizeof(*s));

	s->ctx = ctx;
	s->queue = fake_machine.queues ? ctx->streams++ % fake_machine.queues : 0;
	list_init(&s->works);
	list_add_tail(&streams, &s->node);
	return s;
}

/* The lock is held. */
static bool is_among(struct list *all, cu_stream s)
{
	list_for_each(it, all)
		if (list_entry(it, struct cu_stream_st, node) == s)
			return true;
	return false;
}

/* A stream that may be used and is in the current context, to which its work belongs. */
cu_result stream_of(cu_stream s, cu_context *ctx, cu_stream *ret)
{
	cu_result r = current(ctx);

	if (r)
		return r;
	if (!s || s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD) {
		if (!(*ctx)->default_stream)
			(*ctx)->default_stream = stream_new(*ctx);
		s = (*ctx)->default_stream;
	}
	if (!is_among(&streams, s)) {
		violation("a stream is used that %s", is_among(&dead_streams, s) ? "was destroyed" : "is none");
		return CU_INVALID_HANDLE;
	}
	if (s->ctx != *ctx) {
		violation("a stream is used in another context than its own");
		return CU_INVALID_HANDLE;
	}
	*ret = s;
	return CU_OK;
}

cu_result stream_submit(cu_stream s, work_fn *fn, const void *args, size_t len, bool wait)
{
	struct work *w = calloc(1, sizeof(*w));
	cu_context ctx;
	uint64_t turn;
	cu_result r;

	pthread_mutex_lock(&fake_lock);
	r = stream_of(s, &ctx, &s);
	if (!r && s->capturing)
		r = CU_CAPTURE_UNSUPPORTED;
	if (r) {
		pthread_mutex_unlock(&fake_lock);
		free(w);
		return r;
	}
	if (!s->started) {
		pthread_create(&s->thread, NULL, stream_thread, s);
		s->started = true;
	}
	w->fn = fn;
	w->args = malloc(len);
	memcpy(w->args, args, len);
	w->place = ctx->queued[s->queue]++;
	list_add_tail(&s->works, &w->node);
	turn = ++s->submitted;
	pthread_cond_broadcast(&fake_changed);
	while (wait && s->done < turn)
		pthread_cond_wait(&fake_changed, &fake_lock);
	if (wait)
		r = ctx->sticky;
	pthread_mutex_unlock(&fake_lock);
	return r;
}

/* For work submitted until now. Streams may be destroyed meanwhile: their work is finished nevertheless. */
void streams_wait(cu_context ctx, int device)
{
	struct {
		cu_stream s;
		uint64_t turn;
	} *busy = NULL;
	size_t n = 0;

	list_for_each(it, &streams) {
		cu_stream s = list_entry(it, struct cu_stream_st, node);

		if ((ctx ? s->ctx != ctx : s->ctx->device != device) || s->done >= s->submitted)
			continue;
		busy = realloc(busy, (n + 1) * sizeof(*busy));
		busy[n].s = s;
		busy[n++].turn = s->submitted;
	}
	for (size_t i = 0; i < n; i++)
		while (busy[i].s->done < busy[i].turn)
			pthread_cond_wait(&fake_changed, &fake_lock);
	free(busy);
}

/* Ends the thread; the lock is held, and dropped meanwhile. */
static void stream_end(cu_stream s)
{
	s->stop = true;
	list_del(&s->node);
	list_add_tail(&dead_streams, &s->node);
	pthread_cond_broadcast(&fake_changed);
	if (!s->started)
		return;
	s->started = false;
	pthread_mutex_unlock(&fake_lock);
	pthread_join(s->thread, NULL);
	pthread_mutex_lock(&fake_lock);
}

static cu_stream stream_in(cu_context ctx)
{
	list_for_each(it, &streams)
		if (list_entry(it, struct cu_stream_st, node)->ctx == ctx)
			return list_entry(it, struct cu_stream_st, node);
	return NULL;
}

static void event_end(cu_event e)
{
	list_del(&e->node);
	list_add_tail(&dead_events, &e->node);
	usage.events--;
}

void streams_context_gone(cu_context ctx)
{
	cu_stream s;

	while ((s = stream_in(ctx))) {
		if (s != ctx->default_stream)
			usage.streams--;
		stream_end(s);
	}
	ctx->default_stream = NULL;
	list_for_each_safe(it, tmp, &events)
		if (list_entry(it, struct cu_event_st, node)->ctx == ctx)
			event_end(list_entry(it, struct cu_event_st, node));
}

cu_result cuStreamCreate(cu_stream *s, unsigned int flags)
{
	cu_context ctx;
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = current(&ctx);
	if (!r && flags > CU_STREAM_NON_BLOCKING)
		r = CU_INVALID_VALUE;
	if (!r) {
		*s = stream_new(ctx);
		usage.streams++;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuStreamDestroy_v2(cu_stream s)
{
	cu_result r = inject(__func__);

	pthread_mutex_lock(&fake_lock);
	if (!is_among(&streams, s)) {
		violation("a stream is destroyed that was not there");
		r = CU_INVALID_HANDLE;
	} else {
		usage.streams--;
		stream_end(s);
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuStreamQuery(cu_stream s)
{
	cu_context ctx;
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = stream_of(s, &ctx, &s);
	if (!r)
		r = s->done < s->submitted ? CU_NOT_READY : ctx->sticky;
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuStreamSynchronize(cu_stream s)
{
	cu_context ctx;
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = stream_of(s, &ctx, &s);
	if (!r) {
		while (s->done < s->submitted)
			pthread_cond_wait(&fake_changed, &fake_lock);
		r = ctx->alive ? ctx->sticky : CU_CONTEXT_IS_DESTROYED;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuStreamGetCtx(cu_stream s, cu_context *ctx)
{
	cu_result r = CU_OK;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	if (!is_among(&streams, s))
		r = CU_INVALID_HANDLE;
	else
		*ctx = s->ctx;
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuStreamIsCapturing(cu_stream s, int *status)
{
	cu_context ctx;
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = stream_of(s, &ctx, &s);
	if (!r)
		*status = s->capturing;
	pthread_mutex_unlock(&fake_lock);
	return r;
}

void fake_set_capturing(cu_stream s, bool on)
{
	pthread_mutex_lock(&fake_lock);
	s->capturing = on;
	pthread_mutex_unlock(&fake_lock);
}

/* ---- events ---- */

/* With the lock held. */
static cu_result event_of(cu_event e)
{
	list_for_each(it, &events)
		if (list_entry(it, struct cu_event_st, node) == e)
			return e->ctx->alive ? e->ctx->sticky : CU_CONTEXT_IS_DESTROYED;
	violation("an event is used that is not there");
	return CU_INVALID_HANDLE;
}

cu_result cuEventCreate(cu_event *e, unsigned int flags)
{
	cu_context ctx;
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = current(&ctx);
	if (!r && flags & ~(CU_EVENT_BLOCKING_SYNC | CU_EVENT_NO_TIMING))
		r = CU_INVALID_VALUE;
	if (!r) {
		*e = calloc(1, sizeof(**e));
		(*e)->ctx = ctx;
		list_add_tail(&events, &(*e)->node);
		usage.events++;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuEventDestroy_v2(cu_event e)
{
	cu_result r = inject(__func__), has;

	pthread_mutex_lock(&fake_lock);
	has = event_of(e);
	if (has != CU_INVALID_HANDLE)
		event_end(e);
	pthread_mutex_unlock(&fake_lock);
	return r ? r : has;
}

cu_result cuEventRecord(cu_event e, cu_stream s)
{
	cu_context ctx;
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = event_of(e);
	if (!r)
		r = stream_of(s, &ctx, &s);
	if (!r && e->ctx != ctx) {
		violation("an event is recorded on a stream of another context");
		r = CU_INVALID_HANDLE;
	}
	if (!r) {
		e->recorded = true;
		e->stream = s;
		e->turn = s->submitted;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

static bool event_pending(cu_event e)
{
	return e->recorded && e->stream->done < e->turn;
}

cu_result cuEventQuery(cu_event e)
{
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = event_of(e);
	if (!r && event_pending(e))
		r = CU_NOT_READY;
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuEventSynchronize(cu_event e)
{
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = event_of(e);
	if (!r) {
		while (event_pending(e))
			pthread_cond_wait(&fake_changed, &fake_lock);
		r = e->ctx->alive ? e->ctx->sticky : CU_CONTEXT_IS_DESTROYED;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}
