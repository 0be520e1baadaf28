/* SPDX-License-Identifier: MIT */
/* A queue pair: its memory, and its creation and deletion at the controller. */
#include "endpoint/nvme/nvme.h"

#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "hw/barrier.h"
#include "os/os.h"

#define DEFAULT_ENTRIES 256u
#define FEW_ENTRIES 64u /* a submission queue of one page */

static uint64_t sq_bytes(const struct strait_nvme_queue *q)
{
	return align_up((uint64_t)q->entries * sizeof(struct nvme_sqe), 4096);
}

static uint64_t cq_bytes(const struct strait_nvme_queue *q)
{
	return align_up((uint64_t)q->entries * sizeof(struct nvme_cqe), 4096);
}

/* Find the addresses of both queues. False if one of them is not contiguous. */
static bool find_addresses(struct strait_nvme_queue *q, const struct pci_mapping *pm, uint64_t cq_at)
{
	uint64_t run;

	q->sq_bus = pci_bus(pm, 0, &run);
	if (run < (uint64_t)q->entries * sizeof(struct nvme_sqe))
		return false;
	q->cq_bus = pci_bus(pm, cq_at, &run);
	return run >= (uint64_t)q->entries * sizeof(struct nvme_cqe);
}

/* Place the queues in a region, or at the start of the queue's host memory. */
static int place_queues(struct strait_nvme_queue *q, const struct strait_nvme_queue_opts *opts)
{
	uint64_t cq_at = sq_bytes(q);
	struct strait_nvme_map *m = q->host;
	void *cpu = q->host->host;
	int rc;

	if (opts && opts->region) {
		struct strait_region *r = opts->region;

		rc = r->dev->ops->mem_map(r->dev, &r->mem, &cpu);
		if (rc) {
			log_warn(q->ctrl->log, "%s: queues cannot be in memory of %s: the CPU cannot map it",
				 q->ctrl->pci->name, r->dev->name);
			return rc;
		}
		cpu = (char *)cpu + opts->offset;
		rc = nvme_map_region(q->ctrl, r, opts->offset, sq_bytes(q) + cq_bytes(q), false, &q->inside);
		if (rc)
			return rc;
		q->inside->queue = q;
		m = q->inside;
	}
	while (!find_addresses(q, atomic_load(&m->pm), cq_at)) {
		if (q->entries <= FEW_ENTRIES)
			return -EOPNOTSUPP;
		q->entries /= 2;
	}
	q->sq = cpu;
	q->cq = (void *)((char *)cpu + cq_at);
	return 0;
}

static int check_opts(const struct strait_nvme *ctrl, const struct strait_nvme_queue_opts *o)
{
	if (!o)
		return 0;
	if (o->flags & ~STRAIT_NVME_INTERRUPTS || (o->entries && o->entries < 2) || o->offset % 4096)
		return -EINVAL;
	if ((o->flags & STRAIT_NVME_INTERRUPTS) && !ctrl->pci->vectors)
		return -EOPNOTSUPP;
	return 0;
}

static int find_irq(struct strait_nvme_queue *q)
{
	struct pci_device *pci = q->ctrl->pci;
	int rc;

	/* Vector 0 belongs to the admin queue, which is polled; use it only if there is no other. */
	q->vector = pci->vectors > 1 ? 1 + (q->id - 1u) % (pci->vectors - 1) : 0;
	q->irq_shared = q->id >= pci->vectors;
	rc = pci->ops->irq(pci, q->vector, &q->irq);
	return rc ? rc : os_event_share(q->irq);
}

static void fill_slots(struct strait_nvme_queue *q, uint64_t lists)
{
	const struct pci_mapping *pm = atomic_load(&q->host->pm);
	uint64_t run;

	for (uint32_t i = 0; i < q->entries; i++) {
		uint64_t at = lists + (uint64_t)i * NVME_LIST_BYTES;

		q->slot[i].list = (char *)q->host->host + at;
		q->slot[i].list_bus = pci_bus(pm, at, &run);
	}
}

static void init_lock(struct strait_nvme_queue *q)
{
	pthread_mutex_init(&q->lock, NULL);
	cond_init_monotonic(&q->cond);
}

