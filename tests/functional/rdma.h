/* SPDX-License-Identifier: MIT */
#ifndef FUNCTIONAL_RDMA_H
#define FUNCTIONAL_RDMA_H

/* Two sides of RDMA sessions on one machine. The helpers end the test on failure, or skip it without an RDMA device. */

#include <strait/rdma_serve.h>

#include "common.h"

extern const char rdma_key[];

/* Why a program all of whose tests need an RDMA device is skipped: TEST_PROGRAM_NEEDS(rdma_missing). */
void rdma_missing(char *why, size_t len);
/* The address of this machine's RDMA device. */
const char *rdma_address(void);
/* The device to test: STRAIT_TEST_DEVICE or emu:0. Memory of it that an RDMA device can register, filled with a byte. */
struct strait_region *rdma_memory(struct strait_context *ctx, uint64_t len, uint8_t fill);
/* Options with the key and timeouts for emulated machines, and the queue pairs of STRAIT_TEST_QUEUE_PAIRS. */
struct strait_rdma_opts rdma_opts_of(uint32_t role);

/* A server of the directory, in this process; and a client of it. */
struct strait_rdma_server *rdma_serve_dir(struct strait_context *ctx, const char *dir, uint32_t flags,
					  uint32_t sessions);
struct strait_rdma_client *rdma_client_new(struct strait_context *ctx);

/*
 * A child that waits until rdma_child_start(), made before this process uses RDMA. 0 in the child, once it may run.
 */
struct rdma_child {
	pid_t pid;
	int gate[2];
};

pid_t rdma_child_make(struct rdma_child *c);
void rdma_child_start(struct rdma_child *c);
void rdma_child_kill(struct rdma_child *c);

/* Two sessions joined to each other: @offers and @initiates. */
struct rdma_pair {
	struct strait_context *ctx;
	struct strait_rdma_listener *listener;
	struct strait_rdma_session *offers, *initiates;
};

void rdma_pair_open(struct rdma_pair *p);
void rdma_pair_open_with(struct rdma_pair *p, const struct strait_rdma_opts *initiates,
			 const struct strait_rdma_opts *offers);
void rdma_pair_close(struct rdma_pair *p);

#endif
