/* SPDX-License-Identifier: MIT */
/*
 *	bench-cufile-client [--strait] [--cost | --sweep | --sweep-quick | --first ROW] [--only TEXT]... [--cells FILE]
 *			    [--host] [--rounds N] [--seconds S] [--from N] [--limit S] FILE [SIZE_MIB]
 *
 * Creates FILE if it does not exist, and leaves it there. Prints a line for each measurement, "name|value|unit|cores|
 * state", of which bench/gpu/cufile-run makes a table. The bytes are compared with those of the file: if they differ,
 * the state is WRONG and the exit status 3. A measurement that does not end within the limit is HUNG and ends the
 * program with exit status 4; "--from N" continues with the next one.
 *
 * --cost: the cost of the cuFile interface compared with Strait's own, in percent of the rate or in microseconds.
 * --sweep: synchronous calls from 1 to 16 threads, in all sizes, ways to open a file and to pass memory. --only TEXT, as
 * often as wanted: the cells that have all of the texts in their names. --cells FILE: those whose names are lines of it;
 * the first line is empty.
 * --first ROW: one measurement of a process that has just begun, see first.c; the file is expected in the page cache.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

int rounds = 3;
double seconds = 1;
static bool wrong;

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

int say(const char *what, int code)
{
	static int said;

	/* A library that fails every call must not flood the terminal. */
	if (said++ < 20)
		fprintf(stderr, "client: %s: %d%s%s\n", what, code, code > 0 && code < 5000 ? ", " : "",
			code > 0 && code < 5000 ? strerror(code) : "");
	return code ? code : 1;
}

void *symbol(void *lib, const char *name)
{
	void *p = dlsym(lib, name);

	if (!p) {
		fprintf(stderr, "client: the library has no %s\n", name);
		exit(1);
	}
	return p;
}

void row(const char *name, double value, const char *unit, double cores, bool ok)
{
	printf("%s|%.3f|%s|%.2f|%s\n", name, value, unit, cores, ok ? "ok" : value > 0 ? "WRONG" : "FAILED");
	fflush(stdout);
	wrong |= !ok && value > 0;
}

const struct stage stages[] = {
	{ "sequential cached read, 1 thread", "GB/s", SEQUENTIAL, 1 },
	{ "sequential cached read, 8 threads", "GB/s", SEQUENTIAL, THREADS },
	{ "random 4 KiB cached, one at a time", "us mean", LATENCY, 4 * KIB },
	{ "random 64 KiB cached, one at a time", "us mean", LATENCY, 64 * KIB },
	{ "batches of 128 random 4 KiB cached, 1 thread", "ops/s", BATCHES, 1 },
	{ "batches of 128 random 4 KiB cached, 8 threads", "ops/s", BATCHES, THREADS },
	{ "64 ReadAsync of 1 MiB on a stream, fixed", "GB/s", STREAMS, true },
	{ "64 ReadAsync of 1 MiB on a stream", "GB/s", STREAMS, false },
	{ "sequential cold read, direct", "GB/s", COLD, 0 },
	{ "sequential write, buffered", "GB/s", WRITES, false },
	{ "sequential write, direct", "GB/s", WRITES, true },
};

const unsigned int nstages = sizeof(stages) / sizeof(stages[0]);

static const struct stage *current;

static void hung(int sig)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "%s|0|%s|0|HUNG\n", current->name, current->unit);

	/* The thread that hangs may hold any lock, so only async-signal-safe calls are made. */
	_exit(write(STDOUT_FILENO, line, (size_t)n) == n ? 4 : 1);
}

static int measure(struct client *c, unsigned int from, unsigned int limit)
{
	signal(SIGALRM, hung);
	for (current = stages + from; current < stages + nstages; current++) {
		alarm(limit);
		if (current->what == SEQUENTIAL)
			sequential(c, current->name, current->n);
		else if (current->what == LATENCY)
			latency(c, current->name, current->n);
		else if (current->what == BATCHES)
			batches(c, current->name, current->n, BATCH);
		else if (current->what == STREAMS)
			streams(c, current->name, current->n);
		else if (current->what == COLD)
			cold(c, current->name);
		else
			writes(c, current->name, current->n);
		alarm(0);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct client c = { .backend = &backend_cufile, .length = 8192ull * MIB };
	unsigned int from = 0, limit = 60;
	bool host = false, cost = false, sweeps = false, quick = false;
	const char *first = NULL;
	double opened;
	int at = 1, rc;

	for (; at < argc && argv[at][0] == '-'; at++) {
		if (!strcmp(argv[at], "--strait"))
			c.backend = &backend_strait;
		else if (!strcmp(argv[at], "--cost"))
			cost = true;
		else if (!strcmp(argv[at], "--sweep") || !strcmp(argv[at], "--sweep-quick")) {
			sweeps = true;
			quick = strlen(argv[at]) > strlen("--sweep");
		} else if (!strcmp(argv[at], "--only") && at + 1 < argc)
			sweep_only(argv[++at]);
		else if (!strcmp(argv[at], "--cells") && at + 1 < argc && !sweep_cells(argv[at + 1]))
			at++;
		else if (!strcmp(argv[at], "--first") && at + 1 < argc)
			first = argv[++at];
		else if (!strcmp(argv[at], "--host"))
			host = true;
		else if (!strcmp(argv[at], "--rounds") && at + 1 < argc)
			rounds = atoi(argv[++at]);
		else if (!strcmp(argv[at], "--seconds") && at + 1 < argc)
			seconds = atof(argv[++at]);
		else if (!strcmp(argv[at], "--from") && at + 1 < argc)
			from = (unsigned int)atoi(argv[++at]);
		else if (!strcmp(argv[at], "--limit") && at + 1 < argc)
			limit = (unsigned int)atoi(argv[++at]);
		else
			at = argc;
	}
	if (at >= argc || rounds < 1) {
		fprintf(stderr,
			"usage: bench-cufile-client [--strait] [--cost | --sweep | --sweep-quick | --first ROW] "
			"[--only TEXT]... [--cells FILE] [--host] [--rounds N] [--seconds S] [--from N] [--limit S] "
			"FILE [SIZE_MIB]\n");
		return 2;
	}
	c.path = argv[at];
	if (at + 1 < argc)
		c.length = strtoull(argv[at + 1], NULL, 0) * MIB;
	if (c.length < (sweeps ? SWEEP_BYTES : (uint64_t)OUTSTANDING * MIB)) {
		fprintf(stderr, "client: the file must have at least %llu MiB\n",
			(sweeps ? SWEEP_BYTES : (uint64_t)OUTSTANDING * MIB) / MIB);
		return 2;
	}
	c.cuda = !host && !cuda_start();
	if (!host && !c.cuda)
		fprintf(stderr, "client: no GPU found, using host memory\n");
	if (make_file(c.path, c.length))
		return 1;
	c.memory = cuda_alloc(c.length);
	if (!c.memory)
		return say("memory", ENOMEM), 1;
	if (!first)
		warm_cache(&c);
	opened = now();
	rc = c.backend->open(&c);
	if (rc)
		return 1;
	printf("library|0|%s|0|ok\n", c.version);
	if (sweeps)
		sweep(&c, quick);
	if (first)
		rc = first_row(&c, first, opened);
	else
		rc = sweeps ? 0 : cost ? costs(&c) : measure(&c, from, limit);
	if (!rc && wrong)
		rc = 3;
	c.backend->close(&c);
	return rc;
}
