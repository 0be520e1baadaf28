/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_CUDA_CUDA_H
#define DEVICE_CUDA_CUDA_H

/*
 * NVIDIA GPUs through the CUDA driver.
 *
 * Every driver call that needs a context is between cuda_enter() and cuda_leave(). These restore the calling thread's
 * current context and do not invalidate a stream capture of the application.
 *
 * Operations on memory run in the context the memory belongs to, which may be the application's. A struct cuda_ctx has
 * all objects of the provider in one context: streams, events, kernels, scratch memory. The application may destroy a
 * context or reset the device, which destroys these objects without notice, and the driver may crash if it is given a
 * stale handle. So each cuda_ctx registers a page of host memory in its context; before it uses a handle it asks the
 * driver whether the page is still registered.
 *
 * Lock order: cuda_windows.lock; cuda_device.lock, cuda_ctx.lock; cuda_watch.lock, cuda_stream.lock; cuda_device.reg_lock. The
 * first two may be held during a driver call.
 */

#include <pthread.h>

#include "device/cuda/api.h"
#include "device/provider.h"

#define CUDA_PAGE KIB(64)

/* Host memory to which a kernel writes its results. */
struct cuda_scratch {
	struct list node;
	void *ptr;
	uint64_t dev_addr;
};

#define CUDA_SCRATCH_BYTES KIB(32)

#define CUDA_WORDS 1024 /* words in the page of a context, a cache line each */

enum cuda_kernel { CUDA_COPY_LIST, CUDA_COPY_MARKED, CUDA_COMPARE, CUDA_CRC32C, CUDA_COMPARE_PAGES, CUDA_KERNELS };

/* cuda_ctx.module_status, beside 0 and negative errnos. */
enum { CUDA_KERNELS_UNTRIED = 1, CUDA_KERNELS_LOADING };

/* A CUDA context and the objects of the provider in it. */
struct cuda_ctx {
	struct list node; /* cuda_device.contexts */
	struct cuda_device *cd;
	cu_context ctx;
	bool primary; /* the primary context of the device, retained */
	bool own;     /* created by the provider, see cuda_ctx_get_windows() */
	atomic_uint refs;
	atomic_bool dead;	     /* the context was destroyed or reset; never cleared */
	atomic_bool suspect;	     /* a call failed with an error that destruction causes, see cuda_suspect() */
	_Atomic uint64_t checked_ns; /* when the context was last seen to exist */
	void *page;		     /* registered in the context, and so with the driver while the context exists */
	bool page_has_context;	     /* the driver reports the context of a registered page */
	cu_ptr page_addr;	     /* device address of @page, 0: unknown */
	pthread_mutex_t lock;	     /* protects the members below */
	uint64_t words[CUDA_WORDS / 64]; /* bitmap of allocated words of @page */
	struct list scratch;		 /* idle struct cuda_scratch */
	cu_event wait_events[8];	 /* idle events for cuda_wait_stream() */
	unsigned int n_wait_events;
	bool first_seen_by_stream; /* first used for an imported stream, which may have work in flight */
	cu_module module;
	cu_function kernel[CUDA_KERNELS];
	int module_status; /* CUDA_KERNELS_UNTRIED, CUDA_KERNELS_LOADING, 0: loaded, or a negative errno */
};

/* The thread that polls streams for notices that are due; notify.c. */
struct cuda_watch {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct list streams; /* cuda_stream.watch_node */
	unsigned long thread;
	bool started, stop;
	bool fresh; /* a stream was added */
};

/* The context in which file windows are registered; windows_ctx.c. */
struct cuda_windows {
	pthread_mutex_t lock; /* protects the members below; not held while the context is created */
	pthread_cond_t made;
	struct cuda_ctx *ctx; /* NULL until it is created; freed with the device */
	cu_context spare;     /* for @ctx, after an attempt that failed later; of the thread that set @making */
	bool making;
	atomic_bool ready;	 /* the context exists, or the attempt in the background failed */
	_Atomic uint64_t staged; /* bytes for which cuda_register_ready() was asked */
	bool thread_started;
	unsigned long thread;
};

