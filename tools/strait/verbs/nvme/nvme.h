/* SPDX-License-Identifier: MIT */
#ifndef CLI_NVME_H
#define CLI_NVME_H

/* What the subcommands of "strait nvme" share. */

#include <stdbool.h>
#include <stdint.h>

#include <strait/nvme.h>
#include <strait/types.h>

#include "lib/target.h"

struct nvme_cmd {
	/* options */
	struct target_opts opts;
	const char *backend, *queues, *output, *from;
	uint32_t nsid, depth;
	uint64_t blocks, offset, seed, block;
	double seconds;
	bool ascii, interrupts, unrevocable, no_sgl, no_shadow, force, write, sequential;
	/* the open drive */
	char name[16];
	struct target target;
	struct strait_nvme *nvme;
	struct strait_nvme_info info;
	struct strait_nvme_namespace ns;
	struct strait_region *queue_region;
	struct strait_endpoint *ep;
};

/* Each of these returns an exit code, and has printed a message if it is not CLI_OK. */

/* Set the address of the drive: @name, or the only drive bound for user space. */
int nvme_find_drive(struct nvme_cmd *c, const char *name);

/* Open the drive and the device whose memory it reaches. nvme_close_drive() takes what a failed open left. */
int nvme_open_drive(struct nvme_cmd *c);
void nvme_close_drive(struct nvme_cmd *c);

/* Open the namespace that was asked for, the first one by default. */
int nvme_open_endpoint(struct nvme_cmd *c, uint32_t flags);

int nvme_cmd_list(void);
int nvme_cmd_identify(struct nvme_cmd *c);
/* @which: "health", "error" or the number of a log page. */
int nvme_cmd_log(struct nvme_cmd *c, const char *which);
int nvme_cmd_read(struct nvme_cmd *c);
int nvme_cmd_write(struct nvme_cmd *c);
int nvme_cmd_verify(struct nvme_cmd *c);
int nvme_cmd_bench(struct nvme_cmd *c);

#endif
