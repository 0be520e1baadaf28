/* SPDX-License-Identifier: MIT */
/*
 * Transfers ordered on a stream. For each, two operations are put on the device's stream: a notice, whose function hands
 * the transfer to a worker, and a wait for a word that the worker counts up when the transfer is done. The notice calls
 * nothing of the device's driver, which is forbidden there, and returns at once, so it delays no other stream.
 *
 * Where transfers follow each other, waking a worker for each would take as long as moving the bytes. So a worker that
 * has run one spins for the next for a moment, and the notice hands it over without a lock.
 *
 * The parameters of a transfer are known beforehand unless the application changes them, or the file, meanwhile. So the
 * bytes are copied to the device ahead of time (readahead.h) and checked when the transfer is due.
 *
 * With fixed parameters and an unchanged file the copy itself is put on the stream. When the transfer is due, the worker
 * only checks that the file is still unchanged; if it is not, the transfer is run as any other.
 */
#include <stdlib.h>

#include "base/util.h"
#include "engine/stream/internal.h"
#include "os/os.h"

#define SPIN_NS 60000u

/* The value of strait_stream.next while a worker spins for it. */
#define SPINNING ((struct ordered *)1)

static void ordered_unref(struct ordered *o)
{
	if (atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1)
		free(o);
}

/* Starts as many reads ahead as the device allows. */
static void readahead_fill_locked(struct strait_stream *s)
{
	while (s->readahead < s->dev->tuning.readahead && !list_empty(&s->waiting)) {
		struct ordered *o = list_first(&s->waiting, struct ordered, node);

		list_del(&o->node);
		s->readahead += readahead_begin(&o->readahead, &o->guess, &o->plan);
	}
}

/* Are the parameters what they were when the transfer was put on the stream? */
static bool guess_holds(const struct ordered *o, const struct strait_transfer *t)
{
	return t->endpoint_offset == o->guess.endpoint_offset && t->length == o->guess.length;
}

/* Ends the readahead of a transfer that is due, or that will not run (@t NULL). True: its bytes have been copied. */
static bool readahead_end(struct strait_stream *s, struct ordered *o, const struct strait_transfer *t,
			  struct strait_result *r)
{
	bool done = false;

	if (!o->guess.region)
		return false;
	pthread_mutex_lock(&s->readahead_lock);
	list_del(&o->node);
	if (o->readahead.slot) {
		done = t && guess_holds(o, t) && readahead_finish(&o->readahead, t, r);
		readahead_drop(&o->readahead);
		s->readahead--;
	}
	pthread_mutex_unlock(&s->readahead_lock);
	o->guess.region = NULL;
	return done;
}

/* Starts further reads ahead. A transfer that becomes due meanwhile waits for the lock. */
static void readahead_more(struct strait_stream *s)
{
	pthread_mutex_lock(&s->readahead_lock);
	readahead_fill_locked(s);
	pthread_mutex_unlock(&s->readahead_lock);
}

/* Releases what the transfer has referenced. */
static void ordered_end(struct ordered *o)
{
	struct strait_stream *s = o->stream;

	readahead_end(s, o, NULL, NULL);
	if (o->early.reg_window)
		regcache_unpark(&s->ctx->reg_cache, o->early.reg_window);
	region_unuse(o->t.region);
	endpoint_unref(o->t.endpoint, 1);
	pthread_mutex_lock(&s->lock);
	o->ended = true;
	pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
	ordered_unref(o);
}

/* One transfer less in flight. After the last one the stream may be freed. */
static void stream_transfer_ended(struct strait_stream *s)
{
	s->dev->ops->stream_waits_end(s->dev);
	pthread_mutex_lock(&s->lock);
	if (!--s->in_flight)
		pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
}

/* The offset in the region: false if the sum of the application's two numbers overflows. */
static bool region_place(const struct ordered *o, uint64_t *ret)
{
	uint64_t offset = *o->t.region_offset;

	return offset <= INT64_MAX && !__builtin_add_overflow(offset, o->t.region_base, ret);
}

