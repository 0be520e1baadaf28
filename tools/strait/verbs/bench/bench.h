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

/* The file to transfer from or to. */
struct bench_file {
	const char *path;
	int fd;
	uint64_t bytes;
	bool created;
	bool block;
};

/*
 * Open @path, or create it with @size bytes; a created file has no name unless @keep. Writing to an existing file needs
 * @force. Returns an exit code, having printed what was wrong.
 */
int bench_file_open(struct bench_file *f, const char *path, uint64_t size, bool writes, bool force, bool keep);
void bench_file_close(struct bench_file *f);
/* Bring the page cache into the state that a measurement starts from. Returns an exit code. */
int bench_file_prepare(struct bench_file *f, enum bench_cache cache);

/* The load of one measurement. */
struct bench_load {
	enum bench_mode mode;
	uint64_t block;
	uint32_t threads, depth;
	double seconds; /* 0: one pass over the file */
	const struct bench_file *file;
};

/* The implementation that is measured. */
enum bench_series {
	BENCH_STRAIT,
	BENCH_HOST,   /* pread(2) and pwrite(2), for comparison */
	BENCH_CUFILE, /* NVIDIA's library, for comparison */
	BENCH_STAGED, /* Strait by the staged route alone, for comparison */
	BENCH_SERIES,
};

const char *bench_series_name(enum bench_series series);

/* The result of one measurement. */
struct bench_row {
	enum bench_series series;
	struct bench_load load;
	uint64_t bytes, ops, ns;
	double avg_us, p50_us, p99_us, max_us;
	double cpus;		       /* CPU time over wall time */
	double cpu_ms_gib, all_ms_gib; /* CPU time per GiB: of this program, and of the whole machine */
	uint64_t route_bytes[STRAIT_ROUTE_COUNT];
	double ratio[BENCH_SERIES]; /* throughput of this row over that series, 0 if it was not measured */
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

/* The work of one thread: prepare, always call bench_start(), transfer while bench_next() returns offsets. */
typedef void bench_fn(struct bench_worker *w, void *arg);

struct bench_run {
	const struct bench_load *load;
	bench_fn *fn;
	void *arg;
	pthread_barrier_t barrier;
	uint64_t blocks;
	uint64_t deadline_ns; /* 0: one pass over the file */
	atomic_ullong next;
	atomic_bool stop;
	/* The first failure. */
	pthread_mutex_t lock;
	bool failed;
	struct strait_transfer failed_transfer;
	struct strait_result failed_result;
	int failed_err;
};

/* Run @threads workers. Returns 0, or the negative errno of the first failure, which @run describes. */
int bench_measure(struct bench_run *run, const struct bench_load *load, unsigned int threads, bench_fn *fn, void *arg,
		  struct bench_row *row);

void bench_start(struct bench_worker *w);
bool bench_next(struct bench_worker *w, uint64_t *off);
void bench_done(struct bench_worker *w, uint64_t start_ns, uint64_t bytes);
void bench_failed(struct bench_worker *w, int err, const struct strait_transfer *t, const struct strait_result *result);

/* Measure one row, through Strait or by plain I/O. Each returns an exit code, having printed what was wrong. */
int bench_strait(const struct bench_load *load, const struct target *t, uint32_t routes, struct strait_endpoint *ep,
		 struct strait_region *region, struct bench_row *row);
int bench_host(const struct bench_load *load, enum bench_cache cache, struct bench_row *row);
/* Measure one row with NVIDIA's library. False if it fails: @c->why says why, and it is not used again. */
struct cufile;
bool bench_cufile(const struct bench_load *load, struct cufile *c, enum bench_cache cache, struct bench_row *row);

/* Bytes that one transfer of @block bytes takes in the region. */
static inline uint64_t bench_slot(uint64_t block)
{
	return (block + 4095) & ~4095ull;
}

/* All rows, as printed. */
struct bench_report {
	const struct bench_file *file;
	const struct target *target;
	enum bench_cache cache;
	const struct bench_row *row;
	unsigned int n;
	const struct cufile *cufile; /* NULL without --compare cufile */
};

void bench_print(const struct bench_report *r);
void bench_print_json(const struct bench_report *r);
/* Returns an exit code, having printed what was wrong. */
int bench_plot(const struct bench_report *r, const char *path);

#endif
