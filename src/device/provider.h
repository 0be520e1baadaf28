/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_PROVIDER_H
#define DEVICE_PROVIDER_H

/*
 * A provider is the code behind a kind of device. Everything above talks to devices through this
 * table; a provider overlays what it has on provider_default_ops, whose entries answer -EOPNOTSUPP,
 * so no caller tests for NULL.
 *
 * All ops may be called from any thread. "Device address" means an address in the device's own
 * address space as a 64-bit number; for emu and host it is the CPU address.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <strait/device.h>
#include <strait/stream.h>
#include <strait/types.h>

#include "base/list.h"
#include "base/log.h"
#include "base/util.h"
#include "device/range_tree.h"

struct device_set;
struct provider;
struct strait_region;

#define DEVICES_MAX 32

/* What a provider knows about the memory of one region. */
struct provider_mem {
	uint64_t addr; /* device address of the first byte */
	uint64_t len;
	uint64_t id;   /* allocation identity, 0 if there is none */
	uint32_t caps; /* STRAIT_REGION_* */
	uint32_t page_size;
	uintptr_t context; /* address space the memory belongs to; a stream opened for it serves all of it */
	void *priv;	   /* the provider's own */
	bool pieces;	   /* of several allocations: mem_check() looks only at those it is asked about */
};

/* Host memory a device's copy engine may reach. */
struct host_reg {
	void *ptr;
	size_t len;
	uint64_t dev_addr; /* where the device sees it */
	void *priv;
};

#define HOST_REG_READ_ONLY (1u << 0) /* the device only reads; needed for read-only file mappings */
#define HOST_REG_FILE (1u << 1)	     /* a mapping of a file, which may shrink under it */

/*
 * copy_in and copy_now of at least so many bytes leave their source to the copy engine if it is in memory of
 * host_register. That of a shorter one the CPU may read, which must not be asked of a mapping of a file.
 */
#define COPY_ENGINE_BYTES KIB(256)

/* One piece of a copy list. Host pieces lie in registered memory and are given by device address. */
struct copy_seg {
	uint64_t dst;
	uint64_t src;
	uint64_t len;
};

/* First member of each provider's stream and event. */
struct dev_stream {
	struct strait_device *dev;
	_Atomic int32_t status; /* the device's own code of the last error on the stream, 0 if none; by any thread */
};

struct dev_event {
	struct strait_device *dev;
};

struct provider_ops {
	const char *name;

	/*
	 * open: find devices and add them with provider_add_device(). When there is none, return a
	 * negative errno after writing p->missing_reason: what is missing and what would change that.
	 * close: called once, also after a failed open, when no region or stream is left.
	 */
	int (*open)(struct provider *p);
	void (*close)(struct provider *p);
	/* info: fills all of @info but its size; -ENODEV when the device was removed. */
	int (*info)(struct strait_device *dev, struct strait_device_info *info);

