/* SPDX-License-Identifier: MIT */
/* Verifies that what the drive writes arrives in the memory of a device. */
#include "base/util.h"
#include "device/verify.h"
#include "endpoint/nvme/nvme.h"

#define BLOCK_BYTES KIB(4)

struct verify_job {
	struct strait_nvme *ctrl;
	struct nvme_job job;
};

static int read_block(void *arg)
{
	struct verify_job *v = arg;

	nvme_io(v->ctrl, &v->job);
	return v->job.err;
}

/* Reads a block into host memory, then into @r, and compares. */
static int verify_drive(struct strait_region *r, struct dev_stream *s, void *arg)
{
	struct verify_job *v = arg;
	struct strait_nvme_map *host = nvme_bounce_get(v->ctrl), *map;
	uint8_t back[BLOCK_BYTES];
	int rc;

	if (!host)
		return -ENOMEM;
	v->job.map = host;
	rc = read_block(v);
	if (!rc)
		rc = nvme_map_whole(v->ctrl, r, &map);
	if (!rc) {
		v->job.map = map;
		rc = verify_block(s, r->mem.addr, host->host, back, sizeof(back), read_block, v);
	}
	nvme_bounce_put(v->ctrl, host);
	return rc;
}

int nvme_verify_dma(struct strait_nvme *ctrl, const struct nvme_job *how, struct strait_device *dev)
{
	struct verify_job v = { .ctrl = ctrl, .job = *how };
	verify_verdict *known = &ctrl->pair[dev->number];
	bool first = !atomic_load(known);
	int rc;

	v.job.write = false;
	v.job.map_offset = v.job.offset = 0;
	v.job.length = BLOCK_BYTES;
	v.job.deadline = UINT64_MAX;
	rc = verify_once(known, dev, verify_drive, &v);
	if (first && rc == -EREMOTEIO)
		log_warn(ctrl->log,
			 "%s: peer-to-peer writes to the memory of %s do not arrive: the p2p route is not used",
			 ctrl->pci->name, dev->name);
	return rc;
}