static void ordered_move(struct ordered *o)
{
	struct strait_stream *s = o->stream;
	struct strait_result r = { 0 };
	struct strait_transfer t;
	int rc;

	if (atomic_load_explicit(&o->abandoned, memory_order_acquire))
		return;
	t = (struct strait_transfer){
		.op = o->t.op,
		.routes = o->t.routes,
		.endpoint = o->t.endpoint,
		.region = o->t.region,
		.endpoint_offset = *o->t.endpoint_offset,
		.length = *o->t.length,
	};
	rc = region_place(o, &t.region_offset) ? transfer_check(s->ctx, &t) : -EINVAL;
	if (!rc)
		rc = transfer_begin(&t);
	if (!rc) {
		if (o->early.reg_window && regcache_valid(&s->ctx->reg_cache, o->early.reg_window)) {
			reg_ref_result(&o->early, &r);
			stats_transfer(&s->ctx->stats, t.op, &r);
		} else if (!readahead_end(s, o, &t, &r)) {
			transfer_execute(&t, UINT64_MAX, NULL, true, &r);
		}
		transfer_end(&t, 1);
		rc = r.status;
	}
	stat_add(&s->ctx->stats.stream, 1);
	r.status = rc;
	if (o->t.done)
		o->t.done(o->t.done_arg, &r);
	/* Applications poll for it from other threads and may free the parameters at once. */
	if (o->t.result)
		__atomic_store_n(o->t.result, rc ? rc : (int64_t)r.bytes, __ATOMIC_RELEASE);
	s->dev->ops->word_post(s->dev, s->word->at, o->sequence);
}

/* Spins for the next transfer, if the stream has any in flight beside the one that was run last. */
static struct ordered *spin_for_next(struct strait_stream *s)
{
	struct ordered *next = NULL;
	uint64_t end;
	bool more;

	pthread_mutex_lock(&s->lock);
	more = s->in_flight > 1;
	pthread_mutex_unlock(&s->lock);
	if (!more || !atomic_compare_exchange_strong(&s->next, &next, SPINNING))
		return NULL;
	end = os_now_ns() + SPIN_NS;
	do {
		cpu_pause();
		s->dev->ops->stream_poll_notices(s->stream);
		next = atomic_load_explicit(&s->next, memory_order_acquire);
	} while (next == SPINNING && os_now_ns() < end);
	/* It may be handed over at the last moment. */
	if (next == SPINNING && atomic_compare_exchange_strong(&s->next, &next, NULL))
		return NULL;
	atomic_store(&s->next, NULL);
	return next;
}

static void ordered_run(struct task *task)
{
	struct ordered *o = container_of(task, struct ordered, task);
	struct strait_stream *s = o->stream;

	while (o) {
		ordered_move(o);
		readahead_more(s);
		ordered_end(o);
		o = spin_for_next(s);
		stream_transfer_ended(s);
	}
}

/* Called when the stream has come to the notice: the transfer is due. */
static void ordered_start(void *arg)
{
	struct ordered *o = arg, *spinning = SPINNING;

	if (atomic_compare_exchange_strong(&o->stream->next, &spinning, o))
		return;
	/* stream_transfer() has made sure that there is a worker. */
	workers_post(&o->stream->ctx->workers, &o->task);
}

