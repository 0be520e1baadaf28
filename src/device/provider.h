/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_PROVIDER_H
#define DEVICE_PROVIDER_H

/*
 * A provider implements one kind of device. Upper layers reach devices through struct provider_ops only.
 * A provider overlays its operations on provider_default_ops, whose entries return -EOPNOTSUPP or do the
 * generic thing, so no caller tests for NULL.
 *
 * Any thread may call any operation. A "device address" is an address in the device's own address space, as
 * a 64-bit number; for emu and host it is the CPU address. Operations return 0 or a negative errno.
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

/* The memory of one region, as its provider describes it. */
struct provider_mem {
	uint64_t addr; /* device address of the first byte */
	uint64_t len;
	uint64_t id;   /* identity of the allocation, never reused; 0: the provider has none */
	uint32_t caps; /* STRAIT_REGION_* */
	uint32_t page_size;
	uintptr_t context; /* provider's context of the memory; a stream opened in it works on all of it */
	void *priv;	   /* private to the provider */
	bool pieces;	   /* spans several allocations; mem_check() checks those in its range only */
};

/* Host memory registered with a device, so that its copy engine can access it. */
struct host_reg {
	void *ptr;
	size_t len;
	uint64_t dev_addr; /* device address of @ptr */
	void *priv;
};

#define HOST_REG_READ_ONLY (1u << 0) /* the device only reads; required for read-only file mappings */
#define HOST_REG_FILE (1u << 1)	     /* a mapping of a file, which may be truncated meanwhile */

/*
 * From this length on, copy_in and copy_now from registered host memory use the copy engine. For a shorter copy
 * the CPU may read the source, which raises SIGBUS for a truncated file: use copy_pages for file mappings.
 */
#define COPY_ENGINE_BYTES KIB(256)

#define COMPARE_PAGE 4096u /* bytes of a block of compare_pages */

/* One segment of a copy list. Host memory must be registered and is given by its device address. */
struct copy_seg {
	uint64_t dst;
	uint64_t src;
	uint64_t len;
};

/* A word of host memory that the device writes. */
struct dev_mark {
	const _Atomic uint32_t *word; /* NULL: not opened */
	uint32_t value;		      /* expected next; the owner counts it up before it submits copies for the mark */
};

/* The first member of each provider's stream. */
struct dev_stream {
	struct strait_device *dev;
	_Atomic int32_t status; /* device-specific code of the last error, 0: none; any thread may read it */
	struct dev_mark mark;	/* see mark_open */
};

#define MARKED_COPIES 64 /* in one list */

/*
 * A copy that counts for a mark. When the copies submitted for the mark add up to @total bytes, the device stores the
 * mark's value to its word: they are complete, also for the CPU and other streams.
 */
struct marked_copy {
	struct copy_seg seg;
	const struct dev_mark *mark;
	uint32_t total;
	uint32_t filler; /* a segment of length 0 counts as so many bytes */
};

struct dev_event {
	struct strait_device *dev;
};

struct provider_ops {
	const char *name;

	/*
	 * open: finds devices and adds them with provider_add_device(). If there is none, it returns a
	 * negative errno and writes p->missing_reason: what is missing and how to provide it.
	 * close: called once, also after a failed open, after all regions and streams are closed.
	 */
	int (*open)(struct provider *p);
	void (*close)(struct provider *p);
	/* Fills all members of @info except its size. -ENODEV: the device was removed. */
	int (*info)(struct strait_device *dev, struct strait_device_info *info);

