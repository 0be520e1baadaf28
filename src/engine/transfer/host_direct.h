/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_TRANSFER_HOST_DIRECT_H
#define ENGINE_TRANSFER_HOST_DIRECT_H

/*
 * Direct reads straight into the caller's memory. The kernel writes whole blocks there, and where the file ends
 * before the memory does some file systems zero what is left of it. Memory past the bytes read belongs to the caller:
 * a direct read is asked for no more than the whole blocks of the file, and what is behind them goes through a buffer.
 */

#include <sys/types.h>

#include "endpoint/endpoint.h"

static inline bool host_direct_aligned(const struct strait_endpoint *ep, const void *buf, uint64_t off)
{
	return !(off % ep->facts.dio_align) && !((uintptr_t)buf % ep->facts.dio_mem_align);
}

/*
 * How many of the @len bytes at @off, which is aligned, a direct read may put into the caller's memory, from the first
 * on. 0 where no whole block is left, or the length of the file is not known.
 */
uint64_t host_direct_part(struct strait_endpoint *ep, uint64_t off, uint64_t len);

/*
 * Direct reads of any alignment through a buffer, up to the end of the file. Returns bytes read, which may precede an
 * error that a further call returns; 0 at the end of the file; a negative errno.
 */
ssize_t host_direct_rest(struct strait_endpoint *ep, void *buf, uint64_t off, uint64_t len);

#endif