static void find_doorbells(struct strait_nvme_queue *q)
{
	struct strait_nvme *ctrl = q->ctrl;
	uint64_t sq = (uint64_t)2 * q->id * ctrl->stride, cq = sq + ctrl->stride;
	char *shadow;

	q->sq_db = NVME_DOORBELLS + sq;
	q->cq_db = NVME_DOORBELLS + cq;
	q->sq_shadow = q->cq_shadow = q->sq_event = q->cq_event = NULL;
	/* The admin queue has no shadow doorbells. */
	if (!ctrl->shadow_on || !q->id || cq + 4 > 4096)
		return;
	shadow = ctrl->shadow->host;
	q->sq_shadow = (void *)(shadow + sq);
	q->cq_shadow = (void *)(shadow + cq);
	q->sq_event = (void *)(shadow + 4096 + sq);
	q->cq_event = (void *)(shadow + 4096 + cq);
}

int nvme_queue_new(struct strait_nvme *ctrl, uint16_t id, const struct strait_nvme_queue_opts *opts,
		   struct strait_nvme_queue **ret)
{
	struct strait_nvme_queue *q;
	uint64_t lists;
	int rc;

	rc = check_opts(ctrl, opts);
	if (rc)
		return rc;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	init_lock(q);
	q->ctrl = ctrl;
	q->id = id;
	q->irq = -1;
	q->entries = id ? DEFAULT_ENTRIES : NVME_ADMIN_ENTRIES;
	if (opts && opts->entries)
		q->entries = opts->entries;
	/* CAP.MQES does not apply to the admin queue. */
	q->entries = (uint32_t)min_u64(q->entries, id ? ctrl->max_entries : NVME_MAX_ENTRIES);
	lists = opts && opts->region ? 0 : sq_bytes(q) + cq_bytes(q);
	rc = nvme_map_host(ctrl, align_up(lists + (uint64_t)q->entries * NVME_LIST_BYTES, 4096), &q->host);
	if (rc)
		goto free_queue;
	rc = place_queues(q, opts);
	if (rc)
		goto free_queue;
	q->slot = calloc(q->entries, sizeof(*q->slot));
	q->free = calloc(q->entries, sizeof(*q->free));
	q->done = calloc(q->entries, sizeof(*q->done));
	rc = -ENOMEM;
	if (!q->slot || !q->free || !q->done)
		goto free_queue;
	fill_slots(q, lists);
	if (opts && (opts->flags & STRAIT_NVME_INTERRUPTS)) {
		rc = find_irq(q);
		if (rc)
			goto free_queue;
	}
	/* One entry stays empty, to tell a full queue from an empty one. */
	q->n_free = q->entries - 1;
	for (uint32_t i = 0; i < q->n_free; i++)
		q->free[i] = (uint16_t)(q->n_free - 1 - i);
	*ret = q;
	return 0;
free_queue:
	nvme_queue_free(q);
	return rc;
}

