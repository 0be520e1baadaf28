/* SPDX-License-Identifier: MIT */
/* Commands into a queue, completions out of it. */
#include "endpoint/nvme/nvme.h"

#include "base/util.h"
#include "hw/barrier.h"

#define PCI_COMMAND 4u /* in configuration space */
#define PCI_COMMAND_MASTER 4u
#define LOOK_NS 20000000u /* without a completion for so long, the controller is looked at */

/* Has the other side to be told that an index went from @old to @new? It wants to know when it passes @event. */
static bool passes(uint32_t event, uint32_t new, uint32_t old)
{
	return (uint16_t)(new - event - 1) < (uint16_t)(new - old);
}

static void doorbell(struct strait_nvme_queue *q, uint64_t reg, uint32_t *shadow, const uint32_t *event, uint32_t old,
		     uint32_t new)
{
	if (shadow && !passes(HW_SWAP32(hw_store_then_load(shadow, HW_SWAP32(new), event)), new, old))
		return;
	pci_write32(q->ctrl->pci, 0, reg, new);
}

void nvme_ring(struct strait_nvme_queue *q)
{
	if (q->rung == q->tail)
		return;
	hw_before_doorbell();
	doorbell(q, q->sq_db, q->sq_shadow, q->sq_event, q->rung, q->tail);
	q->rung = q->tail;
}

/* Word by word: the queue may be memory of a device, where nothing else is known to work. */
static void write_entry(struct nvme_sqe *to, const struct nvme_sqe *sqe)
{
	const uint64_t *from = (const void *)sqe;

	for (unsigned int i = 0; i < sizeof(*sqe) / sizeof(*from); i++)
		hw_store64((uint64_t *)(void *)to + i, from[i]);
}

static int check(const struct strait_nvme_queue *q, const struct strait_nvme_command *cmd)
{
	if (cmd->flags & ~STRAIT_NVME_RAW_DATA || cmd->reserved || cmd->timeout_ns > NVME_MAX_TIMEOUT)
		return -EINVAL;
	if (cmd->flags || !cmd->map)
		return 0;
	if (cmd->map->ctrl != q->ctrl || !cmd->length || cmd->length > q->ctrl->max_transfer ||
	    !range_inside(cmd->offset, cmd->length, cmd->map->length))
		return -EINVAL;
	return 0;
}

static int fill_data(struct strait_nvme_queue *q, struct nvme_slot *s, const struct strait_nvme_command *cmd,
		     struct nvme_sqe *sqe)
{
	struct pci_mapping *pm;
	int rc;

	if (cmd->flags & STRAIT_NVME_RAW_DATA) {
		sqe->data[0] = hw_le64_of(cmd->prp[0]);
		sqe->data[1] = hw_le64_of(cmd->prp[1]);
		return 0;
	}
	if (!cmd->map)
		return 0;
	/* Counted before it is looked at: who takes the memory away looks the other way round. */
	atomic_fetch_add(&cmd->map->users, 1);
	pm = atomic_load(&cmd->map->pm);
	rc = pm ? nvme_data(q->ctrl, s, sqe, pm, cmd->offset, cmd->length) : -ENODEV;
	if (rc)
		atomic_fetch_sub(&cmd->map->users, 1);
	else
		s->map = cmd->map;
	return rc;
}

int nvme_put(struct strait_nvme_queue *q, const struct strait_nvme_command *cmd, struct nvme_wait *wait, uint64_t now)
{
	struct nvme_sqe sqe;
	struct nvme_slot *s;
	int rc;

	rc = check(q, cmd);
	if (rc)
		return rc;
	if (!q->n_free)
		return -EAGAIN;
	s = &q->slot[q->free[q->n_free - 1]];
	sqe = (struct nvme_sqe){
		.nsid = hw_le32_of(cmd->nsid),
		.dw2 = hw_le32_of(cmd->cdw2),
		.dw3 = hw_le32_of(cmd->cdw3),
		.dw10 = hw_le32_of(cmd->cdw10[0]),
		.dw11 = hw_le32_of(cmd->cdw10[1]),
		.dw12 = hw_le32_of(cmd->cdw10[2]),
		.dw13 = hw_le32_of(cmd->cdw10[3]),
		.dw14 = hw_le32_of(cmd->cdw10[4]),
		.dw15 = hw_le32_of(cmd->cdw10[5]),
	};
	rc = fill_data(q, s, cmd, &sqe);
	if (rc)
		return rc;
	q->n_free--;
	s->generation = s->generation < NVME_MAX_GENERATION ? s->generation + 1 : 0;
	s->cid = (uint16_t)((unsigned int)s->generation << NVME_SLOT_BITS | (unsigned int)(s - q->slot));
	s->state = SLOT_FLYING;
	s->wait = wait;
	s->user_data = cmd->user_data;
	s->deadline = now + (cmd->timeout_ns ? cmd->timeout_ns : q->ctrl->timeout);
	if (s->deadline < q->soonest)
		q->soonest = s->deadline;
	if (!q->flying++)
		q->looked = now;
	sqe.dw0 |= hw_le32_of(cmd->opcode | (uint32_t)s->cid << 16);
	write_entry(&q->sq[q->tail], &sqe);
	q->tail = q->tail + 1 == q->entries ? 0 : q->tail + 1;
	return 0;
}

