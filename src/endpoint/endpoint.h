/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_ENDPOINT_H
#define ENDPOINT_ENDPOINT_H

/*
 * One side of a transfer that is not a region: a file, a namespace of an NVMe controller, the memory of a DMA card. An
 * endpoint reads and writes host memory and states its facts; the engine joins it with a region. An endpoint with
 * self_dma also transfers to and from the memory of a region itself.
 *
 * An ops table is complete: what a kind of endpoint leaves out is filled in by endpoint_init() with an operation that
 * answers -EOPNOTSUPP, so no caller tests for NULL.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <strait/endpoint.h>

#include "base/list.h"
#include "base/log.h"

/* How bytes pass between the endpoint and host memory. */
enum io_mode {
	IO_BUFFERED, /* through the page cache, any alignment */
	IO_DIRECT,   /* past it; offset, length and memory aligned */
};

struct endpoint_facts {
	const char *fs;
	uint32_t direct_reason; /* enum strait_reason: why direct I/O is not possible; 0 if it is */
	int direct_error;	/* the negative errno that belongs to direct_reason, or 0 */
	bool can_read;
	bool can_write;
	bool can_map; /* its page cache can be mapped */
	bool can_direct;
	bool can_buffered; /* unaligned access works */
	bool force_direct; /* the application wants direct I/O even for cached data */
	bool is_block;
	bool immutable;	      /* the application promised that the contents do not change */
	bool wants_lease;     /* take a read lease; while it is held the contents do not change */
	bool self_dma;	      /* dma_map and io are implemented */
	uint64_t async_bytes; /* longest transfer that batch_start accepts; 0: batches are not implemented */
	uint32_t dio_align;
	uint32_t dio_mem_align;
	uint64_t inode; /* of a file: derived from st_dev and st_ino, the same for all its endpoints */
};

struct strait_device;

/* A transfer, or a part of one, that the endpoint does by its own DMA. */
struct endpoint_io {
	bool write; /* to the endpoint */
	struct strait_region *region;
	uint64_t region_offset;
	uint64_t offset;
	uint64_t length;
	uint64_t deadline;	   /* no command is started past it; UINT64_MAX for none */
	const atomic_bool *cancel; /* or once this is true; may be NULL */
	int err;
	int32_t device_status;
};

/* One of many transfers in flight at the same time. deadline and cancel of @m are ignored. */
struct endpoint_io_async {
	struct endpoint_io m;
	uint64_t done; /* bytes transferred; if not all, @m.err says why: -EAGAIN if a retry may help */
};

struct endpoint_batch;

struct endpoint_ops {
	const char *kind;
	int (*length)(struct strait_endpoint *ep, uint64_t *bytes);
	/* How many bytes of the range are in the page cache; -EOPNOTSUPP if that is unknown. */
	int (*cached)(struct strait_endpoint *ep, uint64_t off, uint64_t len, uint64_t *bytes);
	/* Bytes read or written, 0 at the end of the endpoint, a negative errno. */
	ssize_t (*read)(struct strait_endpoint *ep, enum io_mode mode, void *buf, size_t len, uint64_t off);
	/* Read without blocking: -EAGAIN if nothing can be read, -EOPNOTSUPP if the endpoint does not support it. */
	ssize_t (*read_cached)(struct strait_endpoint *ep, void *buf, size_t len, uint64_t off);
	ssize_t (*write)(struct strait_endpoint *ep, enum io_mode mode, const void *buf, size_t len, uint64_t off);
	/* The descriptor for io_uring requests and the module; -EBADF if there is none. */
	int (*fd)(struct strait_endpoint *ep, enum io_mode mode);
	/* Map [off, off + len) read-only; @off is a multiple of the page size. Undone by os_unmap(). */
	int (*map)(struct strait_endpoint *ep, uint64_t off, size_t len, void **ret);
	/* Is it certain right now that the contents do not change: immutable, or a lease is held? */
	bool (*unchanged)(struct strait_endpoint *ep);
	/* Take the read lease and direct its signal to thread @tid; drop it. */
	int (*lease)(struct strait_endpoint *ep, int tid);
	void (*unlease)(struct strait_endpoint *ep);
	int (*sync)(struct strait_endpoint *ep);
	/*
	 * With facts.self_dma. Can the endpoint transfer to the memory of @dev (@region NULL), or of this region? 0, or
	 * a negative errno with the enum strait_reason in @reason. The mapping this creates lives as long as the
	 * region. The caller holds a use of the region.
	 */
	int (*dma_map)(struct strait_endpoint *ep, struct strait_device *dev, struct strait_region *region,
		       uint32_t *reason);
	/*
	 * With facts.self_dma. Transfers @m, whose offsets and length are multiples of dio_align and dio_mem_align.
	 * Returns how many bytes from the start on were transferred; if not all, @m->err says why. Nothing is in flight
	 * when it returns.
	 */
	uint64_t (*io)(struct strait_endpoint *ep, struct endpoint_io *m);
	/*
	 * With facts.async_bytes: many transfers in flight, started and reaped by one thread.
	 *
	 * batch_open: @room is how many fit.
	 * batch_start: starts @f, which must stay in place until batch_reap returns it. -EAGAIN: the batch is full;
	 *	another error: @f cannot be done this way.
	 * batch_reap: waits until transfers complete or batch_wake is called; returns how many completed.
	 * batch_wake: may be called by any thread.
	 * batch_close: nothing is in flight.
	 */
	int (*batch_open)(struct strait_endpoint *ep, unsigned int *room, struct endpoint_batch **ret);
	int (*batch_start)(struct endpoint_batch *b, struct endpoint_io_async *f);
	unsigned int (*batch_reap)(struct endpoint_batch *b, struct endpoint_io_async **completed, unsigned int max);
	void (*batch_wake)(struct endpoint_batch *b);
	void (*batch_close)(struct endpoint_batch *b);
	void (*destroy)(struct strait_endpoint *ep);
};

/* The most devices of a device set. */
#define ENDPOINT_DEVICES 32

struct strait_endpoint {
	const struct endpoint_ops *ops; /* complete: @table */
	struct endpoint_ops table;
	struct endpoint_facts facts; /* fixed at open */
	uint32_t flags;		     /* STRAIT_FILE_*, STRAIT_NVME_*: of its kind, read only by its ops */
	atomic_uint refs;
	void *owner;  /* struct strait_context */
	void *engine; /* the engine's state of it */
};

/*
 * Start of every endpoint's life, with one reference: @has overlaid on the defaults. The caller zeroed @ep and sets the
 * facts next.
 */
void endpoint_init(struct strait_endpoint *ep, const struct endpoint_ops *has, uint32_t flags);

/* Is the endpoint of the kind that has these operations? */
static inline bool endpoint_is(const struct strait_endpoint *ep, const struct endpoint_ops *has)
{
	return ep->ops->destroy == has->destroy;
}

int file_endpoint_open(const struct log_sink *log, const char *path, int oflags, mode_t mode, uint32_t flags,
		       struct strait_endpoint **ret);
int file_endpoint_import(const struct log_sink *log, int fd, uint32_t flags, struct strait_endpoint **ret);

#endif
