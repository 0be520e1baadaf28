/* SPDX-License-Identifier: MIT */
/*
 * Transfers ordered on a stream. Two things are put on the device's stream for each: a notice, whose function
 * hands the transfer to a worker, and a wait for a word that the worker counts up when it is done. The function
 * calls nothing of the device's driver, which is forbidden there, and returns at once, so it holds up no other
 * stream.
 *
 * Where transfers follow each other, waking a worker for each would take as long as moving the bytes: a worker
 * that has done one looks out for the next for a moment, and gets it handed over without a lock.
 *
 * What a transfer will read is known beforehand unless the program changes the parameters, or the file, meanwhile. It
 * is copied near its place while others have their turn (ahead.h), and looked at again when its own has come.
 *
 * What is known for certain, of a file that does not change, is copied by the stream itself. When its turn has come
 * it only remains to be seen that the file did not change: if it did, the transfer is done as any other.
 */
#include "engine/stream/stream.h"

#include <stdlib.h>
#include <time.h>

#include "base/util.h"
#include "engine/regcache/read.h"
#include "engine/stream/readahead.h"
#include "os/os.h"

#define LOOK_OUT_NS 60000u
#define FORGET_SECONDS 10

/* Stands in strait_stream.next while a worker looks out for it. */
#define LOOKING ((struct ordered *)1)

struct ordered;

struct strait_stream {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct dev_stream *stream;
	/*
	 * Keeps function and wait of one transfer together. Held while the driver is called, which may take until
	 * transfers have got on: so these do not need it.
	 */
	pthread_mutex_t order;
	uint32_t sequence; /* under @order */
	pthread_mutex_t lock;
	pthread_cond_t idle;	/* a transfer has landed */
	unsigned int in_flight; /* transfers not yet finished */
	struct word *word;
	bool imported;
	pthread_mutex_t readahead_lock; /* protects what follows, and each transfer's part in it */
	struct list waiting;		/* transfers that may be copied ahead, when others have had their turn */
	unsigned int readahead;		/* how many are */
	_Atomic(struct ordered *) next; /* NULL, LOOKING, or the transfer whose turn has come */
};

struct ordered {
	struct task task;
	struct strait_stream *stream;
	struct strait_stream_transfer t;
	struct route_plan plan;
	uint32_t sequence;
	atomic_uint refs;	      /* the transfer's own, and stream_transfer()'s */
	atomic_bool abandoned;	      /* stream_transfer() failed: not to be begun */
	struct reg_ref early;	      /* its copy is on the stream itself, before the notice, if there is a window */
	bool over;		      /* under the stream's lock */
	struct list node;	      /* strait_stream.waiting */
	struct strait_transfer guess; /* what it will be */
	struct readahead readahead;
};

struct strait_context *stream_context(const struct strait_stream *s)
{
	return s->ctx;
}

int stream_open(struct strait_device *dev, bool import, void *native, struct strait_stream **ret)
{
	struct strait_stream *s;
	pthread_condattr_t attr;
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
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->idle, &attr);
	pthread_condattr_destroy(&attr);
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
	 * The device first: it may be looking at the word, and on one that has failed this is what starts the
	 * transfers that it did not, so that they end.
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

void stream_forget(struct strait_stream *s)
{
	uint64_t end = os_now_ns() + FORGET_SECONDS * 1000000000ull;
	struct timespec ts = { (time_t)(end / 1000000000u), (long)(end % 1000000000u) };
	int rc = 0;

	if (!s->imported) {
		stream_close(s);
		return;
	}
	pthread_mutex_lock(&s->lock);
	while (s->in_flight && !rc)
		rc = pthread_cond_timedwait(&s->idle, &s->lock, &ts);
	rc = s->in_flight > 0;
	pthread_mutex_unlock(&s->lock);
	if (rc) {
		/* The device has failed, or is busy with something else for long: what is in use stays. */
		log_warn(&s->ctx->log, "a stream was given up with transfers on it: it stays");
		return;
	}
	s->dev->ops->stream_forget(s->stream);
	/* The device may still have to look at it: see words.h. */
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

static void ordered_unref(struct ordered *o)
{
	if (atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1)
		free(o);
}

/* With readahead_lock held: as many as may be. */
static void readahead_fill_locked(struct strait_stream *s)
{
	while (s->readahead < s->dev->tuning.readahead && !list_empty(&s->waiting)) {
		struct ordered *o = list_first(&s->waiting, struct ordered, node);

		list_del(&o->node);
		s->readahead += readahead_begin(&o->readahead, &o->guess, &o->plan);
	}
}

/* Is it what it seemed to be? */
static bool guessed(const struct ordered *o, const struct strait_transfer *t)
{
	return t->endpoint_offset == o->guess.endpoint_offset && t->length == o->guess.length;
}

/* The transfer's turn has come, or never will: @t is NULL then. True if that did it. */
static bool readahead_end(struct strait_stream *s, struct ordered *o, const struct strait_transfer *t,
			  struct strait_result *r)
{
	bool done = false;

	if (!o->guess.region)
		return false;
	pthread_mutex_lock(&s->readahead_lock);
	list_del(&o->node);
	if (o->readahead.slot) {
		done = t && guessed(o, t) && readahead_finish(&o->readahead, t, r);
		readahead_drop(&o->readahead);
		s->readahead--;
	}
	pthread_mutex_unlock(&s->readahead_lock);
	o->guess.region = NULL;
	return done;
}

/* Others can go ahead now. Their turn may come meanwhile: it waits for the lock then. */
static void readahead_more(struct strait_stream *s)
{
	pthread_mutex_lock(&s->readahead_lock);
	readahead_fill_locked(s);
	pthread_mutex_unlock(&s->readahead_lock);
}

/* The transfer is over: lets go of what it held. */
static void ordered_end(struct ordered *o)
{
	struct strait_stream *s = o->stream;

	readahead_end(s, o, NULL, NULL);
	if (o->early.reg_window)
		regcache_unpark(&s->ctx->reg_cache, o->early.reg_window);
	region_unuse(o->t.region);
	endpoint_unref(o->t.endpoint, 1);
	pthread_mutex_lock(&s->lock);
	o->over = true;
	pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
	ordered_unref(o);
}

/* One transfer less. The stream may be gone then. */
static void landed(struct strait_stream *s)
{
	s->dev->ops->stream_waits_end(s->dev);
	pthread_mutex_lock(&s->lock);
	if (!--s->in_flight)
		pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
}

/* The offset in the region, which the sum of two numbers that a program gave may not be. */
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
	/* Programs look for it from other threads, too, and may then free what they gave. */
	if (o->t.result)
		__atomic_store_n(o->t.result, rc ? rc : (int64_t)r.bytes, __ATOMIC_RELEASE);
	s->dev->ops->word_post(s->dev, s->word->at, o->sequence);
}

