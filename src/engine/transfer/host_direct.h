/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_HOST_DIRECT_H
#define ENGINE_TRANSFER_HOST_DIRECT_H

/*
 * Direct reads into the caller's memory. The kernel writes whole blocks, and at the end of a file some file systems zero
 * the rest of the buffer. Memory past the bytes read belongs to the caller: so a direct read covers no more than the whole
 * blocks of the file, and the bytes behind them go through a bounce buffer.
 */

#include <sys/types.h>

#include "endpoint/endpoint.h"

static inline bool host_direct_aligned(const struct strait_endpoint *ep, const void *buf, uint64_t off)
{
	return !(off % ep->facts.dio_align) && !((uintptr_t)buf % ep->facts.dio_mem_align);
}

/*
 * How many of the @len bytes at @off, which is aligned, a direct read may write to the caller's memory. 0: no whole block
 * is left, or the length of the file is unknown.
 */
uint64_t host_direct_part(struct strait_endpoint *ep, uint64_t off, uint64_t len);

/*
 * Direct reads of any alignment through a buffer, up to the end of the file. Returns bytes read, which may precede an
 * error that a further call returns; 0 at the end of the file; a negative errno.
 */
ssize_t host_direct_rest(struct strait_endpoint *ep, void *buf, uint64_t off, uint64_t len);

#endif
