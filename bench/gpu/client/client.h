/* SPDX-License-Identifier: MIT */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

/*
 * A program that uses cuFile as others do: it opens libcufile.so.0 by its name, so that the same binary runs on
 * whichever library the loader finds, and on Strait's own interface to see what the cuFile one costs.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KIB 1024u
#define MIB (1024u * 1024)

struct client {
	const char *path;
	uint64_t length; /* of the file */
	void *memory;	 /* as long, on the device */
	bool cuda;	 /* not host memory */
	const struct backend *backend;
	char version[64];
};

struct request {
	uint64_t off, at; /* in the file, in the memory */
	size_t len;
	ssize_t done;
};

/* A library that transfers the bytes. Functions that return int return 0, or an error code after printing it. */
struct backend {
	const char *name;
	int (*open)(struct client *c);
	void (*close)(struct client *c);
	/* The file that is read and written from here on; @flags are those of open(2). */
	int (*file)(struct client *c, const char *path, int flags);
	/* Bytes, or below 0. */
	ssize_t (*read)(struct client *c, uint64_t off, uint64_t at, size_t len);
	ssize_t (*write)(struct client *c, uint64_t off, uint64_t at, size_t len);
	void *(*batch_open)(struct client *c, unsigned int n);
	int (*batch_run)(struct client *c, void *batch, struct request *r, unsigned int n);
	void (*batch_close)(void *batch);
	/* @fixed: what a request says does not change until it is done. */
	int (*stream_open)(struct client *c, void *native, bool fixed);
	int (*stream_read)(struct client *c, void *native, struct request *r);
	void (*stream_close)(struct client *c, void *native);
};

extern const struct backend backend_cufile, backend_strait;

/* cuda.c. Host memory where there is no driver. */
int cuda_start(void);
void cuda_attach(void);
void *cuda_alloc(size_t len);
void *cuda_stream(void);
void cuda_synchronize(void *stream);
int cuda_copy_out(void *to, const void *from, size_t len);
#define FILLED 0xee
void cuda_fill(void *at, size_t len);

void *symbol(void *lib, const char *name);
int say(const char *what, int code);

#endif
