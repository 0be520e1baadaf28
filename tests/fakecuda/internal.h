/* SPDX-License-Identifier: MIT */
#ifndef FAKECUDA_INTERNAL_H
#define FAKECUDA_INTERNAL_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/util.h"
#include "device/cuda/kernel.h"
#include "fakecuda/fake.h"

/* One lock for all state, and a condition for every change of it. Not held while bytes are copied. */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;

#define MAX_DEVICES 8
#define MAX_STACK 16
#define HOST_SHIFT (1ull << 44) /* how far the GPU's address of registered memory is from the CPU's */

#define FAKE_QUEUES 32

struct cu_context_st {
	struct list node;
	int device;
	bool primary;
	bool alive;
	cu_result sticky; /* a failure of work in it */
	cu_stream default_stream;
	unsigned int streams; /* made so far */
	uint64_t queued[FAKE_QUEUES], passed[FAKE_QUEUES];
	uint32_t bytes_done[CUDA_MARKS]; /* the counts of marked copies */
};

struct device {
	size_t used;
	struct cu_context_st primary;
	unsigned int primary_refs;
};

enum kind { DEVICE, MAPPED, POOLED, MANAGED, PINNED, REGISTERED };

/* Memory the driver knows. */
struct memory {
	struct list node;
	enum kind kind;
	int device;
	cu_context ctx; /* NULL for mapped and pooled memory */
	cu_ptr addr;	/* the GPU's */
	size_t len;
	char *cpu;	 /* address of the bytes for the fake */
	int fd;		 /* of device memory */
	cu_ptr reserved; /* the address range a mapping lies in */
	size_t reserved_len;
	uint64_t id;
	unsigned int flags; /* of a registration */
	pthread_t by;	    /* the thread that registered it */
	unsigned int sync_memops;
	unsigned int busy; /* operations that use it now */
	struct physical *phys;
};

/* What cuMemCreate makes. */
struct physical {
	struct list node;
	int device;
	size_t len;
	int fd;
	unsigned int refs;
};

extern struct device devices[MAX_DEVICES];
extern struct list memories, physicals, contexts;
extern struct fake_usage usage;

void violation(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Called at the start of every call. inject(): must it fail, and how? For a call that frees, the result is only
 * returned at the end.
 */
cu_result inject(const char *symbol);

/* Held while a module is loaded, which waits for all work of its context: no other call is admitted meanwhile. */
extern pthread_mutex_t fake_loading;

#define MAY_FAIL()                                                                                                     \
	do {                                                                                                           \
		cu_result injected_ = inject(__func__);                                                                \
		if (injected_)                                                                                         \
			return injected_;                                                                              \
	} while (0)

/*
 * Functions below are called with the lock held unless their comment says otherwise.
 *
 * The current context: CU_OK, or why there is none.
 */
cu_result current(cu_context *ret);
cu_context current_or_null(void);
bool context_known(cu_context ctx);

/* The memory that contains all of [addr, addr + len), by the GPU's or the CPU's address. */
struct memory *memory_at(cu_ptr addr, size_t len);
struct memory *memory_at_cpu(const void *ptr, size_t len);
/*
 * Without the lock: the bytes of a GPU address, for an operation in @ctx, until span_put(). False for an address that
 * the GPU cannot use so.
 */
struct span {
	struct memory *m;
	char *p;
};
bool span_get(cu_context ctx, cu_ptr addr, size_t len, bool write, struct span *ret);
bool span_get_copy(cu_context ctx, cu_ptr addr, size_t len, bool write, struct span *ret);
void span_put(struct span *s);
/* Also copies from a file mapping whose pages are gone. */
void copy_bytes(char *dst, const char *src, size_t len);
void memory_context_gone(cu_context ctx);

/* Streams of a context, or all of a device's, are idle. */
void streams_wait(cu_context ctx, int device);
void streams_context_gone(cu_context ctx);
void modules_context_gone(cu_context ctx);

/* Runs @fn(arg, args) in stream order, where @args is a copy; its result sticks to the context. */
typedef cu_result work_fn(cu_context ctx, void *args);
cu_result stream_submit(cu_stream s, work_fn *fn, const void *args, size_t len, bool wait);
cu_result stream_of(cu_stream s, cu_context *ctx, cu_stream *ret);

#endif
