/* SPDX-License-Identifier: MIT */
#ifndef UNIT_NVME_COMMON_H
#define UNIT_NVME_COMMON_H

/* A controller model, opened through the public interface. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/nvme.h>
#include <strait/strait.h>

#include "api/api.h"
#include "api/nvme.h"
#include "base/util.h"
#include "harness/harness.h"
#include "nvme_model.h"
#include "os/os.h"

struct rig {
	struct strait_context *ctx;
	struct nvme_model *model;
	struct strait_nvme *nvme;
};

static void rig_log(void *arg, enum strait_log_level level, const char *text)
{
	(void)arg;
	(void)level;
	printf("# %s\n", text);
}

__attribute__((unused)) static int rig_try(struct rig *r, const struct model_config *config,
					   const struct strait_nvme_opts *opts)
{
	struct strait_context_opts co = { .size = sizeof(co), .log = rig_log, .log_level = STRAIT_LOG_WARN };

	ASSERT_OK(strait_context_open(&co, &r->ctx));
	r->model = model_new(config);
	r->nvme = NULL;
	return nvme_adopt(r->ctx, &r->model->pci, opts, &r->nvme);
}

__attribute__((unused)) static void rig_open(struct rig *r, const struct model_config *config,
					     const struct strait_nvme_opts *opts)
{
	ASSERT_OK(rig_try(r, config, opts));
}

/* Everything was released, and no unmapped address was accessed. */
__attribute__((unused)) static void rig_close(struct rig *r)
{
	strait_nvme_close(r->nvme);
	strait_context_close(r->ctx);
	ASSERT_FALSE(r->model->is_open);
	ASSERT_EQ(r->model->bus.mapped, 0);
	ASSERT_EQ(r->model->bus.faults, 0);
	model_free(r->model);
}

__attribute__((unused)) static struct strait_region *rig_region(struct rig *r, const char *device, size_t len)
{
	struct strait_device *dev;
	struct strait_region *region;

	ASSERT_OK(strait_device_find(r->ctx, device, &dev));
	ASSERT_OK(strait_region_alloc(dev, len, &region));
	return region;
}

__attribute__((unused)) static uint8_t *rig_cpu(struct strait_region *region)
{
	void *cpu;

	ASSERT_OK(strait_region_map(region, &cpu));
	return cpu;
}

__attribute__((unused)) static struct strait_nvme_info rig_info(struct rig *r)
{
	struct strait_nvme_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_nvme_info(r->nvme, &info));
	return info;
}

/* A command that reads or writes @n blocks at @lba. */
__attribute__((unused)) static struct strait_nvme_command rw(bool write, uint64_t lba, uint32_t n,
							     struct strait_nvme_map *map, uint64_t off, uint64_t len)
{
	return (struct strait_nvme_command){ .opcode = write ? 1 : 2,
					     .nsid = 1,
					     .cdw10 = { (uint32_t)lba, (uint32_t)(lba >> 32), n - 1 },
					     .map = map,
					     .offset = off,
					     .length = len,
					     .user_data = lba };
}

#endif