struct cuda_device {
	struct strait_device *dev;
	cu_device ordinal;
	unsigned int arch; /* 90 for compute capability 9.0 */
	bool dmabuf;
	bool managed_cpu; /* the CPU may access managed memory while the GPU works */
	bool read_only;	  /* host memory can be registered as read-only */
	int flush_options, writes_ordering;
	uint64_t mem_total;
	char model[96];
	char pci[16];
	pthread_mutex_t lock;
	struct list contexts;
	struct cuda_ctx *primary; /* created on first use, freed with the device */
	struct cuda_windows windows;
	pthread_mutex_t reg_lock;
	struct list files; /* registered file windows, struct cuda_reg; under @reg_lock */
	struct cuda_watch watch;
};

struct cuda_stream {
	struct dev_stream base;
	struct cuda_ctx *ctx;
	cu_stream handle;
	bool imported;
	cu_ptr scratch; /* device memory of stream_scratch, 0: none */
	pthread_mutex_t lock;
	struct list calls;	       /* struct cuda_call not called yet; under @lock */
	_Atomic uint32_t *notify_word; /* the GPU writes it when a notice is due; NULL: not allocated */
	uint32_t notify_value;	       /* last value submitted for @notify_word; under @lock */
	bool no_notices;	       /* the GPU cannot write words: notices are host functions */
	bool watched;		       /* in cuda_watch.streams; under cuda_watch.lock */
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

/* ctx.c. Takes a reference on the cuda_ctx of @ctx, NULL for the primary context; creates it if needed. */
int cuda_ctx_get(struct cuda_device *cd, cu_context ctx, struct cuda_ctx **ret);
/*
 * Takes a reference on the context, created by the provider, in which file windows are registered.
 * cuMemHostUnregister() waits for all work of its context and blocks other driver calls in that context meanwhile. In a
 * context of the application that work may wait for a transfer, which would deadlock; this context has no such work.
 * windows_ctx.c. Waits until the context has been created.
 */
int cuda_ctx_get_windows(struct cuda_device *cd, struct cuda_ctx **ret);
/* Does that context exist? If not, counts the bytes, and has a thread create it once they are many. */
bool cuda_register_ready(struct strait_device *dev, uint64_t staged);
void cuda_windows_init(struct cuda_windows *w);
void cuda_windows_fini(struct cuda_windows *w);
/* ctx.c. Takes over a context that the provider has created. */
int cuda_ctx_adopt(struct cuda_device *cd, cu_context ctx, struct cuda_ctx **ret);
/* Asks the driver whether the context still exists. */
bool cuda_ctx_alive(struct cuda_ctx *cc);
/* -ENODEV: the device was reset, so host memory registered with it no longer is. */
int cuda_primary_check(struct cuda_device *cd);
void cuda_ctx_ref(struct cuda_ctx *cc);
void cuda_ctx_put(struct cuda_ctx *cc);

/* State that cuda_enter() saves and cuda_leave() restores. */
struct cuda_entry {
	int capture_mode;
	bool capture;
	bool pushed; /* the context was not the current one already */
};
/*
 * A call in the context failed with @r. If destruction of the context can cause that error, the next cuda_enter() polls
 * the page for cuda_suspect_ns before it trusts the context again.
 */
void cuda_suspect(struct cuda_ctx *cc, cu_result r);
/* Tests that inject errors set it to 0. */
extern uint64_t cuda_suspect_ns;
/* cuda_suspect(), and whether the context still exists after that time. */
bool cuda_valid_after_error(struct cuda_ctx *cc, cu_result r);
/*
 * Makes the context current. -ENODEV: it was destroyed. After 0 the same thread calls cuda_leave(), which restores the
 * previous context.
 */
int cuda_enter(struct cuda_ctx *cc, struct cuda_entry *e);
void cuda_leave(struct cuda_entry *e);
/* cuda_enter() for a context without a struct cuda_ctx; it does not check that the context exists. */
cu_result cuda_push(cu_context ctx, struct cuda_entry *e);

/* scratch.c. Called inside cuda_enter(), except cuda_scratch_free() with @entered false, for a destroyed context. */
int cuda_scratch_get(struct cuda_ctx *cc, struct cuda_scratch **ret);
void cuda_scratch_put(struct cuda_ctx *cc, struct cuda_scratch *s);
void cuda_scratch_free(struct cuda_ctx *cc, bool entered);

/*
 * kernel.c. cuda_kernels_expect() loads the kernels unless that was tried before. Loading waits for all work of the
 * context, and later that work may wait for the copies that need the kernels; so they are loaded when the context is
 * first used. A context first used for an imported stream may have such work already: there they are loaded only if
 * @wanted.
 */
void cuda_kernels_expect(struct cuda_ctx *cc, bool wanted);
bool cuda_kernels_ready(struct cuda_ctx *cc);
void cuda_kernels_unload(struct cuda_ctx *cc);
cu_result cuda_launch(struct cuda_stream *s, enum cuda_kernel k, unsigned int warps, void *args);

/* load_gate.c */
void cuda_stream_waits_begin(struct strait_device *dev);
void cuda_stream_waits_end(struct strait_device *dev);
/* Between these calls no stream waits for a transfer. For driver calls that wait for all work of a context. */
void cuda_load_gate_begin(void);
void cuda_load_gate_end(void);
/* cuda_load_gate_begin() that returns false instead of waiting for streams. */
bool cuda_load_gate_try_begin(void);

/* wait.c. Called inside cuda_enter(). cuda_wait_stream() and cuda_wait_event() return CU_NOT_READY on timeout. */
/* Waits until the stream is idle, at most half a millisecond. */
void cuda_wait_moment(cu_stream s);
cu_result cuda_wait_stream(struct cuda_stream *s, int64_t timeout_ns);
cu_result cuda_wait_event(cu_event e, int64_t timeout_ns);
/*
 * If @r is an error, waits for the work submitted to the stream before, so that the caller may free the memory that it
 * accesses. Returns @r.
 */
cu_result cuda_drain_on_error(struct cuda_stream *s, cu_result r);

/* stream.c. The errno for the result @r of a call on @s; stores an error as the stream's status. */
int cuda_stream_errno(struct cuda_stream *s, cu_result r);
/*
 * cuda_enter() for a call on the stream. -EOPNOTSUPP: the application is capturing the stream. After 0 the same thread
 * calls cuda_stream_leave(), which is cuda_leave() and then cuda_stream_errno().
 */
int cuda_stream_enter(struct cuda_stream *s, struct cuda_entry *e);
int cuda_stream_leave(struct cuda_stream *s, struct cuda_entry *e, cu_result r);
int cuda_stream_open(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret);
int cuda_stream_open_isolated(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret);
int cuda_stream_scratch(struct dev_stream *s, uint64_t len, uint64_t *addr);
int cuda_stream_import(struct strait_device *dev, void *native, struct dev_stream **ret);
void cuda_stream_close(struct dev_stream *s);
void cuda_stream_detach(struct dev_stream *s);
bool cuda_stream_lost(struct dev_stream *s);
int cuda_stream_wait(struct dev_stream *s, int64_t timeout_ns);
int cuda_stream_call(struct dev_stream *s, strait_stream_fn *fn, void *arg);
int cuda_stream_wait_word(struct dev_stream *s, _Atomic uint32_t *word, uint64_t dev_addr, uint32_t value);

/* CU_CAPTURE_UNSUPPORTED if the application is capturing the stream. */
cu_result cuda_check_capture(struct cuda_stream *s);

/* word.c */
/* Allocates a word of the context's page for the GPU to write; @value is its content. NULL: none is free. */
_Atomic uint32_t *cuda_word_get(struct cuda_ctx *cc, uint32_t *value);
void cuda_word_put(struct cuda_ctx *cc, const _Atomic uint32_t *word);
unsigned int cuda_word_number(const struct cuda_ctx *cc, const _Atomic uint32_t *word);
cu_ptr cuda_word_addr(const struct cuda_ctx *cc, const _Atomic uint32_t *word);

/* notify.c */
int cuda_stream_notify(struct dev_stream *s, strait_stream_fn *fn, void *arg);
void cuda_stream_poll_notices(struct dev_stream *s);
/* On return the watch thread does not access the stream. */
void cuda_stream_unwatch(struct cuda_stream *s);
void cuda_watch_init(struct cuda_watch *w);
void cuda_watch_fini(struct cuda_watch *w);

/* A host function on a stream, or a notice. */
struct cuda_call {
	struct list node; /* cuda_stream.calls */
	struct cuda_stream *stream;
	strait_stream_fn *fn;
	void *arg;
	bool notice; /* due when cuda_stream.notify_word reaches @value */
	uint32_t value;
	atomic_int state;
};

/*
 * call.c. cuda_call_put(): puts a host function or a notice on the stream; called inside cuda_enter().
 * cuda_call_due(): removes the next due notice from the list; @more: notices are pending.
 * cuda_calls_run_pending(): the stream has failed, so the driver will not call its functions: calls them here.
 * cuda_calls_end(): does that and frees all calls before the stream is closed. @alive: its context exists.
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

/* mark.c */
int cuda_mark_open(struct dev_stream *s);
/* Called inside cuda_enter() unless the context was destroyed, after all work that writes the mark has ended. */
void cuda_mark_close(struct cuda_stream *s);
int cuda_copy_marked(struct dev_stream *s, const struct marked_copy *copies, unsigned int n);
int cuda_stream_wait_soon(struct dev_stream *s);
/* Called inside cuda_enter(). Waits for the work of the stream, without sleeping if that ends soon. */
cu_result cuda_wait_soon(struct cuda_stream *s);

/* copy_now.c */
int cuda_copy_now(struct dev_stream *stream, uint64_t addr, void *host, uint64_t len, bool out);
int cuda_copy_within_now(struct dev_stream *s, uint64_t dst, uint64_t src, uint64_t len);

/* mem.c, import.c */
int cuda_mem_alloc(struct strait_device *dev, uint64_t len, struct provider_mem *m);
void cuda_mem_free(struct strait_device *dev, struct provider_mem *m);
int cuda_ptr_device(struct provider *p, uint64_t addr, struct strait_device **ret);
int cuda_ptr_extent(struct strait_device *dev, uint64_t addr, uint64_t *len);
int cuda_mem_import(struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags, struct provider_mem *m);
void cuda_mem_release(struct strait_device *dev, struct provider_mem *m);
int cuda_mem_check(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len);
int cuda_mem_dmabuf(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd);
int cuda_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu);
int cuda_mem_sync_memops(struct strait_device *dev, const struct provider_mem *m, bool on);
int cuda_flush_peer_writes(struct strait_device *dev);

