/* SPDX-License-Identifier: MIT */
/*
 *	bench-cufile-client [--strait | --cost] [--host] [--rounds N] [--seconds S] [--from N] [--limit S] FILE [SIZE_MIB]
 *
 * FILE is made if it is not there or not that long, and kept. A line for each measurement, "name|value|unit|cores|
 * state", on stdout: bench/gpu/cufile-run makes a table of them. Bytes are compared with what the file must hold;
 * WRONG in the last column, and exit status 3, if they are not that. A measurement that does not end within the limit
 * is HUNG, and with it the program, by exit status 4: "--from N" begins with the one after it.
 *
 * --cost: what the cuFile interface costs beside Strait's own, the two in turns many times, as the median of what they
 * differ by: percent of the rate, or microseconds.
 */
#include "client.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8
#define BATCH 128
#define OUTSTANDING 64

static int rounds = 3;
static double seconds = 1;
static bool wrong;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

int say(const char *what, int code)
{
	static int said;

	/* A library that refuses everything should not fill the screen. */
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

/* What the file holds: eight bytes for every offset. */
static void pattern(uint64_t *to, uint64_t off, size_t len)
{
	for (size_t i = 0; i < len / 8; i++) {
		uint64_t x = off + i * 8 + 1;

		x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
		x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
		to[i] = x ^ (x >> 31);
	}
}

/* Whoever's file it is that is there, it is not written to. */
static int check_file(const char *path, uint64_t length)
{
	uint64_t got[512], want[512];
	int fd = open(path, O_RDONLY);
	bool same = fd >= 0;

	for (int end = 0; end < 2 && same; end++) {
		uint64_t off = end ? length - sizeof(got) : 0;

		pattern(want, off, sizeof(want));
		same = pread(fd, got, sizeof(got), (off_t)off) == sizeof(got) && !memcmp(got, want, sizeof(got));
	}
	same = same && lseek(fd, 0, SEEK_END) == (off_t)length;
	if (fd >= 0)
		close(fd);
	if (!same)
		fprintf(stderr, "client: %s is there, and is not %llu MiB that this program wrote: name another\n",
			path, (unsigned long long)(length / MIB));
	return same ? 0 : EEXIST;
}

static int make_file(const char *path, uint64_t length)
{
	uint64_t *buf;
	int fd;

	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 && errno == EEXIST)
		return check_file(path, length);
	buf = malloc(4u * MIB);
	for (uint64_t off = 0; fd >= 0 && buf && off < length; off += 4u * MIB) {
		size_t n = length - off < 4u * MIB ? (size_t)(length - off) : 4u * MIB;

		pattern(buf, off, n);
		if (pwrite(fd, buf, n, (off_t)off) != (ssize_t)n)
			return say(path, errno);
	}
	if (fd < 0 || !buf || fdatasync(fd))
		return say(path, errno);
	free(buf);
	close(fd);
	return 0;
}

static void warm_cache(const struct client *c)
{
	int fd = open(c->path, O_RDONLY);
	char *buf = malloc(16u * MIB);

	for (uint64_t off = 0; fd >= 0 && buf && off < c->length; off += 16u * MIB)
		if (pread(fd, buf, 16u * MIB, (off_t)off) < 0)
			break;
	free(buf);
	close(fd);
}

/* Does the memory at @at hold the file's bytes from @off on? */
static bool right(struct client *c, uint64_t off, uint64_t at, size_t len)
{
	static uint64_t *got, *want;

	if (!got) {
		got = malloc(16u * MIB);
		want = malloc(16u * MIB);
	}
	for (size_t done = 0, n; done < len; done += n) {
		n = len - done < 16u * MIB ? len - done : 16u * MIB;
		pattern(want, off + done, n);
		if (cuda_copy_out(got, (char *)c->memory + at + done, n) || memcmp(got, want, n)) {
			fprintf(stderr, "client: wrong bytes from the file's %llu on\n",
				(unsigned long long)(off + done));
			return false;
		}
	}
	return true;
}

static void row(const char *name, double value, const char *unit, double cores, bool ok)
{
	printf("%s|%.3f|%s|%.2f|%s\n", name, value, unit, cores, ok ? "ok" : value > 0 ? "WRONG" : "FAILED");
	fflush(stdout);
	wrong |= !ok && value > 0;
}

typedef ssize_t move_fn(struct client *c, uint64_t off, uint64_t at, size_t len);

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

struct sample {
	double rate, cores;
};

/* The file's first @length bytes once: 0 if it failed. */
static struct sample move_all(struct client *c, move_fn *move, uint64_t length, unsigned int threads, size_t block)
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

