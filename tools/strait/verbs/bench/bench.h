/* SPDX-License-Identifier: MIT */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <strait/transfer.h>
#include <strait/types.h>

#include "lib/hist.h"
#include "lib/target.h"

enum bench_mode {
	BENCH_READ,
	BENCH_WRITE,
	BENCH_RANDREAD,
	BENCH_RANDWRITE,
	BENCH_MODES,
};

const char *bench_mode_name(enum bench_mode mode);
int bench_mode_parse(const char *name); /* -EINVAL */

static inline bool bench_writes(enum bench_mode mode)
{
	return mode == BENCH_WRITE || mode == BENCH_RANDWRITE;
}

enum bench_cache {
	BENCH_AS_IS,
	BENCH_CACHED, /* all of the file is in the page cache */
	BENCH_DIRECT, /* direct I/O, nothing in the page cache */
};

/* The file that is measured. */
struct bench_file {
	const char *path;
	int fd;
	uint64_t bytes;
	bool created;
	bool block;
};

/*
 * Open @path, or make it of @size bytes; a file we made has no name unless @keep. Writing to one that
 * was there needs @force. Returns an exit code, having said what was wrong.
 */
int bench_file_open(struct bench_file *f, const char *path, uint64_t size, bool writes, bool force, bool keep);
void bench_file_close(struct bench_file *f);
/* Bring the page cache into the state a measurement starts from. Returns an exit code. */
int bench_file_prepare(struct bench_file *f, enum bench_cache cache);

/* What one measurement does. */
struct bench_load {
	enum bench_mode mode;
	uint64_t block;
	uint32_t threads, depth;
	double seconds; /* 0: once over the file */
	const struct bench_file *file;
};

/* Who moved the bytes. */
enum bench_series {
	BENCH_STRAIT,
	BENCH_HOST,   /* plain pread and pwrite, for comparison */
	BENCH_CUFILE, /* NVIDIA's library, for comparison */
	BENCH_STAGED, /* Strait, by that route and no other, for comparison */
	BENCH_SERIES,
};

const char *bench_series_name(enum bench_series series);

/* What it found. */
struct bench_row {
	enum bench_series series;
	struct bench_load load;
	uint64_t bytes, ops, ns;
	double avg_us, p50_us, p99_us, max_us;
	double cpus;		       /* CPU time by wall time */
	double cpu_ms_gib, all_ms_gib; /* CPU time per GiB: of this program, and of the whole machine */
	uint64_t route_bytes[STRAIT_ROUTE_COUNT];
	double ratio[BENCH_SERIES]; /* Strait's to the row of that series, 0 without one */
};

struct bench_run;

struct bench_worker {
	struct bench_run *run;
	unsigned int index;
	pthread_t thread;
	uint64_t random;
	uint64_t end_ns;
	uint64_t bytes;
	uint64_t route_bytes[STRAIT_ROUTE_COUNT];
	struct hist hist;
};

/* One thread's part. Makes ready, calls bench_start() in any case, works while bench_next() gives offsets. */
typedef void bench_fn(struct bench_worker *w, void *arg);

struct bench_run {
	const struct bench_load *load;
	bench_fn *fn;
	void *arg;
	pthread_barrier_t barrier;
	uint64_t blocks;
	uint64_t deadline_ns; /* 0: once over the file */
	atomic_ullong next;
	atomic_bool stop;
	/* The first failure, in words. */
	pthread_mutex_t lock;
	bool failed;
	struct strait_transfer failed_transfer;
	struct strait_result failed_result;
	int failed_err;
};

/* Run @threads workers. 0, or a negative errno of the first that failed, kept in @run. */
int bench_measure(struct bench_run *run, const struct bench_load *load, unsigned int threads, bench_fn *fn, void *arg,
		  struct bench_row *row);

void bench_start(struct bench_worker *w);
bool bench_next(struct bench_worker *w, uint64_t *off);
void bench_done(struct bench_worker *w, uint64_t start_ns, uint64_t bytes);
void bench_failed(struct bench_worker *w, int err, const struct strait_transfer *t, const struct strait_result *result);

/* One row, through Strait and by plain I/O. Return an exit code, having said what was wrong. */
int bench_strait(const struct bench_load *load, const struct target *t, uint32_t routes, struct strait_endpoint *ep,
		 struct strait_region *region, struct bench_row *row);
int bench_host(const struct bench_load *load, enum bench_cache cache, struct bench_row *row);
/* The same by NVIDIA's library. False if it cannot: @c->why says why, and it is not asked again. */
struct cufile;
bool bench_cufile(const struct bench_load *load, struct cufile *c, enum bench_cache cache, struct bench_row *row);

/* Room one slot takes in the region. */
static inline uint64_t bench_slot(uint64_t block)
{
	return (block + 4095) & ~4095ull;
}

/* All rows. */
struct bench_report {
	const struct bench_file *file;
	const struct target *target;
	enum bench_cache cache;
	const struct bench_row *row;
	unsigned int n;
	const struct cufile *cufile; /* NULL if it is not compared with */
};

void bench_print(const struct bench_report *r);
void bench_print_json(const struct bench_report *r);
/* Returns an exit code, having said what was wrong. */
int bench_plot(const struct bench_report *r, const char *path);

#endif
