/* SPDX-License-Identifier: MIT */
/* Many transfers in flight on a queue pair, started and reaped by one thread: one command each. */
#include <stdlib.h>

#include "base/util.h"
#include "endpoint/nvme/endpoint.h"
#include "os/os.h"

#define RING_AFTER 8 /* commands per doorbell write */

struct slot {
	struct nvme_wait wait;
	struct list node; /* endpoint_batch.free or .completed */
	struct endpoint_batch *batch;
	struct endpoint_io_async *io_async;
	struct strait_nvme_map *map;
	struct range_lock range_lock; /* of a write */
	int status;
	uint32_t nvme_status;
};

struct endpoint_batch {
	struct namespace *n;
	struct strait_nvme_queue *q;
	struct list free;
	atomic_bool woken;
	/* Protected by the lock of the queue: */
	struct list completed;
	unsigned int in_flight, fresh;
	struct slot slot[];
};

int namespace_batch_open(struct strait_endpoint *ep, unsigned int *room, struct endpoint_batch **ret)
{
	struct namespace *n = to_namespace(ep);
	struct strait_nvme_queue *q = nvme_queue_mine(n->ctrl);
	struct endpoint_batch *b = calloc(1, sizeof(*b) + (q->entries - 1) * sizeof(b->slot[0]));

	if (!b)
		return -ENOMEM;
	b->n = n;
	b->q = q;
	list_init(&b->free);
	list_init(&b->completed);
	for (unsigned int i = 0; i < q->entries - 1; i++)
		list_add_tail(&b->free, &b->slot[i].node);
	*room = q->entries - 1;
	*ret = b;
	return 0;
}

void namespace_batch_close(struct endpoint_batch *b)
{
	free(b);
}

/* Called by the thread that reaps the queue, with the lock of the queue held. */
static void slot_done(struct nvme_wait *w, const struct strait_nvme_result *r)
{
	struct slot *s = container_of(w, struct slot, wait);

	s->status = r->status;
	s->nvme_status = r->nvme_status;
	list_add_tail(&s->batch->completed, &s->node);
	s->batch->in_flight--;
}

/* Queue the command. */
static int put_slot(struct endpoint_batch *b, struct slot *s, const struct nvme_job *job)
{
	struct strait_nvme_command cmd = nvme_job_command(job, 0, job->length);
	struct strait_nvme_queue *q = b->q;
	int rc;

	pthread_mutex_lock(&q->lock);
	rc = nvme_dead(q->ctrl);
	if (!rc)
		rc = q->gone ? -ENODEV : nvme_put(q, &cmd, &s->wait, os_now_ns());
	if (!rc) {
		list_del(&s->node);
		b->in_flight++;
		if (++b->fresh % RING_AFTER == 0)
			nvme_ring(q);
	}
	pthread_mutex_unlock(&q->lock);
	return rc;
}

int namespace_batch_start(struct endpoint_batch *b, struct endpoint_io_async *f)
{
	const struct endpoint_io *m = &f->m;
	struct namespace *n = b->n;
	struct nvme_job job = namespace_job(n, m->write);
	struct slot *s;
	int rc;

	if (list_empty(&b->free))
		return -EAGAIN;
	s = list_first(&b->free, struct slot, node);
	rc = namespace_prepare(n, m, &job);
	if (rc)
		return rc;
	*s = (struct slot){ .wait.done = slot_done, .node = s->node, .batch = b, .io_async = f, .map = job.map };
	/* A read-modify-write cycle holds the range: the caller retries. */
	if (m->write && !range_lock_try(n, &s->range_lock, m->offset, m->length))
		return -EBUSY;
	rc = put_slot(b, s, &job);
	if (rc && m->write)
		range_lock_put(n, &s->range_lock);
	return rc;
}

static bool has_completed(void *arg)
{
	struct endpoint_batch *b = arg;

	return !list_empty(&b->completed) || !b->in_flight || atomic_load_explicit(&b->woken, memory_order_relaxed);
}

static void slot_end(struct endpoint_batch *b, struct slot *s)
{
	struct endpoint_io_async *f = s->io_async;
	struct nvme_job job = namespace_job(b->n, f->m.write);

	if (f->m.write)
		range_lock_put(b->n, &s->range_lock);
	job.offset = f->m.offset;
	job.length = f->m.length;
	job.err = s->status;
	job.nvme_status = s->nvme_status;
	if (nvme_worth_retrying(s->nvme_status))
		job.err = -EAGAIN;
	else
		nvme_job_say(b->n->ctrl, &job, 0);
	f->done = namespace_io_result(b->n, s->map, &f->m, &job, job.err ? 0 : job.length);
	list_add(&b->free, &s->node);
}

unsigned int namespace_batch_reap(struct endpoint_batch *b, struct endpoint_io_async **completed, unsigned int max)
{
	struct nvme_until u = { has_completed, b, UINT64_MAX };
	struct list mine = LIST_INIT(mine);
	unsigned int n = 0;

	pthread_mutex_lock(&b->q->lock);
	nvme_ring(b->q);
	pthread_mutex_unlock(&b->q->lock);
	nvme_wait_locked(b->q, &u);
	atomic_store_explicit(&b->woken, false, memory_order_relaxed);
	while (n < max && !list_empty(&b->completed)) {
		struct slot *s = list_first(&b->completed, struct slot, node);

		list_del(&s->node);
		list_add_tail(&mine, &s->node);
		completed[n++] = s->io_async;
	}
	pthread_mutex_unlock(&b->q->lock);
	list_for_each_safe(it, tmp, &mine) {
		list_del(it);
		slot_end(b, list_entry(it, struct slot, node));
	}
	return n;
}

void namespace_batch_wake(struct endpoint_batch *b)
{
	atomic_store_explicit(&b->woken, true, memory_order_relaxed);
	/* A polling thread sees the flag; a sleeping one is woken as if by the drive's interrupt. */
	if (b->q->irq < 0)
		return;
	os_event_signal(b->q->irq);
	pthread_mutex_lock(&b->q->lock);
	pthread_cond_broadcast(&b->q->cond);
	pthread_mutex_unlock(&b->q->lock);
}
