/* SPDX-License-Identifier: MIT */
/*
 * Streams.
 *
 * Ops of a stream run one at a time, in submission order; streams are independent. If the stream is idle and the op
 * has no modelled duration, the submitting thread runs it without locks; `busy` makes other submitters queue meanwhile.
 * All other ops are queued and submitted to a pool in turn: copies to the pool of their direction, host functions to
 * the compute pool. A wait for a word parks the op; recording an event completes at once.
 *
 * Errors:
 *  - Errors found at submission (an address outside device memory, a removed device, no memory) are returned by the
 *    submitting call, and nothing is queued.
 *  - An op that fails when it runs (-EFAULT for a truncated file, -ENODEV for a device removed meanwhile, an injected
 *    error) does not stop the stream: later ops run. The submitting call returns 0, even if the op failed before it
 *    returned. The stream stores its first unreported error.
 *  - Recording an event copies the stored error to the event. event_wait returns it, each time it is called, until the
 *    event is recorded again.
 *  - stream_wait reports all completed ops, so it returns the stored error and clears it. An event_wait that returns an
 *    error reports the ops before the recording, so their errors are cleared. If a later op has failed as well, its
 *    error becomes the stored one: no error is lost.
 *  - A call that waits for its own op (compare, crc32c, a copy with unregistered host memory) returns the error of that
 *    op and stores none.
 *  - dev_stream.status is the positive errno of the last failed op, however it was reported.
 */
#include "device/soft/engine.h"

#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "os/os.h"