	/* mem_alloc fills @m. mem_free frees memory of mem_alloc or mem_alloc_pinnable. */
	int (*mem_alloc)(struct strait_device *dev, uint64_t len, struct provider_mem *m);
	/* Allocates memory with STRAIT_REGION_PINNABLE. */
	int (*mem_alloc_pinnable)(struct strait_device *dev, uint64_t len, struct provider_mem *m);
	void (*mem_free)(struct strait_device *dev, struct provider_mem *m);
	/*
	 * ptr_device: the provider's device that owns @addr, -ENOENT if none does.
	 * mem_import: fills @m for memory of the application; @flags: STRAIT_REGION_IMPORT_*. -EFAULT unless [addr, addr + len) is in memory of
	 * @dev that ptr_extent reports as one range. mem_release undoes mem_import; it does not access the
	 * memory, which may be freed already.
	 */
	int (*ptr_device)(struct provider *p, uint64_t addr, struct strait_device **ret);
	/* The number of bytes from @addr that mem_import accepts as one range. -EFAULT: @addr is not @dev's. */
	int (*ptr_extent)(struct strait_device *dev, uint64_t addr, uint64_t *len);
	int (*mem_import)(struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags,
			  struct provider_mem *m);
	void (*mem_release)(struct strait_device *dev, struct provider_mem *m);
	/* Imports [off, off + len) of a dma-buf; len 0: to its end. The caller keeps @fd. */
	int (*mem_import_dmabuf)(struct strait_device *dev, int fd, uint64_t off, uint64_t len, uint32_t flags,
				 struct provider_mem *m);
	/*
	 * 0 if [off, off + len) of @m is still backed by the allocations it was imported with, -ESTALE if one
	 * was freed, -ENODEV if the device was removed. Allocations outside the range are not checked.
	 */
	int (*mem_check)(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len);
	/* Exports a range of whole pages, else -EINVAL; a provider may let the last page extend past the end of @m. */
	int (*mem_dmabuf)(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd);
	/* Exports a dma-buf that contains the range from offset @at on and may be longer, for a device to map. */
	int (*mem_dmabuf_part)(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len,
			       int *fd, uint64_t *at);
	/* The address at which the CPU accesses @m; valid until @m is freed or released. */
	int (*mem_map)(struct strait_device *dev, const struct provider_mem *m, void **cpu);
	/*
	 * Maps whole pages of @m as I/O memory without struct pages, the form in which VFIO maps device memory.
	 * Freeing @m does not revoke a mapping that VFIO made of it: the caller unmaps first.
	 */
	int (*mem_map_io)(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len,
			  void **io);
	void (*mem_unmap_io)(struct strait_device *dev, void *io, uint64_t len);
	/* Makes the application's copies to @m synchronous with peer access (CUDA's SYNC_MEMOPS). */
	int (*mem_sync_memops)(struct strait_device *dev, const struct provider_mem *m, bool on);

	/* On return the device sees all writes of peers to its memory that completed before the call. */
	int (*flush_peer_writes)(struct strait_device *dev);
	/* Maps @len bytes of a peer's MMIO, at CPU address @mmio, for access by the device. */
	int (*mmio_map)(struct strait_device *dev, void *mmio, size_t len, struct host_reg *ret);
	void (*mmio_unmap)(struct strait_device *dev, struct host_reg *reg);

	/*
	 * Makes host memory accessible to the copy engine until host_unregister; the caller keeps it mapped
	 * until then. With HOST_REG_FILE a page past the end of the file is -EFAULT and never SIGBUS. After a
	 * later truncation a copy of such a page fails with -EFAULT or copies the old contents.
	 */
	int (*host_register)(struct strait_device *dev, void *ptr, size_t len, uint32_t flags, struct host_reg *ret);
	void (*host_unregister)(struct strait_device *dev, struct host_reg *reg);
	/*
	 * Can host_register with HOST_REG_FILE begin at once? False: it would first wait for a preparation. Does not wait.
	 * @staged: bytes that are read into staging memory if it cannot; when they add up to so much that the preparation
	 * pays, it is begun in the background.
	 */
	bool (*register_ready)(struct strait_device *dev, uint64_t staged);

	/*
	 * References the context that memory of mem_alloc is in, as that of @m, for stream_open; context_put drops it. -ENODEV:
	 * there is none yet, and it takes long to create.
	 */
	int (*context_get)(struct strait_device *dev, struct provider_mem *m);
	void (*context_put)(struct strait_device *dev, struct provider_mem *m);

