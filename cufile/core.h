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
#include "log.h"

#define CF_API __attribute__((visibility("default")))

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

/* batch.c: called in the child after fork(). */
void cf_batches_forked(void);

/* stream.c. Closing: no call is between cf_enter() and cf_leave(). Reaping frees transfers that have completed. */
void cf_streams_close_all(void);
void cf_streams_reap(void);
void cf_streams_forked(void);

#endif
