/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_SOFT_ENGINE_H
#define DEVICE_SOFT_ENGINE_H

/*
 * A copy engine made of threads, which the emu, host, vgpu and dmabuf providers share: streams, events, words that
 * streams wait for, registered host memory, and a timing model of copies.
 *
 * dev->priv of a device that uses it points to a struct whose first member is a struct soft_engine. The provider of
 * that device is "the owner" below.
 *
 * Lock order: stream, then one of { event, words, pool, hostreg, the owner's index of allocations }. No lock is held
 * while bytes are copied or a host function runs.
 */

#include <pthread.h>

#include "device/provider.h"

struct soft_engine;
struct soft_stream;

/* A pin on device memory, which the owner does not unmap before unpin. Opaque: the owner casts it. */
struct soft_pin;

enum soft_op_kind {
	SOFT_COPY,
	SOFT_FILL,
	SOFT_COMPARE,
	SOFT_CRC32C,
	SOFT_COMPARE_PAGES,
	SOFT_CALL,
	SOFT_WAIT_WORD,
	SOFT_RECORD,
};

/* One segment of an op. A compare reads both sides, a checksum reads src, a fill writes dst. */
struct soft_seg {
	uint64_t dst;
	uint64_t src;
	uint64_t len;
	struct soft_pin *dst_pin; /* NULL: dst is host memory */
	struct soft_pin *src_pin;
	bool file; /* src is in a file mapping: a CPU load could raise SIGBUS */
};

struct soft_op {
	struct list node; /* in soft_stream.ops, then in soft_pool.ready or soft_words.parked */
	struct soft_stream *stream;
	enum soft_op_kind kind;
	bool heap;	   /* allocated copy of the submitter's op, freed on completion */
	bool queued;	   /* has a reference on the stream */
	bool out;	   /* device to host: runs in soft_engine.out */
	bool sync;	   /* the submitter waits for this op and returns its error */
	bool done;	   /* a sync op completed; under the stream's lock */
	int rc;		   /* result of a sync op; under the stream's lock */
	uint64_t cost_ns;  /* modelled duration, 0: not modelled */
	uint64_t ready_ns; /* earliest modelled start */
	const void *host;  /* host side of a copy, which is synchronous unless that memory is registered */
	struct soft_seg *segs;
	unsigned int n_segs;
	union {
		uint8_t fill;
		uint64_t *where;
		uint32_t *crc;
		uint32_t *bits;
		struct {
			strait_stream_fn *fn;
			void *arg;
		} call;
		struct {
			_Atomic uint32_t *word;
			uint32_t value;
		} wait;
		struct {
			struct soft_event *event;
			uint64_t recording; /* number of this recording of the event */
		} record;
	};
};

struct soft_stream {
	struct dev_stream base;
	struct soft_engine *eng;
	atomic_uint refs;
	pthread_mutex_t lock;
	pthread_cond_t cond;  /* an op completed */
	unsigned int waiters; /* threads waiting on @cond */
	struct list ops;      /* queued ops */
	bool busy;	      /* one op runs or is parked; @ops is empty unless busy */
	uint64_t submitted, completed;
	int error;	    /* first error not reported yet, 0: none */
	uint64_t error_seq; /* sequence number of @error among the errors of the stream */
	int last_error;	    /* most recent error and its sequence number */
	uint64_t last_error_seq;
	uint64_t model_end; /* modelled end of the last op, 0: it was not modelled */
};

struct soft_event {
	struct dev_event base;
	atomic_uint refs;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint64_t recording;	    /* number of recordings */
	bool done;		    /* the stream has reached the last recording */
	int error;		    /* unreported error of the stream at the recording */
	uint64_t last_error_seq;    /* sequence number of the last error before the recording */
	struct soft_stream *stream; /* of the last recording; has a reference */
};

#define SOFT_POOL_MAX 64