	/*
	 * Streams. Work on one stream runs in submission order; streams are independent of each other.
	 * stream_open: opens the stream in the context of @m, or in the default context if @m is NULL.
	 * stream_wait: waits for all submitted work. Returns -ETIMEDOUT, or the first error of that work, which
	 * it clears.
	 * stream_close: waits for all submitted work, then closes the stream.
	 */
	int (*stream_open)(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret);
	/*
	 * Opens a stream for copies that a stream of the application waits for. Hardware queues are shared
	 * between streams, so such a copy could be queued behind the waiting stream; work of an isolated stream
	 * never is. It does not support copy_list.
	 */
	int (*stream_open_isolated)(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret);
	/* Allocates device memory that is freed when @s is closed; once per stream. */
	int (*stream_scratch)(struct dev_stream *s, uint64_t len, uint64_t *addr);
	int (*stream_import)(struct strait_device *dev, void *native, struct dev_stream **ret);
	void (*stream_close)(struct dev_stream *s);
	/* Closes an imported stream without using the native stream, which the application may have destroyed. */
	void (*stream_detach)(struct dev_stream *s);
	/* Was the context of the stream destroyed? The stream has no work in flight. */
	bool (*stream_lost)(struct dev_stream *s);
	int (*stream_wait)(struct dev_stream *s, int64_t timeout_ns);
	/*
	 * Puts a host function on the stream. @fn must not call the provider. It is called exactly once, also
	 * if earlier work failed or the device was removed: at the latest by stream_wait or stream_close.
	 */
	int (*stream_call)(struct dev_stream *s, strait_stream_fn *fn, void *arg);
	/*
	 * stream_notify: as stream_call, but later work on the stream does not wait for @fn, which must be short.
	 * stream_poll_notices: calls the functions that are due, which the provider would otherwise call a
	 * little later. The caller keeps the stream open.
	 */
	int (*stream_notify)(struct dev_stream *s, strait_stream_fn *fn, void *arg);
	void (*stream_poll_notices)(struct dev_stream *s);
	/*
	 * stream_wait_word: later work on @s waits until (int32_t)(*word - value) >= 0. @word is in registered
	 * host memory, at device address @dev_addr.
	 * word_post: stores @value to @word and wakes waiting streams. Host functions of streams may call it.
	 */
	int (*stream_wait_word)(struct dev_stream *s, _Atomic uint32_t *word, uint64_t dev_addr, uint32_t value);
	void (*word_post)(struct strait_device *dev, _Atomic uint32_t *word, uint32_t value);

	/*
	 * mark_open: gives the stream a mark, which exists until the stream is closed. -EAGAIN: it cannot now.
	 * copy_marked: at most MARKED_COPIES copies, for marks of streams of the same context; each at most 1 GiB.
	 */
	int (*mark_open)(struct dev_stream *s);
	int (*copy_marked)(struct dev_stream *s, const struct marked_copy *copies, unsigned int n);
	/* stream_wait without a timeout, for work that ends soon: spins rather than sleeps. */
	int (*stream_wait_soon)(struct dev_stream *s);

