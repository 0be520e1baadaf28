/* SPDX-License-Identifier: MIT */
/* Whole files, in large blocks. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "client.h"

struct part {
	struct client *c;
	move_fn *move;
	uint64_t from, to;
	size_t block;
	bool failed;
};

static void *move_part(void *arg)
{
	struct part *p = arg;

	cuda_attach();
	for (uint64_t off = p->from; off < p->to && !p->failed;) {
		size_t len = p->to - off < p->block ? (size_t)(p->to - off) : p->block;
		ssize_t n = p->move(p->c, off, off, len);

		p->failed = n <= 0;
		off += n > 0 ? (uint64_t)n : 0;
	}
	return NULL;
}

/* Transfers the first @length bytes of the file once. The rate is 0 if that failed. */
struct sample move_all(struct client *c, move_fn *move, uint64_t length, unsigned int threads, size_t block)
{
	struct part p[THREADS];
	pthread_t th[THREADS];
	double cpu = cpu_seconds(), start = now(), t;
	bool failed = false;

	for (unsigned int i = 0; i < threads; i++) {
		p[i] = (struct part){ c, move, length / threads * i, length / threads * (i + 1), block, false };
		pthread_create(&th[i], NULL, move_part, &p[i]);
	}
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(th[i], NULL);
		failed |= p[i].failed;
	}
	t = now() - start;
	cpu = (cpu_seconds() - cpu) / t;
	return failed ? (struct sample){ 0 } : (struct sample){ (double)length / t / 1e9, cpu };
}

void keep_best(struct sample *best, struct sample s)
{
	if (s.rate > best->rate)
		*best = s;
}

void sequential(struct client *c, const char *name, unsigned int threads)
{
	static const size_t blocks[] = { 16u * MIB, 256u * MIB, 1024u * MIB };
	struct sample best = { 0 };

	cuda_fill(c->memory, c->length);
	for (int i = 0; i < rounds; i++)
		for (size_t b = 0; b < sizeof(blocks) / sizeof(blocks[0]); b++)
			keep_best(&best, move_all(c, c->backend->read, c->length, threads, blocks[b]));
	row(name, best.rate, "GB/s", best.cores, best.rate > 0 && right(c, 0, 0, c->length));
}

uint64_t drive_bytes(const struct client *c)
{
	return c->length < 2048ull * MIB ? c->length : 2048ull * MIB;
}

/* Reads from the drive: nothing of the file is in the page cache. */
void cold(struct client *c, const char *name)
{
	uint64_t length = drive_bytes(c);
	int fd = open(c->path, O_RDONLY);
	struct sample best = { 0 };
	bool ok = fd >= 0 && !c->backend->file(c, c->path, O_RDONLY | O_DIRECT);

	cuda_fill(c->memory, length);
	for (int i = 0; i < rounds && ok; i++)
		for (unsigned int threads = 1; threads <= THREADS; threads *= THREADS)
			for (size_t block = 16u * MIB; block <= 1024u * MIB; block *= 64) {
				drop_cache(fd);
				keep_best(&best, move_all(c, c->backend->read, length, threads, block));
			}
	row(name, best.rate, "GB/s", best.cores, ok && best.rate > 0 && right(c, 0, 0, length));
	if (fd >= 0)
		close(fd);
}

/* Overwrites a file of its own in place. */
void writes(struct client *c, const char *name, bool direct)
{
	uint64_t length = drive_bytes(c);
	struct sample best = { 0 };
	char path[4096];
	bool ok;

	snprintf(path, sizeof(path), "%s.written", c->path);
	unlink(path);
	ok = !make_file(path, length) && !c->backend->file(c, path, O_RDWR | (direct ? O_DIRECT : 0));
	cuda_fill(c->memory, length);
	for (int i = 0; i < rounds && ok; i++)
		for (unsigned int threads = 1; threads <= 4; threads += 3)
			for (size_t block = 16u * MIB; block <= 1024u * MIB; block *= 64)
				keep_best(&best, move_all(c, c->backend->write, length, threads, block));
	row(name, best.rate, "GB/s", best.cores, ok && best.rate > 0 && was_written(path, length));
	unlink(path);
}