void nvme_queue_free(struct strait_nvme_queue *q)
{
	if (!q)
		return;
	nvme_unmap(q->inside);
	nvme_unmap(q->host);
	free(q->slot);
	free(q->free);
	free(q->done);
	pthread_cond_destroy(&q->cond);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

/* Set the initial state of a new queue. Nothing is in flight. */
void nvme_queue_rewind(struct strait_nvme_queue *q)
{
	q->tail = q->rung = q->head = 0;
	q->phase = 1;
	q->broken = false;
	q->soonest = UINT64_MAX;
	for (uint32_t i = 0; i < q->entries; i++) {
		hw_store64((uint64_t *)(void *)&q->cq[i], 0);
		hw_store64((uint64_t *)(void *)&q->cq[i] + 1, 0);
	}
	find_doorbells(q);
	if (q->sq_shadow) {
		/* Values of an earlier queue with this identifier could suppress the first doorbell write. */
		hw_store_then_load(q->sq_event, 0, q->sq_shadow);
		hw_store_then_load(q->cq_event, 0, q->cq_shadow);
		hw_store_then_load(q->sq_shadow, 0, q->sq_event);
		hw_store_then_load(q->cq_shadow, 0, q->cq_event);
	}
	hw_before_doorbell();
}

int nvme_queue_attach(struct strait_nvme_queue *q)
{
	uint32_t size = (q->entries - 1) << 16 | q->id;
	struct strait_nvme_command cq = {
		.opcode = NVME_ADMIN_CREATE_CQ,
		.flags = STRAIT_NVME_RAW_DATA,
		.cdw10 = { size, NVME_QUEUE_CONTIGUOUS | (q->irq >= 0 ? NVME_QUEUE_INTERRUPTS | q->vector << 16 : 0) },
		.prp = { q->cq_bus },
	};
	struct strait_nvme_command sq = {
		.opcode = NVME_ADMIN_CREATE_SQ,
		.flags = STRAIT_NVME_RAW_DATA,
		.cdw10 = { size, NVME_QUEUE_CONTIGUOUS | (uint32_t)q->id << 16 },
		.prp = { q->sq_bus },
	};
	struct strait_nvme_command undo = { .opcode = NVME_ADMIN_DELETE_CQ, .cdw10 = { q->id } };
	struct strait_nvme_result r;
	int rc;

	nvme_queue_rewind(q);
	rc = nvme_admin_locked(q->ctrl, &cq, &r);
	if (rc)
		return rc;
	rc = nvme_admin_locked(q->ctrl, &sq, &r);
	if (rc)
		nvme_admin_locked(q->ctrl, &undo, &(struct strait_nvme_result){ 0 });
	return rc;
}

void nvme_queue_detach(struct strait_nvme_queue *q)
{
	struct strait_nvme_command sq = { .opcode = NVME_ADMIN_DELETE_SQ, .cdw10 = { q->id } };
	struct strait_nvme_command cq = { .opcode = NVME_ADMIN_DELETE_CQ, .cdw10 = { q->id } };
	struct strait_nvme_result r;

	if (q->gone)
		return;
	/* If the queue cannot be deleted the controller may still write to its memory: reset it. */
	if ((nvme_admin_locked(q->ctrl, &sq, &r) || nvme_admin_locked(q->ctrl, &cq, &r)) && !nvme_dead(q->ctrl)) {
		/* The reset creates all other queues again. This one stays in ctrl->queue: endpoints read it there. */
		pthread_mutex_lock(&q->lock);
		q->gone = true;
		pthread_mutex_unlock(&q->lock);
		nvme_reset_locked(q->ctrl, "a queue cannot be deleted");
	}
}

/* A free identifier, 0 if there is none. */
static uint16_t find_id(struct strait_nvme *ctrl)
{
	uint16_t id;

	pthread_mutex_lock(&ctrl->lock);
	for (id = 1; id <= ctrl->max_queues && ctrl->queue[id]; id++)
		;
	pthread_mutex_unlock(&ctrl->lock);
	return id <= ctrl->max_queues ? id : 0;
}

int nvme_queue_open(struct strait_nvme *ctrl, const struct strait_nvme_queue_opts *opts, struct strait_nvme_queue **ret)
{
	struct strait_nvme_queue *q;
	bool taken;
	int rc;

	do {
		uint16_t id = find_id(ctrl);

		if (!id)
			return -ENOSPC;
		rc = nvme_queue_new(ctrl, id, opts, &q);
		if (rc)
			return rc;
		pthread_mutex_lock(&ctrl->lock);
		taken = ctrl->queue[id]; /* by another thread since find_id() */
		rc = taken ? -EAGAIN : nvme_queue_attach(q);
		if (!rc)
			ctrl->queue[id] = q;
		pthread_mutex_unlock(&ctrl->lock);
		if (rc)
			nvme_queue_free(q);
	} while (taken);
	if (rc)
		return rc;
	*ret = q;
	return 0;
}

static bool is_empty(void *arg)
{
	return !((struct strait_nvme_queue *)arg)->in_flight;
}

void nvme_queue_close(struct strait_nvme_queue *q)
{
	struct nvme_until u = { is_empty, q, UINT64_MAX };
	struct strait_nvme *ctrl = q->ctrl;

	nvme_wait_locked(q, &u);
	pthread_mutex_unlock(&q->lock);
	pthread_mutex_lock(&ctrl->lock);
	nvme_queue_detach(q);
	ctrl->queue[q->id] = NULL;
	pthread_mutex_unlock(&ctrl->lock);
	nvme_queue_free(q);
}
