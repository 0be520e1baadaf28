/* SPDX-License-Identifier: MIT */
#ifndef FUNCTIONAL_MODEL_H
#define FUNCTIONAL_MODEL_H

/*
 * Random operations by several threads on one context, compared with a model: a copy of each file and of each region,
 * byte by byte, and sums of the results.
 *
 * A thread's files and regions are its own, so its model is exact. If a file changes during a read, each byte may have
 * its old or its new value, or be zero where the length changed. One file is shared and changed by all threads: its
 * bytes are always those of one of a few patterns, or zero. Another file never changes, and all threads read it through
 * the same endpoints.
 *
 * Every operation is printed before it is made; the harness shows the last of them when the test fails, hangs or
 * crashes. STRAIT_TEST_SEED repeats the operations of a run, STRAIT_TEST_ROUNDS makes it shorter or longer.
 */

#include "common.h"

struct model {
	unsigned int threads;
	unsigned int rounds;  /* operations of each thread */
	uint64_t file_bytes;  /* length of files, at most */
	uint32_t context;     /* STRAIT_CONTEXT_* */
	uint64_t pool, chunk; /* 0 for the defaults */
};

void model_run(const struct model *m);

/*
 * The following is shared by model.c, which knows what is expected, model_objects.c, which opens and closes, and
 * model_ops.c, which makes the operations.
 */

enum {
	MODEL_FILES = 3,
	MODEL_ENDPOINTS = 6,
	MODEL_SHARED = 4,
	MODEL_REGIONS = 5,
	MODEL_DEVICES = 3,
	MODEL_PATTERNS = 4
};

struct model_file {
	char path[4200];
	unsigned char *now, *was; /* file_bytes each; zeros past the end */
	uint64_t len, was_len;
	bool raced; /* it changed from @was to @now while transfers were in flight */
};

struct model_endpoint {
	struct strait_endpoint *ep;
	struct model_file *f; /* NULL: the file that all threads change */
	uint32_t flags;
	bool can_read, can_write;
	bool shared; /* by all threads; its file does not change */
};

struct model_region {
	struct strait_region *r;
	unsigned int dev;
	uint64_t len;
	unsigned char *mem;
	void *own; /* memory that was imported */
	bool gone; /* revoked */
};

/* Sums over all results. */
struct model_sums {
	uint64_t transfers, errors, canceled;
	uint64_t read_bytes[STRAIT_ROUTE_COUNT], write_bytes[STRAIT_ROUTE_COUNT];
};

struct model_world {
	const struct model *m;
	struct strait_context *ctx;
	struct strait_device *dev[MODEL_DEVICES]; /* the last one is the host */
	char common[4200];
	unsigned char *pattern[MODEL_PATTERNS]; /* contents of the file that all threads change */
	struct model_file fixed;
	struct strait_endpoint *shared[MODEL_SHARED];
	uint64_t seed;
	atomic_uint next;
	atomic_uint lines;
	pthread_mutex_t lock; /* of the sums */
	struct model_sums sums;
};

struct model_thread {
	struct model_world *w;
	unsigned int number, op;
	uint64_t state, max;
	struct model_file file[MODEL_FILES];
	struct model_endpoint ep[MODEL_ENDPOINTS + MODEL_SHARED]; /* its own, then those of all threads */
	struct model_region region[MODEL_REGIONS];
	struct strait_queue *q;
	struct strait_stream *stream[MODEL_DEVICES];
	struct model_sums sums;
	unsigned char *scratch;
};

uint64_t model_any(struct model_thread *t, uint64_t n);
/* Prints the next operation. */
void model_say(struct model_thread *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Checks a result against its request, and counts it. */
void model_result(struct model_thread *t, const struct strait_transfer *of, const struct model_region *r,
		  const struct strait_result *res);
/* Compares a region after a read, or a file after a write, with the model, and updates the model. */
void model_expect_read(struct model_thread *t, const struct model_endpoint *e, struct model_region *r, uint64_t off,
		       uint64_t at, uint64_t len, uint64_t bytes, int status);
void model_expect_write(struct model_thread *t, const struct model_endpoint *e, const struct model_region *r,
			uint64_t off, uint64_t at, uint64_t len, uint64_t bytes, int status);
/* Compares some bytes before and after the range of a transfer. */
void model_expect_around(struct model_thread *t, struct model_region *r, uint64_t at, uint64_t len);
/* Only updates the model. */
void model_take_write(struct model_thread *t, const struct model_endpoint *e, const struct model_region *r,
		      uint64_t off, uint64_t at, uint64_t len, uint64_t bytes, int status);
void model_expect_region(struct model_thread *t, struct model_region *r, uint64_t from, uint64_t to);
void model_expect_file(struct model_thread *t, struct model_file *f);
/* Applies a write of @len bytes to the model. */
void model_put(struct model_thread *t, struct model_file *f, uint64_t off, const unsigned char *bytes, uint64_t len);
void model_cut(struct model_file *f, uint64_t len);

/* Mostly short, sometimes the maximum; often aligned, as direct I/O needs it. */
uint64_t model_any_length(struct model_thread *t);
uint64_t model_any_offset(struct model_thread *t, uint64_t room);

/* Truncates, extends, punches or writes the file without the library. */
void model_change_own(struct model_thread *t, struct model_file *f);
void model_change_common(struct model_thread *t);

/* Makes one operation of a random kind. */
void model_step(struct model_thread *t);
/* Opens or closes the endpoints, regions, queue and streams of a thread. */
void model_open_all(struct model_thread *t);
void model_close_all(struct model_thread *t);
void model_open_endpoint(struct model_thread *t, struct model_endpoint *e);
/* Closes one of the thread's own endpoints, one of its regions, or its queue and all its streams, and opens another. */
void model_reopen(struct model_thread *t);
void model_renew_region(struct model_thread *t);
void model_renew_streams(struct model_thread *t);
struct model_region *model_any_region(struct model_thread *t);
const char *model_name_of(const struct model_thread *t, const struct model_endpoint *e);
/* Called before the file changes: endpoints that declared it immutable are opened again without that flag. */
void model_break_promises(struct model_thread *t, const struct model_file *f);

#endif
