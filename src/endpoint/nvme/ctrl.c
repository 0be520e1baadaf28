/* SPDX-License-Identifier: MIT */
/* A controller: enabling, disabling, shutdown. */
#include "endpoint/nvme/nvme.h"

#include <stdlib.h>
#include <time.h>

#include "base/util.h"
#include "os/os.h"

#define CLASS_NVME 0x010802u
#define DEFAULT_TIMEOUT 30000000000u
#define DEFAULT_QUEUES 8u
#define SHUTDOWN_NS 5000000000u
#define NAP_NS 100000u
#define BAR_BYTES 0x1000u

/* Wait until CSTS & @mask is @want, at most @ns. */
static int wait_status(struct strait_nvme *ctrl, uint32_t mask, uint32_t want, uint64_t ns)
{
	uint64_t end = os_now_ns() + ns;

	for (;;) {
		uint32_t csts = nvme_reg32(ctrl, NVME_CSTS);

		if (csts == NVME_GONE)
			return -ENODEV;
		if ((csts & mask) == want)
			return 0;
		if (want && (csts & NVME_CSTS_CFS) && mask == NVME_CSTS_RDY)
			return -EIO;
		if (os_now_ns() >= end)
			return -ETIMEDOUT;
		os_sleep_ns(NAP_NS);
	}
}

static uint64_t ready_ns(const struct strait_nvme *ctrl)
{
	return (uint64_t)(NVME_CAP_TO(ctrl->cap) + 1) * 500000000u;
}

int nvme_disable(struct strait_nvme *ctrl)
{
	uint32_t cc = nvme_reg32(ctrl, NVME_CC);

	if (cc == NVME_GONE)
		return -ENODEV;
	/* CC.EN must not be cleared before the controller has become ready. */
	if ((cc & NVME_CC_EN) && !(nvme_reg32(ctrl, NVME_CSTS) & (NVME_CSTS_RDY | NVME_CSTS_CFS)))
		wait_status(ctrl, NVME_CSTS_RDY, NVME_CSTS_RDY, ready_ns(ctrl));
	pci_write32(ctrl->pci, 0, NVME_CC, cc & ~(NVME_CC_EN | NVME_CC_SHN_MASK));
	return wait_status(ctrl, NVME_CSTS_RDY, 0, ready_ns(ctrl));
}

static int enable(struct strait_nvme *ctrl)
{
	struct strait_nvme_queue *q = ctrl->admin;

	nvme_queue_rewind(q);
	pci_write32(ctrl->pci, 0, NVME_AQA, (q->entries - 1) << 16 | (q->entries - 1));
	pci_write64(ctrl->pci, 0, NVME_ASQ, q->sq_bus);
	pci_write64(ctrl->pci, 0, NVME_ACQ, q->cq_bus);
	pci_write32(ctrl->pci, 0, NVME_CC,
		    NVME_CC_EN | NVME_CC_MPS(ctrl->page_shift) | NVME_CC_IOSQES | NVME_CC_IOCQES);
	return wait_status(ctrl, NVME_CSTS_RDY, NVME_CSTS_RDY, ready_ns(ctrl));
}

static void start_shadow(struct strait_nvme *ctrl)
{
	struct pci_mapping *pm = atomic_load(&ctrl->shadow->pm);
	uint64_t run;
	struct strait_nvme_command cmd = {
		.opcode = NVME_ADMIN_DBBUF,
		.flags = STRAIT_NVME_RAW_DATA,
		.prp = { pci_bus(pm, 0, &run), pci_bus(pm, 4096, &run) },
	};
	struct strait_nvme_result r;

	ctrl->shadow_on = false;
	if ((ctrl->flags & STRAIT_NVME_NO_SHADOW) || !(hw_get16(ctrl->id, NVME_CTRL_OACS) & NVME_OACS_DBBUF))
		return;
	memset(ctrl->shadow->host, 0, 8192);
	ctrl->shadow_on = !nvme_admin_locked(ctrl, &cmd, &r);
}

