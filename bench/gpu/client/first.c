/* SPDX-License-Identifier: MIT */
/*
 * What a program meets first: its first read, a file just opened, a file open for reading and writing, many files. Each
 * measurement has a process of its own, of which bench/gpu/first-byte makes a table.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

#define FILES 64

static bool read_whole(struct client *c)
{
	ssize_t n = 1;

	for (uint64_t done = 0; n > 0 && done<c->length; done += n> 0 ? (uint64_t)n : 0)
		n = c->backend->read(c, done, done, (size_t)(c->length - done));
	return n > 0;
}

/* Compares a MiB of every 64. */
static bool right_in_parts(struct client *c)
{
	for (uint64_t off = 0; off < c->length; off += 64ull * MIB)
		if (!right(c, off, off, MIB))
			return false;
	return right(c, c->length - MIB, c->length - MIB, MIB);
}

/* The whole file, in one call if the library takes it: the first read of the process, then later ones. */
static void whole(struct client *c, double opened)
{
	struct sample s[2] = { { 0 } };
	double since = 0;
	bool ok = true;

	cuda_fill(c->memory, c->length);
	for (int i = 0; i <= rounds && ok; i++) {
		double cpu = cpu_seconds(), start = now(), t;

		ok = read_whole(c);
		t = now() - start;
		if (!i)
			since = now() - opened;
		if (ok)
			keep_best(&s[i > 0], (struct sample){ (double)c->length / t / 1e9, (cpu_seconds() - cpu) / t });
		ok = ok && (i || right_in_parts(c));
	}
	row("whole file, first read", s[0].rate, "GB/s", s[0].cores, ok);
	row("whole file, later reads", s[1].rate, "GB/s", s[1].cores, ok);
	row("whole file, opening the library and first read", since * 1e3, "ms", 0, ok);
}

/* 100 batches on a handle just opened for reading; opening and closing count. */
static void fresh(struct client *c, double opened)
{
	enum { BATCHES_EACH = 100 };
	struct sample best = { 0 };
	struct request r[BATCH];
	void *batch = c->backend->batch_open(c, BATCH);
	uint64_t seed = 3;
	bool ok = batch;

	/* The library's first transfers are another row. */
	for (int i = 0; ok && i < 100; i++)
		ok = c->backend->read(c, (uint64_t)i * MIB % c->length, 0, 4096) == 4096;
	for (int i = 0; i < rounds && ok; i++) {
		double cpu = cpu_seconds(), start = now(), t;
		void *handle = c->backend->handle_open(c, c->path, O_RDONLY);

		ok = handle;
		for (int k = 0; ok && k < BATCHES_EACH; k++) {
			for (unsigned int n = 0; n < BATCH; n++)
				r[n] = (struct request){ next_offset(&seed, c->length, 4096), n * 4096ull, 4096, -1,
							 handle };
			ok = !c->backend->batch_run(c, batch, r, BATCH);
		}
		for (unsigned int n = 0; ok && n < BATCH; n++)
			ok = r[n].done == 4096;
		if (handle)
			c->backend->handle_close(handle);
		t = now() - start;
		if (ok)
			keep_best(&best, (struct sample){ BATCH * BATCHES_EACH / t, (cpu_seconds() - cpu) / t });
		for (unsigned int n = 0; ok && n < BATCH; n++)
			ok = right(c, r[n].off, r[n].at, 4096);
	}
	if (batch)
		c->backend->batch_close(batch);
	row("12800 random 4 KiB in batches, handle just opened", best.rate, "ops/s", best.cores, ok);
}

static void use_read_write(struct client *c)
{
	if (c->backend->file(c, c->path, O_RDWR))
		exit(1);
}

static void batches_rw(struct client *c, double opened)
{
	use_read_write(c);
	batches(c, "batches of 128 x 4 KiB, 1 thread, read-write", 1, BATCH);
}

static void queued(struct client *c, double opened)
{
	use_read_write(c);
	batches(c, "batches of 512 x 4 KiB, 8 threads, read-write", THREADS, BATCH_MAX);
}

static void stream_rw(struct client *c, double opened)
{
	use_read_write(c);
	streams(c, "64 ReadAsync of 1 MiB on a stream, read-write", false);
}

static void stream_fixed_rw(struct client *c, double opened)
{
	use_read_write(c);
	streams(c, "64 ReadAsync of 1 MiB on a stream, fixed, read-write", true);
}

static void one(struct client *c, double opened)
{
	latency(c, "4 KiB, one at a time, read-only", 4 * KIB);
}