	/* mem_alloc fills @m; mem_free gives memory of either back. */
	int (*mem_alloc)(struct strait_device *dev, uint64_t len, struct provider_mem *m);
	/* The same for memory with STRAIT_REGION_PINNABLE. */
	int (*mem_alloc_pinnable)(struct strait_device *dev, uint64_t len, struct provider_mem *m);
	void (*mem_free)(struct strait_device *dev, struct provider_mem *m);
	/*
	 * ptr_device: the provider's device that owns @addr, -ENOENT if none does.
	 * mem_import fills @m for memory the application owns: -EFAULT unless [addr, addr + len) lies
	 * inside one allocation of @dev. mem_release undoes mem_import and touches no memory.
	 */
	int (*ptr_device)(struct provider *p, uint64_t addr, struct strait_device **ret);
	/* How many bytes from @addr on, which is @dev's, mem_import takes as one range; -EFAULT for none. */
	int (*ptr_extent)(struct strait_device *dev, uint64_t addr, uint64_t *len);
	int (*mem_import)(struct strait_device *dev, uint64_t addr, uint64_t len, struct provider_mem *m);
	void (*mem_release)(struct strait_device *dev, struct provider_mem *m);
	/* The same for [off, off + len) of a dma-buf, len 0: to its end. @fd stays the caller's. */
	int (*mem_import_dmabuf)(struct strait_device *dev, int fd, uint64_t off, uint64_t len, uint32_t flags,
				 struct provider_mem *m);
	/*
	 * mem_check: 0 while the allocation behind [off, off + len) of @m is the one it was; -ESTALE after a free, -ENODEV
	 * after removal. Where @m was put together of several allocations, those outside of the range are not looked at.
	 */
	int (*mem_check)(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len);
	/* mem_dmabuf: -EINVAL unless the range is whole pages of @m; a provider may allow the last page to go past the end. */
	int (*mem_dmabuf)(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd);
	/* The same for a device to map: the range starts at @at in the dma-buf, which may be longer. */
	int (*mem_dmabuf_part)(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len,
			       int *fd, uint64_t *at);
	int (*mem_map)(struct strait_device *dev, const struct provider_mem *m, void **cpu);
	/*
	 * A part of it as I/O memory that has no pages, which is how VFIO takes memory of devices; whole pages.
	 * It is not taken away from who has mapped that for a device when the memory is freed.
	 */
	int (*mem_map_io)(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len,
			  void **io);
	void (*mem_unmap_io)(struct strait_device *dev, void *io, uint64_t len);
	/* Makes copies of @m by the application synchronous with peer access, CUDA's SYNC_MEMOPS. */
	int (*mem_sync_memops)(struct strait_device *dev, const struct provider_mem *m, bool on);

	/* When it returns, peer writes into device memory that completed before are visible to the device. */
	int (*flush_peer_writes)(struct strait_device *dev);
	/* Map @len bytes of a peer's MMIO at CPU address @mmio for the device. */
	int (*mmio_map)(struct strait_device *dev, void *mmio, size_t len, struct host_reg *ret);
	void (*mmio_unmap)(struct strait_device *dev, struct host_reg *reg);

	/*
	 * Make host memory reachable for the copy engine until host_unregister. The memory stays
	 * mapped meanwhile. With HOST_REG_FILE a page past the end of the file is -EFAULT here, never
	 * a signal, here or later; a copy from a page that went away afterwards may fail with -EFAULT
	 * or give what the page held.
	 */
	int (*host_register)(struct strait_device *dev, void *ptr, size_t len, uint32_t flags, struct host_reg *ret);
	void (*host_unregister)(struct strait_device *dev, struct host_reg *reg);

	/*
	 * Streams: work runs in the order it was put on one; streams are independent of each other.
	 * stream_open: @m, if not NULL, is memory the stream will work on (its context counts).
	 * stream_wait: -ETIMEDOUT, or the first error of work on the stream, which is cleared.
	 * stream_close waits for the work.
	 */
	int (*stream_open)(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret);
	/*
	 * The same for copies that a stream of the application's waits for: its work is never queued behind that
	 * of such a stream, as it can be where streams share the queues of the hardware. No copy_list on it.
	 */
	int (*stream_open_isolated)(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret);
	/* Memory of the device for who has opened @s, until that is closed. */
	int (*stream_scratch)(struct dev_stream *s, uint64_t len, uint64_t *addr);
	int (*stream_import)(struct strait_device *dev, void *native, struct dev_stream **ret);
	void (*stream_close)(struct dev_stream *s);
	/* Closes an imported stream that the application may have destroyed: does not touch the native stream. */
	void (*stream_forget)(struct dev_stream *s);
	/* Is what the stream was opened in gone, so that nothing can be done on it any more? For one that has no work. */
	bool (*stream_lost)(struct dev_stream *s);
	int (*stream_wait)(struct dev_stream *s, int64_t timeout_ns);
	/*
	 * A host function. It must not call into the provider. It is called once, also when work before it
	 * failed or the device is gone: by stream_wait or stream_close at the latest.
	 */
	int (*stream_call)(struct dev_stream *s, strait_stream_fn *fn, void *arg);
	/*
	 * stream_notify: @fn is called, as for stream_call, when the stream has come here, but the stream does not
	 * wait for it, and it must be short. stream_poll_notices calls what is due now, which would be called a little later
	 * otherwise; by somebody who keeps the stream from being closed.
	 */
	int (*stream_notify)(struct dev_stream *s, strait_stream_fn *fn, void *arg);
	void (*stream_poll_notices)(struct dev_stream *s);
	/*
	 * stream_wait_word: later work on @s waits until the 32-bit word at @word, in memory of
	 * host_register seen by the device at @dev_addr, is @value or up to 2^31 - 1 past it, going round.
	 * word_post: store @value there; callable from anywhere, a stream function included.
	 */
	int (*stream_wait_word)(struct dev_stream *s, _Atomic uint32_t *word, uint64_t dev_addr, uint32_t value);
	void (*word_post)(struct strait_device *dev, _Atomic uint32_t *word, uint32_t value);

