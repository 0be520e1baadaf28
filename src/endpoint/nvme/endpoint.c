/* SPDX-License-Identifier: MIT */
#include "endpoint/nvme/endpoint.h"

#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"

#define ZEROES_BLOCKS 65536u /* most blocks of one Write Zeroes command */

static int refresh(struct namespace *n, uint32_t epoch)
{
	struct nvme_ns ns;
	int rc = nvme_ns_find(n->ctrl, n->nsid, &ns);

	if (rc || ns.info.usable)
		rc = -ENODEV;
	else if (ns.generation != n->generation || ns.info.lba_bytes != 1u << n->lba_shift)
		rc = -ESTALE; /* reformatted: offsets mean other bytes now */
	if (rc) {
		atomic_store(&n->gone, rc);
		return rc;
	}
	atomic_store(&n->length, ns.info.blocks << n->lba_shift);
	atomic_store(&n->epoch, epoch);
	return 0;
}

int namespace_look(struct namespace *n, uint64_t *length)
{
	uint32_t epoch;
	int rc;

	nvme_events_look(n->ctrl);
	epoch = atomic_load(&n->ctrl->ns_epoch);
	rc = atomic_load(&n->gone);
	if (!rc && epoch != atomic_load(&n->epoch))
		rc = refresh(n, epoch);
	if (!rc)
		rc = nvme_dead(n->ctrl);
	if (!rc)
		*length = atomic_load(&n->length);
	return rc;
}

struct nvme_job namespace_job(const struct namespace *n, bool write)
{
	return (struct nvme_job){
		.nsid = n->nsid,
		.lba_shift = n->lba_shift,
		.write = write,
		.control = write && (n->ep.flags & STRAIT_NVME_FUA) ? NVME_RW_FUA : 0,
		.deadline = UINT64_MAX,
	};
}

static int namespace_length(struct strait_endpoint *ep, uint64_t *bytes)
{
	return namespace_look(to_namespace(ep), bytes);
}

static int namespace_sync(struct strait_endpoint *ep)
{
	struct namespace *n = to_namespace(ep);
	struct strait_nvme_command cmd = { .opcode = NVME_FLUSH, .nsid = n->nsid };
	struct strait_nvme_result r;
	uint64_t length;
	int rc = namespace_look(n, &length);

	/* Without a volatile write cache completed writes are durable. */
	if (rc || !n->ctrl->volatile_cache)
		return rc;
	return nvme_run(nvme_queue_mine(n->ctrl), &cmd, &r);
}

static int namespace_dma_map(struct strait_endpoint *ep, struct strait_device *dev, struct strait_region *region,
			     uint32_t *reason)
{
	struct namespace *n = to_namespace(ep);
	struct nvme_job how = namespace_job(n, false);
	struct strait_nvme_map *map;
	int rc = 0;

	if (region) {
		rc = nvme_map_whole(n->ctrl, region, &map);
		if (rc)
			*reason = STRAIT_WHY_NO_DEVICE_MAP;
	}
	if (!rc && !(dev->caps & (STRAIT_DEVICE_HOST | STRAIT_DEVICE_IMPORT_ONLY))) {
		rc = nvme_verify_dma(n->ctrl, &how, dev);
		if (rc)
			*reason = rc == -EREMOTEIO ? STRAIT_WHY_NOT_ARRIVED : STRAIT_WHY_VERIFY_FAILED;
	}
	return rc;
}

int namespace_prepare(struct namespace *n, const struct endpoint_io *m, struct nvme_job *job)
{
	uint64_t length;
	int rc = namespace_look(n, &length);

	if (!rc && !range_inside(m->offset, m->length, length))
		rc = -ENOSPC;
	if (!rc)
		rc = nvme_map_whole(n->ctrl, m->region, &job->map);
	job->map_offset = m->region_offset;
	job->offset = m->offset;
	job->length = m->length;
	job->deadline = m->deadline;
	job->cancel = m->cancel;
	return rc;
}

