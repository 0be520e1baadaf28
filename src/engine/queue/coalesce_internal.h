/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_QUEUE_COALESCE_INTERNAL_H
#define ENGINE_QUEUE_COALESCE_INTERNAL_H

#include "engine/queue/coalesce.h"

/* Looks up the registered windows of the items. */
void coalesce_find_windows(struct strait_context *ctx, struct coalesce *g);
/* Reads an item into the chunk if the page cache holds it. -EAGAIN: it does not, or the file is read by direct I/O. */
ssize_t coalesce_read_cached(const struct coalesce_item *it, char *chunk);
/* Reads all items that no window holds, those that are not in the page cache by a ring. */
void coalesce_read_items(struct strait_context *ctx, struct coalesce *g, char *chunk);

#endif
