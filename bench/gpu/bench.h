/* SPDX-License-Identifier: MIT */
#ifndef BENCH_GPU_BENCH_H
#define BENCH_GPU_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <strait/strait.h>

#define GB 1e9
#define MIB (1u << 20)

/* What all cases share. */
struct bench {
	const char *path;
	char written[4096]; /* the file that is written */
	uint64_t length;
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *region; /* of the length of the file */
	uint64_t addr;		      /* its device address */
	unsigned int cpus;
	int rounds;
	bool cufile; /* NVIDIA's library works here */
	char cufile_path[4096];
};

/* One measurement. */
struct sample {
	double rate;  /* GB/s, or operations per second */
	double cores; /* CPU time over wall time */
	double us;    /* time of one operation */
};

void die(const char *what, int err);
double now(void);
double cpu_seconds(void);

/* Keeps the better of two measurements. */
void keep_best(struct sample *best, struct sample s);

/* plain.c: system calls and CUDA only */
struct sample plain_copy_limit(struct bench *b);
struct sample plain_uring_read(struct bench *b);
struct sample plain_write(struct bench *b, bool direct);
void plain_make_file(const char *path, uint64_t length);
void plain_drop_cache(const char *path);
void plain_warm_cache(struct bench *b);

/* cuda.c: the driver calls of the comparison */
int cuda_load(void);
void *cuda_pinned(size_t len);
void cuda_attach(void); /* make the device's context current on this thread */
int cuda_copy_in(uint64_t dst, const void *src, size_t len);

/* cufile.c: NVIDIA's library */
int cufile_load(struct bench *b, char *why, size_t len);
struct sample cufile_read(struct bench *b, bool direct, unsigned int threads);
struct sample cufile_write(struct bench *b, bool direct);
struct sample cufile_random(struct bench *b, size_t block);
struct sample cufile_batch(struct bench *b);

/* strait.c */
struct sample ours_read(struct bench *b, uint32_t flags, uint32_t routes);
struct sample ours_reread(struct bench *b);
struct sample ours_write(struct bench *b, bool direct);
struct sample ours_random(struct bench *b, size_t block);
struct sample ours_queued(struct bench *b, uint32_t flags, unsigned int threads, unsigned int batch);
void ours_verify(struct bench *b);

#endif