uint64_t namespace_io_result(struct namespace *n, const struct strait_nvme_map *map, struct endpoint_io *m,
			     const struct nvme_job *job, uint64_t done)
{
	const struct pci_ops *ops = n->ctrl->pci->ops;

	m->err = job->err;
	m->device_status = (int32_t)job->nvme_status;
	/* An access to revoked memory faults in the IOMMU; the drive may report success or an error. */
	if ((done || job->err == -EIO) && ops->mapping_check(n->ctrl->pci, atomic_load(&map->pm))) {
		m->err = -ENODEV;
		done = 0;
		nvme_recover(nvme_queue_mine(n->ctrl)); /* bus mastering was disabled with the mapping */
	}
	atomic_fetch_add_explicit(&n->direct_bytes, done, memory_order_relaxed);
	return done;
}

static uint64_t namespace_io(struct strait_endpoint *ep, struct endpoint_io *m)
{
	struct namespace *n = to_namespace(ep);
	struct nvme_job job = namespace_job(n, m->write);
	uint64_t done;
	struct range_lock h;

	m->err = namespace_prepare(n, m, &job);
	if (m->err)
		return 0;
	if (m->write)
		range_lock_get(n, &h, m->offset, m->length, false);
	done = nvme_io(n->ctrl, &job);
	if (m->write)
		range_lock_put(n, &h);
	return namespace_io_result(n, job.map, m, &job, done);
}

static void namespace_destroy(struct strait_endpoint *ep)
{
	struct namespace *n = to_namespace(ep);

	nvme_unref(n->ctrl);
	pthread_cond_destroy(&n->freed);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

static const struct endpoint_ops namespace_ops = {
	.kind = "nvme",
	.length = namespace_length,
	.read = namespace_read,
	.write = namespace_write,
	.sync = namespace_sync,
	.dma_map = namespace_dma_map,
	.io = namespace_io,
	.batch_open = namespace_batch_open,
	.batch_start = namespace_batch_start,
	.batch_reap = namespace_batch_reap,
	.batch_wake = namespace_batch_wake,
	.batch_close = namespace_batch_close,
	.destroy = namespace_destroy,
};

int nvme_endpoint_open(struct strait_nvme *ctrl, uint32_t nsid, uint32_t flags, struct strait_endpoint **ret)
{
	struct namespace *n;
	struct nvme_ns ns;
	uint32_t epoch;
	int rc;

	if (flags & ~(STRAIT_NVME_READ_ONLY | STRAIT_NVME_FUA))
		return -EINVAL;
	epoch = atomic_load(&ctrl->ns_epoch);
	rc = nvme_ns_find(ctrl, nsid, &ns);
	if (rc)
		return rc;
	if (ns.info.usable) {
		log_warn(ctrl->log, "%s: namespace %u is not usable: %s", ctrl->pci->name, nsid,
			 strait_reason_text(ns.info.reason));
		return ns.info.usable;
	}
	n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	endpoint_init(&n->ep, &namespace_ops, flags);
	n->ep.facts = (struct endpoint_facts){
		.fs = "nvme",
		.direct_reason = STRAIT_WHY_NO_FILE_SYSTEM,
		.can_read = true,
		.can_write = !(flags & STRAIT_NVME_READ_ONLY),
		.can_buffered = true,
		.self_dma = true,
		.dio_align = ns.info.lba_bytes,
		.dio_mem_align = ctrl->sgl_bytes ? 1 : 4,
		.async_bytes = align_down(ctrl->max_transfer, ns.info.lba_bytes),
	};
	n->ctrl = ctrl;
	n->nsid = nsid;
	n->lba_shift = (uint32_t)__builtin_ctz(ns.info.lba_bytes);
	n->generation = ns.generation;
	atomic_init(&n->length, ns.info.blocks << n->lba_shift);
	atomic_init(&n->epoch, epoch);
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->freed, NULL);
	list_init(&n->ranges);
	nvme_ref(ctrl);
	*ret = &n->ep;
	return 0;
}

