/* SPDX-License-Identifier: MIT */
/* The calls of a queue. Which thread runs what is decided in run.c. */
#include "engine/queue/internal.h"

#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "os/os.h"

#define DEFAULT_ENTRIES 1024
#define MAX_ENTRIES (1u << 20)
#define START_NS 60000 /* how long a submitter waits for the batches it has started */

struct strait_context *queue_context(const struct strait_queue *q)
{
	return q->ctx;
}

int queue_open(struct strait_context *ctx, const struct strait_queue_opts *user, struct strait_queue **ret)
{
	struct strait_queue_opts o = { .size = sizeof(o) };
	struct strait_queue *q;
	int rc = 0;

	if (user)
		rc = struct_in(&o, sizeof(o), user, STRAIT_QUEUE_OPTS_SIZE_V1);
	if (rc)
		return rc;
	if (o.flags || o.entries > MAX_ENTRIES)
		return -EINVAL;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->n_entries = q->n_free = o.entries ? o.entries : DEFAULT_ENTRIES;
	q->entries = calloc(q->n_entries, sizeof(*q->entries));
	q->worker[0] = queue_worker_new(q); /* submitted transfers need one, even if there is no memory for more */
	if (!q->entries || !q->worker[0]) {
		free(q->worker[0]);
		free(q->entries);
		free(q);
		return -ENOMEM;
	}
	q->wake = q->fd = -1;
	list_init(&q->free);
	list_init(&q->pending);
	list_init(&q->done);
	list_init(&q->async);
	list_init(&q->idle);
	list_init(&q->started);
	list_init(&q->async_workers);
	for (unsigned int i = 0; i < q->n_entries; i++)
		list_add_tail(&q->free, &q->entries[i].node);
	mutex_init_brief(&q->lock);
	cond_init_monotonic(&q->changed);
	engine_ref(ctx);
	q->ctx = ctx;
	engine_prepare_copy_lists(ctx);
	*ret = q;
	return 0;
}

/* Makes the descriptor readable if there are results, and not readable otherwise. */
static void update_fd_locked(struct strait_queue *q)
{
	bool readable = q->n_done;

	if (q->fd < 0 || q->fd_readable == readable)
		return;
	q->fd_readable = readable;
	if (readable)
		os_event_signal(q->fd);
	else
		os_event_clear(q->fd);
}

void queue_announce_locked(struct strait_queue *q)
{
	update_fd_locked(q);
	if (q->waiters || q->closing)
		pthread_cond_broadcast(&q->changed);
}

/* Takes @n entries off .free, for a thread that is obliged to queue_serve_locked() from here on. */
static int reserve_locked(struct strait_queue *q, unsigned int n, struct list *entries)
{
	struct list *last = &q->free;

	if (q->closing)
		return -ESHUTDOWN;
	if (n > q->n_free)
		return -EAGAIN;
	for (unsigned int i = 0; i < n; i++) {
		last = last->next;
		list_entry(last, struct entry, node)->state = ENTRY_RESERVED;
	}
	list_move_front(entries, &q->free, last);
	q->n_free -= n;
	q->obliged++;
	return 0;
}

static void unreserve_locked(struct strait_queue *q, unsigned int n, struct list *entries)
{
	list_for_each(it, entries)
		list_entry(it, struct entry, node)->state = ENTRY_FREE;
	list_move_front(&q->free, entries, entries->prev);
	q->n_free += n;
	q->obliged--;
	pthread_cond_broadcast(&q->changed); /* waiters counted them as in flight */
}

static void pend_locked(struct strait_queue *q, struct list *entries, const unsigned int kinds[ENTRY_KINDS])
{
	list_for_each_safe(it, tmp, entries) {
		struct entry *e = list_entry(it, struct entry, node);

		list_del(it);
		list_add_tail(e->kind == ENTRY_ASYNC ? &q->async : &q->pending, it);
		e->state = ENTRY_PENDING;
	}
	for (int i = 0; i < ENTRY_KINDS; i++)
		q->n[i] += kinds[i];
	if (kinds[ENTRY_ASYNC])
		queue_wake_async_locked(q);
}

