/* SPDX-License-Identifier: MIT */
#include "engine/transfer/host_direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define BUFFER_BYTES KIB(64)

uint64_t host_direct_part(struct strait_endpoint *ep, uint64_t off, uint64_t len)
{
	uint64_t end;

	if (ep->ops->length(ep, &end))
		return 0;
	end = align_down(min_u64(end, off + len), ep->facts.dio_align);
	return end > off ? end - off : 0;
}

ssize_t host_direct_rest(struct strait_endpoint *ep, void *buf, uint64_t off, uint64_t len)
{
	uint64_t align = ep->facts.dio_align, size = max_u64(BUFFER_BYTES, align), done = 0;
	void *own = aligned_alloc(max_u64(align, ep->facts.dio_mem_align), size);
	ssize_t n = own ? 0 : -ENOMEM;

	while (own && done < len) {
		uint64_t start = align_down(off + done, align), skip = off + done - start, got;

		n = ep->ops->read(ep, IO_DIRECT, own, min_u64(align_up(skip + len - done, align), size), start);
		if (n <= (ssize_t)skip)
			break;
		got = min_u64((uint64_t)n - skip, len - done);
		memcpy((char *)buf + done, (char *)own + skip, got);
		done += got;
		/* The next read would begin in the block that this one ended in: this is the last. */
		if ((uint64_t)n % align)
			break;
	}
	free(own);
	return done ? (ssize_t)done : n < 0 ? n : 0;
}
