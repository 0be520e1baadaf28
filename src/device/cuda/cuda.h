/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_CUDA_CUDA_H
#define DEVICE_CUDA_CUDA_H

/*
 * NVIDIA GPUs through the CUDA driver.
 *
 * The calling thread's current context is left as it was found: every call works between cuda_enter()
 * and cuda_leave(), which also keep it from disturbing a stream capture the application has under way.
 *
 * Memory is worked on in the context it belongs to, which may be the application's. What the provider has
 * in a context (streams, events, kernels, scratch memory) hangs on a struct cuda_ctx. The application may
 * destroy a context or reset the device: what was in it is then gone without notice. A cuda_ctx finds that out
 * by asking for the page of its own that it registered there, before it touches any handle.
 *
 * Locks, outer to inner: cuda_device.lock, cuda_ctx.lock; cuda_watch.lock, cuda_stream.lock; cuda_device.reg_lock. The
 * first two may be held during a driver call.
 */

#include <pthread.h>

#include "device/cuda/api.h"
#include "device/provider.h"

#define CUDA_PAGE KIB(64)

/* Results of kernels, written by the GPU into host memory. */
struct cuda_scratch {
	struct list node;
	void *ptr;
	uint64_t dev_addr;
};

#define CUDA_SCRATCH_BYTES KIB(32)

#define CUDA_WORDS 256 /* of the page of a context, a cache line each */

enum cuda_kernel { CUDA_COPY_LIST, CUDA_COMPARE, CUDA_CRC32C, CUDA_KERNELS };

enum { CUDA_KERNELS_UNTRIED = 1, CUDA_KERNELS_LOADING };

/* What the provider has in one CUDA context. */
struct cuda_ctx {
	struct list node; /* cuda_device.contexts */
	struct cuda_device *cd;
	cu_context ctx;
	bool primary; /* the device's own context, retained */
	bool own;     /* made by the provider, see cuda_ctx_get_windows() */
	atomic_uint refs;
	atomic_bool dead;		 /* the context was destroyed or reset; once is for good */
	atomic_bool suspect;		 /* a call failed as it would while that happens */
	void *page;			 /* registered in the context: known to the driver as long as that lives */
	bool page_has_context;		 /* the driver names the context a registered page belongs to */
	cu_ptr page_addr;		 /* where the GPU sees it, 0 if not known */
	pthread_mutex_t lock;		 /* protects what follows */
	uint64_t words[CUDA_WORDS / 64]; /* which words of the page are some stream's */
	struct list scratch;		 /* idle */
	cu_event wait_events[8];	 /* idle */
	unsigned int n_wait_events;
	bool first_seen_by_stream; /* first seen by a stream of its, which may have work to do */
	cu_module module;
	cu_function kernel[CUDA_KERNELS];
	int module_status; /* CUDA_KERNELS_UNTRIED, CUDA_KERNELS_LOADING, 0, or why there are no kernels */
};

/* The thread that looks whether streams have come to a notice; notify.c. */
struct cuda_watch {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct list streams; /* cuda_stream.watch_node */
	unsigned long thread;
	bool started, stop;
	bool fresh; /* a stream was added */
};

struct cuda_device {
	struct strait_device *dev;
	cu_device ordinal;
	bool dmabuf;
	bool managed_cpu; /* the CPU may touch managed memory while the GPU works */
	bool read_only;	  /* host memory can be registered for reading alone */
	int flush_options, writes_ordering;
	uint64_t mem_total;
	char model[96];
	char pci[16];
	pthread_mutex_t lock;
	struct list contexts;
	struct cuda_ctx *primary; /* NULL until needed; kept from then on */
	struct cuda_ctx *windows; /* likewise */
	cu_context spare_ctx;	  /* made for the windows' context, which could not be made */
	pthread_mutex_t reg_lock;
	struct list files; /* registered windows of files, struct cuda_reg; under @reg_lock */
	struct cuda_watch watch;
};

struct cuda_stream {
	struct dev_stream base;
	struct cuda_ctx *ctx;
	cu_stream handle;
	bool imported;
	cu_ptr scratch;		/* memory of the device that goes with it, 0 if none does */
	cu_event done;		/* for copy_now; raises no interrupt. NULL for a stream of the application's */
	_Atomic uint32_t *word; /* of the context's page, written by the GPU when a copy is done; or NULL */
	uint32_t value;		/* of the last such write */
	pthread_mutex_t lock;
	struct list calls;	       /* functions put on it and not called yet; under @lock */
	_Atomic uint32_t *notify_word; /* of the context's page, written where a notice is due; or NULL */
	uint32_t notify_value;	       /* of the last one; under @lock */
	bool no_notices;
	bool watched; /* in cuda_watch.streams; under its lock */
	struct list watch_node;
};

static inline struct cuda_device *cuda_device(const struct strait_device *dev)
{
	return dev->priv;
}