/* A thread is no longer obliged. */
static void discharge_locked(struct strait_queue *q)
{
	q->obliged--;
	if (q->closing)
		pthread_cond_broadcast(&q->changed);
}

int queue_submit(struct strait_queue *q, const struct strait_transfer *t, unsigned int n)
{
	struct queue_thread me = { .role = QUEUE_SUBMITTER };
	unsigned int kinds[ENTRY_KINDS] = { 0 }, started = 0;
	struct list entries = LIST_INIT(entries);
	bool in_place;
	int rc;

	queue_lock(q);
	rc = reserve_locked(q, n, &entries);
	queue_unlock(q);
	if (rc)
		return rc;
	rc = transfer_begin_all(q->ctx, t, n);
	if (rc) {
		queue_lock(q);
		unreserve_locked(q, n, &entries);
		queue_unlock(q);
		return rc;
	}

	/* Small reads out of registered windows are started here: that costs the submitter hardly any time. */
	in_place = t->op == STRAIT_READ && regcache_may_cache(t->endpoint);
	queue_classify(&entries, t, !in_place, kinds);
	if (in_place && kinds[ENTRY_SMALL] == n)
		started = queue_start_in_place(q, &entries, t, n);
	if (started) {
		/* The device may run several batches at once and need the submitter to start them: wait only briefly. */
		me.end = os_now_ns() + START_NS;
		queue_serve_locked(q, &me);
	}
	if (started < n) {
		bool wake;

		if (started)
			queue_unlock(q);
		kinds[ENTRY_SMALL] -= started;
		t += started;
		if (in_place)
			list_for_each(it, &entries)
				entry_fill(list_entry(it, struct entry, node), t++);
		queue_lock(q);
		pend_locked(q, &entries, kinds);
		wake = kinds[ENTRY_RING] && q->has_ring;
		me = (struct queue_thread){ .role = QUEUE_SUBMITTER };
		queue_serve_locked(q, &me);
		if (wake) {
			queue_unlock(q);
			os_event_signal(q->wake);
			queue_lock(q);
		}
	}
	discharge_locked(q);
	queue_unlock(q);
	return 0;
}

/* Moves up to @max results out of the queue. Returns how many. */
static unsigned int fetch_locked(struct strait_queue *q, unsigned int max, struct strait_result *results)
{
	unsigned int n = (unsigned int)min_u64(max, q->n_done);
	struct list *last = &q->done;

	if (!n)
		return 0;
	for (unsigned int i = 0; i < n; i++) {
		struct entry *e = list_first(last, struct entry, node);

		results[i] = e->r;
		e->state = ENTRY_FREE;
		last = &e->node;
	}
	list_move_front(&q->free, &q->done, last); /* taken first, while the CPU's cache has them */
	q->n_done -= n;
	q->n_free += n;
	update_fd_locked(q);
	return n;
}

int queue_wait(struct strait_queue *q, unsigned int min, unsigned int max, int64_t timeout_ns,
	       struct strait_result *results)
{
	struct queue_thread me = { .role = QUEUE_WAITER, .min = min };
	unsigned int n;
	int rc = 0;

	if (min > max || timeout_ns < 0)
		return -EINVAL;
	me.end = os_deadline(timeout_ns);
	queue_lock(q);
	if (timeout_ns && q->n_done < min) {
		q->waiters++;
		q->obliged++;
		queue_serve_locked(q, &me);
		discharge_locked(q);
		/* No more results can come than there are transfers in flight. */
		while (!rc && q->n_done < min && q->n_done < q->n_entries - q->n_free) {
			queue_check_locked(q);
			rc = cond_wait_until(&q->changed, &q->lock, me.end);
		}
		q->waiters--;
		if (q->closing)
			pthread_cond_broadcast(&q->changed);
	}
	n = fetch_locked(q, max, results);
	queue_unlock(q);
	return (int)n;
}