static int read_identity(struct strait_nvme *ctrl)
{
	uint64_t most = NVME_MAX_TRANSFER;
	uint32_t sgls;
	int rc = nvme_identify(ctrl, NVME_ID_CONTROLLER, 0, ctrl->id);

	if (rc)
		return rc;
	/* MDTS is in units of the controller's page size. 0 means no limit. */
	if (ctrl->id[NVME_CTRL_MDTS] && ctrl->id[NVME_CTRL_MDTS] < 20)
		most = min_u64(most, (uint64_t)1 << (ctrl->page_shift + ctrl->id[NVME_CTRL_MDTS]));
	ctrl->max_transfer = (uint32_t)most;
	sgls = hw_get32(ctrl->id, NVME_CTRL_SGLS) & 3;
	ctrl->sgl = (sgls == 1 || sgls == 2) && !(ctrl->flags & STRAIT_NVME_NO_SGL);
	ctrl->sgl_bytes = ctrl->sgl && sgls == 1;
	ctrl->volatile_cache = ctrl->id[NVME_CTRL_VWC] & 1;
	ctrl->aerl = ctrl->id[NVME_CTRL_AERL] + 1u;
	if ((ctrl->id[NVME_CTRL_SQES] & 0xf) > 6 || (ctrl->id[NVME_CTRL_CQES] & 0xf) > 4)
		return -EPROTO;
	return 0;
}

/* Enable a disabled controller and create its queues again. A queue that cannot be created is marked gone. */
int nvme_start(struct strait_nvme *ctrl)
{
	uint16_t had = ctrl->max_queues;
	int rc = enable(ctrl);

	if (!rc)
		rc = read_identity(ctrl);
	if (!rc)
		rc = nvme_set_queues(ctrl, had ? had : NVME_MAX_QUEUES);
	if (rc)
		return rc;
	start_shadow(ctrl);
	for (uint32_t i = 1; i <= NVME_MAX_QUEUES; i++) {
		struct strait_nvme_queue *q = ctrl->queue[i];

		if (!q || q->gone)
			continue;
		if (i > ctrl->max_queues || nvme_queue_attach(q)) {
			log_error(ctrl->log, "%s: queue %u cannot be created again after a reset", ctrl->pci->name, i);
			q->gone = true;
		}
		if (nvme_dead(ctrl))
			return -ENODEV;
	}
	/* A reset does not change the namespaces. */
	if (!ctrl->n_ns)
		rc = nvme_scan(ctrl);
	if (!rc)
		nvme_events_start(ctrl);
	return rc;
}

static void shut_down(struct strait_nvme *ctrl)
{
	uint32_t cc = nvme_reg32(ctrl, NVME_CC);

	if (cc != NVME_GONE && (cc & NVME_CC_EN) && !nvme_dead(ctrl)) {
		pci_write32(ctrl->pci, 0, NVME_CC, (cc & ~NVME_CC_SHN_MASK) | NVME_CC_SHN_NORMAL);
		if (wait_status(ctrl, 3u << 2, NVME_SHST_DONE << 2, SHUTDOWN_NS))
			log_warn(ctrl->log, "%s: did not report that its shutdown is complete", ctrl->pci->name);
	}
	if (nvme_disable(ctrl) && cc != NVME_GONE)
		ctrl->pci->ops->reset(ctrl->pci);
	ctrl->pci->ops->bus_master(ctrl->pci, false);
}

static int check_device(struct strait_nvme *ctrl)
{
	struct pci_device *pci = ctrl->pci;

	if (pci->class_code != CLASS_NVME || pci->bar[0].length < NVME_DOORBELLS + BAR_BYTES) {
		log_error(ctrl->log, "%s: not an NVMe controller (class %06x)", pci->name, pci->class_code);
		return -EPROTO;
	}
	if (nvme_reg32(ctrl, NVME_CSTS) == NVME_GONE)
		return -ENODEV;
	ctrl->cap = pci_read64(pci, 0, NVME_CAP);
	ctrl->page_shift = 12 + NVME_CAP_MPSMIN(ctrl->cap);
	ctrl->stride = 4u << NVME_CAP_DSTRD(ctrl->cap);
	ctrl->max_entries = (uint32_t)min_u64(NVME_CAP_MQES(ctrl->cap), NVME_MAX_ENTRIES);
	if (!NVME_CAP_NVM(ctrl->cap) || ctrl->max_entries < 2 || ctrl->page_shift > 16) {
		log_error(ctrl->log,
			  "%s: its capabilities register (%#llx) is not that of a drive with the NVM command set",
			  pci->name, (unsigned long long)ctrl->cap);
		return -EPROTO;
	}
	return 0;
}

