/* SPDX-License-Identifier: MIT */
#ifndef MAPPING_RANGE_H
#define MAPPING_RANGE_H

/* Acquired ranges and their parts, for calls that wait (range.c) and that are ordered on a stream (ordered.c). */

#include "mapping/mapping.h"

/* -EINVAL: outside the mapping or an unknown intent, -EACCES: read-only. */
int range_check(const struct strait_mapping *m, uint64_t offset, uint64_t length, uint32_t intent);

struct acquired *acquired_new(struct view *v, uint64_t offset, uint64_t length, uint32_t intent);
void acquired_free(struct acquired *a);
void acquired_add(struct strait_mapping *m, struct acquired *a);
/* Removes and frees it, and unpins its memory. */
void acquired_end(struct strait_mapping *m, struct acquired *a);
/* The acquire that was queued on a stream is done. @a may be released and freed from then on. */
void acquired_done(struct strait_mapping *m, struct acquired *a);
/*
 * Finds the range and claims it for one release, which is ordered on stream @s, NULL: on none. -ENOENT: it is not acquired,
 * or its acquire is still queued on another stream.
 */
int acquired_claim(struct strait_mapping *m, struct strait_device *dev, const struct strait_stream *s, uint64_t offset,
		   uint64_t length, uint32_t intent, struct acquired **ret);
void acquired_unclaim(struct strait_mapping *m, struct acquired *a);
void *acquired_addr(struct strait_mapping *m, const struct acquired *a);
/* Sets the view and the extent of @a, pinned. */
int device_memory(struct strait_mapping *m, struct strait_device *dev, struct acquired *a);

/* Publishes what a device, or the CPU with a twin, has changed. */
int device_release(const struct acquired *a);
/* Flushes, refreshes and the like may be of nothing. */
int range_check_any(const struct strait_mapping *m, uint64_t offset, uint64_t length);
/* Is the range compared with a twin at release? */
bool acquired_twin(const struct acquired *a);
/* Pinned memory for the result; the comparison on a stream, -EOPNOTSUPP if it cannot be done there. */
int compare_stage(const struct acquired *a, struct stage **ret);
int compare_start(const struct acquired *a, struct dev_stream *stream, struct stage *st);

#endif
