/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_QUEUE_QUEUE_H
#define ENGINE_QUEUE_QUEUE_H

#include "engine/queue/coalesce.h"

int queue_open(struct strait_context *ctx, const struct strait_queue_opts *opts, struct strait_queue **ret);
int queue_submit(struct strait_queue *q, const struct strait_transfer *t, unsigned int n);
int queue_wait(struct strait_queue *q, unsigned int min, unsigned int max, int64_t timeout_ns,
	       struct strait_result *results);
/* strait_queue_fd() */
int queue_fd(struct strait_queue *q);
int queue_cancel(struct strait_queue *q, uint64_t user_data);
void queue_close(struct strait_queue *q);
struct strait_context *queue_context(const struct strait_queue *q);

#endif
