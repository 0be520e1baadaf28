/* SPDX-License-Identifier: MIT */
/* Operations of a file endpoint. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "endpoint/file/file.h"
#include "os/os.h"

#define ASK_AFTER_MISS 64

static struct file *to_file(struct strait_endpoint *ep)
{
	return container_of(ep, struct file, ep);
}

static int file_length(struct strait_endpoint *ep, uint64_t *bytes)
{
	struct file *f = to_file(ep);
	struct stat st;
	int rc;

	if (ep->facts.is_block)
		return os_block_size(f->fd, bytes);
	rc = os_fstat(f->fd, &st);
	if (rc)
		return rc;
	*bytes = (uint64_t)st.st_size;
	return 0;
}

static int file_cached(struct strait_endpoint *ep, uint64_t off, uint64_t len, uint64_t *bytes)
{
	return os_cached_bytes(to_file(ep)->fd, off, len, bytes);
}

static int file_fd(struct strait_endpoint *ep, enum io_mode mode)
{
	struct file *f = to_file(ep);

	return mode == IO_DIRECT ? f->fd_direct : f->fd;
}

/* Reader descriptors of all files, limited to a part of RLIMIT_NOFILE: the application needs descriptors, too. */
static atomic_uint n_readers;

static void reader_close(int fd)
{
	if (fd <= 0)
		return;
	os_close(fd);
	atomic_fetch_sub_explicit(&n_readers, 1, memory_order_relaxed);
}

static int reader_open(struct file *f)
{
	unsigned int n = atomic_fetch_add_explicit(&n_readers, 1, memory_order_relaxed);
	int fd = n < os_descriptor_limit() / 4 ? os_reopen(f->fd, O_RDONLY) : -EMFILE;

	if (!fd) { /* 0 means "not opened yet" */
		os_close(fd);
		fd = -EMFILE;
	}
	if (fd < 0)
		atomic_fetch_sub_explicit(&n_readers, 1, memory_order_relaxed);
	return fd;
}

/* The calling thread's descriptor for buffered reads. */
static int reader_fd(struct file *f)
{
	unsigned int slot = os_thread_slot() % FILE_READERS;
	int fd, none = 0;

	/* The first thread, often the only one, uses f->fd. */
	if (!slot)
		return f->fd;
	fd = atomic_load_explicit(&f->reader[slot], memory_order_acquire);
	if (fd)
		return fd > 0 ? fd : f->fd;
	fd = reader_open(f);
	if (!atomic_compare_exchange_strong(&f->reader[slot], &none, fd < 0 ? -1 : fd)) {
		reader_close(fd);
		fd = none;
	}
	return fd > 0 ? fd : f->fd;
}

static ssize_t file_read(struct strait_endpoint *ep, enum io_mode mode, void *buf, size_t len, uint64_t off)
{
	struct file *f = to_file(ep);

	return os_pread(mode == IO_DIRECT ? f->fd_direct : reader_fd(f), buf, len, off);
}

/* Is every page of the range in the page cache? True if that is unknown. */
static bool in_memory(struct file *f, uint64_t off, size_t len)
{
	uint64_t page = os_page_size(), start = align_down(off, page);
	uint64_t span = align_up(off + len, page) - start, bytes;

	return file_cached(&f->ep, start, span, &bytes) || bytes >= span;
}

/*
 * RWF_NOWAIT starts readahead of missing pages. If the caller then reads them by direct I/O, the drive reads them
 * twice. So after a miss the next reads check the page cache before they try.
 */
static ssize_t file_read_cached(struct strait_endpoint *ep, void *buf, size_t len, uint64_t off)
{
	struct file *f = to_file(ep);
	unsigned int ask = atomic_load_explicit(&f->ask, memory_order_relaxed), next;
	ssize_t n;

	if (!atomic_load_explicit(&f->read_nowait, memory_order_relaxed))
		return -EOPNOTSUPP;
	n = ask && !in_memory(f, off, len) ? -EAGAIN : os_pread_cached(reader_fd(f), buf, len, off);
	if (n == -EOPNOTSUPP)
		atomic_store_explicit(&f->read_nowait, false, memory_order_relaxed);
	if (n == -EAGAIN && f->fd_direct >= 0)
		next = ASK_AFTER_MISS;
	else
		next = ask ? ask - 1 : 0;
	if (next != ask)
		atomic_store_explicit(&f->ask, next, memory_order_relaxed);
	return n;
}

static ssize_t file_write(struct strait_endpoint *ep, enum io_mode mode, const void *buf, size_t len, uint64_t off)
{
	return os_pwrite(file_fd(ep, mode), buf, len, off);
}

static int file_map(struct strait_endpoint *ep, uint64_t off, size_t len, void **ret)
{
	return os_map_file(to_file(ep)->fd, off, len, ret);
}

static bool file_unchanged(struct strait_endpoint *ep)
{
	struct file *f = to_file(ep);

	if (ep->facts.immutable)
		return true;
	return f->fd_lease >= 0 && os_lease_held(f->fd_lease);
}

static int file_lease(struct strait_endpoint *ep, int tid)
{
	struct file *f = to_file(ep);
	int fd, rc;

	/* A read lease needs a read-only descriptor, and the file must not be open for writing anywhere. */
	fd = os_reopen(f->fd, O_RDONLY);
	if (fd < 0)
		return fd;
	rc = os_lease_take(fd, tid);
	if (rc) {
		os_close(fd);
		return rc;
	}
	f->fd_lease = fd;
	return 0;
}

static void file_unlease(struct strait_endpoint *ep)
{
	struct file *f = to_file(ep);

	if (f->fd_lease >= 0)
		os_lease_drop(f->fd_lease);
}

static int file_sync(struct strait_endpoint *ep)
{
	return os_fdatasync(to_file(ep)->fd);
}

static void file_destroy(struct strait_endpoint *ep)
{
	struct file *f = to_file(ep);

	for (int i = 0; i < FILE_READERS; i++)
		reader_close(atomic_load_explicit(&f->reader[i], memory_order_relaxed));
	os_close(f->fd_lease);
	os_close(f->fd_direct);
	os_close(f->fd);
	free(f);
}

const struct endpoint_ops file_endpoint_ops = {
	.kind = "file",
	.length = file_length,
	.cached = file_cached,
	.read = file_read,
	.read_cached = file_read_cached,
	.write = file_write,
	.fd = file_fd,
	.map = file_map,
	.unchanged = file_unchanged,
	.lease = file_lease,
	.unlease = file_unlease,
	.sync = file_sync,
	.destroy = file_destroy,
};
