/* SPDX-License-Identifier: MIT */
#ifndef FAKECUDA_FAKE_H
#define FAKECUDA_FAKE_H

/*
 * A CUDA driver on host memory, for tests. It has the calls of app.h, GPUs whose memory the CPU cannot access, streams
 * that run by themselves, and is strict: what the real driver leaves undefined is a violation here.
 *
 * The fake GPU has another address for registered host memory than the CPU. Freed memory and destroyed handles are
 * remembered, so that their use is noticed.
 */

#include <stdbool.h>

#include "fakecuda/app.h"

#pragma GCC visibility push(default)

#define FAKE_CALL(name, args) cu_result name args;
CUDA_ALL(FAKE_CALL)
#undef FAKE_CALL
cu_result cuGetProcAddress_v2(const char *symbol, void **fn, int version, uint64_t flags, int *status);

/* Configuration of the machine; set before the first call. */
struct fake_machine {
	int devices;	    /* 1 */
	int driver_version; /* 13000 */
	size_t memory;	    /* of each device, 256 MiB */
	bool no_dmabuf, no_read_only, no_wait_value, no_handle_retain, no_mapping_attributes;
	bool unregister_waits; /* cuMemHostUnregister waits for the streams of its context, cuMemFree for all of the device */
	unsigned int copy_us; /* how long a copy takes at least */
	unsigned int queues;  /* of the hardware, shared by all streams of a context; 0: each has its own */
	/* Called by cuInit without a lock: the real one starts programs, and takes long. */
	void (*in_init)(void);
	/* Called before a copy to the device, or a kernel, is put on a stream. */
	void (*in_copy)(void);
};
extern struct fake_machine fake_machine;

/*
 * Makes a call fail: the @nth from now (1 is the next) of those named @symbol, NULL for any that can, returns @result
 * instead. A call that frees something frees it nevertheless. 0 turns it off.
 */
void fake_fail(const char *symbol, unsigned int nth, cu_result result);
/* Calls that could have failed since then, and whether one did. */
unsigned int fake_calls(void);
bool fake_failed(void);
/* The name of the call that failed. */
const char *fake_failed_call(void);

/* What is in use now. */
struct fake_usage {
	size_t device_bytes, registered_bytes;
	unsigned int allocations, registrations, streams, events, modules, contexts, primary_refs, handles;
};
struct fake_usage fake_usage(void);

/* Violations so far; each is printed on stderr as well. */
unsigned int fake_violations(void);
/* The number of contexts on the calling thread's stack, and its capture mode. */
unsigned int fake_depth(void);
int fake_capture_mode(void);
/* Flags a registration of host memory was made with, -1 if there is none. */
int fake_registered(const void *ptr);
/* The number of registrations that were ended by another thread than the one that made them. */
unsigned int fake_strangers(void);
/* The device's SYNC_MEMOPS of an allocation, and how often writes of peers were flushed. */
int fake_sync_memops(cu_ptr ptr);
unsigned int fake_flushes(void);
unsigned int fake_launches(void);
/* Pretends that a capture is in progress on a stream. */
void fake_set_capturing(cu_stream s, bool on);
/* Accesses device memory without the driver. */
void *fake_memory(cu_ptr ptr);

#pragma GCC visibility pop

#endif
