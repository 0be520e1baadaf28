/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_VERIFY_H
#define DEVICE_VERIFY_H

/*
 * Verification of a pair: do bytes that a peer writes arrive in the memory of a device? Software cannot tell a fabric
 * that drops peer writes from one that delivers them. So the peer writes a known block into scratch memory of the
 * device, which is read back.
 */

#include <stdatomic.h>

#include "device/region.h"

/* Makes the peer write the block to the memory that is verified. 0, or why it could not. */
typedef int verify_write_fn(void *arg);

/*
 * Verifies one block: fills @len bytes at @addr with the complement of @want, so that every byte must change, calls
 * @write and reads the memory back into @back. 0: the block has arrived; -EREMOTEIO: it has not; another error: nothing
 * is known.
 */
int verify_block(struct dev_stream *s, uint64_t addr, const void *want, void *back, uint64_t len,
		 verify_write_fn *write, void *arg);

/* The verdict for one peer and one device: 0 not known, 1 bytes arrive, -1 they do not. */
typedef _Atomic int8_t verify_verdict;

/* Verifies the peer of @arg with scratch memory @r of the device. Returns what verify_block() does. */
typedef int verify_peer_fn(struct strait_region *r, struct dev_stream *s, void *arg);

/* Calls @peer unless the verdict is known. 0, -EREMOTEIO, or why nothing is known. */
int verify_once(verify_verdict *known, struct strait_device *dev, verify_peer_fn *peer, void *arg);

#endif
