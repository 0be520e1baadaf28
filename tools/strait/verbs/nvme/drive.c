/* SPDX-License-Identifier: MIT */
/* The drive, its namespace and the memory its queues are in. */
#include <errno.h>
#include <stdio.h>

#include <strait/nvme.h>
#include <strait/strait.h>

#include "lib/cli.h"
#include "verbs/nvme/nvme.h"

static int open_failed(const struct nvme_cmd *c, int err)
{
	char hint[96];

	snprintf(hint, sizeof(hint), "bind it first: strait bind %s; see: strait nvme list", c->name);
	return fail(err == -EOPNOTSUPP || err == -ENODEV ? CLI_NO_ROUTE : CLI_FAILED, hint, "cannot open %s: %s",
		    c->name, error_text(err));
}

/* Allocate the device memory for the queues, if --queues asks for it. */
static int alloc_queues(struct nvme_cmd *c)
{
	struct strait_device *dev;
	int err;

	if (!c->queues)
		return CLI_OK;
	err = strait_device_find(c->target.ctx, c->queues, &dev);
	if (!err)
		err = strait_region_alloc(dev, 4 * MIB, &c->queue_region);
	return err ? fail(CLI_NO_ROUTE, "see: strait info", "cannot allocate memory for the queues on %s: %s",
			  c->queues, error_text(err)) :
		     CLI_OK;
}

int nvme_open_drive(struct nvme_cmd *c)
{
	struct strait_nvme_opts o = { .size = sizeof(o), .backend = c->backend };
	int err, code = target_open(&c->opts, &c->target);

	if (!code)
		code = alloc_queues(c);
	if (code)
		return code;
	o.flags = (c->interrupts ? STRAIT_NVME_INTERRUPTS : 0) | (c->unrevocable ? STRAIT_NVME_UNREVOCABLE : 0) |
		  (c->no_sgl ? STRAIT_NVME_NO_SGL : 0) | (c->no_shadow ? STRAIT_NVME_NO_SHADOW : 0);
	o.queue_region = c->queue_region;
	o.queues = c->queue_region ? 2 : 0;
	err = strait_nvme_open(c->target.ctx, c->name, &o, &c->nvme);
	if (err)
		return open_failed(c, err);
	c->info.size = sizeof(c->info);
	err = strait_nvme_info(c->nvme, &c->info);
	return err ? open_failed(c, err) : CLI_OK;
}

void nvme_close_drive(struct nvme_cmd *c)
{
	strait_endpoint_close(c->ep);
	strait_nvme_close(c->nvme);
	strait_region_close(c->queue_region);
	target_close(&c->target);
}

int nvme_open_endpoint(struct nvme_cmd *c, uint32_t flags)
{
	int err;

	c->ns.size = sizeof(c->ns);
	for (unsigned int i = 0;; i++) {
		err = strait_nvme_namespace(c->nvme, i, &c->ns);
		if (err)
			return fail(CLI_FAILED, "see: strait nvme identify", "%s has no namespace %u", c->name,
				    c->nsid);
		if (!c->nsid || c->ns.nsid == c->nsid)
			break;
	}
	c->nsid = c->ns.nsid;
	if (c->ns.usable)
		return fail(CLI_FAILED, strait_reason_fix(c->ns.reason), "namespace %u cannot be used: %s", c->nsid,
			    strait_reason_text(c->ns.reason));
	err = strait_nvme_endpoint(c->nvme, c->nsid, flags, &c->ep);
	return err ? fail(CLI_FAILED, NULL, "cannot open namespace %u: %s", c->nsid, error_text(err)) : CLI_OK;
}
