/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_FILE_FILE_H
#define ENDPOINT_FILE_FILE_H

#include <sys/stat.h>

#include "endpoint/endpoint.h"

#define FILE_READERS 32

struct file {
	struct strait_endpoint ep;
	int fd;	       /* buffered, and never the application's own descriptor */
	int fd_direct; /* -1 without direct I/O */
	int fd_lease;  /* -1 without a lease */
	/*
	 * Descriptors that threads read by, opened when first used; 0: not yet, -1: cannot be. With a
	 * single one its reference count passes between the caches of all CPUs at each read, which halves
	 * the rate of small reads by eight threads and takes more than that from sixteen.
	 */
	atomic_int reader[FILE_READERS];
	atomic_bool read_nowait; /* RWF_NOWAIT works here as far as known */
	atomic_uint ask;	 /* so many of the next reads ask what is in memory before they try */
	char fs[20];
};

extern const struct endpoint_ops file_endpoint_ops;

/* Fills the facts about the file system and direct I/O; opens fd_direct. @oflags are those of fd. */
int file_probe(struct file *f, const struct stat *st, const char *path, int oflags);

#endif