	/*
	 * Copies, in stream order. copy_in and copy_out accept any host memory, but are asynchronous only for
	 * registered memory. copy_list: host segments must be registered; the caller may reuse @segs on return.
	 */
	int (*copy_in)(struct dev_stream *s, uint64_t dst, const void *src, uint64_t len);
	int (*copy_out)(struct dev_stream *s, void *dst, uint64_t src, uint64_t len);
	/*
	 * copy_in from [off, off + len) of a registered file mapping. Never raises SIGBUS. If the file was
	 * truncated it may fail with -EFAULT, either directly or as an error of the stream.
	 */
	int (*copy_pages)(struct dev_stream *s, uint64_t dst, const struct host_reg *reg, uint64_t off, uint64_t len);
	int (*copy_list)(struct dev_stream *s, const struct copy_seg *segs, unsigned int n);
	/*
	 * Copies to @to, memory of the stream's device, from @from, memory of a device of the provider which may be the same.
	 * The addresses in @segs may be in other allocations of the same contexts, too. Not on isolated streams. -EOPNOTSUPP:
	 * not possible. device_tuning.peer_copies says whether it is worth trying.
	 */
	int (*copy_peer)(struct dev_stream *s, const struct provider_mem *to, struct strait_device *from_dev,
			 const struct provider_mem *from, const struct copy_seg *segs, unsigned int n);
	/* A hint that copy_list will be used: does its one-time preparation (CUDA: loads the kernels) if possible now. */
	void (*prepare_copy_lists)(struct strait_device *dev);
	/* Between these calls a stream of the device may wait for copies that are not submitted yet. */
	void (*stream_waits_begin)(struct strait_device *dev);
	void (*stream_waits_end)(struct strait_device *dev);
	int (*fill)(struct dev_stream *s, uint64_t dst, uint8_t value, uint64_t len);
	/* compare and crc32c wait for their result. @where: offset of the first difference, @len if there is none. */
	int (*compare)(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t *where);
	int (*crc32c)(struct dev_stream *s, uint64_t addr, uint64_t len, uint32_t *crc);
	/*
	 * Compares two ranges of device memory in blocks of COMPARE_PAGE bytes, in stream order. Bit n % 32 of word n / 32
	 * at @bits, device address of registered host memory, becomes 1 if block n differs, and 0 if not or if it is past
	 * the end. Both are memory of mem_alloc; @a and @b are multiples of 16, @len of COMPARE_PAGE. -EOPNOTSUPP: not
	 * possible on this stream.
	 */
	int (*compare_pages)(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t bits);

	/*
	 * Events. event_wait: 0 when the work submitted before event_record is complete, the error of that work,
	 * or -ETIMEDOUT. With a timeout of 0 it polls.
	 */
	int (*event_open)(struct dev_stream *s, struct dev_event **ret);
	void (*event_close)(struct dev_event *e);
	int (*event_record)(struct dev_event *e, struct dev_stream *s);
	int (*event_wait)(struct dev_event *e, int64_t timeout_ns);
	/*
	 * Copies between @host and device memory at @addr and waits: copy_in or copy_out and stream_wait in one
	 * step, for small copies. On return, also with an error, the device no longer accesses @host.
	 */
	int (*copy_now)(struct dev_stream *s, uint64_t addr, void *host, uint64_t len, bool out);
	/* Copies within device memory and waits, for copies long enough for the copy engine. */
	int (*copy_within_now)(struct dev_stream *s, uint64_t dst, uint64_t src, uint64_t len);
};

extern const struct provider_ops provider_default_ops;

/* Sets @table to @has, with the default operation in every slot that @has leaves NULL. */
void provider_ops_overlay(struct provider_ops *table, const struct provider_ops *has);

struct provider {
	const struct provider_ops *ops; /* @table */
	struct provider_ops table;	/* the provider's operations over the defaults */
	struct device_set *set;
	struct list devices; /* struct strait_device.node */
	unsigned int n;
	int status;
	char missing_reason[256];
	const char *more_devices_hint; /* how the user gets more devices, NULL: not possible */
	void *priv;
};

