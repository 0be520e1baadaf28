/* SPDX-License-Identifier: MIT */
/* Events. A recording marks a point of a stream; stream.c says which errors it reports. */
#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "device/soft/engine.h"
#include "os/os.h"

static struct soft_event *to_event(struct dev_event *e)
{
	return container_of(e, struct soft_event, base);
}

void soft_event_unref(struct soft_event *e)
{
	if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (e->stream)
		soft_stream_unref(e->stream);
	pthread_cond_destroy(&e->cond);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

int soft_event_open(struct dev_stream *s, struct dev_event **ret)
{
	struct soft_event *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->base.dev = s->dev;
	e->done = true; /* an event that was never recorded is complete */
	atomic_init(&e->refs, 1);
	pthread_mutex_init(&e->lock, NULL);
	cond_init_monotonic(&e->cond);
	*ret = &e->base;
	return 0;
}

/* A pending recording has a reference of its own. */
void soft_event_close(struct dev_event *event)
{
	soft_event_unref(to_event(event));
}

static void event_finish(struct soft_event *e, uint64_t recording, int error, uint64_t last_error_seq)
{
	pthread_mutex_lock(&e->lock);
	/* Only the last recording counts: the event may have been recorded again meanwhile. */
	if (e->recording == recording) {
		e->done = true;
		e->error = error;
		e->last_error_seq = last_error_seq;
		pthread_cond_broadcast(&e->cond);
	}
	pthread_mutex_unlock(&e->lock);
}

void soft_event_fire_locked(struct soft_stream *s, struct soft_op *op)
{
	event_finish(op->record.event, op->record.recording, s->error, s->last_error_seq);
}

int soft_event_record(struct dev_event *event, struct dev_stream *stream)
{
	struct soft_stream *s = container_of(stream, struct soft_stream, base), *old;
	struct soft_event *e = to_event(event);
	struct soft_op op = { .kind = SOFT_RECORD, .record = { .event = e } };
	int rc;

	if (e->base.dev != s->base.dev)
		return -EINVAL;
	if (soft_removed(s->eng))
		return -ENODEV;
	soft_stream_ref(s);
	atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed); /* for @op */
	pthread_mutex_lock(&e->lock);
	old = e->stream;
	e->stream = s;
	e->done = false;
	op.record.recording = ++e->recording;
	pthread_mutex_unlock(&e->lock);
	if (old)
		soft_stream_unref(old);

	rc = soft_stream_submit(s, &op);
	if (rc)
		event_finish(e, op.record.recording, rc, 0); /* the op was not queued: wake waiters with its error */
	return rc;
}

/* The errors up to sequence number @number were reported to an event waiter: the stream drops them. */
static void stream_clear_reported_errors(struct soft_stream *s, uint64_t number)
{
	pthread_mutex_lock(&s->lock);
	if (s->error && s->error_seq <= number) {
		s->error = s->last_error_seq > number ? s->last_error : 0;
		s->error_seq = s->last_error_seq;
	}
	pthread_mutex_unlock(&s->lock);
}

int soft_event_wait(struct dev_event *event, int64_t timeout_ns)
{
	struct soft_event *e = to_event(event);
	uint64_t deadline = timeout_ns > 0 ? os_deadline(timeout_ns) : 0, number;
	struct soft_stream *s = NULL;
	int rc = 0;

	pthread_mutex_lock(&e->lock);
	while (!e->done) {
		if (!deadline || rc == ETIMEDOUT) {
			pthread_mutex_unlock(&e->lock);
			return -ETIMEDOUT;
		}
		rc = cond_wait_until(&e->cond, &e->lock, deadline);
	}
	rc = e->error;
	number = e->last_error_seq;
	if (rc) {
		s = e->stream;
		soft_stream_ref(s);
	}
	pthread_mutex_unlock(&e->lock);
	if (s) {
		stream_clear_reported_errors(s, number);
		soft_stream_unref(s);
	}
	return rc;
}
