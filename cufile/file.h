/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_FILE_H
#define CUFILE_FILE_H

/* Registered files: handle.c. */

#include "core.h"

/* A registered file. */
struct cf_file {
	struct cf_node by_handle, by_fd;
	atomic_uint refs;
	int fd; /* owned by the application: it may be closed, or another file, by now */
	dev_t dev;
	ino_t ino;
	atomic_bool lease_wanted; /* open for reading only, and no lease has been refused */
	struct strait_endpoint *ep;
	/* The file with a read lease, for batches and streams. NULL until the first use. */
	_Atomic(struct strait_endpoint *) leased;
	pthread_mutex_t lease_lock;
};

/* A reference to a registered file, or NULL. */
struct cf_file *cf_file_get(CUfileHandle_t fh);
void cf_file_ref(struct cf_file *f, unsigned int n);
void cf_file_put(struct cf_file *f, unsigned int n);
/* The endpoint for batches and streams: with a read lease, if the file can have one. */
struct strait_endpoint *cf_file_endpoint(struct cf_file *f, uint32_t op);
void cf_files_drop_all(void);
void cf_files_forked(void);

#endif
