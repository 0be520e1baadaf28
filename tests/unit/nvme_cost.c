/* SPDX-License-Identifier: MIT */
/*
 * 4 KiB reads on a controller in software, nothing else: nvme_cost_test.py counts what the driver's part costs.
 *
 *     nvme-cost READS DEPTH
 */
#include <stdio.h>
#include <stdlib.h>
#include <strait/nvme.h>
#include <strait/strait.h>

#include "api/api.h"
#include "api/nvme.h"
#include "nvme_model.h"

#define BYTES 4096u
#define MOST 128

int main(int argc, char **argv)
{
	struct strait_nvme_opts o = { .size = sizeof(o), .queues = 1 };
	static struct strait_nvme_command cmd[MOST];
	static struct strait_nvme_result res[MOST];
	struct nvme_model *m = model_new(&(struct model_config){ 0 });
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *region;
	struct strait_nvme *nvme;
	struct strait_nvme_queue *q;
	struct strait_nvme_map *map;
	long reads = argc == 3 ? atol(argv[1]) : 0, depth = argc == 3 ? atol(argv[2]) : 0;

	if (reads < 1 || depth < 1 || depth > MOST)
		return 2;
	if (strait_context_open(NULL, &ctx) || strait_device_find(ctx, "host", &dev) ||
	    strait_region_alloc(dev, (size_t)MOST * BYTES, &region) || nvme_adopt(ctx, &m->pci, &o, &nvme) ||
	    strait_nvme_queue_open(nvme, NULL, &q) || strait_nvme_map(nvme, region, 0, (uint64_t)MOST * BYTES, &map))
		return 1;
	for (long done = 0; done < reads; done += depth) {
		for (long i = 0; i < depth; i++)
			cmd[i] = (struct strait_nvme_command){ .opcode = 2,
							       .nsid = 1,
							       .cdw10 = { (uint32_t)((done + i) * 8 % 16384), 0, 7 },
							       .map = map,
							       .offset = (uint64_t)i * BYTES,
							       .length = BYTES };
		if (strait_nvme_queue_submit(q, cmd, (unsigned int)depth) != depth ||
		    strait_nvme_queue_wait(q, (unsigned int)depth, MOST, STRAIT_FOREVER, res) != depth)
			return 1;
		for (long i = 0; i < depth; i++)
			if (res[i].status)
				return 1;
	}
	strait_nvme_queue_close(q);
	strait_nvme_unmap(map);
	strait_region_close(region);
	strait_nvme_close(nvme);
	strait_context_close(ctx);
	model_free(m);
	return 0;
}
