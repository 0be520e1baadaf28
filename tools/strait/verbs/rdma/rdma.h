/* SPDX-License-Identifier: MIT */
#ifndef CLI_RDMA_H
#define CLI_RDMA_H

#include <strait/rdma_serve.h>
#include <strait/strait.h>

#include "lib/target.h"

struct rdma_cmd {
	struct target_opts opts;
	const char *address, *key_file, *from, *save;
	struct opt_list exports;
	uint64_t port, offset, size, region_bytes, seed;
	uint64_t block;
	double timeout, seconds;
	uint32_t sessions, retries, ack_timeout, queue_pairs;
	uint32_t depth, pieces;
	bool write, poll;
	uint8_t key[STRAIT_RDMA_KEY_MAX];
	size_t key_len;
	struct target target;
	struct strait_region *region;
	uint64_t region_len;
};

/* Options of sessions, with the key of --key or STRAIT_RDMA_KEY. Returns an exit code, having printed what was wrong. */
int rdma_session_opts(struct rdma_cmd *c, struct strait_rdma_opts *o);
/* Print why there is no connection, and what to do. Returns the exit code for it. */
int rdma_failed(const char *what, int err);
/* Allocate memory of the target that the RDMA device can register, if there is such. */
int rdma_alloc(struct rdma_cmd *c, uint64_t bytes);

/* How an RDMA device registers memory of a device that it can register best. */
int rdma_try_device(const char *nic, struct strait_device *dev, struct strait_rdma_reach *reach);

/* What --export names, open until exports_close(). */
struct exports {
	struct strait_rdma_export e[STRAIT_RDMA_EXPORTS_MAX];
	struct strait_nvme *nvme[STRAIT_RDMA_EXPORTS_MAX];
	char name[STRAIT_RDMA_EXPORTS_MAX][STRAIT_RDMA_EXPORT_NAME + 1];
	uint32_t n;
};

/* Returns an exit code, having printed what was wrong. */
int exports_open(struct strait_context *ctx, const struct opt_list *list, struct exports *x);
void exports_close(struct exports *x);

int rdma_list(void);
/* @dir NULL: exports only. */
int rdma_serve(struct rdma_cmd *c, const char *dir);
int rdma_pull(struct rdma_cmd *c, const char *path);
int rdma_push(struct rdma_cmd *c, const char *path);
/* @address NULL: the side that offers memory. */
int rdma_bench(struct rdma_cmd *c, const char *address);

#endif
