/* SPDX-License-Identifier: MIT */
/*
 * The host's copy of a mapping. Of a file it is the page cache, which the library reads and writes by pread(2) and
 * pwrite(2): neither raises SIGBUS, and the kernel's tracking of stores by the CPU does not see them. Private and anonymous
 * memory has no other name than its address; process_vm_readv(2) and process_vm_writev(2) fail where an access would raise
 * SIGBUS.
 */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/copy.h"
#include "os/os.h"

static int map_tracking(struct strait_mapping *m)
{
	uint64_t chunks = m->end / CHUNK_GRANULES - m->first / CHUNK_GRANULES + 1;
	void *twin;
	int rc;

	m->tracking = STRAIT_TRACKING_NONE;
	if (m->flags & STRAIT_MAPPING_READ_ONLY)
		return 0;
	if (!(m->flags & STRAIT_MAPPING_COMPARE) && !os_track_open(&m->track, m->addr, m->map_len)) {
		m->tracking = STRAIT_TRACKING_SCAN;
		m->armed = calloc(chunks, 1);
		return m->armed ? 0 : -ENOMEM;
	}
	m->tracking = STRAIT_TRACKING_COMPARE;
	rc = os_map_user(-1, 0, (m->end - m->first) << GRANULE_SHIFT, false, true, &twin);
	if (rc)
		return rc;
	m->twin = twin;
	m->twin_writers = calloc(m->end - m->first, sizeof(*m->twin_writers));
	return m->twin_writers ? 0 : -ENOMEM;
}

static int map_host(struct strait_mapping *m, bool write)
{
	void *addr;
	int rc = os_map_user(m->ep ? m->ep->ops->fd(m->ep, IO_BUFFERED) : -1, m->offset, m->map_len, !map_is_private(m),
			     write, &addr);

	if (!rc)
		m->host = addr;
	return rc;
}

/* Memory for copies, and the host's bytes to read. Any error but -ENOMEM: the kernel does not allow it. */
static int map_copy(struct strait_mapping *m)
{
	int rc;

	if (m->ep && !endpoint_has_file(m->ep))
		return copy_map(m, true);
	rc = map_host(m, map_is_private(m));
	if (rc)
		return rc;
	rc = copy_map(m, m->flags & STRAIT_MAPPING_COMPARE);
	if (rc) {
		os_unmap(m->host, m->map_len);
		m->host = NULL;
	}
	return rc;
}

int host_map(struct strait_mapping *m)
{
	bool file = !m->ep || endpoint_has_file(m->ep);
	int rc;

	m->track.uffd = m->track.pagemap = -1;
	m->map_len = align_up(m->length, os_page_size());
	if (m->flags & STRAIT_MAPPING_COPY || !file) {
		rc = map_copy(m);
		if (!rc || rc == -ENOMEM || !file)
			return rc;
	}
	rc = map_host(m, !(m->flags & STRAIT_MAPPING_READ_ONLY));
	if (rc)
		return rc;
	m->addr = m->host;
	rc = map_tracking(m);
	if (rc)
		host_unmap(m);
	return rc;
}

void host_unmap(struct strait_mapping *m)
{
	if (m->copy)
		copy_unmap(m);
	os_track_close(&m->track);
	free(m->armed);
	free(m->twin_writers);
	if (m->twin)
		os_unmap(m->twin, (m->end - m->first) << GRANULE_SHIFT);
	os_unmap(m->host, m->map_len);
	m->addr = m->host = m->twin = NULL;
	m->armed = NULL;
	m->twin_writers = NULL;
}

/* The sandbox does not allow process_vm_readv(2): memory without a file cannot raise SIGBUS and is accessed as it is. */
static bool may_access(const struct strait_mapping *m, ssize_t rc)
{
	return !m->ep && (rc == -EPERM || rc == -ENOSYS);
}

static ssize_t read_some(struct strait_mapping *m, uint64_t g, uint64_t done, char *buf, uint64_t len)
{
	ssize_t n;

	if (!map_is_private(m))
		return m->ep->ops->read(m->ep, IO_BUFFERED, buf, len, granule_offset(g) + done);
	n = os_vm_read(buf, host_ptr(m, g) + done, len);
	if (may_access(m, n)) {
		memcpy(buf, host_ptr(m, g) + done, len);
		return (ssize_t)len;
	}
	return n;
}

int host_read(struct strait_mapping *m, uint64_t g, uint64_t n, char *buf, uint64_t *good)
{
	uint64_t len = n << GRANULE_SHIFT, done = 0, part;
	ssize_t rc = 1;

	/* A private mapping ends with its last page. */
	if (map_is_private(m))
		len = min_u64(len, m->map_len - ((g - m->first) << GRANULE_SHIFT));
	while (done < len && rc > 0) {
		rc = read_some(m, g, done, buf + done, len - done);
		if (rc > 0)
			done += (uint64_t)rc;
	}
	part = rc < 0 ? 0 : -done % GRANULE_BYTES;
	memset(buf + done, 0, part);
	*good = min_u64((done + part) >> GRANULE_SHIFT, n);
	if (*good == n)
		return 0;
	return rc < 0 ? (int)rc : -EFAULT;
}

static ssize_t write_some(struct strait_mapping *m, uint64_t g, uint64_t done, const char *buf, uint64_t len)
{
	ssize_t n;

	if (!map_is_private(m))
		return m->ep->ops->write(m->ep, IO_BUFFERED, buf, len, granule_offset(g) + done);
	n = os_vm_write(host_ptr(m, g) + done, buf, len);
	if (may_access(m, n)) {
		memcpy(host_ptr(m, g) + done, buf, len);
		return (ssize_t)len;
	}
	return n;
}

/* Bytes of [g, g + n) before the end of what can be written. */
static int writable_bytes(struct strait_mapping *m, uint64_t g, uint64_t n, uint64_t *len)
{
	uint64_t end, off = granule_offset(g);
	int rc;

	*len = n << GRANULE_SHIFT;
	if (map_is_private(m)) {
		*len = min_u64(*len, m->map_len - ((g - m->first) << GRANULE_SHIFT));
		return 0;
	}
	rc = m->ep->ops->length(m->ep, &end);
	if (!rc)
		*len = end > off ? min_u64(*len, end - off) : 0;
	return rc;
}

/* The library's own stores to private memory are not the CPU's. */
static void protect_again(struct strait_mapping *m, uint64_t g, uint64_t n)
{
	struct page_span p = page_span((uintptr_t)host_ptr(m, g), n << GRANULE_SHIFT, os_page_size());

	os_track_protect(&m->track, (void *)(uintptr_t)p.start, p.length);
}

int host_write(struct strait_mapping *m, uint64_t g, uint64_t n, const char *buf)
{
	uint64_t len, done = 0;
	ssize_t rc;

	rc = writable_bytes(m, g, n, &len);
	if (rc)
		return (int)rc;
	while (done < len) {
		rc = write_some(m, g, done, buf + done, len - done);
		if (rc <= 0)
			return rc < 0 ? (int)rc : -EIO;
		done += (uint64_t)rc;
	}
	if (map_is_private(m) && m->tracking == STRAIT_TRACKING_SCAN && !m->copy)
		protect_again(m, g, n);
	return 0;
}
