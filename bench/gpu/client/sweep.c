/* SPDX-License-Identifier: MIT */
/* Synchronous calls at random offsets of cached files, in every combination of what programs vary. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

#define MOST_THREADS 16
#define LARGEST (16u * MIB)
#define OWN_BYTES (256ull * MIB) /* of a file per thread */
#define WRITTEN_BYTES (256ull * MIB)
_Static_assert(SWEEP_BYTES >= (uint64_t)MOST_THREADS * LARGEST, "each thread has a part of the memory");

static const unsigned int thread_counts[] = { 1, 4, 8, 16 };
static const size_t blocks[] = { 4 * KIB, 64 * KIB, 256 * KIB, 1 * MIB, 4 * MIB, LARGEST };

struct cell {
	unsigned int threads;
	size_t block;
	bool write;
	int flags;
	const char *opened;
	bool registered, own;
};

struct mover {
	struct client *c;
	const struct cell *cell;
	void *handle;
	uint64_t length; /* of its file */
	uint64_t at, seed, off, done;
	bool failed;
};

static const char *only[8];
static unsigned int nonly;

void sweep_only(const char *text)
{
	if (nonly < sizeof(only) / sizeof(only[0]))
		only[nonly++] = text;
}

static char *cells; /* the names of the cells to measure, each between line feeds; NULL: all of them */

int sweep_cells(const char *path)
{
	FILE *f = fopen(path, "r");
	size_t room = 0;

	if (!f)
		return errno;
	/* A separator that cannot occur: the whole file is one record. */
	if (getdelim(&cells, &room, '\0', f) < 0) {
		free(cells);
		cells = NULL;
	}
	fclose(f);
	return cells ? 0 : EINVAL;
}

static bool listed(const char *name)
{
	char line[160];

	snprintf(line, sizeof(line), "\n%s\n", name);
	return !cells || strstr(cells, line);
}

static bool wanted(const char *name)
{
	for (unsigned int i = 0; i < nonly; i++)
		if (!strstr(name, only[i]))
			return false;
	return listed(name);
}

static pthread_barrier_t together;
static double ends;

static bool move_one(struct mover *m)
{
	m->off = next_offset(&m->seed, m->length, m->cell->block);
	m->failed = m->c->backend->move(m->c, m->handle, m->cell->write, m->off, m->at, m->cell->block) !=
		    (ssize_t)m->cell->block;
	return !m->failed;
}

static void *run_mover(void *arg)
{
	struct mover *m = arg;

	cuda_attach();
	for (int i = 0; i < 4 && move_one(m); i++)
		;			 /* the first use is not part of it */
	pthread_barrier_wait(&together); /* the clock starts between the two */
	pthread_barrier_wait(&together);
	while (!m->failed && now() < ends && move_one(m))
		m->done += m->cell->block;
	return NULL;
}

static void path_of(const struct client *c, const struct cell *cell, unsigned int i, char *path, size_t room)
{
	const char *kind = cell->write ? ".written" : "";

	if (cell->own)
		snprintf(path, room, "%s.%u%s", c->path, i, kind);
	else
		snprintf(path, room, "%s%s", c->path, kind);
}

static uint64_t length_of(const struct client *c, const struct cell *cell)
{
	if (cell->write)
		return cell->own ? WRITTEN_BYTES / 8 : WRITTEN_BYTES;
	return cell->own ? OWN_BYTES : c->length;
}

static void *open_handle(struct client *c, const struct cell *cell, unsigned int i)
{
	char path[4096];

	path_of(c, cell, i, path, sizeof(path));
	/* Each measurement of writes begins with a new file: what was written how decides how its pages are cached. */
	if (cell->write)
		unlink(path);
	if (access(path, F_OK) && make_file(path, length_of(c, cell)))
		return NULL;
	return c->backend->handle_open(c, path, cell->flags);
}

