/* SPDX-License-Identifier: MIT */
#include <strait/bounce.h>

#include "api/api.h"
#include "endpoint/dma/dma.h"
#include "os/os.h"

STRAIT_API int strait_dma_bounce(struct strait_dma *dma, struct strait_region *src, uint64_t src_offset,
				 struct strait_region *dst, uint64_t dst_offset, uint64_t len, int64_t timeout_ns,
				 uint64_t *done)
{
	uint64_t deadline, moved = 0;
	int rc;

	API_CHECK(dma && src && dst && done && timeout_ns >= 0);
	API_ALIVE((struct strait_context *)dma->owner);
	API_CHECK(device_context(src->dev) == dma->owner && device_context(dst->dev) == dma->owner);
	deadline = os_deadline(timeout_ns);
	rc = dma_bounce(dma, src, src_offset, dst, dst_offset, len, deadline, &moved);
	*done = moved;
	return rc;
}
