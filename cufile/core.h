/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_CORE_H
#define CUFILE_CORE_H

/*
 * What the parts of libcufile share. One lock, cf.lock, guards all tables; it is never held over a call of Strait
 * or CUDA: fork() takes it. Objects (files, memory, batches) are found by pointer in tables of what is alive, so that a
 * handle that is no longer, or never was, one is noticed. A table has a reference of what is in it.
 *
 * Whoever needs the context, or puts something into a table, is inside of cf_enter() and cf_leave(): the last
 * close waits until nobody is.
 *
 * In a child made by fork() everything starts empty: what was inherited is not registered there, and the
 * driver can be opened anew.
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
	int fd; /* the number it was registered under; not ours */
	dev_t dev;
	ino_t ino;
	atomic_bool read_only; /* and worth a lease */
	struct strait_endpoint *ep;
	/* The same with a read lease, for batches and streams; made when first asked for, NULL before. */
	_Atomic(struct strait_endpoint *) leased;
	pthread_mutex_t lease_lock;
};

/* One thread at a time opens or closes the driver, without a lock: both wait for CUDA, which may fork. */
enum cf_transition { CF_STEADY, CF_OPENING, CF_CLOSING };

struct cf_state {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* @transition is CF_STEADY again, or the last user left a driver that is CF_CLOSING */
	enum cf_transition transition;
	long opens; /* 0 while it changes */
	unsigned int users;
	struct strait_context *ctx;
	_Atomic uint32_t routes; /* what transfers may take */
	bool leases;		 /* may be taken on files */
	struct cf_hash files, files_by_fd;
};

extern struct cf_state cf;

static inline CUfileError_t cf_error(int code)
{
	CUfileError_t e = { .err = (CUfileOpError)code };

	return e;
}

#define CF_OK cf_error(CU_FILE_SUCCESS)

/* What an errno of Strait is among cuFile's errors. */
int cf_code_of_errno(int rc);
/* Sets errno and gives -1. @err is a positive errno or a CUfileOpError. */
ssize_t cf_fail(int err);
uint64_t cf_now_ns(void);

/*
 * driver.c. cf_enter() opens the driver unless it is open; a CUfileOpError. With cf_enter_open() it has to be open.
 * The context is there until cf_leave().
 */
int cf_enter(struct strait_context **ctx);
int cf_enter_open(struct strait_context **ctx);
void cf_leave(void);
/* Opens the driver unless it is open. */
int cf_open_implicit(void);
bool cf_is_open(void);
/* What is claimed: 1.15 is 1150. */
int cf_version(void);
/* For those who know that nobody closes the driver meanwhile. */
struct strait_context *cf_context(void);

/* handle.c. A reference, or NULL for what is no registered file. */
struct cf_file *cf_file_get(CUfileHandle_t fh);
void cf_file_ref(struct cf_file *f, unsigned int n);
void cf_file_put(struct cf_file *f, unsigned int n);
/* What to move many pieces through. */
struct strait_endpoint *cf_file_endpoint(struct cf_file *f, uint32_t op);
void cf_files_drop_all(void);
void cf_files_forked(void);

/* io.c. Bytes, or a negative errno or CUfileOpError. */
ssize_t cf_transfer(struct cf_file *f, uint32_t op, const void *base, size_t size, off_t file_off, off_t buf_off);

/* stream.c. Nobody is inside then. */
void cf_streams_close_all(void);
void cf_streams_reap(void);
void cf_streams_forked(void);

/* In a forked child. */
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
/* A buffer of @m was registered or given back, or could not be: NULL. */
void cf_stat_buffer(const struct cf_mem *m, bool registered);
/* A transfer. @at: the bits of its offsets and its size, to see whether all are whole pages. */
void cf_stat_io(uint32_t op, int64_t result, uint64_t ns, const struct cf_mem *m, uint32_t routes, uint64_t at);
void cf_stat_vector(uint32_t op, int64_t result, uint64_t ns);
void cf_stat_submit(const CUfileIOParams_t *p, unsigned int entries, bool ok, uint64_t ns);
void cf_stat_batch(uint32_t op, int64_t result, uint64_t ns);
void cf_stats_configure(size_t level);
bool cf_stats_wanted(void);

/* run_stats.c. @route_bytes may be NULL. */
void cf_run_stats_open(void);
void cf_run_stats_add(uint32_t op, int64_t result, const uint64_t *route_bytes);
bool cf_run_stats_wanted(void);

/* params.c. Values in force; at open they have been checked. */
void cf_params_load(void);
void cf_params_check(void);
/* Log from now on as the parameters say. */
void cf_params_apply_log(void);
size_t cf_param_size(CUFileSizeTConfigParameter_t p);
bool cf_param_bool(CUFileBoolConfigParameter_t p);
/* Set by somebody to another value than the default. */
bool cf_param_size_chosen(CUFileSizeTConfigParameter_t p);
void cf_param_override_size(CUFileSizeTConfigParameter_t p, size_t value);
void cf_param_override_bool(CUFileBoolConfigParameter_t p, bool value);
/* Bytes of the staging pool asked for, 0 if nobody did. */
uint64_t cf_param_pool_bytes(void);
/* From cufile.json and the environment. */
void cf_param_configure_size(CUFileSizeTConfigParameter_t p, size_t value);
void cf_param_configure_bool(CUFileBoolConfigParameter_t p, bool value);
void cf_param_configure_string(CUFileStringConfigParameter_t p, const char *value);
void cf_param_configure_slab(bool count, unsigned int index, size_t value);

/* config.c: reads cufile.json, then the environment. */
void cf_config_read(void);

/* log.c */
void cf_log(enum cf_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool cf_log_enabled(enum cf_level level);
int cf_level_parse(const char *name);
void cf_log_setup(const char *level, const char *dir, const char *path);
void cf_log_forked(void);
void cf_log_strait(void *arg, enum strait_log_level level, const char *text);

#endif