/* Create the queues for endpoints: as many as requested, or fewer, at least one. */
static int open_queues(struct strait_nvme *ctrl, const struct strait_nvme_opts *o)
{
	struct strait_nvme_queue_opts qo = { .size = sizeof(qo),
					     .entries = o->entries,
					     .flags = o->flags & STRAIT_NVME_INTERRUPTS,
					     .region = o->queue_region,
					     .offset = o->queue_offset };
	uint64_t room = 2 * 4096 + align_up((uint64_t)(o->entries ? o->entries : 256) * 80, 4096);
	uint32_t want = o->queues;
	int rc = 0;

	if (!want)
		want = (uint32_t)min_u64(os_cpus(), DEFAULT_QUEUES);
	for (uint32_t i = 0; i < want; i++) {
		struct strait_nvme_queue *q;

		rc = nvme_queue_open(ctrl, &qo, &q);
		if (rc)
			break;
		ctrl->n_endpoint_queues++;
		qo.offset += room;
	}
	if (rc == -ENOSPC && ctrl->n_endpoint_queues)
		rc = 0;
	return rc;
}

static int check_opts(const struct strait_nvme_opts *o)
{
	const uint32_t known = STRAIT_NVME_INTERRUPTS | STRAIT_NVME_NO_SHADOW | STRAIT_NVME_NO_SGL |
			       STRAIT_NVME_UNREVOCABLE;

	if (o->flags & ~known || o->reserved)
		return -EINVAL;
	if (o->queues > NVME_MAX_QUEUES || o->entries == 1 || o->entries > 65536 || o->queue_offset % 4096)
		return -EINVAL;
	return o->timeout_ns > NVME_MAX_TIMEOUT ? -EINVAL : 0;
}

static int bring_up(struct strait_nvme *ctrl, const struct strait_nvme_opts *o)
{
	int rc = check_device(ctrl);

	if (rc)
		return rc;
	/* It may still be enabled, with queues of a process that has exited. */
	rc = nvme_disable(ctrl);
	if (rc == -ETIMEDOUT && !ctrl->pci->ops->reset(ctrl->pci))
		rc = nvme_disable(ctrl);
	if (rc)
		return rc;
	rc = nvme_map_host(ctrl, NVME_ADMIN_BYTES, &ctrl->admin_data);
	if (!rc)
		rc = nvme_map_host(ctrl, 8192, &ctrl->shadow);
	if (!rc)
		rc = nvme_queue_new(ctrl, 0, NULL, &ctrl->admin);
	if (!rc)
		rc = ctrl->pci->ops->bus_master(ctrl->pci, true);
	if (rc)
		return rc;
	pthread_mutex_lock(&ctrl->lock);
	ctrl->resetting = true;
	rc = nvme_start(ctrl);
	ctrl->resetting = false;
	pthread_mutex_unlock(&ctrl->lock);
	return rc ? rc : open_queues(ctrl, o);
}

static void unmap_region(struct region_watcher *w, struct strait_region *r)
{
	nvme_unmap_region(container_of(w, struct strait_nvme, watcher), r);
}

int nvme_ctrl_open(struct device_set *set, struct pci_device *pci, const struct strait_nvme_opts *opts,
		   struct strait_nvme **ret)
{
	struct strait_nvme *ctrl;
	int rc = check_opts(opts);

	ctrl = rc ? NULL : calloc(1, sizeof(*ctrl));
	if (!ctrl) {
		pci_close(pci);
		return rc ? rc : -ENOMEM;
	}
	ctrl->pci = pci;
	ctrl->set = set;
	ctrl->log = set->log;
	ctrl->timeout = opts->timeout_ns ? opts->timeout_ns : DEFAULT_TIMEOUT;
	ctrl->flags = opts->flags;
	ctrl->max_transfer = KIB(4); /* every controller supports this much; read_identity() sets the limit */
	atomic_init(&ctrl->refs, 1);
	list_init(&ctrl->maps);
	list_init(&ctrl->watcher.node);
	pthread_mutex_init(&ctrl->lock, NULL);
	pthread_mutex_init(&ctrl->map_lock, NULL);
	pthread_mutex_init(&ctrl->bounce_lock, NULL);
	pthread_cond_init(&ctrl->bounce_cond, NULL);
	ctrl->watcher.drop_mappings = unmap_region;
	device_set_watch(set, &ctrl->watcher);
	rc = bring_up(ctrl, opts);
	if (rc) {
		log_error(ctrl->log, "%s: cannot enable the controller: %s", pci->name, strerror(-rc));
		nvme_unref(ctrl);
		return rc;
	}
	*ret = ctrl;
	return 0;
}

void nvme_ref(struct strait_nvme *ctrl)
{
	atomic_fetch_add_explicit(&ctrl->refs, 1, memory_order_relaxed);
}