/* Sizes and thread counts that suit the device; the provider sets them, the engine uses them. */
struct device_tuning {
	uint64_t chunk_bytes;  /* size of a staging chunk */
	uint64_t pool_bytes;   /* size of the staging pool */
	uint64_t window_bytes; /* length of page cache registered at once */
	uint64_t cache_window; /* length of windows registered for short reads, a part of window_bytes; 0: window_bytes */
	uint64_t mixed_window; /* window_bytes while readers run beside; less than pool_bytes, as readers complete in order */
	uint32_t register_lanes; /* lanes that register windows concurrently */
	uint32_t reader_lanes;	 /* lanes that read into staging chunks concurrently, 0: all workers */
	unsigned int readahead;	 /* stream transfers whose file data is copied ahead of stream order */
	bool pins_host;		 /* host_register pins pages: those of staging memory are faulted in before */
	bool stream_copies;	/* a copy from a registered window never fails its stream, so any stream may carry it */
	uint32_t mixed_readers; /* reader_lanes while another lane registers windows */
	uint64_t small_bytes;	/* transfers up to this length take the small-transfer path */
	uint64_t register_bytes; /* below this length reading a window is faster than registering it */
	bool peer_copies;	 /* copy_peer copies from other devices of the provider */
};

struct strait_device {
	struct provider *provider;
	const struct provider_ops *ops;
	struct list node;
	unsigned int index;
	unsigned int number;  /* in device_set.devices */
	uint32_t import_kind; /* how strait.ko imports its memory, STRAIT_IMPORT_* of uapi/strait.h; 0: not at all */
	char name[32];
	uint32_t caps; /* STRAIT_DEVICE_* */
	int numa_node;
	struct device_tuning tuning;
	atomic_bool removed;
	void *priv;   /* private to the provider */
	void *engine; /* private to the engine: staging pool, streams */
	pthread_mutex_t scratch_lock;
	struct list scratch; /* struct strait_region.scratch; under @scratch_lock */
};

/* An object that maps regions for other devices and must unmap them before their memory is freed. */
struct region_watcher {
	struct list node;
	/* Unmaps @r, which is revoked and has no transfer in flight. Called for every region, mapped or not. */
	void (*drop_mappings)(struct region_watcher *w, struct strait_region *r);
};

/* All devices and regions of one context. */
struct device_set {
	struct provider providers[5];
	unsigned int n_providers;
	struct strait_device *devices[DEVICES_MAX];
	unsigned int n_devices;
	unsigned int n_listed; /* devices without STRAIT_DEVICE_IMPORT_ONLY; those with it come last */
	const struct log_sink *log;
	void *owner; /* struct strait_context */
	void (*drop_mappings)(
		struct strait_region *r); /* the engine's watcher: called before a region's memory is freed */
	pthread_rwlock_t lock;		  /* protects @regions */
	struct range_tree regions;	  /* struct strait_region.node */
	pthread_mutex_t watch_lock;	  /* protects @watchers; held while they drop mappings */
	struct list watchers;
};

/* Opens all providers of the library. Fails with -ENOMEM only: a set without devices is valid. */
int device_set_open(struct device_set *set, const struct log_sink *log, void *owner);
void device_set_close(struct device_set *set);

void device_set_watch(struct device_set *set, struct region_watcher *w);
/* On return no call of w->drop_mappings is running. */
void device_set_unwatch(struct device_set *set, struct region_watcher *w);

/*
 * For ops->open: adds a device with the default tuning, named "<provider>:<n>", or "<provider>" for host and
 * dmabuf. NULL if memory or device_set.devices is exhausted.
 */
struct strait_device *provider_add_device(struct provider *p);

/* For ops->info: fills name, provider, caps, index and NUMA node. */
void device_info_common(const struct strait_device *dev, struct strait_device_info *info);

/* @name is "<provider>" or "<provider>:<n>". -EINVAL: malformed or an unknown provider, -ENODEV: no such device. */
int device_set_find(struct device_set *set, const char *name, struct strait_device **ret);
/* Writes why there is no device @name. -EEXIST if there is one; -EINVAL, with the names there are, as above. */
int device_set_missing_reason(struct device_set *set, const char *name, char *text, size_t len);

/* For providers: memory was freed, or the device removed. Revokes all regions over it, with notice. */
void device_set_revoke_range(struct strait_device *dev, uint64_t addr, uint64_t len);
void device_set_revoke_device(struct strait_device *dev);

#endif
