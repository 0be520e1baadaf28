/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_FILE_FILE_H
#define ENDPOINT_FILE_FILE_H

#include <sys/stat.h>

#include "endpoint/endpoint.h"

struct file {
	struct strait_endpoint ep;
	int fd;		/* buffered, and never the application's own descriptor */
	int fd_direct;	/* -1 without direct I/O */
	int fd_lease;	/* -1 without a lease */
	bool read_nowait; /* RWF_NOWAIT works here as far as known */
	char fs[20];
	char why[128];
};

extern const struct endpoint_ops file_endpoint_ops;

/* Fills the facts about the file system and direct I/O; opens fd_direct. @oflags are those of fd. */
int file_probe(struct file *f, const struct stat *st, const char *path, int oflags);

#endif