/* Did the last transfer of a thread arrive? */
static bool arrived(const struct mover *m, unsigned int i)
{
	unsigned char *buf;
	char path[4096];
	bool ok;
	int fd;

	if (!m->cell->write)
		return right(m->c, m->off, m->at, m->cell->block);
	path_of(m->c, m->cell, i, path, sizeof(path));
	buf = malloc(m->cell->block);
	fd = open(path, O_RDONLY);
	ok = buf && fd >= 0 && pread(fd, buf, m->cell->block, (off_t)m->off) == (ssize_t)m->cell->block &&
	     buf[0] == FILLED && !memcmp(buf, buf + 1, m->cell->block - 1);
	if (fd >= 0)
		close(fd);
	free(buf);
	return ok;
}

static struct sample run_cell(struct client *c, const struct cell *cell, bool *ok)
{
	struct mover m[MOST_THREADS];
	pthread_t th[MOST_THREADS];
	struct sample s = { 0 };
	uint64_t done = 0;
	double cpu, start, t;

	memset(m, 0, sizeof(m));
	for (unsigned int i = 0; i < cell->threads && *ok; i++) {
		m[i] = (struct mover){
			.c = c, .cell = cell, .length = length_of(c, cell), .at = (uint64_t)i * LARGEST, .seed = 100 + i
		};
		m[i].handle = !i || cell->own ? open_handle(c, cell, i) : m[0].handle;
		*ok = m[i].handle;
	}
	if (*ok) {
		cuda_fill(c->memory, (size_t)MOST_THREADS * LARGEST);
		pthread_barrier_init(&together, NULL, cell->threads + 1);
		for (unsigned int i = 0; i < cell->threads; i++)
			pthread_create(&th[i], NULL, run_mover, &m[i]);
		pthread_barrier_wait(&together);
		cpu = cpu_seconds();
		start = now();
		ends = start + seconds;
		pthread_barrier_wait(&together);
		for (unsigned int i = 0; i < cell->threads; i++)
			pthread_join(th[i], NULL);
		t = now() - start;
		cpu = cpu_seconds() - cpu;
		pthread_barrier_destroy(&together);
		for (unsigned int i = 0; i < cell->threads; i++) {
			done += m[i].done;
			*ok = *ok && !m[i].failed && arrived(&m[i], i);
		}
		s = (struct sample){ (double)done / t / 1e9, cpu / t };
	}
	for (unsigned int i = 0; i < cell->threads; i++)
		if (m[i].handle && (!i || cell->own))
			c->backend->handle_close(m[i].handle);
	return s;
}

static void measure_cell(struct client *c, const struct cell *cell)
{
	char name[128], size[32];
	struct sample best = { 0 };
	bool ok = true;

	if (cell->block < MIB)
		snprintf(size, sizeof(size), "%zu KiB", cell->block / KIB);
	else
		snprintf(size, sizeof(size), "%zu MiB", cell->block / MIB);
	snprintf(name, sizeof(name), "%-5s %7s x%-2u %-6s %s, %s", cell->write ? "write" : "read", size, cell->threads,
		 cell->opened, cell->registered ? "registered" : "not registered",
		 cell->own ? "own files" : "one file");
	if (!wanted(name))
		return;
	for (int i = 0; i < rounds && ok; i++)
		keep_best(&best, run_cell(c, cell, &ok));
	row(name, best.rate, "GB/s", best.cores, ok);
}

void sweep(struct client *c, bool quick)
{
	static const struct {
		const char *name;
		int flags;
		bool write;
	} how[] = { { "rdonly", O_RDONLY, false },
		    { "rdwr", O_RDWR, false },
		    { "direct", O_RDONLY | O_DIRECT, false },
		    { "rdwr", O_RDWR, true },
		    { "direct", O_RDWR | O_DIRECT, true } };

	for (int registered = 1; registered >= (quick ? 1 : 0); registered--) {
		if (c->backend->register_memory(c, registered)) {
			row("registering the memory", 0, "GB/s", 0, false);
			continue;
		}
		for (int own = 0; own <= (quick ? 0 : 1); own++)
			for (size_t h = 0; h < sizeof(how) / sizeof(how[0]); h++)
				for (size_t b = 0; b < sizeof(blocks) / sizeof(blocks[0]); b++)
					for (size_t t = 0; t < sizeof(thread_counts) / sizeof(thread_counts[0]); t++) {
						struct cell cell = {
							thread_counts[t], blocks[b],  how[h].write, how[h].flags,
							how[h].name,	  registered, own
						};

						measure_cell(c, &cell);
					}
	}
}