int nvme_endpoint_info(struct strait_endpoint *ep, struct strait_nvme_endpoint_info *info)
{
	struct namespace *n = to_namespace(ep);
	int rc;

	if (!endpoint_is(ep, &namespace_ops))
		return -EINVAL;
	*info = (struct strait_nvme_endpoint_info){ .size = sizeof(*info) };
	rc = namespace_look(n, &info->length);
	info->nsid = n->nsid;
	info->lba_bytes = 1u << n->lba_shift;
	info->edge_reads = atomic_load(&n->edge_reads);
	info->edge_writes = atomic_load(&n->edge_writes);
	info->direct_bytes = atomic_load(&n->direct_bytes);
	info->bounced_bytes = atomic_load(&n->bounced_bytes);
	return rc;
}

/* Checks for commands on a range of blocks; @needs is a bit of ONCS. */
static int check_range(struct strait_endpoint *ep, uint64_t off, uint64_t len, uint16_t needs)
{
	struct namespace *n = to_namespace(ep);
	uint64_t length;
	int rc;

	/* Check the kind before reading members of struct namespace. */
	if (!endpoint_is(ep, &namespace_ops))
		return -EINVAL;
	rc = namespace_look(n, &length);
	if (rc)
		return rc;
	if (!n->ep.facts.can_write)
		return -EBADF;
	if ((off | len) & (((uint64_t)1 << n->lba_shift) - 1) || !range_inside(off, len, length))
		return -EINVAL;
	return hw_get16(n->ctrl->id, NVME_CTRL_ONCS) & needs ? 0 : -EOPNOTSUPP;
}

int nvme_endpoint_zeroes(struct strait_endpoint *ep, uint64_t off, uint64_t len)
{
	struct namespace *n = to_namespace(ep);
	struct strait_nvme_result r;
	struct range_lock h;
	int rc = check_range(ep, off, len, NVME_ONCS_WRITE_ZEROES);

	if (rc || !len)
		return rc;
	range_lock_get(n, &h, off, len, false);
	for (uint64_t lba = off >> n->lba_shift, end = (off + len) >> n->lba_shift; !rc && lba < end;) {
		uint64_t blocks = min_u64(end - lba, ZEROES_BLOCKS);
		struct strait_nvme_command cmd = {
			.opcode = NVME_WRITE_ZEROES,
			.nsid = n->nsid,
			.cdw10 = { (uint32_t)lba, (uint32_t)(lba >> 32),
				   (uint32_t)(blocks - 1) | (ep->flags & STRAIT_NVME_FUA ? NVME_RW_FUA : 0) },
		};

		rc = nvme_run(nvme_queue_mine(n->ctrl), &cmd, &r);
		lba += blocks;
	}
	range_lock_put(n, &h);
	return rc;
}

int nvme_endpoint_deallocate(struct strait_endpoint *ep, uint64_t off, uint64_t len)
{
	struct namespace *n = to_namespace(ep);
	struct strait_nvme_map *m;
	struct strait_nvme_result r;
	struct range_lock h;
	int rc = check_range(ep, off, len, NVME_ONCS_DATASET);

	if (rc || !len)
		return rc;
	m = nvme_bounce_get(n->ctrl);
	if (!m)
		return -ENOMEM;
	range_lock_get(n, &h, off, len, false);
	for (uint64_t lba = off >> n->lba_shift, end = (off + len) >> n->lba_shift; !rc && lba < end;) {
		uint64_t blocks = min_u64(end - lba, UINT32_MAX);
		struct strait_nvme_command cmd = { .opcode = NVME_DATASET,
						   .nsid = n->nsid,
						   .cdw10 = { 0, NVME_DATASET_DEALLOCATE },
						   .map = m,
						   .length = 16 };

		hw_put32(m->host, 0, 0);
		hw_put32(m->host, 4, (uint32_t)blocks);
		hw_put64(m->host, 8, lba);
		rc = nvme_run(nvme_queue_mine(n->ctrl), &cmd, &r);
		lba += blocks;
	}
	range_lock_put(n, &h);
	nvme_bounce_put(n->ctrl, m);
	return rc;
}