static void one_rw(struct client *c, double opened)
{
	use_read_write(c);
	latency(c, "4 KiB, one at a time, read-write", 4 * KIB);
}

static void shard_path(const struct client *c, unsigned int i, char *path, size_t n)
{
	snprintf(path, n, "%s.shard%02u", c->path, i);
}

struct maker {
	struct client *c;
	unsigned int index;
	bool ok;
};

static void *make_shards(void *arg)
{
	struct maker *m = arg;
	char path[4096];

	for (unsigned int i = m->index; m->ok && i < FILES; i += THREADS) {
		shard_path(m->c, i, path, sizeof(path));
		m->ok = !make_file(path, m->c->length / FILES);
	}
	return NULL;
}

static bool shards(struct client *c)
{
	struct maker m[THREADS];
	pthread_t th[THREADS];
	bool ok = true;

	for (unsigned int i = 0; i < THREADS; i++) {
		m[i] = (struct maker){ c, i, true };
		pthread_create(&th[i], NULL, make_shards, &m[i]);
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(th[i], NULL);
		ok = ok && m[i].ok;
	}
	return ok;
}

/* Each file is opened, read by one call and closed before the next one. */
static bool read_in_turn(struct client *c, void *batch)
{
	uint64_t each = c->length / FILES;
	char path[4096];
	bool ok = true;

	for (unsigned int i = 0; i < FILES && ok; i++) {
		void *handle;

		shard_path(c, i, path, sizeof(path));
		handle = c->backend->handle_open(c, path, O_RDONLY);
		ok = handle && c->backend->move(c, handle, false, 0, i * each, (size_t)each) == (ssize_t)each;
		if (handle)
			c->backend->handle_close(handle);
	}
	return ok;
}

/* All files are opened, read by one batch, and closed. */
static bool read_queued(struct client *c, void *batch)
{
	struct request r[FILES];
	uint64_t each = c->length / FILES;
	char path[4096];
	bool ok = true;

	for (unsigned int i = 0; i < FILES; i++) {
		shard_path(c, i, path, sizeof(path));
		r[i] = (struct request){ 0, i * each, (size_t)each, -1, c->backend->handle_open(c, path, O_RDONLY) };
		ok = ok && r[i].handle;
	}
	ok = ok && !c->backend->batch_run(c, batch, r, FILES);
	for (unsigned int i = 0; i < FILES; i++) {
		ok = ok && r[i].done == (ssize_t)each;
		if (r[i].handle)
			c->backend->handle_close(r[i].handle);
	}
	return ok;
}

static void files_by(struct client *c, const char *name, bool (*pass)(struct client *c, void *batch))
{
	struct sample s[2] = { { 0 } };
	void *batch = c->backend->batch_open(c, FILES);
	bool ok = batch && shards(c);
	char label[80];

	cuda_fill(c->memory, c->length);
	for (int i = 0; i <= rounds && ok; i++) {
		double cpu = cpu_seconds(), start = now(), t;

		ok = pass(c, batch);
		t = now() - start;
		if (ok)
			keep_best(&s[i > 0], (struct sample){ (double)c->length / t / 1e9, (cpu_seconds() - cpu) / t });
		for (unsigned int k = 0; ok && !i && k < FILES; k++)
			ok = right(c, 0, c->length / FILES * k, MIB);
	}
	if (batch)
		c->backend->batch_close(batch);
	snprintf(label, sizeof(label), "64 files %s, first", name);
	row(label, s[0].rate, "GB/s", s[0].cores, ok);
	snprintf(label, sizeof(label), "64 files %s, later", name);
	row(label, s[1].rate, "GB/s", s[1].cores, ok);
}

static void files(struct client *c, double opened)
{
	files_by(c, "one after the other", read_in_turn);
}

static void files_queued(struct client *c, double opened)
{
	files_by(c, "queued", read_queued);
}

static const struct {
	const char *name;
	void (*run)(struct client *c, double opened);
} rows[] = {
	{ "whole", whole },
	{ "fresh", fresh },
	{ "batches", batches_rw },
	{ "stream", stream_rw },
	{ "stream-fixed", stream_fixed_rw },
	{ "one", one },
	{ "one-rw", one_rw },
	{ "files", files },
	{ "files-queued", files_queued },
	{ "queued", queued },
};

int first_row(struct client *c, const char *name, double opened)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].name, name)) {
			rows[i].run(c, opened);
			return 0;
		}
	fprintf(stderr, "client: no measurement is named %s\n", name);
	return 2;
}