static void keep_best(struct sample *best, struct sample s)
{
	if (s.rate > best->rate)
		*best = s;
}

static void sequential(struct client *c, const char *name, unsigned int threads)
{
	static const size_t blocks[] = { 16u * MIB, 256u * MIB, 1024u * MIB };
	struct sample best = { 0 };

	cuda_fill(c->memory, c->length);
	for (int i = 0; i < rounds; i++)
		for (size_t b = 0; b < sizeof(blocks) / sizeof(blocks[0]); b++)
			keep_best(&best, move_all(c, c->backend->read, c->length, threads, blocks[b]));
	row(name, best.rate, "GB/s", best.cores, best.rate > 0 && right(c, 0, 0, c->length));
}

static uint64_t drive_bytes(const struct client *c)
{
	return c->length < 2048ull * MIB ? c->length : 2048ull * MIB;
}

static void drop_cache(int fd)
{
	fdatasync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* Out of the drive: nothing of the file is in the page cache. */
static void cold(struct client *c, const char *name)
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

/* Does the file hold nothing but what the memory was filled with? */
static bool was_written(const char *path, uint64_t length)
{
	unsigned char *buf = malloc(16u * MIB);
	int fd = open(path, O_RDONLY);
	bool ok = fd >= 0 && buf;

	for (uint64_t off = 0; ok && off < length; off += 16u * MIB) {
		size_t n = length - off < 16u * MIB ? (size_t)(length - off) : 16u * MIB;

		ok = pread(fd, buf, n, (off_t)off) == (ssize_t)n && buf[0] == FILLED && !memcmp(buf, buf + 1, n - 1);
	}
	if (fd >= 0)
		close(fd);
	free(buf);
	return ok;
}

/* In place, over a file of its own: the one that is read stays as it is. */
static void writes(struct client *c, const char *name, bool direct)
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

static uint64_t next_offset(uint64_t *seed, uint64_t length, size_t block)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (*seed >> 20) % (length / block) * block;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void latency(struct client *c, const char *name, size_t block)
{
	enum { OPS = 20000, WARM = 500 };
	double *us = calloc(OPS, sizeof(*us)), cpu = 0, begin = 0;
	uint64_t seed = 7, off = 0;
	char label[64];
	bool ok = true;
	double sum = 0;

	for (int i = -WARM; us && ok && i < OPS; i++) {
		double start = now();

		if (!i) {
			cpu = cpu_seconds();
			begin = start;
		}
		off = next_offset(&seed, c->length, block);
		ok = c->backend->read(c, off, 0, block) == (ssize_t)block;
		if (i >= 0) {
			us[i] = (now() - start) * 1e6;
			sum += us[i];
		}
	}
	ok = ok && right(c, off, 0, block);
	cpu = (cpu_seconds() - cpu) / (now() - begin);
	if (us && ok)
		qsort(us, OPS, sizeof(*us), by_value);
	row(name, ok ? sum / OPS : 0, "us mean", cpu, ok);
	snprintf(label, sizeof(label), "%s, median", name);
	row(label, us && ok ? us[OPS / 2] : 0, "us", cpu, ok);
	free(us);
}

struct batcher {
	struct client *c;
	unsigned int index;
	uint64_t done;
	bool failed;
	struct request last[BATCH];
};

static pthread_barrier_t together;

static void *run_batches(void *arg)
{
	struct batcher *b = arg;
	void *batch;
	uint64_t seed = 11 + b->index;
	double end;

	cuda_attach();
	batch = b->c->backend->batch_open(b->c, BATCH);
	b->failed = !batch;
	pthread_barrier_wait(&together);
	for (end = now() + seconds; !b->failed && now() < end; b->done += BATCH) {
		for (unsigned int i = 0; i < BATCH; i++)
			b->last[i] = (struct request){ next_offset(&seed, b->c->length, 4096),
						       (b->index * BATCH + i) * 4096ull, 4096, -1 };
		b->failed = b->c->backend->batch_run(b->c, batch, b->last, BATCH) != 0;
		for (unsigned int i = 0; i < BATCH; i++)
			b->failed |= b->last[i].done != 4096;
	}
	if (batch)
		b->c->backend->batch_close(batch);
	return NULL;
}

static void batches(struct client *c, const char *name, unsigned int threads)
{
	struct sample best = { 0 };
	bool ok = true;

	cuda_fill(c->memory, (size_t)threads * BATCH * 4096);
	for (int i = 0; i < rounds && ok; i++) {
		struct batcher *b = calloc(threads, sizeof(*b));
		pthread_t th[THREADS];
		double cpu, start, t;
		uint64_t done = 0;

		pthread_barrier_init(&together, NULL, threads + 1);
		for (unsigned int k = 0; k < threads; k++) {
			b[k] = (struct batcher){ .c = c, .index = k };
			pthread_create(&th[k], NULL, run_batches, &b[k]);
		}
		pthread_barrier_wait(&together);
		cpu = cpu_seconds();
		start = now();
		for (unsigned int k = 0; k < threads; k++)
			pthread_join(th[k], NULL);
		t = now() - start;
		cpu = (cpu_seconds() - cpu) / t;
		for (unsigned int k = 0; k < threads; k++) {
			done += b[k].done;
			ok = ok && !b[k].failed;
			for (unsigned int r = 0; ok && r < BATCH; r++)
				ok = right(c, b[k].last[r].off, b[k].last[r].at, 4096);
		}
		keep_best(&best, (struct sample){ (double)done / t, cpu });
		pthread_barrier_destroy(&together);
		free(b);
	}
	row(name, best.rate, "ops/s", best.cores, ok);
}

/* The file from front to end, again and again, in requests of 1 MiB of which 64 wait on the stream. */
static void streams(struct client *c, const char *name, bool fixed)
{
	struct sample best = { 0 };
	struct request r[OUTSTANDING];
	void *native = cuda_stream();
	bool ok = native || !c->cuda;

	if (!ok || c->backend->stream_open(c, native, fixed)) {
		row(name, 0, "GB/s", 0, false);
		return;
	}
	cuda_fill(c->memory, (size_t)OUTSTANDING * MIB);
	for (int i = 0; i < rounds && ok; i++) {
		double cpu = cpu_seconds(), start = now(), t;
		uint64_t off = 0, done = 0;

		while (ok && now() < start + seconds) {
			for (unsigned int k = 0; ok && k < OUTSTANDING; k++) {
				r[k] = (struct request){ off, (uint64_t)k * MIB, MIB, -99 };
				off = (off + MIB) % (c->length / MIB * MIB);
				ok = !c->backend->stream_read(c, native, &r[k]);
			}
			cuda_synchronize(native);
			for (unsigned int k = 0; ok && !c->cuda && k < OUTSTANDING; k++)
				while (__atomic_load_n(&r[k].done, __ATOMIC_ACQUIRE) == -99)
					sched_yield();
			for (unsigned int k = 0; ok && k < OUTSTANDING; k++)
				if (r[k].done != MIB) {
					say("a request on the stream gave", (int)r[k].done);
					ok = false;
				}
			done += (uint64_t)OUTSTANDING * MIB;
		}
		t = now() - start;
		if (ok)
			keep_best(&best, (struct sample){ (double)done / t / 1e9, (cpu_seconds() - cpu) / t });
		for (unsigned int k = 0; ok && k < OUTSTANDING; k++)
			ok = right(c, r[k].off, r[k].at, MIB);
	}
	row(name, best.rate, "GB/s", best.cores, ok);
	c->backend->stream_close(c, native);
}

static const struct stage {
	const char *name, *unit;
	enum { SEQUENTIAL, LATENCY, BATCHES, STREAMS, COLD, WRITES } what;
	unsigned int n;
} stages[] = {
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

/* One pass of a stage by one backend: GB/s or microseconds, 0 if it failed. */
static double pass(struct client *c, const struct stage *s, int drop)
{
	enum { OPS = 200 };
	static uint64_t seed = 7;
	double start = now();
	bool ok = true;

	if (s->what == LATENCY) {
		for (int i = 0; ok && i < OPS; i++)
			ok = c->backend->read(c, next_offset(&seed, c->length, s->n), 0, s->n) == (ssize_t)s->n;
		return ok ? (now() - start) / OPS * 1e6 : 0;
	}
	if (s->what == SEQUENTIAL)
		return move_all(c, c->backend->read, c->length, s->n, 256u * MIB).rate;
	if (s->what == WRITES)
		return move_all(c, c->backend->write, drive_bytes(c), 1, 256u * MIB).rate;
	drop_cache(drop);
	return move_all(c, c->backend->read, drive_bytes(c), 1, 256u * MIB).rate;
}

/*
 * Many short passes differ by what is typical of them, the middle of all differences; of long ones, which all meet
 * something that holds them up, the best is the one that met the least of it.
 */
static void cost_of(struct client *c, struct client *own, const struct stage *s)
{
	enum { PAIRS = 11, SMALL_PAIRS = 101 };
	bool direct = s->what == COLD || (s->what == WRITES && s->n);
	int pairs = s->what == LATENCY ? SMALL_PAIRS : PAIRS, drop = open(c->path, O_RDONLY);
	double diff[SMALL_PAIRS], best[2] = { 0 };
	char path[4096];
	bool ok;

	snprintf(path, sizeof(path), "%s%s", c->path, s->what == WRITES ? ".written" : "");
	if (s->what == WRITES)
		unlink(path);
	ok = drop >= 0 && !make_file(path, s->what == WRITES ? drive_bytes(c) : c->length);
	for (int k = 0; k < 2 && ok; k++) {
		struct client *one = k ? own : c;

		ok = !one->backend->file(one, path, (s->what == WRITES ? O_RDWR : O_RDONLY) | (direct ? O_DIRECT : 0));
	}
	for (int i = 0; i < pairs && ok; i++) {
		double value[2];

		/* Who came first comes second the next time. */
		for (int k = 0; k < 2; k++) {
			int which = (i + k) % 2;

			value[which] = pass(which ? own : c, s, drop);
			ok = ok && value[which] > 0;
			if (value[which] > best[which])
				best[which] = value[which];
		}
		diff[i] = value[0] - value[1];
	}
	if (ok)
		qsort(diff, (size_t)pairs, sizeof(diff[0]), by_value);
	if (s->what == LATENCY)
		row(s->name, ok ? diff[pairs / 2] : 0, "us", 0, ok);
	else
		row(s->name, ok ? 100 * (best[1] / best[0] - 1) : 0, "%", 0, ok);
	if (s->what == WRITES)
		unlink(path);
	if (drop >= 0)
		close(drop);
}

static int costs(struct client *c)
{
	struct client own = *c;

	own.backend = &backend_strait;
	if (own.backend->open(&own))
		return 1;
	for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++)
		if (stages[i].what != BATCHES && stages[i].what != STREAMS)
			cost_of(c, &own, &stages[i]);
	own.backend->close(&own);
	return 0;
}

static const struct stage *current;

static void hung(int sig)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "%s|0|%s|0|HUNG\n", current->name, current->unit);

	/* Whatever hangs may hold any lock: nothing but this. */
	_exit(write(STDOUT_FILENO, line, (size_t)n) == n ? 4 : 1);
}

