/* SPDX-License-Identifier: MIT */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

/*
 * A client of cuFile like any other: it opens libcufile.so.0 by name, so that the same binary runs on the library that
 * the loader finds, and on Strait's own interface, to measure the cost of the cuFile one.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KIB 1024u
#define MIB (1024u * 1024)

struct client {
	const char *path;
	uint64_t length; /* of the file, in bytes */
	void *memory;	 /* of that length, on the device */
	bool cuda;	 /* not host memory */
	const struct backend *backend;
	char version[64];
};

struct request {
	uint64_t off, at; /* in the file, in the memory */
	size_t len;
	ssize_t done;
	void *handle; /* of .handle_open; NULL: the file that is selected */
};

/* A library that transfers the bytes. Functions that return int return 0, or an error code after printing it. */
struct backend {
	const char *name;
	int (*open)(struct client *c);
	void (*close)(struct client *c);
	/* Selects the file that is read and written; @flags as of open(2). */
	int (*file)(struct client *c, const char *path, int flags);
	/* Return the number of bytes, or a negative number. */
	ssize_t (*read)(struct client *c, uint64_t off, uint64_t at, size_t len);
	ssize_t (*write)(struct client *c, uint64_t off, uint64_t at, size_t len);
	/* A file of its own, for transfers on several at once. */
	void *(*handle_open)(struct client *c, const char *path, int flags);
	ssize_t (*move)(struct client *c, void *handle, bool write, uint64_t off, uint64_t at, size_t len);
	void (*handle_close)(void *handle);
	/* Registers the memory with the library, or takes that back. */
	int (*register_memory)(struct client *c, bool on);
	void *(*batch_open)(struct client *c, unsigned int n);
	int (*batch_run)(struct client *c, void *batch, struct request *r, unsigned int n);
	void (*batch_close)(void *batch);
	/* @fixed: the parameters of a request do not change until it completes. */
	int (*stream_open)(struct client *c, void *native, bool fixed);
	int (*stream_read)(struct client *c, void *native, struct request *r);
	void (*stream_close)(struct client *c, void *native);
};

extern const struct backend backend_cufile, backend_strait;

/* cuda.c. Without a driver the memory is host memory. */
int cuda_start(void);
void cuda_attach(void);
void *cuda_alloc(size_t len);
void *cuda_stream(void);
void cuda_synchronize(void *stream);
int cuda_copy_out(void *to, const void *from, size_t len);
#define FILLED 0xee
void cuda_fill(void *at, size_t len);

/* main.c */
#define THREADS 8
#define BATCH 128
#define BATCH_MAX 512
#define OUTSTANDING 64

struct stage {
	const char *name, *unit;
	enum { SEQUENTIAL, LATENCY, BATCHES, STREAMS, COLD, WRITES } what;
	unsigned int n;
};

struct sample {
	double rate, cores;
};

extern const struct stage stages[];
extern const unsigned int nstages;
extern int rounds;     /* of each measurement; the best one counts */
extern double seconds; /* of a round of batches or streams */

void *symbol(void *lib, const char *name);
int say(const char *what, int code);
double now(void);
double cpu_seconds(void);
/* Prints a measurement. */
void row(const char *name, double value, const char *unit, double cores, bool ok);

/* data.c */
int make_file(const char *path, uint64_t length);
void warm_cache(const struct client *c);
void drop_cache(int fd);
/* Does the memory at @at hold the file's bytes from @off on? */
bool right(struct client *c, uint64_t off, uint64_t at, size_t len);
/* Does the file hold nothing but the byte that the memory was filled with? */
bool was_written(const char *path, uint64_t length);

/* sequential.c */
typedef ssize_t move_fn(struct client *c, uint64_t off, uint64_t at, size_t len);
struct sample move_all(struct client *c, move_fn *move, uint64_t length, unsigned int threads, size_t block);
void keep_best(struct sample *best, struct sample s);
/* How much of the file is transferred where the drive limits the rate. */
uint64_t drive_bytes(const struct client *c);
void sequential(struct client *c, const char *name, unsigned int threads);
void cold(struct client *c, const char *name);
void writes(struct client *c, const char *name, bool direct);

/* requests.c */
uint64_t next_offset(uint64_t *seed, uint64_t length, size_t block);
int by_value(const void *a, const void *b);
void latency(struct client *c, const char *name, size_t block);
/* Batches of @n random 4 KiB reads. */
void batches(struct client *c, const char *name, unsigned int threads, unsigned int n);
void streams(struct client *c, const char *name, bool fixed);

/* sweep.c; @quick: registered memory and one file only */
void sweep(struct client *c, bool quick);
#define SWEEP_BYTES (256ull * MIB) /* of the file, at least */
/* Only cells with that in their names, and with what earlier calls said. */
void sweep_only(const char *text);
/* Measures only the cells whose names are lines of the file, which begins with an empty line. */
int sweep_cells(const char *path);

/* first.c: the measurement of that name, in a process of its own. @opened: when the library began to open. */
int first_row(struct client *c, const char *name, double opened);

/* cost.c */
int costs(struct client *c);

#endif
