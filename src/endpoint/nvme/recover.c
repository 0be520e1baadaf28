/* SPDX-License-Identifier: MIT */
/* Recovery from a command that times out: abort it, then reset the controller. */
#include "endpoint/nvme/nvme.h"

#include "base/util.h"
#include "os/os.h"

#define ABORT_NS 5000000000u /* timeout of the Abort command, and then of the aborted one */

void nvme_fail_all(struct strait_nvme_queue *q, int status)
{
	uint64_t now = os_now_ns();

	for (uint32_t i = 0; i < q->entries && q->in_flight; i++) {
		struct nvme_slot *s = &q->slot[i];
		bool late = s->state == SLOT_ABORTING || (s->state == SLOT_FLYING && now >= s->deadline);

		if (s->state != SLOT_FREE)
			nvme_finish(q, s, late ? -ETIMEDOUT : status, NVME_SC_BY_HOST, 0);
	}
	pthread_cond_broadcast(&q->cond);
}

/* The command that is past its deadline the longest. */
static struct nvme_slot *find_late(struct strait_nvme_queue *q, uint64_t now)
{
	struct nvme_slot *late = NULL;

	for (uint32_t i = 0; i < q->entries; i++) {
		struct nvme_slot *s = &q->slot[i];

		if ((s->state == SLOT_FLYING || s->state == SLOT_ABORTING) && now >= s->deadline &&
		    (!late || s->deadline < late->deadline))
			late = s;
	}
	return late;
}

enum help { HELP_NONE, HELP_ABORT, HELP_RESET };

/* What recovery is needed. Checked again under ctrl.lock: another thread may have recovered the queue. */
static enum help diagnose(struct strait_nvme_queue *q, uint16_t *cid, const char **why)
{
	enum help help = HELP_NONE;
	uint64_t now = os_now_ns();
	struct nvme_slot *s;

	pthread_mutex_lock(&q->lock);
	nvme_reap(q);
	s = find_late(q, now);
	if (q->broken) {
		*why = "it wrote an invalid completion";
		help = HELP_RESET;
	} else if (nvme_is_stuck(q->ctrl, why)) {
		help = HELP_RESET;
	} else if (s && s->state == SLOT_ABORTING) {
		*why = "an aborted command does not complete";
		help = HELP_RESET;
	} else if (s) {
		q->ctrl->timeouts++;
		*cid = s->cid;
		s->state = SLOT_ABORTING;
		s->deadline = now + min_u64(q->ctrl->timeout, ABORT_NS);
		help = HELP_ABORT;
	}
	pthread_mutex_unlock(&q->lock);
	return help;
}

static void abort_command(struct strait_nvme_queue *q, uint16_t cid)
{
	struct strait_nvme *ctrl = q->ctrl;
	struct strait_nvme_command cmd = {
		.opcode = NVME_ADMIN_ABORT,
		.cdw10 = { q->id | (uint32_t)cid << 16 },
		.timeout_ns = min_u64(ctrl->timeout, ABORT_NS),
	};
	struct strait_nvme_result r;

	log_warn(ctrl->log, "%s: command %#x of queue %u timed out: aborting it", ctrl->pci->name, cid, q->id);
	ctrl->aborts++;
	/* The aborted command completes on its own queue. If the abort times out the controller was reset already. */
	nvme_admin_locked(ctrl, &cmd, &r);
}

void nvme_recover_locked(struct strait_nvme_queue *q)
{
	const char *why = NULL;
	uint16_t cid = 0;

	switch (nvme_dead(q->ctrl) ? HELP_NONE : diagnose(q, &cid, &why)) {
	case HELP_ABORT:
		abort_command(q, cid);
		break;
	case HELP_RESET:
		nvme_reset_locked(q->ctrl, why);
		break;
	default:
		break;
	}
}

void nvme_recover(struct strait_nvme_queue *q)
{
	struct strait_nvme *ctrl = q->ctrl;

	pthread_mutex_lock(&ctrl->lock);
	nvme_recover_locked(q);
	pthread_mutex_unlock(&ctrl->lock);
}

/* Stop all DMA of the device, before memory is freed. All queues are locked. */
static int stop_device(struct strait_nvme *ctrl)
{
	int rc = nvme_disable(ctrl);

	if (!rc)
		return 0;
	if (nvme_reg32(ctrl, NVME_CSTS) != NVME_GONE && !ctrl->pci->ops->reset(ctrl->pci) && !nvme_disable(ctrl))
		return 0;
	ctrl->pci->ops->bus_master(ctrl->pci, false);
	log_error(ctrl->log, "%s: the controller cannot be reset (%s): it is disabled", ctrl->pci->name, strerror(-rc));
	return -ENODEV;
}

int nvme_reset_locked(struct strait_nvme *ctrl, const char *why)
{
	int rc = nvme_dead(ctrl);

	if (rc)
		return rc;
	log_warn(ctrl->log, "%s: resetting the controller: %s", ctrl->pci->name, why);
	ctrl->resets++;
	ctrl->resetting = true;
	for (uint32_t i = 1; i <= NVME_MAX_QUEUES; i++)
		if (ctrl->queue[i])
			pthread_mutex_lock(&ctrl->queue[i]->lock);
	rc = stop_device(ctrl);
	/* The controller is disabled: reap what it completed, then fail what is left. */
	for (uint32_t i = 1; i <= NVME_MAX_QUEUES; i++) {
		if (!ctrl->queue[i])
			continue;
		nvme_reap(ctrl->queue[i]);
		nvme_fail_all(ctrl->queue[i], ctrl->queue[i]->gone ? -ENODEV : -EIO);
	}
	nvme_fail_all(ctrl->admin, -EIO);
	/* A function-level reset or a revoked mapping disables bus mastering. */
	if (!rc)
		rc = ctrl->pci->ops->bus_master(ctrl->pci, true);
	if (!rc)
		rc = nvme_start(ctrl);
	if (rc) {
		ctrl->pci->ops->bus_master(ctrl->pci, false);
		atomic_store_explicit(&ctrl->dead, -ENODEV, memory_order_release);
	}
	for (uint32_t i = NVME_MAX_QUEUES; i >= 1; i--)
		if (ctrl->queue[i])
			pthread_mutex_unlock(&ctrl->queue[i]->lock);
	ctrl->resetting = false;
	return rc ? -ENODEV : 0;
}

int nvme_reset(struct strait_nvme *ctrl)
{
	int rc;

	pthread_mutex_lock(&ctrl->lock);
	rc = nvme_reset_locked(ctrl, "requested");
	pthread_mutex_unlock(&ctrl->lock);
	return rc;
}
