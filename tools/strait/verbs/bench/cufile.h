/* SPDX-License-Identifier: MIT */
#ifndef CLI_CUFILE_H
#define CLI_CUFILE_H

/*
 * NVIDIA's libcufile, loaded at run time for comparison. Its types are declared here, so that building needs nothing of
 * CUDA.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <strait/types.h>

#include "lib/target.h"

struct cufile_status {
	int err;    /* 0, or a code from 5000 on */
	int cu_err; /* error of the CUDA driver, with some codes */
};

struct cufile_descr {
	int type; /* 1: a descriptor */
	union {
		int fd;
		void *handle;
	} handle;
	const void *ops;
};

struct cufile_request {
	int mode; /* 1: a batch */
	void *base;
	off_t file_offset, base_offset;
	size_t size;
	void *fh;
	int opcode; /* 0: read, 1: write */
	void *cookie;
};

enum { CUFILE_COMPLETE = 0x10 };

struct cufile_event {
	void *cookie;
	int status;
	size_t ret;
};

enum { CUFILE_BATCH_MAX = 128 }; /* requests one batch can hold */

struct cufile {
	char why[5120];	    /* why it cannot be used; empty if it can */
	int code;	    /* the error code it returned, 0 if none */
	char library[4096]; /* the file that was opened */
	uint64_t addr;	    /* of the region */
	bool opened, registered, retained;
	int device;
	void *context;

	/* Functions of the CUDA driver. */
	int (*init)(unsigned int flags);
	int (*device_get)(int *device, int ordinal);
	int (*retain)(void **context, int device);
	int (*release)(int device);
	int (*set_current)(void *context);

	struct cufile_status (*driver_open)(void);
	struct cufile_status (*driver_close)(void);
	struct cufile_status (*handle_register)(void **fh, struct cufile_descr *descr);
	void (*handle_deregister)(void *fh);
	struct cufile_status (*buf_register)(const void *base, size_t len, int flags);
	struct cufile_status (*buf_deregister)(const void *base);
	ssize_t (*read)(void *fh, void *base, size_t len, off_t file_offset, off_t base_offset);
	ssize_t (*write)(void *fh, const void *base, size_t len, off_t file_offset, off_t base_offset);
	struct cufile_status (*batch_setup)(void **batch, unsigned int n);
	struct cufile_status (*batch_submit)(void *batch, unsigned int n, struct cufile_request *r, unsigned int flags);
	struct cufile_status (*batch_status)(void *batch, unsigned int min, unsigned int *n, struct cufile_event *e,
					     struct timespec *timeout);
	void (*batch_destroy)(void *batch);
};

/* Load and open it, and register @region with it. On failure @c->why says why. */
bool cufile_open(struct cufile *c, const struct target *t, struct strait_region *region);
void cufile_close(struct cufile *c);

/* Make the device's context current on this thread: the library needs it. */
void cufile_attach(struct cufile *c);

/* Set @c->why after a call failed: the library is not used again. @fd is the file concerned, or -1. Returns false. */
bool cufile_refused(struct cufile *c, const char *what, int code, int cu_err, int fd);

#endif