	/*
	 * Copies, in stream order. copy_in and copy_out take any host pointer; only with one in
	 * memory of host_register do they return before the copy is done. copy_list: host pieces must
	 * be registered; @segs may be reused as soon as it returns.
	 */
	int (*copy_in)(struct dev_stream *s, uint64_t dst, const void *src, uint64_t len);
	int (*copy_out)(struct dev_stream *s, void *dst, uint64_t src, uint64_t len);
	/*
	 * copy_in out of a window of a file, [@off, @off + @len) of @reg: never a signal, whatever becomes of the
	 * file. Where its pages went away it may fail with -EFAULT, at once or as work on the stream does.
	 */
	int (*copy_pages)(struct dev_stream *s, uint64_t dst, const struct host_reg *reg, uint64_t off, uint64_t len);
	int (*copy_list)(struct dev_stream *s, const struct copy_seg *segs, unsigned int n);
	/* Lists are to be expected: what they need once is done now, when it holds up nobody, if it can be. */
	void (*prepare_copy_lists)(struct strait_device *dev);
	/* Between the two a stream of the device may wait for copies that are yet to be made. */
	void (*stream_waits_begin)(struct strait_device *dev);
	void (*stream_waits_end)(struct strait_device *dev);
	int (*fill)(struct dev_stream *s, uint64_t dst, uint8_t value, uint64_t len);
	/* These two wait for their answer. */
	int (*compare)(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t *where);
	int (*crc32c)(struct dev_stream *s, uint64_t addr, uint64_t len, uint32_t *crc);

	/*
	 * Events. event_wait: 0 when the work before event_record is done, its error if it failed,
	 * -ETIMEDOUT. With timeout 0 it only asks.
	 */
	int (*event_open)(struct dev_stream *s, struct dev_event **ret);
	void (*event_close)(struct dev_event *e);
	int (*event_record)(struct dev_event *e, struct dev_stream *s);
	int (*event_wait)(struct dev_event *e, int64_t timeout_ns);
	/*
	 * One small copy between @host and device memory at @addr, done when it returns: copy_in or copy_out and
	 * stream_wait in one step. Whatever it returns, @host is the caller's again.
	 */
	int (*copy_now)(struct dev_stream *s, uint64_t addr, void *host, uint64_t len, bool out);
	/* The same between two places of the device's memory, long enough for its copy engine. */
	int (*copy_within_now)(struct dev_stream *s, uint64_t dst, uint64_t src, uint64_t len);
};

extern const struct provider_ops provider_default_ops;

/* @table becomes @has, with the default in every slot @has leaves empty. */
void provider_ops_overlay(struct provider_ops *table, const struct provider_ops *has);

struct provider {
	const struct provider_ops *ops; /* @table */
	struct provider_ops table;	/* complete: what the provider has over the defaults */
	struct device_set *set;
	struct list devices; /* struct strait_device.node */
	unsigned int n;
	int status;
	char missing_reason[256];
	const char *more_devices_hint; /* what it would take to have more devices, NULL if nothing helps */
	void *priv;
};

