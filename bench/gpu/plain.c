/* SPDX-License-Identifier: MIT */
/* The limits of the machine: plain system calls and CUDA copies. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

struct sample plain_copy_limit(struct bench *b)
{
	static void *src; /* for all rounds */
	size_t len = b->length < 1u << 30 ? b->length : 1u << 30;
	double cpu, start, t;

	if (!src) {
		src = cuda_pinned(len);
		if (!src)
			die("pinned memory", ENOMEM);
		memset(src, 1, len);
	}
	cpu = cpu_seconds();
	start = now();
	for (int k = 0; k < 8; k++)
		if (cuda_copy_in(b->addr, src, len))
			die("copy", EIO);
	t = now() - start;
	return (struct sample){ 8.0 * (double)len / t / GB, (cpu_seconds() - cpu) / t, 0 };
}

void plain_drop_cache(const char *path)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0 || fdatasync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		die(path, errno);
	close(fd);
}

/* Written sequentially, as copying or downloading does: that determines the folios of the page cache. */
void plain_make_file(const char *path, uint64_t length)
{
	uint64_t *buf = malloc(4u * MIB);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || !buf)
		die(path, errno);
	for (uint64_t off = 0; off < length; off += 4u * MIB) {
		for (size_t i = 0; i < 4u * MIB / 8; i++) {
			uint64_t x = off + i * 8 + 1;

			x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
			x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
			buf[i] = x ^ (x >> 31);
		}
		if (pwrite(fd, buf, 4u * MIB, (off_t)off) != (ssize_t)(4u * MIB))
			die("write", errno);
	}
	if (fdatasync(fd))
		die(path, errno);
	free(buf);
	close(fd);
}

void plain_warm_cache(struct bench *b)
{
	int fd = open(b->path, O_RDONLY);
	char *buf = malloc(16u * MIB);

	if (fd < 0 || !buf)
		die(b->path, errno);
	for (uint64_t off = 0; off < b->length; off += 16u * MIB)
		if (pread(fd, buf, 16u * MIB, (off_t)off) < 0)
			die(b->path, errno);
	free(buf);
	close(fd);
}

static struct sample uring_once(struct bench *b, char *buf, unsigned int depth, size_t block)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	uint64_t off = 0, done = 0;
	unsigned int flying = 0;
	double start, cpu, t;
	int fd;

	plain_drop_cache(b->path);
	fd = open(b->path, O_RDONLY | O_DIRECT);
	if (fd < 0)
		die(b->path, errno);
	cpu = cpu_seconds();
	start = now();
	if (io_uring_queue_init(depth, &ring, 0))
		die("io_uring", ENOSYS);
	while (done < b->length) {
		while (flying < depth && off < b->length) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

			io_uring_prep_read(sqe, fd, buf + off % (depth * block), (unsigned int)block, off);
			off += block;
			flying++;
		}
		io_uring_submit_and_wait(&ring, 1);
		while (!io_uring_peek_cqe(&ring, &cqe)) {
			if (cqe->res <= 0)
				die("read", cqe->res ? -cqe->res : EIO);
			done += (uint64_t)cqe->res;
			io_uring_cqe_seen(&ring, cqe);
			flying--;
		}
	}
	t = now() - start;
	io_uring_queue_exit(&ring);
	close(fd);
	return (struct sample){ (double)b->length / t / GB, (cpu_seconds() - cpu) / t, 0 };
}

struct sample plain_uring_read(struct bench *b)
{
	static const struct {
		unsigned int depth;
		size_t block;
	} shape[] = { { 4, 4u * MIB }, { 16, MIB }, { 32, MIB }, { 64, MIB / 2 } };
	struct sample best = { 0 };
	char *buf = mmap(NULL, 64u * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	for (size_t w = 0; w < sizeof(shape) / sizeof(shape[0]); w++)
		keep_best(&best, uring_once(b, buf, shape[w].depth, shape[w].block));
	munmap(buf, 64u * MIB);
	return best;
}

#define SOURCE ((size_t)1 << 30) /* larger than the CPU caches, so that the bytes come from memory */

/* Overwrite of the file in place: buffered by one thread, or direct with requests in flight. */
static double write_once(struct bench *b, char *buf, bool direct, unsigned int depth, size_t block)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	uint64_t off = 0, done = 0;
	unsigned int flying = 0;
	double start;
	int fd = open(b->written, O_WRONLY | (direct ? O_DIRECT : 0));

	if (fd < 0)
		die(b->written, errno);
	start = now();
	if (!direct) {
		for (off = 0; off < b->length; off += block)
			if (pwrite(fd, buf + off % SOURCE, block, (off_t)off) != (ssize_t)block)
				die("write", errno);
		close(fd);
		return now() - start;
	}
	if (io_uring_queue_init(depth, &ring, 0))
		die("io_uring", ENOSYS);
	while (done < b->length) {
		while (flying < depth && off < b->length) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

			io_uring_prep_write(sqe, fd, buf + off % SOURCE, (unsigned int)block, off);
			off += block;
			flying++;
		}
		io_uring_submit_and_wait(&ring, 1);
		while (!io_uring_peek_cqe(&ring, &cqe)) {
			if (cqe->res <= 0)
				die("write", cqe->res ? -cqe->res : EIO);
			done += (uint64_t)cqe->res;
			io_uring_cqe_seen(&ring, cqe);
			flying--;
		}
	}
	io_uring_queue_exit(&ring);
	close(fd);
	return now() - start;
}

struct sample plain_write(struct bench *b, bool direct)
{
	char *buf = mmap(NULL, SOURCE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	struct sample best = { 0 };

	memset(buf, 0x5a, SOURCE);
	for (int i = 0; i < 2; i++) {
		double t = direct ? write_once(b, buf, true, i ? 16 : 4, i ? MIB : 4u * MIB) :
				    write_once(b, buf, false, 1, i ? 4u * MIB : MIB);

		keep_best(&best, (struct sample){ (double)b->length / t / GB, 0, 0 });
	}
	munmap(buf, SOURCE);
	return best;
}
