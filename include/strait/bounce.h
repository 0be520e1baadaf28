/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_BOUNCE_H
#define STRAIT_BOUNCE_H

/*
 * A card as a stop between two regions, as in the PicoEVB's example programs. Not part of the stable interface
 * (docs/abi.md): it may change with any version.
 */

#include <strait/dma.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * strait_dma_bounce() - From one region through the card's memory into another
 * @dma: the engine
 * @src: from
 * @src_offset: first byte in @src
 * @dst: to
 * @dst_offset: first byte in @dst
 * @len: bytes, any number
 * @timeout_ns: how long it may take; STRAIT_FOREVER
 * @done: bytes that arrived, also on failure
 *
 * What was in the card's memory is overwritten.
 *
 * Return: 0; -EINVAL for a range outside its region; -EOPNOTSUPP for memory the card cannot reach; -ENODEV;
 * -ESTALE; -ETIMEDOUT; -EIO for an error of the engine.
 */
STRAIT_API int strait_dma_bounce(struct strait_dma *dma, struct strait_region *src, uint64_t src_offset,
				 struct strait_region *dst, uint64_t dst_offset, uint64_t len, int64_t timeout_ns,
				 uint64_t *done);

#ifdef __cplusplus
}
#endif

#endif
