/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_BOUNCE_H
#define STRAIT_BOUNCE_H

/*
 * Copies between two regions through the memory of a card, as in the PicoEVB's example programs. Not part of the stable
 * interface (docs/abi.md): it may change with any version.
 */

#include <strait/dma.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * strait_dma_bounce() - Copy from one region to another through the card's memory
 * @dma: the engine
 * @src: source
 * @src_offset: first byte in @src
 * @dst: destination
 * @dst_offset: first byte in @dst
 * @len: bytes, any number
 * @timeout_ns: deadline in nanoseconds from now; STRAIT_FOREVER for none
 * @done: set to the bytes copied, also on failure
 *
 * Overwrites the card's memory.
 *
 * Return: 0; -EINVAL for a range outside its region; -EOPNOTSUPP for memory that cannot be mapped for the card;
 * -ENODEV; -ESTALE; -ETIMEDOUT; -EIO for an error of the engine.
 */
STRAIT_API int strait_dma_bounce(struct strait_dma *dma, struct strait_region *src, uint64_t src_offset,
				 struct strait_region *dst, uint64_t dst_offset, uint64_t len, int64_t timeout_ns,
				 uint64_t *done);

#ifdef __cplusplus
}
#endif

#endif
