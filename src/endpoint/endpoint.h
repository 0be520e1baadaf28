/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_ENDPOINT_H
#define ENDPOINT_ENDPOINT_H

/*
 * An endpoint moves bytes to or from host memory and states its facts; it knows no device and no
 * other endpoint. The engine joins it with a region. One with self_dma reaches memory of regions itself.
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
	uint32_t direct_reason; /* enum strait_reason: why there is no direct I/O, 0 if there is */
	int direct_error;	/* behind that */
	bool can_read;
	bool can_write;
	bool can_map; /* pages of its cache can be mapped */
	bool can_direct;
	bool can_buffered; /* unaligned access works */
	bool force_direct; /* the caller wants direct I/O even for cached data */
	bool is_block;
	bool unchanging;      /* the caller promised that the contents do not change */
	bool wants_lease;     /* a read lease is to be taken, under which they are known not to */
	bool self_dma;	      /* it has reach and move */
	uint64_t async_bytes; /* the most that batch_start takes; 0: it has no batches */
	uint32_t dio_align;
	uint32_t dio_mem_align;
};

struct strait_device;

/* A transfer, or a part of one, by an endpoint itself. */
struct endpoint_io {
	bool write; /* to the endpoint */
	struct strait_region *region;
	uint64_t region_offset;
	uint64_t offset;
	uint64_t length;
	uint64_t deadline;	   /* nothing is started past it; UINT64_MAX for none */
	const atomic_bool *cancel; /* or when this is true; NULL */
	int err;
	int32_t device_status;
};

/* One of many moves under way at the same time. Its deadline and cancel are not looked at. */
struct endpoint_io_async {
	struct endpoint_io m;
	uint64_t done; /* bytes that are good, when it is over; @m.err says why not all, -EAGAIN that it may be tried again */
};

struct endpoint_batch;

struct endpoint_ops {
	const char *kind;
	int (*length)(struct strait_endpoint *ep, uint64_t *bytes);
	/* How many bytes of the range are in memory; -EOPNOTSUPP if that cannot be told. */
	int (*cached)(struct strait_endpoint *ep, uint64_t off, uint64_t len, uint64_t *bytes);
	/*
	 * Bytes read or written, 0 at the end of the endpoint, a negative errno. read_cached reads only
	 * what needs no waiting: -EAGAIN, or -EOPNOTSUPP where that cannot be told.
	 */
	ssize_t (*read)(struct strait_endpoint *ep, enum io_mode mode, void *buf, size_t len, uint64_t off);
	ssize_t (*read_cached)(struct strait_endpoint *ep, void *buf, size_t len, uint64_t off);
	ssize_t (*write)(struct strait_endpoint *ep, enum io_mode mode, const void *buf, size_t len, uint64_t off);
	/* The descriptor requests on a ring use. */
	int (*fd)(struct strait_endpoint *ep, enum io_mode mode);
	/* Map [off, off + len) read-only; @off is a multiple of the page size. Undone by os_unmap(). */
	int (*map)(struct strait_endpoint *ep, uint64_t off, size_t len, void **ret);
	/* Is it known right now that nobody changes the contents? */
	bool (*unchanged)(struct strait_endpoint *ep);
	/* Take the lease that was asked for, its signal pointed at thread @tid; drop it. */
	int (*lease)(struct strait_endpoint *ep, int tid);
	void (*unlease)(struct strait_endpoint *ep);
	int (*sync)(struct strait_endpoint *ep);
	/*
	 * Only with self_dma. reach: can the memory of this device (@region NULL), or of this region, be
	 * given to what moves the bytes? 0, or a negative errno with the enum strait_reason in @reason. What that
	 * takes is kept as long as the region. The region is in use.
	 */
	int (*dma_map)(struct strait_endpoint *ep, struct strait_device *dev, struct strait_region *region,
		       uint32_t *reason);
	/*
	 * Moves what @m says, all of it a multiple of dio_align and dio_mem_align. Returns how many bytes
	 * from the start on are good; @m->err says why not all: nothing is in flight any more.
	 */
	uint64_t (*io)(struct strait_endpoint *ep, struct endpoint_io *m);
	/*
	 * Only with async_bytes: many moves at once, by one thread. batch_open says for how many there is @room.
	 * batch_start begins with one, as move would, which stays where it is until batch_reap gives it back; an
	 * error: not now, -EAGAIN for want of room, or not this way. batch_reap waits until some are over, or
	 * batch_wake is called, which any thread may: how many. Nothing is under way when batch_close is called.
	 */
	int (*batch_open)(struct strait_endpoint *ep, unsigned int *room, struct endpoint_batch **ret);
	int (*batch_start)(struct endpoint_batch *b, struct endpoint_io_async *f);
	unsigned int (*batch_reap)(struct endpoint_batch *b, struct endpoint_io_async **completed, unsigned int max);
	void (*batch_wake)(struct endpoint_batch *b);
	void (*batch_close)(struct endpoint_batch *b);
	void (*destroy)(struct strait_endpoint *ep);
};

/* As many as a set of devices has. */
#define ENDPOINT_DEVICES 32

struct strait_endpoint {
	const struct endpoint_ops *ops;
	struct endpoint_facts facts; /* fixed at open */
	uint32_t flags;		     /* of its own kind: not to be looked at but by its ops */
	atomic_uint refs;
	void *owner;				/* struct strait_context */
	struct list reg_windows;		/* the engine's kept registrations, under the engine's lock */
	struct list lease_node;			/* the engine's list of leases */
	_Atomic uint16_t p2p[ENDPOINT_DEVICES]; /* the engine's verdict for each device, 0: not asked yet */
	atomic_uint p2p_tries;
	bool leased; /* a lease was taken; under the engine's lock */
};

int file_endpoint_open(const struct log_sink *log, const char *path, int oflags, mode_t mode, uint32_t flags,
		       struct strait_endpoint **ret);
int file_endpoint_import(const struct log_sink *log, int fd, uint32_t flags, struct strait_endpoint **ret);

#endif
