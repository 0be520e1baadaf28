/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_QUEUE_COALESCE_INTERNAL_H
#define ENGINE_QUEUE_COALESCE_INTERNAL_H

#include "engine/queue/coalesce.h"

/* Looks up the registered windows of the items. */
void coalesce_find_windows(struct strait_context *ctx, struct coalesce *g);
/*
 * Reads the items that no window holds into the chunk if the page cache holds them, with the help of workers that are idle.
 * Their .n is -EAGAIN if it does not, or if the file is read by direct I/O. With @whole it ends at the first item of which
 * not all was read, and returns false.
 */
bool coalesce_read_cached(struct strait_context *ctx, struct coalesce *g, char *chunk, bool whole);
/* Reads all items that no window holds, those that are not in the page cache by a ring. */
void coalesce_read_items(struct strait_context *ctx, struct coalesce *g, char *chunk);

#endif
