/* SPDX-License-Identifier: MIT */
/* Waiting for commands, by polling or by interrupts. */
#include "endpoint/nvme/nvme.h"

#include "base/lock.h"
#include "base/util.h"
#include "os/os.h"

#define SPINS 64		 /* between two reads of the clock */
#define EAGER_SPINS (64 * 64)	 /* before the CPU is yielded */
#define SLICE_NS 50000000u	 /* most time lost by a lost interrupt */
#define SHARED_SLICE_NS 1000000u /* most time lost if a waiter of another queue consumes a shared interrupt */

static void wait_for_leader(struct strait_nvme_queue *q, uint64_t until)
{
	cond_wait_until(&q->cond, &q->lock, until);
}

/*
 * Drops the lock of the queue while it sleeps. One waiter, the leader, sleeps on the interrupt and wakes the other
 * waiters.
 */
static void sleep_until_locked(struct strait_nvme_queue *q, uint64_t now, uint64_t deadline)
{
	uint64_t until = min_u64(min_u64(deadline, q->soonest), now + (q->irq_shared ? SHARED_SLICE_NS : SLICE_NS));
	int rc;

	if (until <= now)
		return;
	if (q->leader) {
		wait_for_leader(q, until);
		return;
	}
	q->leader = true;
	pthread_mutex_unlock(&q->lock);
	rc = os_event_wait(q->irq, until - now);
	pthread_mutex_lock(&q->lock);
	q->leader = false;
	if (nvme_reap(q) && rc && !q->irq_shared)
		q->lost_irqs++;
	pthread_cond_broadcast(&q->cond);
}

int nvme_wait_locked(struct strait_nvme_queue *q, const struct nvme_until *u)
{
	uint64_t now;

	pthread_mutex_lock(&q->lock);
	for (unsigned int spins = 1;; spins++) {
		nvme_reap(q);
		if (u->met(u->arg))
			return 0;
		if (q->irq < 0 && spins % SPINS && !q->broken) {
			pthread_mutex_unlock(&q->lock);
			cpu_pause();
			pthread_mutex_lock(&q->lock);
			continue;
		}
		now = os_now_ns();
		if (nvme_needs_help(q, now)) {
			pthread_mutex_unlock(&q->lock);
			nvme_recover(q);
			pthread_mutex_lock(&q->lock);
		} else if (now >= u->deadline) {
			return -ETIMEDOUT;
		} else if (q->irq >= 0) {
			sleep_until_locked(q, now, u->deadline);
		} else if (spins > EAGER_SPINS) {
			pthread_mutex_unlock(&q->lock);
			os_yield();
			pthread_mutex_lock(&q->lock);
		}
	}
}

int nvme_submit(struct strait_nvme_queue *q, const struct strait_nvme_command *cmds, unsigned int n)
{
	uint64_t now = os_now_ns();
	int rc;

	pthread_mutex_lock(&q->lock);
	rc = nvme_dead(q->ctrl);
	if (!rc && q->gone)
		rc = -ENODEV;
	if (!rc)
		rc = nvme_put_many(q, cmds, n, now);
	nvme_ring(q);
	pthread_mutex_unlock(&q->lock);
	return rc;
}

struct collect {
	struct strait_nvme_queue *q;
	unsigned int min;
};

static bool collected(void *arg)
{
	const struct collect *c = arg;

	return c->q->done_count >= c->min || !c->q->in_flight;
}

int nvme_collect(struct strait_nvme_queue *q, unsigned int min, unsigned int max, int64_t timeout_ns,
		 struct strait_nvme_result *results)
{
	struct collect c = { q, min };
	struct nvme_until u = { collected, &c, 0 };
	uint32_t n, first;

	if (min > max || timeout_ns < 0)
		return -EINVAL;
	if (timeout_ns)
		u.deadline = os_deadline(timeout_ns);
	nvme_wait_locked(q, &u);
	n = (uint32_t)min_u64(max, q->done_count);
	first = (uint32_t)min_u64(n, q->entries - q->done_head); /* up to the end of the ring */
	if (n) {
		memcpy(results, q->done + q->done_head, first * sizeof(*results));
		memcpy(results + first, q->done, (n - first) * sizeof(*results));
	}
	q->done_head = q->done_head + n < q->entries ? q->done_head + n : q->done_head + n - q->entries;
	q->done_count -= n;
	pthread_mutex_unlock(&q->lock);
	return (int)n;
}

struct one {
	struct nvme_wait wait;
	struct strait_nvme_result r;
	bool done;
};

static void one_done(struct nvme_wait *w, const struct strait_nvme_result *r)
{
	struct one *o = container_of(w, struct one, wait);

	o->r = *r;
	o->done = true;
}

static bool one_met(void *arg)
{
	return ((struct one *)arg)->done;
}

/* Is a slot free for a command? */
static bool has_room(void *arg)
{
	struct strait_nvme_queue *q = arg;

	return q->n_free || q->gone;
}

int nvme_run(struct strait_nvme_queue *q, const struct strait_nvme_command *cmd, struct strait_nvme_result *r)
{
	struct one o = { .wait.done = one_done };
	struct nvme_until room = { has_room, q, UINT64_MAX }, end = { one_met, &o, UINT64_MAX };
	int rc;

	nvme_wait_locked(q, &room);
	rc = nvme_dead(q->ctrl);
	if (!rc)
		rc = q->gone ? -ENODEV : nvme_put(q, cmd, &o.wait, os_now_ns());
	nvme_ring(q);
	pthread_mutex_unlock(&q->lock);
	if (rc) {
		*r = (struct strait_nvme_result){ .user_data = cmd->user_data, .status = rc };
		return rc;
	}
	nvme_wait_locked(q, &end);
	pthread_mutex_unlock(&q->lock);
	*r = o.r;
	return r->status;
}
