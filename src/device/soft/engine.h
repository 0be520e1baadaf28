/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_SOFT_ENGINE_H
#define DEVICE_SOFT_ENGINE_H

/*
 * The copy engine made of threads that stands behind emulated devices and behind the host: streams,
 * events, words to wait for, registered host memory, and a model of how fast it all is.
 *
 * dev->priv of a device that uses it points to a struct whose first member is a struct soft_engine.
 *
 * Locks, outer to inner: stream, then one of { event, words, pool, hostreg, the owner's memory index }.
 * None is held while bytes move or a function runs.
 */

#include <pthread.h>

#include "device/provider.h"

struct soft_engine;
struct soft_stream;

/* A hold on device memory: it is not unmapped while there are any. The engine's owner defines it. */
struct soft_pin;

enum soft_op_kind {
	SOFT_COPY,
	SOFT_FILL,
	SOFT_COMPARE,
	SOFT_CRC32C,
	SOFT_CALL,
	SOFT_WAIT_WORD,
	SOFT_RECORD,
};

/* One piece of memory work. Comparing reads both sides; a checksum reads src, filling writes dst. */
struct soft_seg {
	uint64_t dst;
	uint64_t src;
	uint64_t len;
	struct soft_pin *dst_pin; /* NULL: host memory */
	struct soft_pin *src_pin;
	bool file; /* src lies in a file mapping, which a CPU load must not touch */
};

struct soft_op {
	struct list node; /* in the stream's queue, then in a pool's or among the parked */
	struct soft_stream *stream;
	enum soft_op_kind kind;
	bool heap;	   /* a copy of the submitter's, freed when done */
	bool queued;	   /* holds a reference on the stream */
	bool out;	   /* from the device: the other one of the two copy engines */
	bool sync;	   /* somebody waits for this one and takes its error */
	bool done;	   /* of a sync op; under the stream's lock */
	int rc;		   /* likewise */
	uint64_t cost_ns;  /* how long the model says it takes, 0: not modelled */
	uint64_t ready_ns; /* when the model lets it start at the earliest */
	const void *host;  /* host side of a copy that must be waited for unless registered */
	struct soft_seg *segs;
	unsigned int n_segs;
	union {
		uint8_t fill;
		uint64_t *where;
		uint32_t *crc;
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
			uint64_t recording; /* which of the event's recordings this is */
		} record;
	};
};

struct soft_stream {
	struct dev_stream base;
	struct soft_engine *eng;
	atomic_uint refs;
	pthread_mutex_t lock;
	pthread_cond_t cond;  /* work was completed */
	unsigned int waiters; /* on @cond */
	struct list ops;      /* waiting for their recording */
	bool busy;	      /* one op is being run or is parked; no op waits unless there is one */
	uint64_t submitted, completed;
	int error;	    /* first that nobody has been told of */
	uint64_t error_seq; /* the how manieth of the stream that is */
	int last_error;
	uint64_t last_error_seq;
	uint64_t model_end; /* when the model says the last op ended, 0 if that had no model */
};

struct soft_event {
	struct dev_event base;
	atomic_uint refs;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint64_t recording;	    /* recordings so far */
	bool done;		    /* the last one has been reached */
	int error;		    /* of the stream, as it was then */
	uint64_t last_error_seq;    /* likewise: which errors of the stream were before */
	struct soft_stream *stream; /* of the last recording, held */
};

#define SOFT_POOL_MAX 64

/* Threads that run ops in the order these became ready. */
struct soft_pool {
	struct soft_engine *eng;
	const char *name;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct list ready;
	unsigned int n_ready, n_idle, n_threads, max;
	bool stop;
	uint64_t free_at; /* model: when the last op ends; its one thread's own */
	unsigned long threads[SOFT_POOL_MAX];
};

/* Streams parked on a word. */
struct soft_words {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct list parked; /* struct soft_op.node */
	atomic_uint n_parked;
	bool started, stop;
	unsigned long thread;
};

struct soft_hostregs {
	pthread_rwlock_t lock;
	struct range_tree plain;
	struct range_tree file;
	atomic_uint n_file;
};