/* hostreg.c */
/* The CPU address of device address @dev_addr if it is in a registered file window, else NULL. */
const void *cuda_file_window_ptr(struct cuda_device *cd, uint64_t dev_addr);
int cuda_host_register(struct strait_device *dev, void *ptr, size_t len, uint32_t flags, struct host_reg *ret);
void cuda_host_unregister(struct strait_device *dev, struct host_reg *reg);
int cuda_mmio_map(struct strait_device *dev, void *mmio, size_t len, struct host_reg *ret);

/* copy.c, compute.c */
int cuda_copy_in(struct dev_stream *s, uint64_t dst, const void *src, uint64_t len);
int cuda_copy_out(struct dev_stream *s, void *dst, uint64_t src, uint64_t len);
int cuda_copy_pages(struct dev_stream *s, uint64_t dst, const struct host_reg *reg, uint64_t off, uint64_t len);
int cuda_copy_list(struct dev_stream *s, const struct copy_seg *segs, unsigned int n);
int cuda_copy_peer(struct dev_stream *s, const struct provider_mem *to, struct strait_device *from_dev,
		   const struct provider_mem *from, const struct copy_seg *segs, unsigned int n);
/* cuda_enter() for a kernel that reads host memory: if that is no longer registered, the kernel fails its context. */
int cuda_enter_for_host_access(struct cuda_stream *s, struct cuda_entry *e);
void cuda_prepare_copy_lists(struct strait_device *dev);
int cuda_fill(struct dev_stream *s, uint64_t dst, uint8_t value, uint64_t len);
int cuda_compare(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t *where);
int cuda_crc32c(struct dev_stream *s, uint64_t addr, uint64_t len, uint32_t *crc);
int cuda_compare_pages(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t bits);

extern const struct provider_ops cuda_provider_ops;

#endif
