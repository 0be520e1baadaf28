/* SPDX-License-Identifier: MIT */
/* Memory mapped for the controller: host memory of the driver, and regions. */
#include "endpoint/nvme/nvme.h"

#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"

#define NAP_NS 20000u

static struct strait_nvme_map *map_new(struct strait_nvme *ctrl, uint64_t len)
{
	struct strait_nvme_map *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->ctrl = ctrl;
	m->length = len;
	list_init(&m->node);
	return m;
}

int nvme_map_host(struct strait_nvme *ctrl, uint64_t len, struct strait_nvme_map **ret)
{
	struct strait_nvme_map *m = map_new(ctrl, len);
	struct pci_mapping *pm;
	int rc;

	if (!m)
		return -ENOMEM;
	rc = os_map_anon(len, ctrl->pci->node, &m->host);
	if (rc)
		goto free_map;
	/* After fork() copy-on-write could give the parent other pages than those mapped for the drive. */
	os_dont_fork(m->host, len);
	rc = pci_map_host(ctrl->pci, m->host, len, PCI_MAP_READ | PCI_MAP_WRITE, &pm);
	if (rc)
		goto unmap_memory;
	atomic_store(&m->pm, pm);
	*ret = m;
	return 0;
unmap_memory:
	os_unmap(m->host, len);
free_map:
	free(m);
	return rc;
}

static int map_region_locked(struct strait_nvme *ctrl, struct strait_region *r, uint64_t off, uint64_t len, bool whole,
			     struct strait_nvme_map **ret)
{
	struct strait_nvme_map *m = map_new(ctrl, len);
	struct pci_mapping *pm;
	int rc;

	if (!m)
		return -ENOMEM;
	rc = pci_map_region(
		ctrl->pci, r, off, len,
		PCI_MAP_READ | PCI_MAP_WRITE | (ctrl->flags & STRAIT_NVME_UNREVOCABLE ? PCI_MAP_UNREVOCABLE : 0), &pm);
	if (rc) {
		free(m);
		return rc;
	}
	atomic_store(&m->pm, pm);
	m->region = r;
	m->whole = whole;
	list_add(&ctrl->maps, &m->node);
	*ret = m;
	return 0;
}

int nvme_map_region(struct strait_nvme *ctrl, struct strait_region *r, uint64_t off, uint64_t len, bool whole,
		    struct strait_nvme_map **ret)
{
	int rc = region_use(r, off, len);

	if (rc)
		return rc;
	pthread_mutex_lock(&ctrl->map_lock);
	rc = map_region_locked(ctrl, r, off, len, whole, ret);
	pthread_mutex_unlock(&ctrl->map_lock);
	region_unuse(r);
	return rc;
}

int nvme_map_whole(struct strait_nvme *ctrl, struct strait_region *r, struct strait_nvme_map **ret)
{
	int rc;

	pthread_mutex_lock(&ctrl->map_lock);
	list_for_each(it, &ctrl->maps) {
		struct strait_nvme_map *m = list_entry(it, struct strait_nvme_map, node);

		if (m->region != r || !m->whole)
			continue;
		/* Move to the front: the last used mapping is found first. */
		list_del(&m->node);
		list_add(&ctrl->maps, &m->node);
		pthread_mutex_unlock(&ctrl->map_lock);
		*ret = m;
		return 0;
	}
	rc = map_region_locked(ctrl, r, 0, r->mem.len, true, ret);
	pthread_mutex_unlock(&ctrl->map_lock);
	return rc;
}

/* Wait for commands that use the mapping. Their submitters may not be reaping: reap and enforce deadlines here. */
static void drain(struct strait_nvme_map *m)
{
	struct strait_nvme *ctrl = m->ctrl;

	while (atomic_load_explicit(&m->users, memory_order_acquire)) {
		pthread_mutex_lock(&ctrl->lock);
		for (uint32_t i = 1; i <= NVME_MAX_QUEUES; i++) {
			struct strait_nvme_queue *q = ctrl->queue[i];
			bool help;

			if (!q)
				continue;
			pthread_mutex_lock(&q->lock);
			if (nvme_reap(q))
				pthread_cond_broadcast(&q->cond);
			help = nvme_needs_help(q, os_now_ns());
			pthread_mutex_unlock(&q->lock);
			if (help)
				nvme_recover_locked(q);
		}
		pthread_mutex_unlock(&ctrl->lock);
		os_sleep_ns(NAP_NS);
	}
}

/* Delete a queue whose memory is revoked. */
static void drop_queue(struct strait_nvme_queue *q)
{
	struct strait_nvme *ctrl = q->ctrl;

	pthread_mutex_lock(&ctrl->lock);
	nvme_queue_detach(q);
	pthread_mutex_lock(&q->lock);
	nvme_fail_all(q, -ENODEV);
	q->gone = true;
	pthread_mutex_unlock(&q->lock);
	pthread_mutex_unlock(&ctrl->lock);
	log_warn(ctrl->log, "%s: the memory of queue %u was revoked: the queue is deleted", ctrl->pci->name, q->id);
}

/*
 * Unmap from the controller. Clear pm first, then wait for users: fill_data() counts a user before it loads pm.
 */
static void revoke_locked(struct strait_nvme_map *m)
{
	struct pci_mapping *pm = atomic_exchange(&m->pm, NULL);

	if (!pm)
		return;
	drain(m);
	pci_unmap(pm);
}

void nvme_unmap(struct strait_nvme_map *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&m->ctrl->map_lock);
	list_del(&m->node);
	revoke_locked(m);
	pthread_mutex_unlock(&m->ctrl->map_lock);
	if (m->host)
		os_unmap(m->host, m->length);
	free(m);
}

void nvme_unmap_region(struct strait_nvme *ctrl, struct strait_region *r)
{
	pthread_mutex_lock(&ctrl->map_lock);
	list_for_each_safe(it, tmp, &ctrl->maps) {
		struct strait_nvme_map *m = list_entry(it, struct strait_nvme_map, node);

		if (m->region != r)
			continue;
		list_del(&m->node);
		if (m->queue)
			drop_queue(m->queue);
		revoke_locked(m);
		if (m->whole) /* other mappings are freed by their owner */
			free(m);
	}
	pthread_mutex_unlock(&ctrl->map_lock);
}

struct strait_nvme_map *nvme_bounce_get(struct strait_nvme *ctrl)
{
	struct strait_nvme_map *m = NULL;

	pthread_mutex_lock(&ctrl->bounce_lock);
	while (!ctrl->n_bounce) {
		if (ctrl->made_bounce < NVME_BOUNCES) {
			if (!nvme_map_host(ctrl, NVME_BOUNCE_BYTES, &m))
				ctrl->made_bounce++;
			/* No buffer exists, so none will be returned: fail. */
			if (m || !ctrl->made_bounce)
				goto out;
		}
		/* Buffers are returned when their commands complete, which have deadlines. */
		pthread_cond_wait(&ctrl->bounce_cond, &ctrl->bounce_lock);
	}
	m = ctrl->bounce[--ctrl->n_bounce];
out:
	pthread_mutex_unlock(&ctrl->bounce_lock);
	return m;
}

void nvme_bounce_put(struct strait_nvme *ctrl, struct strait_nvme_map *m)
{
	pthread_mutex_lock(&ctrl->bounce_lock);
	ctrl->bounce[ctrl->n_bounce++] = m;
	pthread_cond_signal(&ctrl->bounce_cond);
	pthread_mutex_unlock(&ctrl->bounce_lock);
}
