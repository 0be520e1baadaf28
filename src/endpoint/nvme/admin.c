/* SPDX-License-Identifier: MIT */
/* Admin commands: one at a time, by polling. */
#include "endpoint/nvme/nvme.h"

#include "base/util.h"
#include "os/os.h"

#define SPINS 512
#define NAP_NS 50000u
#define LOG_PIECE KIB(4)
#define LEAST_NS 5000000000u /* least timeout of an admin command that sets none, also with a short timeout for I/O */

struct admin_wait {
	struct nvme_wait wait;
	struct strait_nvme_result r;
	bool done;
};

static void admin_done(struct nvme_wait *w, const struct strait_nvme_result *r)
{
	struct admin_wait *a = container_of(w, struct admin_wait, wait);

	a->r = *r;
	a->done = true;
}

int nvme_admin_locked(struct strait_nvme *ctrl, const struct strait_nvme_command *cmd, struct strait_nvme_result *r)
{
	struct admin_wait a = { .wait.done = admin_done };
	struct strait_nvme_queue *q = ctrl->admin;
	struct strait_nvme_command c = *cmd;
	uint64_t now = os_now_ns();
	int rc = nvme_dead(ctrl);

	if (!c.timeout_ns)
		c.timeout_ns = max_u64(ctrl->timeout, LEAST_NS);
	if (!rc)
		rc = nvme_put(q, &c, &a.wait, now);
	if (rc) {
		*r = (struct strait_nvme_result){ .user_data = cmd->user_data, .status = rc };
		return rc;
	}
	nvme_ring(q);
	for (unsigned int spins = 0; !a.done; spins++) {
		nvme_reap(q);
		if (a.done)
			break;
		if (spins < SPINS) {
			cpu_pause();
			continue;
		}
		now = os_now_ns();
		if (nvme_needs_help(q, now)) {
			/* During a reset there is no further recovery. */
			if (ctrl->resetting)
				nvme_fail_all(q, -ETIMEDOUT);
			else
				nvme_reset_locked(ctrl, "an admin command does not complete");
			break;
		}
		os_sleep_ns(NAP_NS);
	}
	*r = a.r;
	return r->status;
}

/* Bits 0 and 1 of an opcode tell the direction of its data. */
static bool reads_host(uint8_t opcode)
{
	return opcode & 1;
}

static bool writes_host(uint8_t opcode)
{
	return opcode & 2;
}

int nvme_admin(struct strait_nvme *ctrl, const struct strait_nvme_command *cmd, void *data, size_t len,
	       struct strait_nvme_result *r)
{
	struct strait_nvme_command c = *cmd;
	void *page = ctrl->admin_data->host;
	int rc;

	if (len > NVME_ADMIN_BYTES)
		return -EINVAL;
	c.flags = 0;
	c.map = data && len ? ctrl->admin_data : NULL;
	c.offset = 0;
	c.length = len;
	pthread_mutex_lock(&ctrl->lock);
	if (c.map && reads_host(c.opcode))
		memcpy(page, data, len);
	else if (c.map)
		memset(page, 0, len);
	rc = nvme_admin_locked(ctrl, &c, r);
	if (!rc && c.map && writes_host(c.opcode))
		memcpy(data, page, len);
	pthread_mutex_unlock(&ctrl->lock);
	return rc;
}

/* With the lock held; @page is of 4 KiB. */
int nvme_identify(struct strait_nvme *ctrl, uint32_t cns, uint32_t nsid, void *page)
{
	struct strait_nvme_command cmd = {
		.opcode = NVME_ADMIN_IDENTIFY, .nsid = nsid, .cdw10[0] = cns, .map = ctrl->admin_data, .length = KIB(4)
	};
	struct strait_nvme_result r;
	int rc;

	memset(ctrl->admin_data->host, 0, KIB(4));
	rc = nvme_admin_locked(ctrl, &cmd, &r);
	if (!rc)
		memcpy(page, ctrl->admin_data->host, KIB(4));
	return rc;
}

int nvme_set_queues(struct strait_nvme *ctrl, uint32_t want)
{
	struct strait_nvme_command cmd = { .opcode = NVME_ADMIN_SET_FEATURES,
					   .cdw10 = { NVME_FEAT_QUEUES, (want - 1) << 16 | (want - 1) } };
	struct strait_nvme_result r;
	int rc = nvme_admin_locked(ctrl, &cmd, &r);

	if (rc)
		return rc;
	ctrl->max_queues = (uint16_t)min_u64(min_u64((r.result & 0xffff) + 1, (r.result >> 16) + 1), want);
	return 0;
}

int nvme_log_page(struct strait_nvme *ctrl, uint32_t nsid, uint32_t page, uint64_t off, void *buf, size_t len)
{
	struct strait_nvme_result r;

	if (off % 4 || len % 4 || page > 0xff || off > UINT64_MAX - len)
		return -EINVAL;
	for (size_t done = 0; done < len;) {
		size_t n = min_u64(len - done, LOG_PIECE);
		uint32_t dwords = (uint32_t)(n / 4) - 1;
		struct strait_nvme_command cmd = {
			.opcode = NVME_ADMIN_LOG_PAGE,
			.nsid = nsid,
			.cdw10 = { page | (dwords & 0xffff) << 16, dwords >> 16, (uint32_t)(off + done),
				   (uint32_t)((off + done) >> 32) },
		};
		int rc = nvme_admin(ctrl, &cmd, (char *)buf + done, n, &r);

		if (rc)
			return rc;
		done += n;
	}
	return 0;
}
