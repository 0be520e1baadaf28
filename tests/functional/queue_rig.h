/* SPDX-License-Identifier: MIT */
#ifndef FUNCTIONAL_QUEUE_RIG_H
#define FUNCTIONAL_QUEUE_RIG_H

/* Helpers for tests of queues: a queue with a file and two regions, and system calls that can be blocked. */

#include "common.h"

/* Calls of one kind wait at a gate until it is opened. The gate is in os_inject, which the test resets. */
void shut_gate(enum os_call call);
void open_gate(void);
void wait_at_gate(unsigned int n);

#define LEN MIB(16)

struct rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *r, *src; /* destination of reads, and source of writes */
	struct strait_endpoint *ep;
	struct strait_queue *q;
	unsigned char *want;
};

void rig_open(struct rig *g, uint32_t threads, uint32_t entries);
void rig_open_with(struct rig *g, const struct strait_context_opts *opts, uint32_t entries);
/* Opens the same file with other flags. */
void rig_reopen(struct rig *g, uint32_t flags);
void rig_close(struct rig *g);
struct strait_transfer rig_request(struct rig *g, uint32_t op, uint64_t off, uint64_t len, uint64_t user_data);
void rig_submit(struct rig *g, uint32_t op, uint64_t off, uint64_t len, uint64_t user_data);

#endif
