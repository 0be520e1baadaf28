/* SPDX-License-Identifier: MIT */
/* Synchronous reads and writes. */
#include "file.h"
#include "mem.h"
#include "stats.h"

#include <limits.h>
#include <sys/uio.h>

/* Return: bytes, or a negative errno or CUfileOpError. */
static ssize_t transfer_run(struct cf_file *f, uint32_t op, const void *base, size_t size, off_t file_off,
			    off_t buf_off)
{
	uint64_t start = cf_now_ns(), offset;
	struct strait_result r = { 0 };
	struct cf_mem *m;
	int rc;

	for (int tries = 0;; tries++) {
		struct strait_transfer t = { .op = op, .routes = cf.routes, .endpoint = f->ep };

		rc = cf_mem_get(base, buf_off, size, 0, &m, &offset);
		if (rc)
			return rc == -EFAULT ? -EIO : rc > 0 ? -rc : rc;
		t.region = m->region;
		t.endpoint_offset = (uint64_t)file_off;
		t.region_offset = offset + (uint64_t)buf_off;
		t.length = size;
		rc = strait_transfer_run(&t, STRAIT_FOREVER, &r);
		if ((rc != -ESTALE && rc != -ENODEV) || tries == CF_MEM_TRIES || !cf_mem_stale(m))
			break;
		cf_mem_put(m, 1);
	}
	cf_run_stats_add(op, rc ? rc : (int64_t)r.bytes, r.route_bytes);
	cf_stat_io(op, rc ? rc : (int64_t)r.bytes, cf_now_ns() - start, m, r.routes,
		   (uint64_t)file_off | (uint64_t)buf_off | size);
	cf_mem_put(m, 1);
	return rc ? rc : (ssize_t)r.bytes;
}

static ssize_t transfer_sync(CUfileHandle_t fh, uint32_t op, const void *base, size_t size, off_t file_off,
			     off_t buf_off)
{
	struct cf_file *f;
	ssize_t n;

	if (!fh || !base)
		return cf_fail(EINVAL);
	if (file_off < 0)
		return cf_fail(CU_FILE_INVALID_VALUE);
	if (buf_off < 0)
		return cf_fail(CU_FILE_INTERNAL_ERROR);
	f = cf_file_get(fh);
	if (!f)
		return cf_fail(CU_FILE_HANDLE_NOT_REGISTERED);
	n = !size ? 0 : size > SSIZE_MAX ? -EINVAL : transfer_run(f, op, base, size, file_off, buf_off);
	cf_file_put(f, 1);
	/* Not open for this kind of access: the errors of NVIDIA's library. */
	if (n == -EBADF)
		n = op == STRAIT_READ ? -CU_FILE_INVALID_FILE_OPEN_FLAG : -EIO;
	return n < 0 ? cf_fail((int)-n) : n;
}

CF_API ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t size, off_t file_offset, off_t buf_offset)
{
	return transfer_sync(fh, STRAIT_READ, base, size, file_offset, buf_offset);
}

CF_API ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t size, off_t file_offset, off_t buf_offset)
{
	return transfer_sync(fh, STRAIT_WRITE, base, size, file_offset, buf_offset);
}

/* In order, and stopping at a short piece or an error, so that what was transferred is a prefix. */
static ssize_t transfer_vector(CUfileHandle_t fh, uint32_t op, const CUfileIOVec_t *iov, size_t n, off_t off,
			       unsigned int flags)
{
	uint64_t start = cf_now_ns();
	ssize_t sum = 0;
	size_t total = 0;

	if (!fh || !iov || !n || n > IOV_MAX || flags)
		return cf_fail(EINVAL);
	for (size_t i = 0; i < n; i++)
		if (__builtin_add_overflow(total, iov[i].len, &total) || total > SSIZE_MAX ||
		    (!iov[i].base && iov[i].len))
			return cf_fail(EINVAL);
	for (size_t i = 0; i < n; i++) {
		ssize_t part;

		if (!iov[i].len)
			continue;
		part = transfer_sync(fh, op, iov[i].base, iov[i].len, off + sum, 0);
		if (part < 0) {
			sum = sum ? sum : -1;
			break;
		}
		sum += part;
		if ((size_t)part < iov[i].len)
			break;
	}
	cf_stat_vector(op, sum, cf_now_ns() - start);
	return sum;
}

CF_API ssize_t cuFileReadv(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset,
			   unsigned int flags)
{
	return transfer_vector(fh, STRAIT_READ, iov, iovcnt, file_offset, flags);
}

CF_API ssize_t cuFileWritev(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset,
			    unsigned int flags)
{
	return transfer_vector(fh, STRAIT_WRITE, iov, iovcnt, file_offset, flags);
}