int queue_fd(struct strait_queue *q)
{
	int fd = -1, rc = 0;

	queue_lock(q);
	if (q->fd < 0) {
		rc = os_event_fd(&fd);
		if (!rc)
			rc = os_event_share(fd);
		if (!rc) {
			q->fd = fd;
			update_fd_locked(q);
		} else if (fd >= 0) {
			os_close(fd);
		}
	}
	fd = q->fd;
	queue_unlock(q);
	return rc ? rc : fd;
}

/* True: the entry is in flight. A pending one goes to @out, for the caller to end its transfer. */
static bool cancel_locked(struct strait_queue *q, struct entry *e, struct list *out)
{
	if (e->state == ENTRY_RUNNING) {
		atomic_store_explicit(&e->cancel, true, memory_order_relaxed);
		return true;
	}
	if (e->state != ENTRY_PENDING)
		return false;
	queue_take_locked(q, e);
	list_add_tail(out, &e->node);
	return true;
}

/* Cancels transfers with @user_data, or all if that is NULL. Returns how many. */
static int cancel_where(struct strait_queue *q, const uint64_t *user_data)
{
	struct list out = LIST_INIT(out);
	int found = 0;

	queue_lock(q);
	for (unsigned int i = 0; i < q->n_entries; i++) {
		struct entry *e = &q->entries[i];

		if (e->state >= ENTRY_PENDING && (!user_data || e->t.user_data == *user_data))
			found += cancel_locked(q, e, &out);
	}
	queue_unlock(q);
	if (list_empty(&out))
		return found;
	list_for_each(it, &out) {
		struct entry *e = list_entry(it, struct entry, node);

		memset(&e->r, 0, sizeof(e->r));
		e->r.user_data = e->t.user_data;
		e->r.status = -ECANCELED;
		stats_transfer(&q->ctx->stats, e->t.op, &e->r);
		transfer_end(&e->t, 1);
	}
	queue_lock(q);
	list_for_each_safe(it, tmp, &out) {
		list_del(it);
		queue_complete_locked(q, list_entry(it, struct entry, node));
	}
	queue_announce_locked(q);
	queue_unlock(q);
	return found;
}

int queue_cancel(struct strait_queue *q, uint64_t user_data)
{
	int found = cancel_where(q, &user_data);

	return found ? found : -ENOENT;
}

/* Waits for workers, and for threads that were inside the queue when it began to close. */
static bool is_quiet_locked(const struct strait_queue *q)
{
	return !q->workers && !q->obliged && !q->waiters && q->n_done + q->n_free == q->n_entries;
}

void queue_close(struct strait_queue *q)
{
	struct queue_thread me = { .role = QUEUE_CLOSER, .end = QUEUE_FOREVER };
	struct strait_context *ctx = q->ctx;

	queue_lock(q);
	q->closing = true;
	queue_unlock(q);
	cancel_where(q, NULL);
	queue_lock(q);
	q->obliged++;
	queue_serve_locked(q, &me);
	q->obliged--;
	if (!queue_has_work_locked(q))
		queue_withdraw_workers_locked(q);
	while (!is_quiet_locked(q)) {
		queue_check_locked(q);
		pthread_cond_wait(&q->changed, &q->lock);
	}
	CHECK(!queue_has_work_locked(q));
	queue_unlock(q);
	list_for_each_safe(it, tmp, &q->idle)
		free(list_entry(it, struct queue_batch, node));
	for (unsigned int i = 0; i < ARRAY_SIZE(q->worker); i++)
		free(q->worker[i]);
	if (q->fd >= 0)
		os_close(q->fd);
	if (q->wake >= 0)
		os_close(q->wake);
	pthread_cond_destroy(&q->changed);
	pthread_mutex_destroy(&q->lock);
	free(q->entries);
	free(q);
	engine_unref(ctx);
}