/* Threads that run ops in the order in which they became ready. */
struct soft_pool {
	struct soft_engine *eng;
	const char *name;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct list ready;
	unsigned int n_ready, n_idle, n_threads, max;
	bool stop;
	uint64_t free_at; /* modelled end of the last op; used by the pool's only thread */
	unsigned long threads[SOFT_POOL_MAX];
};

/* Ops whose stream waits for a word, and the thread that polls these words. */
struct soft_words {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct list parked; /* struct soft_op.node; under @lock */
	atomic_uint n_parked;
	bool started, stop;
	unsigned long thread;
};

/* Registered host memory, anonymous and file mappings apart. */
struct soft_hostregs {
	pthread_rwlock_t lock;
	struct range_tree plain;
	struct range_tree file;
	atomic_uint n_file;
};

struct soft_engine {
	struct strait_device *dev;
	/*
	 * Pins the allocation that contains @addr. -ENOENT: none does, -EFAULT: the range extends past its end.
	 * NULL if the device has no memory of its own and every address is a host address.
	 */
	int (*pin)(struct soft_engine *eng, uint64_t addr, uint64_t len, struct soft_pin **ret);
	void (*unpin)(struct soft_pin *a);
	struct soft_pool in, out, compute;
	struct soft_words words;
	struct soft_hostregs regs;
	pthread_mutex_t lock; /* protects @default_stream */
	struct soft_stream *default_stream;
	_Atomic uint64_t bytes_per_second, latency_ns; /* timing model, 0: none */
	atomic_bool inject_on;			       /* fail the copy after @inject_left more with @inject_err */
	_Atomic int64_t inject_left;
	atomic_int inject_err;
	atomic_uint flushes;
};

static inline struct soft_engine *soft_engine(const struct strait_device *dev)
{
	return dev->priv;
}

static inline bool soft_removed(const struct soft_engine *eng)
{
	return atomic_load_explicit(&eng->dev->removed, memory_order_acquire);
}

/* engine.c. Threads start on demand; soft_engine_fini() stops them. */
void soft_engine_init(struct soft_engine *eng, struct strait_device *dev);
void soft_engine_fini(struct soft_engine *eng);
/* The device was removed: wakes threads that sleep for the timing model. */
void soft_engine_wake(struct soft_engine *eng);

/* pool.c. After soft_pool_ensure_thread(), which starts the first thread, soft_pool_submit() cannot fail. */
void soft_pool_init(struct soft_pool *p, struct soft_engine *eng, const char *name, unsigned int max);
void soft_pool_fini(struct soft_pool *p);
int soft_pool_ensure_thread(struct soft_pool *p);
void soft_pool_submit(struct soft_pool *p, struct soft_op *op);
void soft_pool_wake(struct soft_pool *p);

/* word.c. soft_words_park() returns false, and does not park @op, if the word has reached its value already. */
void soft_words_init(struct soft_engine *eng);
void soft_words_fini(struct soft_engine *eng);
int soft_words_ensure_thread(struct soft_engine *eng);
bool soft_words_park(struct soft_engine *eng, struct soft_op *op);
bool soft_word_reached(const struct soft_op *op);
void soft_word_post(struct strait_device *dev, _Atomic uint32_t *word, uint32_t value);

/* hostreg.c */
void soft_hostregs_init(struct soft_hostregs *regs);
void soft_hostregs_fini(struct soft_hostregs *regs);
/* Does one registration contain all of [addr, addr + len)? */
bool soft_hostreg_covers(struct soft_hostregs *regs, uint64_t addr, uint64_t len);
/* Does [addr, addr + len) overlap a registered file mapping? */
bool soft_hostreg_is_file(struct soft_hostregs *regs, uint64_t addr, uint64_t len);
/* Is process_vm_readv() permitted? Without it a copy from a truncated file mapping would raise SIGBUS. */
bool soft_have_vm_read(void);
int soft_host_register(struct strait_device *dev, void *ptr, size_t len, uint32_t flags, struct host_reg *ret);
void soft_host_unregister(struct strait_device *dev, struct host_reg *reg);