void nvme_finish(struct strait_nvme_queue *q, struct nvme_slot *s, int status, uint32_t nvme_status, uint32_t result)
{
	struct strait_nvme_result r = {
		.user_data = s->user_data, .status = status, .nvme_status = nvme_status, .result = result
	};

	if (s->map)
		atomic_fetch_sub_explicit(&s->map->users, 1, memory_order_release);
	s->map = NULL;
	s->state = SLOT_FREE;
	q->free[q->n_free++] = (uint16_t)(s - q->slot);
	if (!--q->flying)
		q->soonest = UINT64_MAX;
	q->commands++;
	q->failed += status != 0;
	if (s->wait) {
		s->wait->done(s->wait, &r);
		return;
	}
	/* There is room: whoever submits sees to it that results and commands together fit. */
	q->done[(q->done_head + q->done_count++) % q->entries] = r;
}

/* What the controller says has ended. False: that cannot be. */
static bool complete(struct strait_nvme_queue *q, uint32_t sq, uint32_t last, uint32_t result)
{
	uint32_t cid = last & 0xffff, index = cid & (NVME_MAX_ENTRIES - 1), status = last >> 17;
	struct nvme_slot *s = &q->slot[index];
	int err;

	if (index >= q->entries || s->state == SLOT_FREE || s->cid != cid || sq >> 16 != q->id ||
	    (sq & 0xffff) >= q->entries) {
		log_error(q->ctrl->log,
			  "%s: nonsense in completion queue %u: command %#x, queue %u, head %u, status %#x",
			  q->ctrl->pci->name, q->id, cid, sq >> 16, sq & 0xffff, status);
		return false;
	}
	if (s->state == SLOT_EVENT) {
		nvme_finish(q, s, 0, status, result);
		return true;
	}
	err = nvme_status_errno(status);
	if (s->state == SLOT_ABORTING && NVME_CODE(status) == NVME_SC_ABORT_REQUESTED)
		err = -ETIMEDOUT;
	nvme_finish(q, s, err, status, result);
	return true;
}

unsigned int nvme_reap(struct strait_nvme_queue *q)
{
	uint32_t old = q->head;
	unsigned int n = 0;

	/* No more than there are entries: a controller that fills it faster is not to keep us here. */
	while (q->flying && !q->broken && n < q->entries) {
		const struct nvme_cqe *e = &q->cq[q->head];
		uint32_t last = HW_SWAP32(hw_load_last(&e->last));

		if ((last >> 16 & 1) != q->phase)
			break;
		if (!complete(q, HW_SWAP32(hw_load(&e->sq)), last, HW_SWAP32(hw_load(&e->result)))) {
			q->broken = true;
			break;
		}
		if (++q->head == q->entries) {
			q->head = 0;
			q->phase ^= 1;
		}
		n++;
	}
	if (n)
		doorbell(q, q->cq_db, q->cq_shadow, q->cq_event, old, q->head);
	return n;
}

/* The first deadline of what is in flight. */
static uint64_t find_soonest(const struct strait_nvme_queue *q)
{
	uint64_t soonest = UINT64_MAX;

	for (uint32_t i = 0; i < q->entries; i++)
		if (q->slot[i].state == SLOT_FLYING || q->slot[i].state == SLOT_ABORTING)
			soonest = min_u64(soonest, q->slot[i].deadline);
	return soonest;
}

bool nvme_is_stuck(struct strait_nvme *ctrl, const char **why)
{
	uint32_t csts = nvme_reg32(ctrl, NVME_CSTS), command = 0;

	if (csts == NVME_GONE)
		*why = "it does not answer: removed?";
	else if (csts & NVME_CSTS_CFS)
		*why = "it reports a fatal error";
	else if (!ctrl->pci->ops->config_read(ctrl->pci, PCI_COMMAND, 2, &command) && !(command & PCI_COMMAND_MASTER))
		*why = "memory that it could reach was taken back, and with it the right to transfer";
	else
		return false;
	return true;
}

bool nvme_needs_help(struct strait_nvme_queue *q, uint64_t now)
{
	const char *why;

	if (q->broken)
		return true;
	if (!q->flying)
		return false;
	if (now >= q->soonest) {
		q->soonest = find_soonest(q);
		if (now >= q->soonest)
			return true;
	}
	if (now < q->looked + LOOK_NS)
		return false;
	q->looked = now;
	return nvme_is_stuck(q->ctrl, &why);
}