static inline bool cuda_removed(const struct cuda_device *cd)
{
	return atomic_load_explicit(&cd->dev->removed, memory_order_acquire);
}

static inline struct cuda_stream *cuda_stream(struct dev_stream *s)
{
	return container_of(s, struct cuda_stream, base);
}

/* ctx.c. A reference on a context of the device; NULL is its primary one. */
int cuda_ctx_get(struct cuda_device *cd, cu_context ctx, struct cuda_ctx **ret);
/*
 * A reference on a context of the provider's own, where windows of files are registered. cuMemHostUnregister()
 * waits for all work of the context it is called in, and makes every thread that calls the driver there wait as
 * well: in a context of the application's that would be the application's work, which may itself wait for a
 * transfer. In a context where nothing runs it waits for nothing.
 */
int cuda_ctx_get_windows(struct cuda_device *cd, struct cuda_ctx **ret);
/* Asks the driver whether the context is still there. */
bool cuda_ctx_alive(struct cuda_ctx *cc);
/* -ENODEV when the device was reset: memory registered with it is registered no more. */
int cuda_primary_check(struct cuda_device *cd);
void cuda_ctx_ref(struct cuda_ctx *cc);
void cuda_ctx_put(struct cuda_ctx *cc);

/*
 * Make the context current: -ENODEV when it is gone. After 0, cuda_leave() on the same thread
 * brings back what was current before.
 */
struct cuda_entry {
	int capture_mode;
	bool capture;
};
/* After a call in the context has failed: should it go away now, the next cuda_enter() will see it. */
void cuda_suspect(struct cuda_ctx *cc, cu_result r);
/* For how long; a test in which calls fail for no reason need not wait. */
extern uint64_t cuda_suspect_ns;
/* The same, and the answer. */
bool cuda_valid_after_error(struct cuda_ctx *cc, cu_result r);
int cuda_enter(struct cuda_ctx *cc, struct cuda_entry *e);
void cuda_leave(struct cuda_entry *e);
/* The same for a context that has no struct cuda_ctx yet. */
cu_result cuda_push(cu_context ctx, struct cuda_entry *e);

/* scratch.c. Inside cuda_enter(), but for cuda_scratch_free() in a context that is gone. */
int cuda_scratch_get(struct cuda_ctx *cc, struct cuda_scratch **ret);
void cuda_scratch_put(struct cuda_ctx *cc, struct cuda_scratch *s);
void cuda_scratch_free(struct cuda_ctx *cc, bool entered);

/*
 * kernel.c. cuda_kernels_expect() loads the kernels unless that has been tried: when a context is first seen, since
 * later, when they are needed, it may have work that does not end before what they are needed for. If it was first seen
 * by a stream that may be so already: then only if they are @wanted.
 */
void cuda_kernels_expect(struct cuda_ctx *cc, bool wanted);
bool cuda_kernels_ready(struct cuda_ctx *cc);
void cuda_kernels_unload(struct cuda_ctx *cc);
cu_result cuda_launch(struct cuda_stream *s, enum cuda_kernel k, unsigned int warps, void *args);

/* load_gate.c */
void cuda_stream_waits_begin(struct strait_device *dev);
void cuda_stream_waits_end(struct strait_device *dev);
/* Around a call for which the driver waits until all work is done: no stream waits for a transfer between the two. */
void cuda_load_gate_begin(void);
void cuda_load_gate_end(void);
bool cuda_load_gate_try_begin(void);

/* wait.c. Inside cuda_enter(): CU_NOT_READY when the time is up. */
/* Until it has nothing to do, but not for long. */
void cuda_wait_moment(cu_stream s);
cu_result cuda_wait_stream(struct cuda_stream *s, int64_t timeout_ns);
cu_result cuda_wait_event(cu_event e, int64_t timeout_ns);
/* Has the word the value, or gets it within as long as polling is worth it? */
bool cuda_spin_word(const _Atomic uint32_t *word, uint32_t value);
/*
 * Work was put on the stream and then something failed: what is on the stream is waited for, so that the
 * memory it uses may be given back. Returns @r.
 */
cu_result cuda_drain_on_error(struct cuda_stream *s, cu_result r);

/* stream.c. The errno for a result of work on @s, which is remembered as the stream's status. */
void cuda_stream_put_word(struct cuda_stream *s);
int cuda_stream_errno(struct cuda_stream *s, cu_result r);
/* The end of a call for the stream, inside cuda_enter(): that of the entry, too. */
int cuda_stream_leave(struct cuda_stream *s, struct cuda_entry *e, cu_result r);
int cuda_stream_open(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret);
int cuda_stream_open_isolated(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret);
int cuda_stream_scratch(struct dev_stream *s, uint64_t len, uint64_t *addr);
int cuda_stream_import(struct strait_device *dev, void *native, struct dev_stream **ret);
void cuda_stream_close(struct dev_stream *s);
void cuda_stream_forget(struct dev_stream *s);
bool cuda_stream_lost(struct dev_stream *s);
int cuda_stream_wait(struct dev_stream *s, int64_t timeout_ns);
int cuda_stream_call(struct dev_stream *s, strait_stream_fn *fn, void *arg);
int cuda_stream_wait_word(struct dev_stream *s, _Atomic uint32_t *word, uint64_t dev_addr, uint32_t value);