/* The stream does not wait for the transfer, so the submitter must: the memory of its parameters may go away. */
static void abandon(struct strait_stream *s, struct ordered *o)
{
	atomic_store_explicit(&o->abandoned, true, memory_order_release);
	/* On a failed stream this wait calls the notice. */
	s->dev->ops->stream_wait(s->stream, STRAIT_FOREVER);
	pthread_mutex_lock(&s->lock);
	while (!o->ended)
		pthread_cond_wait(&s->idle, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

/* References the window of a transfer with fixed parameters, whose copy can be put on the stream itself. */
static void find_early(struct strait_stream *s, struct ordered *o)
{
	struct strait_transfer t = { .op = o->t.op,
				     .routes = o->t.routes,
				     .endpoint = o->t.endpoint,
				     .region = o->t.region,
				     .endpoint_offset = *o->t.endpoint_offset,
				     .length = *o->t.length };

	if (!region_place(o, &t.region_offset) || transfer_check(s->ctx, &t) ||
	    !range_inside(t.region_offset, t.length, t.region->mem.len) || !reg_ref_get(&t, &o->plan, &o->early))
		o->early.reg_window = NULL;
	else
		regcache_park(&s->ctx->reg_cache, o->early.reg_window);
}

/* Notes the parameters of a transfer that can be read ahead. */
static void note_guess(struct strait_stream *s, struct ordered *o)
{
	o->guess = (struct strait_transfer){ .op = o->t.op,
					     .routes = o->t.routes,
					     .endpoint = o->t.endpoint,
					     .region = o->t.region,
					     .endpoint_offset = __atomic_load_n(o->t.endpoint_offset, __ATOMIC_RELAXED),
					     .length = __atomic_load_n(o->t.length, __ATOMIC_RELAXED) };
	if (o->guess.length < REGCACHE_READ_MIN || o->guess.length > READAHEAD_BYTES ||
	    transfer_check(s->ctx, &o->guess)) {
		o->guess.region = NULL;
		return;
	}
	pthread_mutex_lock(&s->readahead_lock);
	list_add_tail(&s->waiting, &o->node);
	readahead_fill_locked(s);
	pthread_mutex_unlock(&s->readahead_lock);
}

/* Puts the copy of a fixed transfer on the stream. False: it is run by a worker as any other. */
static bool put_early_locked(struct strait_stream *s, struct ordered *o)
{
	const struct reg_window *w = o->early.reg_window;
	uint64_t to = o->t.region->mem.addr + o->t.region_base + *o->t.region_offset;

	if (w && !s->dev->ops->copy_in(s->stream, to, (char *)w->map + (o->early.off - w->off), o->early.len))
		return true;
	if (w)
		regcache_unpark(&s->ctx->reg_cache, o->early.reg_window);
	o->early.reg_window = NULL;
	return false;
}

static int put_on_stream(struct strait_stream *s, struct ordered *o)
{
	bool early;
	int rc;

	pthread_mutex_lock(&s->order);
	early = put_early_locked(s, o);
	o->sequence = s->sequence + 1;
	rc = s->dev->ops->stream_notify(s->stream, ordered_start, o);
	if (rc) {
		pthread_mutex_unlock(&s->order);
		if (early)
			s->dev->ops->stream_wait(s->stream, STRAIT_FOREVER);
		ordered_end(o);
		stream_transfer_ended(s);
		return rc;
	}
	s->sequence = o->sequence;
	rc = s->dev->ops->stream_wait_word(s->stream, s->word->at, s->word->dev_addr, o->sequence);
	pthread_mutex_unlock(&s->order);
	if (rc)
		abandon(s, o);
	return rc;
}

int stream_transfer(struct strait_stream *s, const struct strait_stream_transfer *user)
{
	struct strait_stream_transfer t;
	struct route_decision decision;
	struct ordered *o;
	int rc;

	rc = struct_in(&t, sizeof(t), user, STRAIT_STREAM_TRANSFER_SIZE_V1);
	if (rc)
		return rc;
	if (!t.endpoint || !t.region || t.op > STRAIT_WRITE || !t.endpoint_offset || !t.region_offset || !t.length ||
	    t.routes >= 1u << STRAIT_ROUTE_COUNT || t.flags & ~STRAIT_STREAM_FIXED || t.reserved)
		return -EINVAL;
	if (t.endpoint->owner != s->ctx)
		return -EINVAL;
	if (t.region->dev != s->dev && !(t.region->dev->caps & STRAIT_DEVICE_HOST))
		return -EXDEV;
	if (device_context(t.region->dev) != s->ctx)
		return -EXDEV;
	transfer_decide(
		&(struct strait_transfer){ .op = t.op, .routes = t.routes, .endpoint = t.endpoint, .region = t.region },
		&decision);
	if (decision.code)
		return decision.code;
	rc = workers_ensure(&s->ctx->workers);
	if (rc)
		return rc;
	rc = region_use(t.region, 0, 0);
	if (rc)
		return rc;
	o = calloc(1, sizeof(*o));
	if (!o) {
		region_unuse(t.region);
		return -ENOMEM;
	}
	endpoint_ref(t.endpoint, 1);
	task_init(&o->task, ordered_run);
	o->stream = s;
	o->t = t;
	o->plan = decision.plan;
	atomic_init(&o->refs, 2);
	list_init(&o->node);
	if ((t.flags & STRAIT_STREAM_FIXED) && t.region->dev == s->dev && s->dev->tuning.stream_copies)
		find_early(s, o);
	else if (t.op == STRAIT_READ && t.region->dev == s->dev && s->dev->tuning.readahead &&
		 !(decision.mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P)))
		note_guess(s, o);
	s->dev->ops->stream_waits_begin(s->dev);
	pthread_mutex_lock(&s->lock);
	s->in_flight++;
	pthread_mutex_unlock(&s->lock);
	rc = put_on_stream(s, o);
	ordered_unref(o);
	return rc;
}