/* Advice for the engine, set by the provider. */
struct device_tuning {
	uint64_t chunk_bytes;	 /* staging chunk */
	uint64_t pool_bytes;	 /* staging memory in all */
	uint64_t window_bytes;	 /* page-cache window registered at once */
	uint64_t mixed_window;	 /* the same beside readers, who cannot pass it: less than the pool holds */
	uint32_t register_lanes; /* threads that register windows at the same time */
	uint32_t reader_lanes;	 /* threads that fill staging chunks at the same time, 0: all workers */
	unsigned int readahead;	 /* transfers of a stream whose bytes are copied before their turn */
	bool stream_copies;	 /* a copy out of a window may be put on any stream: it never fails the stream */
	uint32_t mixed_readers;	 /* the same beside a thread that registers */
	uint64_t small_bytes;	 /* transfers up to this length take the short path */
	uint64_t register_bytes; /* shorter ones are read sooner than registered */
};

struct strait_device {
	struct provider *provider;
	const struct provider_ops *ops;
	struct list node;
	unsigned int index;
	unsigned int number;  /* among all of the set */
	uint32_t import_kind; /* STRAIT_IMPORT_* of uapi/strait.h that its memory is, 0: none */
	char name[32];
	uint32_t caps; /* STRAIT_DEVICE_* */
	int numa_node;
	struct device_tuning tuning;
	atomic_bool removed;
	void *priv;   /* the provider's own */
	void *engine; /* the engine's own: staging pool, streams */
	pthread_mutex_t scratch_lock;
	struct list scratch; /* struct strait_region.scratch; under @scratch_lock */
};

/* Who has mapped memory of regions for others to reach, and must undo that before it is given back. */
struct region_watcher {
	struct list node;
	/* Undo it. The region is not in use any more, nor will it be. Called for every region, known or not. */
	void (*drop_mappings)(struct region_watcher *w, struct strait_region *r);
};

/* The devices of one context, and its regions. */
struct device_set {
	struct provider providers[5];
	unsigned int n_providers;
	struct strait_device *devices[DEVICES_MAX];
	unsigned int n_devices;
	unsigned int n_listed; /* of those, without STRAIT_DEVICE_IMPORT_ONLY, which come last */
	const struct log_sink *log;
	void *owner;					/* struct strait_context */
	void (*drop_mappings)(struct strait_region *r); /* the engine's: called before a region's memory is given back */
	pthread_rwlock_t lock;				/* protects @regions */
	struct range_tree regions;			/* struct strait_region.node */
	pthread_mutex_t watch_lock;			/* protects @watchers; held while they forget */
	struct list watchers;
};

/* Open all providers this library has. Never fails for want of a device; -ENOMEM only. */
int device_set_open(struct device_set *set, const struct log_sink *log, void *owner);
void device_set_close(struct device_set *set);

void device_set_watch(struct device_set *set, struct region_watcher *w);
/* When it returns, nothing is being forgotten by @w. */
void device_set_unwatch(struct device_set *set, struct region_watcher *w);

/*
 * Called by a provider's open: makes a device named "<provider>:<n>", or "<provider>" alone for the
 * host, with the default tuning. NULL for want of memory or room.
 */
struct strait_device *provider_add_device(struct provider *p);

/* Fills what is known of any device: name, provider, caps, index, NUMA node. For ops->info. */
void device_info_common(const struct strait_device *dev, struct strait_device_info *info);

int device_set_find(struct device_set *set, const char *name, struct strait_device **ret);
int device_set_missing_reason(struct device_set *set, const char *name, char *text, size_t len);

/* A provider calls these when memory goes away by itself: regions over it are revoked, with notice. */
void device_set_revoke_range(struct strait_device *dev, uint64_t addr, uint64_t len);
void device_set_revoke_device(struct strait_device *dev);

#endif