cu_result cuda_check_capture(struct cuda_stream *s);

/* word.c */
/* Words of the context's page that the GPU writes: NULL if there is none left. @value is what it holds. */
_Atomic uint32_t *cuda_word_get(struct cuda_ctx *cc, uint32_t *value);
void cuda_word_put(struct cuda_ctx *cc, _Atomic uint32_t *word);
cu_ptr cuda_word_addr(const struct cuda_ctx *cc, const _Atomic uint32_t *word);

/* notify.c. Before the stream goes: nobody looks at it any more. */
int cuda_stream_notify(struct dev_stream *s, strait_stream_fn *fn, void *arg);
void cuda_stream_poll_notices(struct dev_stream *s);
void cuda_stream_unwatch(struct cuda_stream *s);
void cuda_watch_init(struct cuda_watch *w);
void cuda_watch_fini(struct cuda_watch *w);

struct cuda_call {
	struct list node; /* cuda_stream.calls */
	struct cuda_stream *stream;
	strait_stream_fn *fn;
	void *arg;
	bool notice; /* due when the stream's word has come to @value */
	uint32_t value;
	atomic_int state;
};

/*
 * call.c. Inside cuda_enter(): puts a function on the stream, or a notice. cuda_call_due(): the notice whose
 * time has come, taken from the list; @more says whether one is owed. cuda_calls_run_pending(): the stream has failed,
 * call what the driver will not. cuda_calls_end(): the same before the stream goes, in a context that may
 * be gone.
 */
cu_result cuda_call_put(struct cuda_stream *s, strait_stream_fn *fn, void *arg, bool notice);
struct cuda_call *cuda_call_due(struct cuda_stream *s, bool *more);
void cuda_calls_run_pending(struct cuda_stream *s);
void cuda_calls_end(struct cuda_stream *s, bool alive);

/* event.c */
int cuda_event_open(struct dev_stream *s, struct dev_event **ret);
void cuda_event_close(struct dev_event *e);
int cuda_event_record(struct dev_event *e, struct dev_stream *s);
int cuda_event_wait(struct dev_event *e, int64_t timeout_ns);

/* copy_now.c */
int cuda_copy_now(struct dev_stream *stream, uint64_t addr, void *host, uint64_t len, bool out);
int cuda_copy_within_now(struct dev_stream *s, uint64_t dst, uint64_t src, uint64_t len);

/* mem.c, import.c */
int cuda_mem_alloc(struct strait_device *dev, uint64_t len, struct provider_mem *m);
void cuda_mem_free(struct strait_device *dev, struct provider_mem *m);
int cuda_ptr_device(struct provider *p, uint64_t addr, struct strait_device **ret);
int cuda_ptr_extent(struct strait_device *dev, uint64_t addr, uint64_t *len);
int cuda_mem_import(struct strait_device *dev, uint64_t addr, uint64_t len, struct provider_mem *m);
void cuda_mem_release(struct strait_device *dev, struct provider_mem *m);
int cuda_mem_check(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len);
int cuda_mem_dmabuf(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd);
int cuda_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu);
int cuda_mem_sync_memops(struct strait_device *dev, const struct provider_mem *m, bool on);
int cuda_flush_peer_writes(struct strait_device *dev);

/* hostreg.c */
/* Where the CPU sees a device address that is in a window of a file, NULL for other memory. */
const void *cuda_file_window_ptr(struct cuda_device *cd, uint64_t dev_addr);
int cuda_host_register(struct strait_device *dev, void *ptr, size_t len, uint32_t flags, struct host_reg *ret);
void cuda_host_unregister(struct strait_device *dev, struct host_reg *reg);
int cuda_mmio_map(struct strait_device *dev, void *mmio, size_t len, struct host_reg *ret);

/* copy.c, compute.c */
int cuda_copy_in(struct dev_stream *s, uint64_t dst, const void *src, uint64_t len);
int cuda_copy_out(struct dev_stream *s, void *dst, uint64_t src, uint64_t len);
int cuda_copy_pages(struct dev_stream *s, uint64_t dst, const struct host_reg *reg, uint64_t off, uint64_t len);
int cuda_copy_list(struct dev_stream *s, const struct copy_seg *segs, unsigned int n);
void cuda_prepare_copy_lists(struct strait_device *dev);
int cuda_fill(struct dev_stream *s, uint64_t dst, uint8_t value, uint64_t len);
int cuda_compare(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t *where);
int cuda_crc32c(struct dev_stream *s, uint64_t addr, uint64_t len, uint32_t *crc);

extern const struct provider_ops cuda_provider_ops;

#endif