void soft_stream_ref(struct soft_stream *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void soft_stream_unref(struct soft_stream *s)
{
	if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	pthread_cond_destroy(&s->cond);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static void stream_complete_op_locked(struct soft_stream *s, struct soft_op *op, int rc, uint64_t model_end)
{
	if (rc) {
		s->base.status = -rc;
		if (!op->sync) {
			s->last_error = rc;
			s->last_error_seq++;
			if (!s->error) {
				s->error = rc;
				s->error_seq = s->last_error_seq;
			}
		}
	}
	op->rc = rc;
	op->done = true;
	s->completed++;
	s->model_end = model_end;
	if (s->waiters)
		pthread_cond_broadcast(&s->cond);
}

/* Completes @op if it needs no thread: a recording, or a wait for a word that has its value. */
static bool stream_complete_instant_locked(struct soft_stream *s, struct soft_op *op)
{
	if (op->kind == SOFT_RECORD)
		soft_event_fire_locked(s, op);
	else if (op->kind != SOFT_WAIT_WORD || !soft_word_reached(op))
		return false;
	stream_complete_op_locked(s, op, 0, 0);
	return true;
}

static struct soft_pool *stream_op_pool(struct soft_stream *s, const struct soft_op *op)
{
	if (op->kind == SOFT_CALL)
		return &s->eng->compute;
	return op->out ? &s->eng->out : &s->eng->in;
}

/* Starts the next queued op. Each caller has a reference, so the one dropped here is never the last. */
static void stream_start_next_locked(struct soft_stream *s)
{
	while (!s->busy && !list_empty(&s->ops)) {
		struct soft_op *op = list_first(&s->ops, struct soft_op, node);

		list_del(&op->node);
		if (stream_complete_instant_locked(s, op)) {
			soft_op_release(op);
			free(op);
			atomic_fetch_sub_explicit(&s->refs, 1, memory_order_release);
			continue;
		}
		s->busy = true;
		if (op->kind != SOFT_WAIT_WORD) {
			if (op->cost_ns)
				op->ready_ns = max_u64(op->ready_ns, s->model_end ? s->model_end : os_now_ns());
			soft_pool_submit(stream_op_pool(s, op), op);
		} else if (!soft_words_park(s->eng, op)) {
			/* The word was posted since it was checked: requeue, the next pass completes it. */
			s->busy = false;
			list_add(&s->ops, &op->node);
		}
	}
}

void soft_stream_done(struct soft_stream *s, struct soft_op *op, int rc, uint64_t model_end)
{
	bool heap = op->heap, queued = op->queued;

	soft_op_release(op);
	pthread_mutex_lock(&s->lock);
	stream_complete_op_locked(s, op, rc, model_end);
	s->busy = false;
	stream_start_next_locked(s);
	/* After the unlock the submitter of a sync op may return, and @op, on its stack, is gone. */
	pthread_mutex_unlock(&s->lock);
	if (heap)
		free(op);
	if (queued)
		soft_stream_unref(s);
}

/* Makes sure, before @op is queued, that a thread can run it. */
static int stream_ensure_thread(struct soft_stream *s, const struct soft_op *op)
{
	if (op->kind == SOFT_RECORD)
		return 0;
	return op->kind == SOFT_WAIT_WORD ? soft_words_ensure_thread(s->eng) :
					    soft_pool_ensure_thread(stream_op_pool(s, op));
}

static struct soft_op *op_heap_copy(const struct soft_op *op)
{
	struct soft_op *c = malloc(sizeof(*c) + op->n_segs * sizeof(*op->segs));

	if (!c)
		return NULL;
	*c = *op;
	c->heap = true;
	c->segs = (struct soft_seg *)(c + 1);
	if (op->n_segs)
		memcpy(c->segs, op->segs, op->n_segs * sizeof(*op->segs));
	return c;
}

static bool op_must_wait(struct soft_stream *s, const struct soft_op *op)
{
	return op->sync ||
	       (op->host && !soft_hostreg_covers(&s->eng->regs, (uint64_t)(uintptr_t)op->host, op->segs->len));
}

static int stream_enqueue_locked(struct soft_stream *s, struct soft_op *op)
{
	struct soft_op *q = op;
	int rc;

	rc = stream_ensure_thread(s, op);
	if (rc)
		return rc;
	op->sync = op_must_wait(s, op);
	if (!op->sync) {
		q = op_heap_copy(op);
		if (!q)
			return -ENOMEM;
	}
	q->queued = true;
	if (q->cost_ns)
		q->ready_ns = os_now_ns();
	soft_stream_ref(s);
	s->submitted++;
	list_add_tail(&s->ops, &q->node);
	stream_start_next_locked(s);
	return 0;
}

static int stream_run_inline(struct soft_stream *s, struct soft_op *op)
{
	int rc = soft_op_run(op);

	if (rc)
		op->sync = op_must_wait(s, op);
	soft_stream_done(s, op, rc, 0);
	return op->sync ? rc : 0;
}

int soft_stream_submit(struct soft_stream *s, struct soft_op *op)
{
	bool moves = op->kind != SOFT_CALL && op->kind != SOFT_WAIT_WORD && op->kind != SOFT_RECORD;
	int rc;

	op->stream = s;
	pthread_mutex_lock(&s->lock);
	if (!s->busy && moves && !op->cost_ns) {
		s->submitted++;
		s->busy = true;
		pthread_mutex_unlock(&s->lock);
		return stream_run_inline(s, op);
	}
	if (!s->busy && stream_complete_instant_locked(s, op)) {
		s->submitted++;
		pthread_mutex_unlock(&s->lock);
		soft_op_release(op);
		return 0;
	}
	rc = stream_enqueue_locked(s, op);
	if (!rc && op->sync) {
		s->waiters++;
		while (!op->done)
			pthread_cond_wait(&s->cond, &s->lock);
		s->waiters--;
		rc = op->rc;
		pthread_mutex_unlock(&s->lock);
		return rc;
	}
	pthread_mutex_unlock(&s->lock);
	if (rc)
		soft_op_release(op);
	return rc;
}

static struct soft_stream *soft_stream_new(struct soft_engine *eng)
{
	struct soft_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->base.dev = eng->dev;
	s->eng = eng;
	atomic_init(&s->refs, 1);
	list_init(&s->ops);
	pthread_mutex_init(&s->lock, NULL);
	cond_init_monotonic(&s->cond);
	return s;
}

int soft_stream_open(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret)
{
	struct soft_stream *s;

	if (soft_removed(soft_engine(dev)))
		return -ENODEV;
	s = soft_stream_new(soft_engine(dev));
	if (!s)
		return -ENOMEM;
	*ret = &s->base;
	return 0;
}

/* The native handle is a struct soft_stream, NULL for the default stream. */
int soft_stream_import(struct strait_device *dev, void *native, struct dev_stream **ret)
{
	struct soft_engine *eng = soft_engine(dev);
	struct soft_stream *s = native;

	if (soft_removed(eng))
		return -ENODEV;
	if (!s) {
		pthread_mutex_lock(&eng->lock);
		if (!eng->default_stream)
			eng->default_stream = soft_stream_new(eng);
		s = eng->default_stream;
		pthread_mutex_unlock(&eng->lock);
		if (!s)
			return -ENOMEM;
	}
	if (s->eng != eng)
		return -EINVAL;
	soft_stream_ref(s);
	*ret = &s->base;
	return 0;
}

void soft_stream_drain(struct soft_stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->waiters++;
	while (s->completed < s->submitted)
		pthread_cond_wait(&s->cond, &s->lock);
	s->waiters--;
	pthread_mutex_unlock(&s->lock);
}

void soft_stream_close(struct dev_stream *stream)
{
	struct soft_stream *s = container_of(stream, struct soft_stream, base);

	soft_stream_drain(s);
	soft_stream_unref(s);
}

int soft_stream_wait(struct dev_stream *stream, int64_t timeout_ns)
{
	struct soft_stream *s = container_of(stream, struct soft_stream, base);
	uint64_t target, deadline = timeout_ns > 0 ? os_deadline(timeout_ns) : 0;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	target = s->submitted;
	s->waiters++;
	while (s->completed < target) {
		if (!deadline || rc == ETIMEDOUT) {
			rc = -ETIMEDOUT;
			break;
		}
		rc = cond_wait_until(&s->cond, &s->lock, deadline);
	}
	s->waiters--;
	if (rc != -ETIMEDOUT) {
		rc = s->error;
		s->error = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}
