/* SPDX-License-Identifier: MIT */
/*
 * A PCIe fabric may drop peer-to-peer writes without an error. So a block is read into host memory and into device
 * memory, and compared, before the p2p route is used.
 */
#include "endpoint/nvme/nvme.h"

#include "base/util.h"
#include "device/scratch.h"

#define TRY_BYTES KIB(4)

static int poison(struct dev_stream *s, struct strait_region *r, uint8_t *buf, const uint8_t * not )
{
	for (size_t i = 0; i < TRY_BYTES; i++)
		buf[i] = (uint8_t) ~not [i];
	return r->dev->ops->copy_now(s, r->mem.addr, buf, TRY_BYTES, false);
}

static int compare(struct strait_nvme *ctrl, struct nvme_job *job, struct strait_region *r, const uint8_t *want)
{
	struct strait_device *dev = r->dev;
	struct dev_stream *s;
	uint8_t buf[TRY_BYTES];
	int rc;

	rc = dev->ops->stream_open(dev, &r->mem, &s);
	if (rc)
		return rc;
	rc = poison(s, r, buf, want);
	if (!rc) {
		nvme_io(ctrl, job);
		rc = job->err;
	}
	if (!rc) {
		rc = dev->ops->flush_peer_writes(dev);
		rc = rc == -EOPNOTSUPP ? 0 : rc;
	}
	if (!rc)
		rc = dev->ops->copy_now(s, r->mem.addr, buf, TRY_BYTES, true);
	if (!rc && memcmp(buf, want, TRY_BYTES))
		rc = -EREMOTEIO;
	dev->ops->stream_close(s);
	return rc;
}

static int try_block(struct strait_nvme *ctrl, const struct nvme_job *how, struct strait_region *r)
{
	struct strait_nvme_map *host = nvme_bounce_get(ctrl), *map;
	struct nvme_job job = *how;
	int rc;

	if (!host)
		return -ENOMEM;
	job.write = false;
	job.map = host;
	job.map_offset = job.offset = 0;
	job.length = TRY_BYTES;
	job.deadline = UINT64_MAX;
	nvme_io(ctrl, &job);
	rc = job.err;
	if (!rc)
		rc = nvme_map_whole(ctrl, r, &map);
	if (!rc) {
		job.map = map;
		rc = compare(ctrl, &job, r, host->host);
	}
	nvme_bounce_put(ctrl, host);
	return rc;
}

int nvme_verify_dma(struct strait_nvme *ctrl, const struct nvme_job *how, struct strait_device *dev)
{
	_Atomic int8_t *known = &ctrl->pair[dev->number];
	struct strait_region *r;
	int rc;

	if (atomic_load(known))
		return atomic_load(known) > 0 ? 0 : -EREMOTEIO;
	rc = device_scratch_get(dev, &r);
	if (rc)
		return rc;
	rc = try_block(ctrl, how, r);
	device_scratch_put(r);
	if (!rc || rc == -EREMOTEIO)
		atomic_store(known, rc ? -1 : 1);
	if (rc == -EREMOTEIO)
		log_warn(ctrl->log,
			 "%s: peer-to-peer writes to the memory of %s do not arrive: the p2p route is not used",
			 ctrl->pci->name, dev->name);
	return rc;
}
