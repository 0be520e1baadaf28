/* SPDX-License-Identifier: MIT */
/* Submission and completion of commands. */
#include "endpoint/nvme/nvme.h"

#include "base/util.h"
#include "hw/barrier.h"

#define PCI_COMMAND 4u /* in configuration space */
#define PCI_COMMAND_MASTER 4u
#define STATUS_CHECK_NS 20000000u /* without a completion for this long, check the controller's status */

/* Shadow doorbells: must the register be written when an index goes from @old to @new? Only if it passes @event. */
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

static inline int check(const struct strait_nvme_queue *q, const struct strait_nvme_command *cmd)
{
	const struct strait_nvme_map *map = cmd->map;

	if (__builtin_expect(cmd->flags | cmd->reserved, 0)) {
		if (cmd->flags != STRAIT_NVME_RAW_DATA || cmd->reserved)
			return -EINVAL;
		map = NULL;
	}
	if (cmd->timeout_ns > NVME_MAX_TIMEOUT)
		return -EINVAL;
	if (map && (map->ctrl != q->ctrl || !cmd->length || cmd->length > q->ctrl->max_transfer ||
		    !range_inside(cmd->offset, cmd->length, map->length)))
		return -EINVAL;
	return 0;
}

/* The common case, contiguous memory within one page: one PRP entry. */
static inline bool data_plain(const struct strait_nvme_queue *q, struct nvme_slot *s, const struct pci_mapping *pm,
			      const struct strait_nvme_command *cmd)
{
	const uint64_t page = (uint64_t)1 << q->ctrl->page_shift;
	uint64_t bus = pm->run[0].bus + cmd->offset;

	if (pm->count != 1 || (bus & 3) || (bus & (page - 1)) + cmd->length > page)
		return false;
	s->where.data[0] = bus;
	return true;
}

static inline int fill_data(struct strait_nvme_queue *q, struct nvme_slot *s, const struct strait_nvme_command *cmd)
{
	struct pci_mapping *pm;
	int rc = 0;

	s->where = (struct nvme_where){ 0 };
	if (__builtin_expect(cmd->flags, 0)) {
		s->where.data[0] = cmd->prp[0];
		s->where.data[1] = cmd->prp[1];
		return 0;
	}
	if (!cmd->map)
		return 0;
	/* Count the user before loading pm; revoke_locked() clears pm first and then waits for users == 0. */
	atomic_fetch_add(&cmd->map->users, 1);
	pm = atomic_load(&cmd->map->pm);
	if (__builtin_expect(!pm, 0))
		rc = -ENODEV;
	else if (!data_plain(q, s, pm, cmd))
		rc = nvme_data(q->ctrl, s, pm, cmd->offset, cmd->length);
	if (rc)
		atomic_fetch_sub(&cmd->map->users, 1);
	else
		s->map = cmd->map;
	return rc;
}

static inline uint64_t pair(uint32_t first, uint32_t second)
{
	return first | (uint64_t)second << 32;
}

/* Store quadwords: the queue may be in device memory, where other access sizes may not work. */
static inline void write_entry(struct nvme_sqe *sqe, const struct strait_nvme_command *cmd, const struct nvme_slot *s)
{
	uint64_t *to = (void *)sqe;

	hw_store64(to, HW_SWAP64(pair(cmd->opcode | s->where.flags | (uint32_t)s->cid << 16, cmd->nsid)));
	hw_store64(to + 1, HW_SWAP64(pair(cmd->cdw2, cmd->cdw3)));
	hw_store64(to + 2, 0);
	hw_store64(to + 3, HW_SWAP64(s->where.data[0]));
	hw_store64(to + 4, HW_SWAP64(s->where.data[1]));
	hw_store64(to + 5, HW_SWAP64(pair(cmd->cdw10[0], cmd->cdw10[1])));
	hw_store64(to + 6, HW_SWAP64(pair(cmd->cdw10[2], cmd->cdw10[3])));
	hw_store64(to + 7, HW_SWAP64(pair(cmd->cdw10[4], cmd->cdw10[5])));
}

static inline __attribute__((always_inline)) int put(struct strait_nvme_queue *q, const struct strait_nvme_command *cmd,
						     struct nvme_wait *wait, uint64_t now)
{
	struct nvme_slot *s;
	unsigned int index;
	int rc;

	rc = check(q, cmd);
	if (rc)
		return rc;
	if (!q->n_free)
		return -EAGAIN;
	index = q->free[q->n_free - 1];
	s = &q->slot[index];
	rc = fill_data(q, s, cmd);
	if (rc)
		return rc;
	q->n_free--;
	s->generation = s->generation < NVME_MAX_GENERATION ? s->generation + 1 : 0;
	s->cid = (uint16_t)((unsigned int)s->generation << NVME_SLOT_BITS | index);
	s->state = SLOT_FLYING;
	s->wait = wait;
	s->user_data = cmd->user_data;
	s->deadline = now + (cmd->timeout_ns ? cmd->timeout_ns : q->ctrl->timeout);
	if (s->deadline < q->soonest)
		q->soonest = s->deadline;
	if (!q->in_flight++)
		q->status_checked = now;
	write_entry(&q->sq[q->tail], cmd, s);
	q->tail = q->tail + 1 == q->entries ? 0 : q->tail + 1;
	return 0;
}

