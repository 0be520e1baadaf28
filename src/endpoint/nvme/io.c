/* SPDX-License-Identifier: MIT */
/* Blocks between a namespace and mapped memory, with up to DEPTH commands in flight. */
#include "endpoint/nvme/nvme.h"

#include "base/util.h"
#include "os/os.h"

#define DEPTH 32     /* commands of one job in flight */
#define RING_AFTER 8 /* commands per doorbell write */
#define TRIES 4

struct io_state {
	struct nvme_wait wait;
	struct strait_nvme_queue *q;
	unsigned int pending;
	unsigned int room; /* most commands pending */
	uint64_t bad_at;
	int err;
	uint32_t nvme_status;
};

static void piece_done(struct nvme_wait *w, const struct strait_nvme_result *r)
{
	struct io_state *f = container_of(w, struct io_state, wait);

	f->pending--;
	if (!r->status || r->user_data >= f->bad_at)
		return;
	f->bad_at = r->user_data;
	f->err = r->status;
	f->nvme_status = r->nvme_status;
}

static bool has_room(void *arg)
{
	const struct io_state *f = arg;

	return f->err || f->q->gone || (f->pending < f->room && f->q->n_free);
}

static bool has_ended(void *arg)
{
	return !((const struct io_state *)arg)->pending;
}

struct strait_nvme_queue *nvme_queue_mine(struct strait_nvme *ctrl)
{
	unsigned int first = os_thread_slot() % ctrl->n_endpoint_queues;

	/* The queues of endpoints have identifiers 1 to n_endpoint_queues and are never freed before the controller. */
	for (unsigned int i = 0; i < ctrl->n_endpoint_queues; i++) {
		struct strait_nvme_queue *q = ctrl->queue[1 + (first + i) % ctrl->n_endpoint_queues];

		if (!__atomic_load_n(&q->gone, __ATOMIC_RELAXED))
			return q;
	}
	return ctrl->queue[1];
}

struct strait_nvme_command nvme_job_command(const struct nvme_job *job, uint64_t at, uint64_t n)
{
	uint64_t lba = (job->offset + at) >> job->lba_shift;

	return (struct strait_nvme_command){
		.opcode = job->write ? NVME_WRITE : NVME_READ,
		.nsid = job->nsid,
		.cdw10 = { (uint32_t)lba, (uint32_t)(lba >> 32), job->control | (uint32_t)((n >> job->lba_shift) - 1) },
		.map = job->map,
		.offset = job->map_offset + at,
		.length = n,
		.user_data = at,
	};
}

static int put_piece_locked(struct strait_nvme_queue *q, struct io_state *f, const struct nvme_job *job, uint64_t at,
			    uint64_t n, uint64_t now)
{
	struct strait_nvme_command cmd = nvme_job_command(job, at, n);
	int rc = nvme_dead(q->ctrl);

	if (!rc)
		rc = q->gone ? -ENODEV : nvme_put(q, &cmd, &f->wait, now);
	/* Neither PRPs nor SGLs can describe the memory. */
	return rc == -EINVAL ? -EOPNOTSUPP : rc;
}

/* Submit commands from @at on, until one fails or all are in flight. */
static void submit_pieces(struct strait_nvme_queue *q, struct io_state *f, const struct nvme_job *job, uint64_t at)
{
	struct nvme_until room = { has_room, f, UINT64_MAX };
	uint64_t most = align_down(q->ctrl->max_transfer, (uint64_t)1 << job->lba_shift);
	uint64_t now = os_now_ns();
	int rc = 0;

	pthread_mutex_lock(&q->lock);
	while (!rc && !f->err && at < job->length) {
		uint64_t n = min_u64(job->length - at, most);

		if (!has_room(f)) {
			nvme_ring(q);
			pthread_mutex_unlock(&q->lock);
			nvme_wait_locked(q, &room);
			now = os_now_ns();
			rc = os_stop(job->deadline, job->cancel);
			continue;
		}
		rc = put_piece_locked(q, f, job, at, n, now);
		if (rc)
			break;
		f->pending++;
		if (f->pending % RING_AFTER == 0)
			nvme_ring(q);
		at += n;
	}
	nvme_ring(q);
	if (rc && at < f->bad_at) {
		f->bad_at = at;
		f->err = rc;
	}
	pthread_mutex_unlock(&q->lock);
}

bool nvme_worth_retrying(uint32_t nvme_status)
{
	uint32_t code = NVME_CODE(nvme_status);

	return !(nvme_status & NVME_DNR) &&
	       (code == NVME_SC_NOT_READY || code == NVME_SC_INTERRUPTED || code == NVME_SC_TRANSIENT);
}

void nvme_job_say(const struct strait_nvme *ctrl, const struct nvme_job *job, uint64_t at)
{
	if (job->nvme_status && job->err)
		log_warn(ctrl->log, "%s: namespace %u: %s of block %llu failed: %s%s (%#x)", ctrl->pci->name, job->nsid,
			 job->write ? "write" : "read", (unsigned long long)((job->offset + at) >> job->lba_shift),
			 nvme_status_name(job->nvme_status), job->nvme_status & NVME_DNR ? ", do not retry" : "",
			 job->nvme_status);
}

uint64_t nvme_io(struct strait_nvme *ctrl, struct nvme_job *job)
{
	struct strait_nvme_queue *q = nvme_queue_mine(ctrl);
	struct io_state f = { .wait.done = piece_done, .q = q, .room = DEPTH };
	struct nvme_until end = { has_ended, &f, UINT64_MAX };
	uint64_t at = 0;

	job->err = os_stop(job->deadline, job->cancel);
	for (unsigned int i = 0; !job->err && i < TRIES && at < job->length; i++) {
		f.bad_at = job->length;
		f.err = 0;
		f.nvme_status = 0;
		submit_pieces(q, &f, job, at);
		nvme_wait_locked(q, &end);
		pthread_mutex_unlock(&q->lock);
		at = f.bad_at;
		if (!nvme_worth_retrying(f.nvme_status) || i + 1 == TRIES)
			job->err = f.err;
		job->nvme_status = f.nvme_status;
	}
	nvme_job_say(ctrl, job, at);
	return at;
}