static int measure(struct client *c, unsigned int from, unsigned int limit)
{
	signal(SIGALRM, hung);
	for (current = stages + from; current < stages + sizeof(stages) / sizeof(stages[0]); current++) {
		alarm(limit);
		if (current->what == SEQUENTIAL)
			sequential(c, current->name, current->n);
		else if (current->what == LATENCY)
			latency(c, current->name, current->n);
		else if (current->what == BATCHES)
			batches(c, current->name, current->n);
		else if (current->what == STREAMS)
			streams(c, current->name, current->n);
		else if (current->what == COLD)
			cold(c, current->name);
		else
			writes(c, current->name, current->n);
		alarm(0);
	}
	return wrong ? 3 : 0;
}

int main(int argc, char **argv)
{
	struct client c = { .backend = &backend_cufile, .length = 8192ull * MIB };
	unsigned int from = 0, limit = 60;
	bool host = false, cost = false;
	int at = 1, rc;

	for (; at < argc && argv[at][0] == '-'; at++) {
		if (!strcmp(argv[at], "--strait"))
			c.backend = &backend_strait;
		else if (!strcmp(argv[at], "--cost"))
			cost = true;
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
			"usage: bench-cufile-client [--strait | --cost] [--host] [--rounds N] [--seconds S] [--from N] "
			"[--limit S] FILE [SIZE_MIB]\n");
		return 2;
	}
	c.path = argv[at];
	if (at + 1 < argc)
		c.length = strtoull(argv[at + 1], NULL, 0) * MIB;
	if (c.length < (uint64_t)OUTSTANDING * MIB) {
		fprintf(stderr, "client: %d MiB at least\n", OUTSTANDING);
		return 2;
	}
	c.cuda = !host && !cuda_start();
	if (!host && !c.cuda)
		fprintf(stderr, "client: no GPU here: host memory\n");
	if (make_file(c.path, c.length))
		return 1;
	c.memory = cuda_alloc(c.length);
	if (!c.memory)
		return say("memory", ENOMEM), 1;
	warm_cache(&c);
	rc = c.backend->open(&c);
	if (rc)
		return 1;
	printf("library|0|%s|0|ok\n", c.version);
	rc = cost ? costs(&c) : measure(&c, from, limit);
	c.backend->close(&c);
	return rc;
}
