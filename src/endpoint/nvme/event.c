/* SPDX-License-Identifier: MIT */
/* Asynchronous events. */
#include "endpoint/nvme/nvme.h"

#include "base/util.h"
#include "os/os.h"

/* Submit Asynchronous Event Requests. */
static void arm_locked(struct strait_nvme *ctrl)
{
	struct strait_nvme_command cmd = { .opcode = NVME_ADMIN_ASYNC_EVENT };
	struct strait_nvme_queue *q = ctrl->admin;

	for (; ctrl->rearm && q->n_free; ctrl->rearm--) {
		struct nvme_slot *s = &q->slot[q->free[q->n_free - 1]];

		if (nvme_dead(ctrl) || nvme_put(q, &cmd, &ctrl->event_wait, os_now_ns()))
			return;
		/* It completes when an event occurs, which may be never. */
		s->state = SLOT_EVENT;
		s->deadline = UINT64_MAX;
	}
	nvme_ring(q);
}

static void event_done(struct nvme_wait *w, const struct strait_nvme_result *r)
{
	struct strait_nvme *ctrl = container_of(w, struct strait_nvme, event_wait);

	/* Ended by a reset, or refused by the controller: do not submit it again. */
	if (r->status || r->nvme_status)
		return;
	nvme_event_arrived(ctrl, r->result);
	ctrl->rearm++;
}

void nvme_event_arrived(struct strait_nvme *ctrl, uint32_t result)
{
	struct strait_nvme_event *e = &ctrl->event[(ctrl->event_head + ctrl->event_count) % NVME_EVENTS];

	ctrl->events++;
	if (ctrl->event_count == NVME_EVENTS) /* full: drop the oldest */
		ctrl->event_head = (ctrl->event_head + 1) % NVME_EVENTS;
	else
		ctrl->event_count++;
	*e = (struct strait_nvme_event){
		.size = sizeof(*e), .type = result & 7, .info = result >> 8 & 0xff, .log_page = result >> 16 & 0xff
	};
	if (e->type == NVME_EVENT_NOTICE && e->info == NVME_NOTICE_NAMESPACES)
		ctrl->rescan = true;
	else if (e->type != NVME_EVENT_NOTICE)
		log_warn(ctrl->log, "%s: the drive reports %s event %u: see log page %u", ctrl->pci->name,
			 e->type == NVME_EVENT_ERROR ? "an error" : "a health", e->info, e->log_page);
}

void nvme_events_start(struct strait_nvme *ctrl)
{
	uint32_t offered = hw_get32(ctrl->id, NVME_CTRL_OAES);
	struct strait_nvme_command cmd = {
		.opcode = NVME_ADMIN_SET_FEATURES,
		.cdw10 = { NVME_FEAT_ASYNC, NVME_ASYNC_HEALTH | (offered & NVME_ASYNC_NAMESPACES) },
	};
	struct strait_nvme_result r;

	ctrl->event_wait.done = event_done;
	if (nvme_admin_locked(ctrl, &cmd, &r))
		return; /* events are optional */
	ctrl->rearm = (uint32_t)min_u64(ctrl->aerl, NVME_AERS);
	arm_locked(ctrl);
}

/* Reading the Changed Namespace List log page re-enables the event. */
static void rescan_locked(struct strait_nvme *ctrl)
{
	struct strait_nvme_command cmd = {
		.opcode = NVME_ADMIN_LOG_PAGE,
		.nsid = 0xffffffff,
		.cdw10 = { NVME_LOG_CHANGED_NAMESPACES | 1023u << 16 },
		.map = ctrl->admin_data,
		.length = KIB(4),
	};
	struct strait_nvme_result r;

	ctrl->rescan = false;
	nvme_admin_locked(ctrl, &cmd, &r);
	nvme_scan(ctrl);
}

static void handle_events_locked(struct strait_nvme *ctrl)
{
	nvme_reap(ctrl->admin);
	arm_locked(ctrl);
	if (ctrl->rescan && !nvme_dead(ctrl))
		rescan_locked(ctrl);
}

void nvme_events_look(struct strait_nvme *ctrl)
{
	if (pthread_mutex_trylock(&ctrl->lock))
		return;
	handle_events_locked(ctrl);
	pthread_mutex_unlock(&ctrl->lock);
}

int nvme_event_next(struct strait_nvme *ctrl, struct strait_nvme_event *event)
{
	int rc = -EAGAIN;

	pthread_mutex_lock(&ctrl->lock);
	handle_events_locked(ctrl);
	if (ctrl->event_count) {
		*event = ctrl->event[ctrl->event_head];
		ctrl->event_head = (ctrl->event_head + 1) % NVME_EVENTS;
		ctrl->event_count--;
		rc = 0;
	} else if (nvme_dead(ctrl)) {
		rc = -ENODEV;
	}
	pthread_mutex_unlock(&ctrl->lock);
	return rc;
}