void nvme_unref(struct strait_nvme *ctrl)
{
	if (atomic_fetch_sub_explicit(&ctrl->refs, 1, memory_order_acq_rel) != 1)
		return;
	device_set_unwatch(ctrl->set, &ctrl->watcher);
	if (ctrl->admin)
		shut_down(ctrl);
	for (uint32_t i = 1; i <= NVME_MAX_QUEUES; i++)
		nvme_queue_free(ctrl->queue[i]);
	nvme_queue_free(ctrl->admin);
	while (!list_empty(&ctrl->maps))
		nvme_unmap(list_first(&ctrl->maps, struct strait_nvme_map, node));
	while (ctrl->n_bounce)
		nvme_unmap(ctrl->bounce[--ctrl->n_bounce]);
	nvme_unmap(ctrl->admin_data);
	nvme_unmap(ctrl->shadow);
	pci_close(ctrl->pci);
	free(ctrl->ns);
	pthread_cond_destroy(&ctrl->bounce_cond);
	pthread_mutex_destroy(&ctrl->bounce_lock);
	pthread_mutex_destroy(&ctrl->map_lock);
	pthread_mutex_destroy(&ctrl->lock);
	free(ctrl);
}

/* A text of the Identify data, padded with spaces. Non-printable characters become '?'. */
static void text(char *to, size_t size, const uint8_t *from, size_t len)
{
	size_t n = 0;

	while (len && (from[len - 1] == ' ' || !from[len - 1]))
		len--;
	for (; n < len && n + 1 < size; n++)
		to[n] = from[n] >= ' ' && from[n] < 127 ? (char)from[n] : '?';
	to[n] = '\0';
}

void nvme_info(struct strait_nvme *ctrl, struct strait_nvme_info *i)
{
	uint16_t oncs = hw_get16(ctrl->id, NVME_CTRL_ONCS);

	*i = (struct strait_nvme_info){ .size = sizeof(*i) };
	str_copy(i->name, sizeof(i->name), ctrl->pci->name);
	str_copy(i->backend, sizeof(i->backend), ctrl->pci->ops->name);
	text(i->serial, sizeof(i->serial), ctrl->id + NVME_CTRL_SERIAL, 20);
	text(i->model, sizeof(i->model), ctrl->id + NVME_CTRL_MODEL, 40);
	text(i->firmware, sizeof(i->firmware), ctrl->id + NVME_CTRL_FIRMWARE, 8);
	i->vendor = ctrl->pci->vendor;
	i->device = ctrl->pci->device;
	i->version = nvme_reg32(ctrl, NVME_VS);
	i->controller_id = hw_get16(ctrl->id, NVME_CTRL_ID);
	i->page_size = 1u << ctrl->page_shift;
	i->max_entries = ctrl->max_entries;
	i->max_transfer = ctrl->max_transfer;
	i->node = ctrl->pci->node;
	i->has = (ctrl->sgl ? STRAIT_NVME_HAS_SGL : 0) | (ctrl->shadow_on ? STRAIT_NVME_HAS_SHADOW : 0) |
		 (ctrl->volatile_cache ? STRAIT_NVME_HAS_CACHE : 0) |
		 (oncs & NVME_ONCS_WRITE_ZEROES ? STRAIT_NVME_HAS_ZEROES : 0) |
		 (oncs & NVME_ONCS_DATASET ? STRAIT_NVME_HAS_DEALLOCATE : 0) |
		 (ctrl->pci->vectors ? STRAIT_NVME_HAS_INTERRUPTS : 0) |
		 (ctrl->pci->ops->revokes ? STRAIT_NVME_REVOKES : 0);
	pthread_mutex_lock(&ctrl->lock);
	i->namespaces = ctrl->n_ns;
	i->max_queues = ctrl->max_queues;
	i->timeouts = ctrl->timeouts;
	i->aborts = ctrl->aborts;
	i->resets = ctrl->resets;
	i->events = ctrl->events;
	for (uint32_t k = 1; k <= NVME_MAX_QUEUES; k++) {
		struct strait_nvme_queue *q = ctrl->queue[k];

		if (!q)
			continue;
		pthread_mutex_lock(&q->lock);
		i->queues++;
		i->commands += q->commands;
		i->failed += q->failed;
		i->lost_interrupts += q->lost_irqs;
		pthread_mutex_unlock(&q->lock);
	}
	pthread_mutex_unlock(&ctrl->lock);
}
