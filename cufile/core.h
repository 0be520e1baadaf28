/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_CORE_H
#define CUFILE_CORE_H

/*
 * State and functions that the files of libcufile share.
 *
 * cf.lock protects all tables. It is never held across a call to Strait or CUDA, because both may call fork(), and the
 * fork handlers take it. Handles that the application passes in are looked up in tables of live objects, so an invalid
 * or stale handle is an error, not a crash. A table holds a reference to each object in it.
 *
 * A call that uses the context, or adds to a table, runs between cf_enter() and cf_leave(). The last
 * cuFileDriverClose() waits for all such calls.
 *
 * After fork() the child starts with empty tables and a closed driver, which it can open again.
 */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cufile.h>
#include <strait/strait.h>

#include "hash.h"

struct cf_mem;

#define CF_API __attribute__((visibility("default")))

enum cf_level { CF_NOTICE, CF_ERROR, CF_WARN, CF_INFO, CF_DEBUG, CF_TRACE };

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

/* One thread at a time opens or closes the driver. It does so without a lock, because CUDA may call fork(). */
enum cf_transition { CF_STEADY, CF_OPENING, CF_CLOSING };

struct cf_state {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* @transition became CF_STEADY, or @users became 0 during CF_CLOSING */
	enum cf_transition transition;
	long opens;	    /* 0 during a transition */
	unsigned int users; /* calls between cf_enter() and cf_leave() */
	struct strait_context *ctx;
	_Atomic uint32_t routes; /* a mask: the routes that transfers may take */
	bool leases;		 /* read leases may be taken */
	struct cf_hash files, files_by_fd;
};

extern struct cf_state cf;

static inline CUfileError_t cf_error(int code)
{
	CUfileError_t e = { .err = (CUfileOpError)code };

	return e;
}

#define CF_OK cf_error(CU_FILE_SUCCESS)

/* The CUfileOpError for a negative errno of Strait, CU_FILE_SUCCESS for 0. */
int cf_code_of_errno(int rc);
/* Sets errno and returns -1. @err is a positive errno or a CUfileOpError. */
ssize_t cf_fail(int err);
uint64_t cf_now_ns(void);

/*
 * driver.c. Both return a CUfileOpError, and keep the context open until cf_leave(). cf_enter() opens the driver if
 * necessary; cf_enter_open() fails if it is not open.
 */
int cf_enter(struct strait_context **ctx);
int cf_enter_open(struct strait_context **ctx);
void cf_leave(void);
/* Opens the driver if it is not open. A CUfileOpError. */
int cf_open_implicit(void);
bool cf_is_open(void);
/* The version that is reported to programs: 1150 is 1.15. */
int cf_version(void);
/* The caller makes sure that the driver stays open. */
struct strait_context *cf_context(void);

/* handle.c. A reference to a registered file, or NULL. */
struct cf_file *cf_file_get(CUfileHandle_t fh);
void cf_file_ref(struct cf_file *f, unsigned int n);
void cf_file_put(struct cf_file *f, unsigned int n);
/* The endpoint for batches and streams: with a read lease, if the file can have one. */
struct strait_endpoint *cf_file_endpoint(struct cf_file *f, uint32_t op);
void cf_files_drop_all(void);
void cf_files_forked(void);

/* io.c. Bytes, or a negative errno or CUfileOpError. */
ssize_t cf_transfer(struct cf_file *f, uint32_t op, const void *base, size_t size, off_t file_off, off_t buf_off);

/* stream.c. Closing: no call is between cf_enter() and cf_leave(). Reaping frees transfers that have completed. */
void cf_streams_close_all(void);
void cf_streams_reap(void);
void cf_streams_forked(void);

/* Called in the child after fork(). */
void cf_batches_forked(void);
void cf_params_forked(void);
void cf_stats_forked(void);
void cf_run_stats_forked(void);

/* stats.c */
enum cf_op {
	CF_HANDLE_REG,
	CF_HANDLE_DEREG,
	CF_BUF_REG,
	CF_BUF_DEREG,
	CF_BATCH_SETUP,
	CF_BATCH_CANCEL,
	CF_BATCH_DESTROY
};
void cf_stat_op(enum cf_op op, bool ok);
/* A buffer was registered or deregistered. @m is NULL if that failed. */
void cf_stat_buffer(const struct cf_mem *m, bool registered);
/* A transfer completed. @at: its offsets and its size or'ed together, to tell whether all are multiples of a page. */
void cf_stat_io(uint32_t op, int64_t result, uint64_t ns, const struct cf_mem *m, uint32_t routes, uint64_t at);
void cf_stat_vector(uint32_t op, int64_t result, uint64_t ns);
void cf_stat_submit(const CUfileIOParams_t *p, unsigned int entries, bool ok, uint64_t ns);
void cf_stat_batch(uint32_t op, int64_t result, uint64_t ns);
void cf_stats_configure(size_t level);
bool cf_stats_wanted(void);

/* run_stats.c: counters that `strait run` reads. @route_bytes may be NULL. */
void cf_run_stats_open(void);
void cf_run_stats_add(uint32_t op, int64_t result, const uint64_t *route_bytes);
bool cf_run_stats_wanted(void);

/* params.c: the values in force. cf_params_check() replaces those out of range by their defaults. */
void cf_params_load(void);
void cf_params_check(void);
/* Sets up the log as the parameters say. */
void cf_params_apply_log(void);
size_t cf_param_size(CUFileSizeTConfigParameter_t p);
bool cf_param_bool(CUFileBoolConfigParameter_t p);
/* Does the value differ from the default? */
bool cf_param_size_chosen(CUFileSizeTConfigParameter_t p);
void cf_param_override_size(CUFileSizeTConfigParameter_t p, size_t value);
void cf_param_override_bool(CUFileBoolConfigParameter_t p, bool value);
/* Size of the staging pool in bytes, 0 for the default. */
uint64_t cf_param_pool_bytes(void);
/* Values of cufile.json and the environment: they do not replace what the program has set. */
void cf_param_configure_size(CUFileSizeTConfigParameter_t p, size_t value);
void cf_param_configure_bool(CUFileBoolConfigParameter_t p, bool value);
void cf_param_configure_string(CUFileStringConfigParameter_t p, const char *value);
void cf_param_configure_slab(bool count, unsigned int index, size_t value);

/* config.c: applies cufile.json, then the environment. */
void cf_config_read(void);

/* log.c */
void cf_log(enum cf_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool cf_log_enabled(enum cf_level level);
int cf_level_parse(const char *name);
void cf_log_setup(const char *level, const char *dir, const char *path);
void cf_log_forked(void);
void cf_log_strait(void *arg, enum strait_log_level level, const char *text);

#endif