struct soft_engine {
	struct strait_device *dev;
	/*
	 * Holds the allocation @addr lies in: 0 with *ret, -ENOENT if it lies in none, -EFAULT if the
	 * range goes past its end. NULL: there is no device memory, every address is the host's.
	 */
	int (*pin)(struct soft_engine *eng, uint64_t addr, uint64_t len, struct soft_pin **ret);
	void (*unpin)(struct soft_pin *a);
	struct soft_pool in, out, compute;
	struct soft_words words;
	struct soft_hostregs regs;
	pthread_mutex_t lock; /* protects @default_stream */
	struct soft_stream *default_stream;
	_Atomic uint64_t bytes_per_second, latency_ns;
	atomic_bool inject_on;
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

/* soft_engine.c. The threads start when there is work for them; soft_engine_fini() ends them. */
void soft_engine_init(struct soft_engine *eng, struct strait_device *dev);
void soft_engine_fini(struct soft_engine *eng);
/* The device has been removed: who sleeps as the model says wakes up. */
void soft_engine_wake(struct soft_engine *eng);

/* soft_pool.c. soft_pool_ensure_thread(): there is one thread at least. soft_pool_submit() cannot fail after it. */
void soft_pool_init(struct soft_pool *p, struct soft_engine *eng, const char *name, unsigned int max);
void soft_pool_fini(struct soft_pool *p);
int soft_pool_ensure_thread(struct soft_pool *p);
void soft_pool_submit(struct soft_pool *p, struct soft_op *op);
void soft_pool_wake(struct soft_pool *p);

/* soft_word.c. soft_words_park() is false if the word has its value already and @op was not parked. */
void soft_words_init(struct soft_engine *eng);
void soft_words_fini(struct soft_engine *eng);
int soft_words_ensure_thread(struct soft_engine *eng);
bool soft_words_park(struct soft_engine *eng, struct soft_op *op);
bool soft_word_reached(const struct soft_op *op);
void soft_word_post(struct strait_device *dev, _Atomic uint32_t *word, uint32_t value);

/* soft_hostreg.c */
void soft_hostregs_init(struct soft_hostregs *regs);
void soft_hostregs_fini(struct soft_hostregs *regs);
/* Does one registration hold all of [addr, addr + len)? */
bool soft_hostreg_covers(struct soft_hostregs *regs, uint64_t addr, uint64_t len);
/* Does any part of it lie in a registered file mapping? */
bool soft_hostreg_is_file(struct soft_hostregs *regs, uint64_t addr, uint64_t len);
/* Can file mappings be copied from without a signal when they shrink? (emu.c) */
bool soft_have_vm_read(void);
int soft_host_register(struct strait_device *dev, void *ptr, size_t len, uint32_t flags, struct host_reg *ret);
void soft_host_unregister(struct strait_device *dev, struct host_reg *reg);

/* soft_copy.c. Large copies that go past the CPU's caches: the CPU will not read what it wrote. */
void soft_copy_streaming(void *dst, const void *src, size_t len);
/* For tests: with the @nth kind of stores whatever the length; false if there is no such kind here. */
#define SOFT_COPY_KINDS 3
bool soft_copy_streaming_kind(unsigned int nth, void *dst, const void *src, size_t len);

/* soft_op.c: what an op does when its turn has come. Releasing it lets go of the memory it holds. */
int soft_op_run(struct soft_op *op);
void soft_op_release(struct soft_op *op);

/*
 * soft_stream.c. soft_stream_submit() takes over what @op holds, whatever it returns; @op itself may be
 * on the caller's stack. soft_stream_done(): @op, running or parked until now, has ended with @rc.
 */
int soft_stream_submit(struct soft_stream *s, struct soft_op *op);
void soft_stream_done(struct soft_stream *s, struct soft_op *op, int rc, uint64_t model_end);
void soft_stream_ref(struct soft_stream *s);
void soft_stream_unref(struct soft_stream *s);
void soft_stream_drain(struct soft_stream *s);
int soft_stream_open(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret);
int soft_stream_import(struct strait_device *dev, void *native, struct dev_stream **ret);
void soft_stream_close(struct dev_stream *s);
int soft_stream_wait(struct dev_stream *s, int64_t timeout_ns);

/* soft_submit.c: the operations that put work on a stream. */
int soft_stream_call(struct dev_stream *s, strait_stream_fn *fn, void *arg);
int soft_stream_wait_word(struct dev_stream *s, _Atomic uint32_t *word, uint64_t dev_addr, uint32_t value);
int soft_copy_in(struct dev_stream *s, uint64_t dst, const void *src, uint64_t len);
int soft_copy_out(struct dev_stream *s, void *dst, uint64_t src, uint64_t len);
int soft_copy_list(struct dev_stream *s, const struct copy_seg *segs, unsigned int n);
int soft_fill(struct dev_stream *s, uint64_t dst, uint8_t value, uint64_t len);
int soft_compare(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t *where);
int soft_crc32c(struct dev_stream *s, uint64_t addr, uint64_t len, uint32_t *crc);
int soft_flush_peer_writes(struct strait_device *dev);

/* soft_event.c. soft_event_fire_locked(): the recording of @op was reached, with @s locked. */
void soft_event_fire_locked(struct soft_stream *s, struct soft_op *op);
void soft_event_unref(struct soft_event *e);
int soft_event_open(struct dev_stream *s, struct dev_event **ret);
void soft_event_close(struct dev_event *e);
int soft_event_record(struct dev_event *e, struct dev_stream *s);
int soft_event_wait(struct dev_event *e, int64_t timeout_ns);

/* What every provider has whose copies and streams are the engine's: members of a struct provider_ops. */
#define SOFT_ENGINE_OPS                                                                                                \
	.flush_peer_writes = soft_flush_peer_writes, .host_register = soft_host_register,                              \
	.host_unregister = soft_host_unregister, .stream_open = soft_stream_open, .stream_import = soft_stream_import, \
	.stream_close = soft_stream_close, .stream_wait = soft_stream_wait, .stream_call = soft_stream_call,           \
	.stream_wait_word = soft_stream_wait_word, .word_post = soft_word_post, .copy_in = soft_copy_in,               \
	.copy_out = soft_copy_out, .copy_list = soft_copy_list, .fill = soft_fill, .compare = soft_compare,            \
	.crc32c = soft_crc32c, .event_open = soft_event_open, .event_close = soft_event_close,                         \
	.event_record = soft_event_record, .event_wait = soft_event_wait

#endif