int nvme_put(struct strait_nvme_queue *q, const struct strait_nvme_command *cmd, struct nvme_wait *wait, uint64_t now)
{
	return put(q, cmd, wait, now);
}

int nvme_put_many(struct strait_nvme_queue *q, const struct strait_nvme_command *cmds, unsigned int n, uint64_t now)
{
	/* Results that were not fetched take the room of commands. */
	uint32_t room = q->entries - 1 - q->in_flight - q->done_count;
	unsigned int i;
	int rc = room ? 0 : -EAGAIN;

	for (i = 0; i < n && i < room; i++) {
		rc = put(q, &cmds[i], NULL, now);
		if (rc)
			break;
	}
	return i ? (int)i : rc;
}

static inline __attribute__((always_inline)) void finish(struct strait_nvme_queue *q, struct nvme_slot *s, int status,
							 uint32_t nvme_status, uint32_t result)
{
	struct strait_nvme_result *r = &q->callback_result;
	uint32_t at;

	if (s->map)
		atomic_fetch_sub_explicit(&s->map->users, 1, memory_order_release);
	s->map = NULL;
	s->state = SLOT_FREE;
	q->free[q->n_free++] = s->cid & (NVME_MAX_ENTRIES - 1);
	if (!--q->in_flight)
		q->soonest = UINT64_MAX;
	if (status)
		q->failed++;
	if (!s->wait) {
		/* There is room: nvme_put_many() limits commands and results together. */
		at = q->done_head + q->done_count++;
		r = &q->done[at < q->entries ? at : at - q->entries];
	}
	r->user_data = s->user_data;
	r->status = status;
	r->nvme_status = nvme_status;
	r->result = result;
	r->reserved = 0;
	if (s->wait)
		s->wait->done(s->wait, r);
}

void nvme_finish(struct strait_nvme_queue *q, struct nvme_slot *s, int status, uint32_t nvme_status, uint32_t result)
{
	finish(q, s, status, nvme_status, result);
	q->commands++;
}

static void log_invalid(const struct strait_nvme_queue *q, uint32_t sq, uint32_t last)
{
	log_error(q->ctrl->log, "%s: invalid entry in completion queue %u: command %#x, queue %u, head %u, status %#x",
		  q->ctrl->pci->name, q->id, last & 0xffff, sq >> 16, sq & 0xffff, last >> 17);
}

/* The errno of a status that is not 0. */
static int status_of(const struct nvme_slot *s, uint32_t status)
{
	if (s->state == SLOT_EVENT)
		return 0;
	if (s->state == SLOT_ABORTING && NVME_CODE(status) == NVME_SC_ABORT_REQUESTED)
		return -ETIMEDOUT;
	return nvme_status_errno(status);
}

/* Complete the command of a completion queue entry. False if the entry is invalid. */
static inline bool complete(struct strait_nvme_queue *q, uint32_t sq, uint32_t last, uint32_t result)
{
	uint32_t cid = last & 0xffff, index = cid & (NVME_MAX_ENTRIES - 1), status = last >> 17;
	struct nvme_slot *s = &q->slot[index];

	if (__builtin_expect(index >= q->entries || s->state == SLOT_FREE || s->cid != cid || sq >> 16 != q->id ||
				     (sq & 0xffff) >= q->entries,
			     0)) {
		log_invalid(q, sq, last);
		return false;
	}
	finish(q, s, status ? status_of(s, status) : 0, status, result);
	return true;
}

unsigned int nvme_reap(struct strait_nvme_queue *q)
{
	uint32_t old = q->head;
	unsigned int n = 0;

	/* At most one round: a controller that fills the queue as fast must not keep this thread here. */
	while (q->in_flight && !q->broken && n < q->entries) {
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
	q->commands += n;
	if (n)
		doorbell(q, q->cq_db, q->cq_shadow, q->cq_event, old, q->head);
	return n;
}

/* The earliest deadline of the commands in flight. */
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
		*why = "it does not answer, it may have been removed";
	else if (csts & NVME_CSTS_CFS)
		*why = "it reports a fatal error";
	else if (!ctrl->pci->ops->config_read(ctrl->pci, PCI_COMMAND, 2, &command) && !(command & PCI_COMMAND_MASTER))
		*why = "its bus mastering was disabled because memory mapped for it was revoked";
	else
		return false;
	return true;
}

bool nvme_needs_help(struct strait_nvme_queue *q, uint64_t now)
{
	const char *why;

	if (q->broken)
		return true;
	if (!q->in_flight)
		return false;
	if (now >= q->soonest) {
		q->soonest = find_soonest(q);
		if (now >= q->soonest)
			return true;
	}
	if (now < q->status_checked + STATUS_CHECK_NS)
		return false;
	q->status_checked = now;
	return nvme_is_stuck(q->ctrl, &why);
}
