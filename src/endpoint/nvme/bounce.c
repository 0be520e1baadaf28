/* SPDX-License-Identifier: MIT */
/* Any byte offset and any host memory, through a bounce buffer of the controller. */
#include "base/util.h"
#include "endpoint/nvme/endpoint.h"

static void count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* Transfer whole blocks to or from offset @at of @m. */
static int run(struct namespace *n, struct strait_nvme_map *m, uint64_t at, uint64_t off, uint64_t len, bool write)
{
	struct nvme_job job = namespace_job(n, write);

	job.map = m;
	job.map_offset = at;
	job.offset = off;
	job.length = len;
	nvme_io(n->ctrl, &job);
	return job.err;
}

/* Number of blocks that [off, off + len) covers partially, at its ends. */
static unsigned int edges(const struct namespace *n, uint64_t off, uint64_t len)
{
	uint64_t mask = ((uint64_t)1 << n->lba_shift) - 1, end = off + len;
	unsigned int head = (off & mask) != 0, tail = (end & mask) != 0;

	return head && tail && off >> n->lba_shift == (end - 1) >> n->lba_shift ? 1 : head + tail;
}

ssize_t namespace_read(struct strait_endpoint *ep, enum io_mode mode, void *buf, size_t len, uint64_t off)
{
	struct namespace *n = to_namespace(ep);
	const uint64_t lba = (uint64_t)1 << n->lba_shift;
	struct strait_nvme_map *m;
	uint64_t length, first, span;
	size_t done = 0;
	int rc = namespace_look(n, &length);

	if (rc)
		return rc;
	if (off >= length)
		return 0;
	len = min_u64(len, length - off);
	m = nvme_bounce_get(n->ctrl);
	if (!m)
		return -ENOMEM;
	while (done < len) {
		uint64_t part;

		first = align_down(off + done, lba);
		span = min_u64(align_up(off + len, lba) - first, m->length);
		part = min_u64(len - done, first + span - (off + done));
		rc = run(n, m, 0, first, span, false);
		if (rc)
			break;
		memcpy((char *)buf + done, (char *)m->host + (off + done - first), part);
		count(&n->edge_reads, edges(n, off + done, part));
		count(&n->bounced_bytes, part);
		done += part;
	}
	nvme_bounce_put(n->ctrl, m);
	return done ? (ssize_t)done : rc;
}

/* Read the partially covered blocks, so that their other bytes are written back unchanged. */
static int read_edges(struct namespace *n, struct strait_nvme_map *m, uint64_t first, uint64_t span, uint64_t off,
		      uint64_t len)
{
	const uint64_t lba = (uint64_t)1 << n->lba_shift;
	int rc = 0;

	if (off % lba || (span == lba && len < lba))
		rc = run(n, m, 0, first, lba, false);
	if (!rc && span > lba && (off + len) % lba)
		rc = run(n, m, span - lba, first + span - lba, lba, false);
	return rc;
}

static int write_span(struct namespace *n, struct strait_nvme_map *m, const void *buf, uint64_t off, uint64_t len)
{
	const uint64_t lba = (uint64_t)1 << n->lba_shift;
	uint64_t first = align_down(off, lba), span = align_up(off + len, lba) - first;
	unsigned int partial = edges(n, off, len);
	struct range_lock h;
	int rc = 0;

	range_lock_get(n, &h, first, span, partial);
	if (partial)
		rc = read_edges(n, m, first, span, off, len);
	if (!rc) {
		memcpy((char *)m->host + (off - first), buf, len);
		rc = run(n, m, 0, first, span, true);
	}
	range_lock_put(n, &h);
	if (!rc) {
		count(&n->edge_writes, partial);
		count(&n->bounced_bytes, len);
	}
	return rc;
}

ssize_t namespace_write(struct strait_endpoint *ep, enum io_mode mode, const void *buf, size_t len, uint64_t off)
{
	struct namespace *n = to_namespace(ep);
	const uint64_t lba = (uint64_t)1 << n->lba_shift;
	struct strait_nvme_map *m;
	uint64_t length;
	size_t done = 0;
	int rc = namespace_look(n, &length);

	if (rc)
		return rc;
	if (off >= length)
		return -ENOSPC;
	len = min_u64(len, length - off);
	m = nvme_bounce_get(n->ctrl);
	if (!m)
		return -ENOMEM;
	while (!rc && done < len) {
		uint64_t part = min_u64(len - done, m->length - (off + done) % lba);

		rc = write_span(n, m, (const char *)buf + done, off + done, part);
		if (!rc)
			done += part;
	}
	nvme_bounce_put(n->ctrl, m);
	return done ? (ssize_t)done : rc;
}