/* Looks out for the next transfer, if the stream has any. The one that was done last still counts. */
static struct ordered *look_out(struct strait_stream *s)
{
	struct ordered *next = NULL;
	uint64_t end;
	bool more;

	pthread_mutex_lock(&s->lock);
	more = s->in_flight > 1;
	pthread_mutex_unlock(&s->lock);
	if (!more || !atomic_compare_exchange_strong(&s->next, &next, LOOKING))
		return NULL;
	end = os_now_ns() + LOOK_OUT_NS;
	do {
		cpu_pause();
		s->dev->ops->stream_look(s->stream);
		next = atomic_load_explicit(&s->next, memory_order_acquire);
	} while (next == LOOKING && os_now_ns() < end);
	/* It may come at the last moment. */
	if (next == LOOKING && atomic_compare_exchange_strong(&s->next, &next, NULL))
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
		o = look_out(s);
		landed(s);
	}
}

/* Runs on the stream: the transfer's turn has come. */
static void ordered_start(void *arg)
{
	struct ordered *o = arg, *looking = LOOKING;

	if (atomic_compare_exchange_strong(&o->stream->next, &looking, o))
		return;
	/* There is a worker: stream_transfer() saw to that. */
	workers_post(&o->stream->ctx->workers, &o->task);
}

/* The stream does not wait for the transfer, so the caller must: what it gave pointers to may be gone later. */
static void abandon(struct strait_stream *s, struct ordered *o)
{
	atomic_store_explicit(&o->abandoned, true, memory_order_release);
	/* On a stream that has failed this is what calls the function. */
	s->dev->ops->stream_wait(s->stream, STRAIT_FOREVER);
	pthread_mutex_lock(&s->lock);
	while (!o->over)
		pthread_cond_wait(&s->idle, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

/* Finds the window of a transfer whose copy the stream itself can do. */
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

/* Notes what the transfer will be, if that can be copied ahead. */
static void guess(struct strait_stream *s, struct ordered *o)
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

/* With the stream's order held. If it fails, the transfer is one as any other. */
static bool put_early(struct strait_stream *s, struct ordered *o)
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
	early = put_early(s, o);
	o->sequence = s->sequence + 1;
	rc = s->dev->ops->stream_notify(s->stream, ordered_start, o);
	if (rc) {
		pthread_mutex_unlock(&s->order);
		if (early)
			s->dev->ops->stream_wait(s->stream, STRAIT_FOREVER);
		ordered_end(o);
		landed(s);
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
	o->task.run = ordered_run;
	o->stream = s;
	o->t = t;
	o->plan = decision.plan;
	atomic_init(&o->refs, 2);
	list_init(&o->node);
	if ((t.flags & STRAIT_STREAM_FIXED) && t.region->dev == s->dev && s->dev->tuning.stream_copies)
		find_early(s, o);
	else if (t.op == STRAIT_READ && t.region->dev == s->dev && s->dev->tuning.readahead &&
		 !(decision.mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P)))
		guess(s, o);
	s->dev->ops->stream_waits_begin(s->dev);
	pthread_mutex_lock(&s->lock);
	s->in_flight++;
	pthread_mutex_unlock(&s->lock);
	rc = put_on_stream(s, o);
	ordered_unref(o);
	return rc;
}
