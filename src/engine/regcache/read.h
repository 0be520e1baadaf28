/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_REGCACHE_READ_H
#define ENGINE_REGCACHE_READ_H

/* Transfers out of pages that stay registered: nothing is read and no chunk is waited for. */

#include "engine/transfer/transfer.h"

/* Shorter ones a kernel, or the CPU, does better; nor may a file's pages be given to a shorter copy. */
#define REGCACHE_READ_MIN COPY_ENGINE_BYTES

/* May the bytes be read where they are? @len is the length of the file then. */
bool regcache_read_allowed(const struct strait_transfer *t, uint64_t *len);
/* The window of a place, registered if that is worth it; false if it has none that holds it all. */
bool reg_ref_find(struct reg_cache *k, struct reg_ref *p);
/* The window of a transfer that is neither short nor long: false if it has none. @p says how much is in the file. */
bool reg_ref_get(const struct strait_transfer *t, struct reg_ref *p);
/* What it gives when all went well. */
void reg_ref_result(const struct reg_ref *p, struct strait_result *result);
/* Does such a transfer. False if it has to go another. */
bool regcache_read(const struct strait_transfer *t, uint32_t mask, bool isolated, struct strait_result *result);

#endif