/* copy.c. Copies with non-temporal stores if @len is large: the CPU will not read the result soon. */
void soft_copy_streaming(void *dst, const void *src, size_t len);
/* For tests: copies with the @nth kind of stores, whatever the length. False: this CPU does not have it. */
#define SOFT_COPY_KINDS 3
bool soft_copy_streaming_kind(unsigned int nth, void *dst, const void *src, size_t len);

/* op.c. soft_op_run() executes @op in the calling thread; soft_op_release() drops its pins and references. */
int soft_op_run(struct soft_op *op);
void soft_op_release(struct soft_op *op);

/*
 * stream.c. soft_stream_submit() consumes the pins and references of @op, also on failure; @op itself may be on the
 * caller's stack. soft_stream_done() completes @op, which was running or parked, with @rc.
 */
int soft_stream_submit(struct soft_stream *s, struct soft_op *op);
void soft_stream_done(struct soft_stream *s, struct soft_op *op, int rc, uint64_t model_end);
void soft_stream_ref(struct soft_stream *s);
void soft_stream_unref(struct soft_stream *s);
/* Waits for all submitted ops. */
void soft_stream_drain(struct soft_stream *s);
int soft_stream_open(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret);
int soft_stream_import(struct strait_device *dev, void *native, struct dev_stream **ret);
void soft_stream_close(struct dev_stream *s);
int soft_stream_wait(struct dev_stream *s, int64_t timeout_ns);

/* submit.c: the operations that put work on a stream. */
int soft_stream_call(struct dev_stream *s, strait_stream_fn *fn, void *arg);
int soft_stream_wait_word(struct dev_stream *s, _Atomic uint32_t *word, uint64_t dev_addr, uint32_t value);
int soft_copy_in(struct dev_stream *s, uint64_t dst, const void *src, uint64_t len);
int soft_copy_out(struct dev_stream *s, void *dst, uint64_t src, uint64_t len);
int soft_copy_list(struct dev_stream *s, const struct copy_seg *segs, unsigned int n);
int soft_copy_peer(struct dev_stream *s, const struct provider_mem *to, struct strait_device *from_dev,
		   const struct provider_mem *from, const struct copy_seg *segs, unsigned int n);
int soft_fill(struct dev_stream *s, uint64_t dst, uint8_t value, uint64_t len);
int soft_compare(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t *where);
int soft_crc32c(struct dev_stream *s, uint64_t addr, uint64_t len, uint32_t *crc);
int soft_compare_pages(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t bits);
int soft_flush_peer_writes(struct strait_device *dev);

/* event.c. soft_event_fire_locked(): stream @s, which is locked, has reached the recording @op. */
void soft_event_fire_locked(struct soft_stream *s, struct soft_op *op);
void soft_event_unref(struct soft_event *e);
int soft_event_open(struct dev_stream *s, struct dev_event **ret);
void soft_event_close(struct dev_event *e);
int soft_event_record(struct dev_event *e, struct dev_stream *s);
int soft_event_wait(struct dev_event *e, int64_t timeout_ns);

/* The members of struct provider_ops that the engine implements, for its owners. */
#define SOFT_ENGINE_OPS                                                                                                \
	.flush_peer_writes = soft_flush_peer_writes, .host_register = soft_host_register,                              \
	.host_unregister = soft_host_unregister, .stream_open = soft_stream_open, .stream_import = soft_stream_import, \
	.stream_close = soft_stream_close, .stream_wait = soft_stream_wait, .stream_call = soft_stream_call,           \
	.stream_wait_word = soft_stream_wait_word, .word_post = soft_word_post, .copy_in = soft_copy_in,               \
	.copy_out = soft_copy_out, .copy_list = soft_copy_list, .copy_peer = soft_copy_peer, .fill = soft_fill,        \
	.compare = soft_compare, .crc32c = soft_crc32c, .compare_pages = soft_compare_pages,                           \
	.event_open = soft_event_open, .event_close = soft_event_close, .event_record = soft_event_record,             \
	.event_wait = soft_event_wait

#endif
