/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_FILE_FILE_H
#define ENDPOINT_FILE_FILE_H

#include <sys/stat.h>

#include "endpoint/endpoint.h"

#define FILE_READERS 32

struct file {
	struct strait_endpoint ep;
	int fd;	       /* buffered; never the application's descriptor */
	int fd_direct; /* -1 without direct I/O */
	int fd_lease;  /* -1 without a lease */
	/*
	 * Descriptors for buffered reads, by thread slot, opened on first use; 0: not yet, -1: failed. The reference
	 * count of a single descriptor would bounce between the caches of all CPUs: with eight threads it halves the
	 * rate of small reads.
	 */
	atomic_int reader[FILE_READERS];
	atomic_bool read_nowait; /* false once RWF_NOWAIT was refused */
	atomic_uint ask;	 /* this many of the next reads check the page cache first */
	char fs[20];
};

extern const struct endpoint_ops file_endpoint_ops;

/* Fill in the facts about the file system and direct I/O, and open fd_direct. @oflags are those of fd. */
int file_probe(struct file *f, const struct stat *st, const char *path, int oflags);

#endif
