/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_REGCACHE_READ_H
#define ENGINE_REGCACHE_READ_H

/* Reads out of cached registrations: one copy by the device, no file I/O and no staging chunk. */

#include "engine/transfer/transfer.h"

/* For shorter reads a kernel or the CPU is faster; nor may a shorter copy be given pages of a file. */
#define REGCACHE_READ_MIN COPY_ENGINE_BYTES

/* True while the file is known to be unchanged, which registrations may be cached for; @len is its length then. */
bool regcache_file_length(struct strait_endpoint *ep, uint64_t *len);
/*
 * References the window of a transfer that is neither short nor long. @p says how much of the transfer is in the file. It
 * has an endpoint also without a window, if the file may be cached.
 */
bool reg_ref_get(const struct strait_transfer *t, const struct route_plan *plan, struct reg_ref *p);
/* The result of a transfer that was copied out of the window. */
void reg_ref_result(const struct reg_ref *p, struct strait_result *result);
/* A transfer that no window holds: what it costs by another route is rent. */
struct regcache_miss {
	struct reg_ref place; /* without an endpoint: no rent */
	struct reg_rent rent;
};

/*
 * Runs a transfer that way. False: it must be run another way, and regcache_missed() called with @miss when it has been.
 */
bool regcache_read(const struct strait_transfer *t, const struct route_plan *plan, bool isolated,
		   struct strait_result *result, struct regcache_miss *miss);
void regcache_missed(const struct strait_transfer *t, struct regcache_miss *miss);

#endif
