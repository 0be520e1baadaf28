/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_PEER_INJECT_H
#define STRAIT_PEER_INJECT_H

/* inject.c: see strait/inject.h. A new wrapper is listed in kernel/test/inject.c. */

#include <linux/types.h>

struct dma_buf;
struct dma_buf_export_info;
struct peer_client;
struct peer_context;
struct sg_table;

/* Zeroed memory, charged to the caller's control group. */
void *peer_zalloc(size_t size);
int peer_sg_alloc_table(struct sg_table *table, unsigned int entries);
/* A number for the context, not one that was used just before: numbers are used in turn. */
int peer_alloc_ticket(struct peer_client *client, struct peer_context *ctx);
struct dma_buf *peer_dma_buf_export(const struct dma_buf_export_info *info);

#endif
